/* What was used, and what it costs by the configured rates. Sandbox-seconds are the time sandboxes
 * ran; cpu-seconds are that time by the processors they were given (one when none were asked for);
 * the cost is seconds * usd_per_second + cpu-seconds * usd_per_cpu_second of the provider. */
#include <stdlib.h>

#include "base/clock.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/follow.h"
#include "runtime/sandbox/sandbox_parts.h"

enum { CREATES_MAX = 1000 };

double runtime_usage_usd(const struct runtime *runtime, const struct store_runtime_usage *usage)
{
    const struct runtime_settings *settings = runtime->config.settings;
    struct str rest = usage->provider, name = str_split(&rest, '#'); /* a profile's own key */

    for (size_t i = 0; i < settings->backend_count; i++)
        if (str_is(name, settings->backends[i].name))
            return (double)usage->ran_us / 1e6 * settings->backends[i].usd_per_second +
                   (double)usage->cpu_us / 1e6 * settings->backends[i].usd_per_cpu_second;
    return 0;
}

double runtime_usage_round(double value)
{
    return (double)(int64_t)(value * 1e9 + 0.5) / 1e9;
}

static json_t *usage_json(const struct store_runtime_usage *usage, double usd)
{
    return json_pack("{s:I, s:I, s:f, s:f, s:I, s:I, s:f}", "sandboxes",
                     (json_int_t)usage->sandboxes, "running", (json_int_t)usage->running, "seconds",
                     (double)usage->ran_us / 1e6, "cpu_seconds", (double)usage->cpu_us / 1e6,
                     "commands", (json_int_t)usage->commands, "jobs", (json_int_t)usage->jobs,
                     "usd", runtime_usage_round(usd));
}

static void add(struct store_runtime_usage *total, const struct store_runtime_usage *usage)
{
    total->sandboxes += usage->sandboxes;
    total->running += usage->running;
    total->ran_us += usage->ran_us;
    total->cpu_us += usage->cpu_us;
    total->commands += usage->commands;
    total->jobs += usage->jobs;
}

/* {name: usage}, over all providers. */
static int usage_by(struct runtime *runtime, struct str team_id, enum store_runtime_usage_by by,
                    json_t **out, struct store_runtime_usage *total, double *total_usd,
                    struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_usage *usages = NULL;
    size_t count = 0;

    if (store_runtime_usage(runtime->config.store, by, team_id, clock_wall_us(), &arena, &usages,
                            &count, err) < 0)
        return -1;
    *out = json_object();
    for (size_t i = 0; i < count; i++) {
        struct store_runtime_usage sum = usages[i];
        double usd = runtime_usage_usd(runtime, &usages[i]);

        *total_usd += usd;
        add(total, &usages[i]);
        if (json_object_get(*out, sum.name.p))
            continue; /* was added to the one before */
        for (size_t k = i + 1; k < count; k++)
            if (str_eq(usages[k].name, sum.name)) {
                add(&sum, &usages[k]);
                usd += runtime_usage_usd(runtime, &usages[k]);
            }
        (void)json_object_set_new(*out, sum.name.p, usage_json(&sum, usd));
    }
    return 0;
}

int runtime_stats_teams(struct runtime *runtime, json_t **out, struct error *err)
{
    struct store_runtime_usage ignored = {0};
    double ignored_usd = 0;

    return usage_by(runtime, STR_NONE, USAGE_BY_TEAM, out, &ignored, &ignored_usd, err);
}

static int64_t percentile(const int64_t *sorted, size_t count, size_t percent)
{
    return count ? sorted[(count - 1) * percent / 100] : 0;
}

int runtime_stats(struct runtime *runtime, const struct runtime_caller *caller, json_t **out,
                  struct error *err)
{
    static const char *const names[] = {"providers", "agents", "tasks", "sessions"};
    auto_arena struct arena arena = {0};
    auto_json json_t *stats = json_object();
    struct store_runtime_usage total = {0}, ignored = {0};
    double usd = 0, ignored_usd = 0;
    int64_t *create_ms = NULL;
    size_t created = 0;

    runtime_follow_now(runtime);
    runtime_live_flush(runtime);
    for (unsigned by = USAGE_BY_PROVIDER; by <= USAGE_BY_SESSION; by++) {
        bool whole = by == USAGE_BY_PROVIDER;
        json_t *usages = NULL;

        if (usage_by(runtime, caller->team_id, by, &usages, whole ? &total : &ignored,
                     whole ? &usd : &ignored_usd, err) < 0)
            return -1;
        (void)json_object_set_new(stats, names[by], usages);
    }
    if (store_runtime_create_ms(runtime->config.store, caller->team_id, CREATES_MAX, &arena,
                                &create_ms, &created, err) < 0)
        return -1;
    (void)json_object_set_new(stats, "total", usage_json(&total, usd));
    (void)json_object_set_new(stats, "create_ms",
                              json_pack("{s:I, s:I, s:I}", "count", (json_int_t)created, "p50",
                                        (json_int_t)percentile(create_ms, created, 50), "p99",
                                        (json_int_t)percentile(create_ms, created, 99)));
    *out = json_incref(stats);
    return 0;
}
