/* Use over time: what sandboxes told of their use, spread over the hours or days in which they ran.
 *
 * An event tells sums since its sandbox was made, so what came in between is the difference to the event before. It is
 * taken as one stretch that ended when it was told: nothing says when the sandbox paused in between, and one that runs
 * tells each hour. */
#include <stdlib.h>

#include "base/clock.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/follow.h"
#include "runtime/sandbox/sandbox_parts.h"
#include "store/runtime/store_runtime.h"

enum { TOLD_MAX = 100000, SECOND_US = 1000000, SHORTEST_US = 1000 };

/* What a sandbox used between two of its events. */
struct told {
    struct str name; /* whose it is */
    int64_t at_us, ran_us;
    double usd;
};

static struct str name_in(const struct store_runtime_event *event, const json_t *json,
                          enum runtime_usage_by by)
{
    const struct str names[] = {[BY_AGENT] = event->agent_id,
                                [BY_TASK] = json_get_str(json, "task"),
                                [BY_PROVIDER] =
                                    json_get_str(json_object_get(json, "data"), "provider"),
                                [BY_TEAM] = event->team_id};

    return names[by].p ? names[by] : STR("");
}

static double more_than(double now, const json_t *before, const char *name)
{
    double more = now - json_number_value(json_object_get(before, name));

    return more > 0 ? more : 0;
}

/* before: {sandbox: data of its last event}. False: the event is none of ours. */
static bool read_told(const struct store_runtime_event *event, enum runtime_usage_by by,
                      json_t *before, struct arena *arena, struct told *out)
{
    auto_json json_t *json = NULL;
    struct error ignored;
    json_t *data, *last;

    if (json_parse(event->json, &json, &ignored) < 0)
        return false;
    data = json_object_get(json, "data");
    last = json_object_getn(before, event->sandbox_id.p, event->sandbox_id.len);
    *out = (struct told){
        .name = arena_str(arena, name_in(event, json, by)),
        .at_us = event->id,
        .ran_us = (int64_t)(1e6 * more_than(json_number_value(json_object_get(data, "seconds")),
                                            last, "seconds")),
        .usd = more_than(json_number_value(json_object_get(data, "usd")), last, "usd"),
    };
    (void)json_object_setn_new_nocheck(before, event->sandbox_id.p, event->sandbox_id.len,
                                       json_incref(data));
    return true;
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

static void spread(const struct runtime_usage_steps *all, const struct told *told,
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
        series->usd[step] += share * told->usd;
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
    auto_json json_t *known = json_object(), *before = json_object();
    struct store_runtime_event *events = NULL;
    int64_t now_s = clock_wall_us() / SECOND_US;
    size_t count = 0;

    *out = (struct runtime_usage_steps){
        .first_s = (now_s / step_s - (int64_t)steps + 1) * step_s,
        .step_s = step_s,
        .steps = steps,
        .items = arena_alloc(arena, RUNTIME_SERIES_MAX * sizeof(*out->items)),
    };
    runtime_follow_now(runtime);
    if (store_runtime_event_usage(runtime->config.store, caller->team_id, TOLD_MAX, &scratch,
                                  &events, &count, err) < 0)
        return -1;
    out->partial = count == TOLD_MAX;
    for (size_t i = count; i-- > 0;) {
        struct runtime_series *series;
        struct told told;

        if (!read_told(&events[i], by, before, &scratch, &told) ||
            told.at_us <= out->first_s * SECOND_US)
            continue;
        series = series_of(out, known, told.name, arena);
        if (series)
            spread(out, &told, series);
        else
            out->partial = true;
    }
    for (size_t i = 0; i < out->count; i++)
        out->items[i].name = arena_str(arena, out->items[i].name);
    qsort(out->items, out->count, sizeof(*out->items), by_total);
    return 0;
}
