/* What was used, and what it costs by the configured rates. Sandbox-seconds are the time sandboxes
 * ran; cpu-seconds are that time by the processors they were given (one when none were asked for);
 * the cost is seconds * usd_per_second + cpu-seconds * usd_per_cpu_second of the provider. */
#include <stdlib.h>

#include "agent/agent_sandbox_internal.h"
#include "base/clock.h"
#include "json/json_shape.h"

enum { CREATES_MAX = 1000 };

static double usd_of(const struct agents *agents, const struct store_agent_usage *usage)
{
    const struct agent_settings *settings = agents->config.settings;
    struct str rest = usage->provider, name = str_split(&rest, '#'); /* a profile's own key */

    for (size_t i = 0; i < settings->backend_count; i++)
        if (str_is(name, settings->backends[i].name))
            return (double)usage->ran_us / 1e6 * settings->backends[i].usd_per_second +
                   (double)usage->cpu_us / 1e6 * settings->backends[i].usd_per_cpu_second;
    return 0;
}

static json_t *usage_json(const struct store_agent_usage *usage, double usd)
{
    return json_pack("{s:I, s:I, s:f, s:f, s:I, s:I, s:f}", "sandboxes",
                     (json_int_t)usage->sandboxes, "running", (json_int_t)usage->running, "seconds",
                     (double)usage->ran_us / 1e6, "cpu_seconds", (double)usage->cpu_us / 1e6,
                     "commands", (json_int_t)usage->commands, "jobs", (json_int_t)usage->jobs,
                     "usd", usd);
}

static int64_t percentile(const int64_t *sorted, size_t count, size_t percent)
{
    return count ? sorted[(count - 1) * percent / 100] : 0;
}

int agent_stats(struct agents *agents, const struct agent_caller *caller, json_t **out,
                struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store *store = agents->config.store;
    struct store_agent_usage *usages = NULL, total = {0};
    size_t count = 0, created = 0;
    int64_t *create_ms = NULL;
    json_t *providers;
    double usd = 0;

    agent_follow_now(agents);
    agent_live_flush(agents);
    if (store_agent_usage(store, caller->team_id, clock_wall_us(), &arena, &usages, &count, err) <
            0 ||
        store_agent_create_ms(store, caller->team_id, CREATES_MAX, &arena, &create_ms, &created,
                              err) < 0)
        return -1;
    providers = json_object();
    for (size_t i = 0; i < count; i++) {
        const struct store_agent_usage *usage = &usages[i];
        double cost = usd_of(agents, usage);

        usd += cost;
        total.sandboxes += usage->sandboxes;
        total.running += usage->running;
        total.ran_us += usage->ran_us;
        total.cpu_us += usage->cpu_us;
        total.commands += usage->commands;
        total.jobs += usage->jobs;
        (void)json_object_set_new(providers, usage->provider.p, usage_json(usage, cost));
    }
    *out = json_pack("{s:o, s:o, s:{s:I, s:I, s:I}}", "total", usage_json(&total, usd), "providers",
                     providers, "create_ms", "count", (json_int_t)created, "p50",
                     (json_int_t)percentile(create_ms, created, 50), "p99",
                     (json_int_t)percentile(create_ms, created, 99));
    return 0;
}
