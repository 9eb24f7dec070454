/* Use over time: what sandboxes told of their use, spread over the hours or days in which they ran.
 *
 * What came between two tellings of a sandbox is taken as one stretch that ended when it was told: nothing says
 * when it paused in between, and a sandbox that runs tells each hour. */
#include <stdlib.h>

#include "base/clock.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/sandbox_internal.h"
#include "store/runtime/store_runtime.h"

enum { TOLD_MAX = 100000, SECOND_US = 1000000, SHORTEST_US = 1000 };

static struct str name_of_told(const struct store_runtime_told *told, enum runtime_usage_by by)
{
    const struct str names[] = {[BY_AGENT] = told->agent_id,
                                [BY_TASK] = told->task_id,
                                [BY_PROVIDER] = told->provider,
                                [BY_TEAM] = told->team_id};

    return names[by].p ? names[by] : STR("");
}

/* The series of that name, a new one when there is none yet; NULL: there are enough. */
static struct runtime_series *series_of(struct runtime_usage_steps *all, json_t *known,
                                        struct str name, struct arena *arena)
{
    json_t *at = json_object_getn(known, name.p, name.len);
    struct runtime_series *series;

    if (at)
        return &all->items[json_integer_value(at)];
    if (all->count == RUNTIME_SERIES_MAX)
        return NULL;
    (void)json_object_setn_new_nocheck(known, name.p, name.len,
                                       json_integer((json_int_t)all->count));
    series = &all->items[all->count++];
    series->name = name;
    series->seconds = arena_alloc(arena, all->steps * sizeof(*series->seconds));
    series->usd = arena_alloc(arena, all->steps * sizeof(*series->usd));
    return series;
}

static void spread(const struct runtime_usage_steps *all, const struct store_runtime_told *told,
                   struct runtime_series *series)
{
    int64_t step_us = all->step_s * SECOND_US, first_us = all->first_s * SECOND_US;
    int64_t length_us = told->ran_us > SHORTEST_US ? told->ran_us : SHORTEST_US;
    int64_t end_us = told->at_us, begin_us = end_us - length_us;
    int64_t step = begin_us > first_us ? (begin_us - first_us) / step_us : 0;

    for (; step < (int64_t)all->steps && first_us + step * step_us < end_us; step++) {
        int64_t from_us = first_us + step * step_us, to_us = from_us + step_us;
        double share = (double)((to_us < end_us ? to_us : end_us) -
                                (from_us > begin_us ? from_us : begin_us)) /
                       (double)length_us;

        if (share <= 0)
            continue;
        series->seconds[step] += share * (double)told->ran_us / 1e6;
        series->usd[step] += share * (double)told->usd_millionths / 1e6;
        series->total_seconds += share * (double)told->ran_us / 1e6;
    }
}

static int by_total(const void *a, const void *b)
{
    double x = ((const struct runtime_series *)a)->total_seconds;
    double y = ((const struct runtime_series *)b)->total_seconds;

    return x < y ? 1 : x > y ? -1 : 0;
}

int runtime_usage_steps(struct runtime *runtime, const struct runtime_caller *caller,
                        enum runtime_usage_by by, int64_t step_s, size_t steps, struct arena *arena,
                        struct runtime_usage_steps *out, struct error *err)
{
    auto_arena struct arena scratch = {0};
    auto_json json_t *known = json_object();
    struct store_runtime_told *told = NULL;
    int64_t now_s = clock_wall_us() / SECOND_US;
    size_t count = 0;

    *out = (struct runtime_usage_steps){
        .first_s = (now_s / step_s - (int64_t)steps + 1) * step_s,
        .step_s = step_s,
        .steps = steps,
        .items = arena_alloc(arena, RUNTIME_SERIES_MAX * sizeof(*out->items)),
    };
    runtime_follow_now(runtime);
    if (store_runtime_told(runtime->config.store, caller->team_id, out->first_s * SECOND_US,
                           TOLD_MAX, &scratch, &told, &count, err) < 0)
        return -1;
    out->partial = count == TOLD_MAX;
    for (size_t i = 0; i < count; i++) {
        struct runtime_series *series = series_of(out, known, name_of_told(&told[i], by), arena);

        if (series)
            spread(out, &told[i], series);
        else
            out->partial = true;
    }
    for (size_t i = 0; i < out->count; i++)
        out->items[i].name = arena_str(arena, out->items[i].name);
    qsort(out->items, out->count, sizeof(*out->items), by_total);
    return 0;
}
