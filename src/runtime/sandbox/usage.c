/* What a sandbox has used so far, told when it stops to run (paused, killed, gone) and every hour while it
 * runs: usage {provider, seconds, cpu_seconds, commands, jobs, usd, running}. All of them are since the
 * sandbox was made, so the last one told of a sandbox is its bill; only time in which it ran counts. */
#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/sandbox_parts.h"

enum { HOURLY_MAX = 10000 };

static void tell(struct runtime *runtime, const struct runtime_caller *caller,
                 const struct store_runtime_sandbox *row)
{
    int64_t since_us = row->running_since_us, now_us = clock_wall_us();
    struct store_runtime_usage usage = {
        .provider = row->provider,
        .ran_us = row->ran_us + (since_us && since_us < now_us ? now_us - since_us : 0),
        .commands = row->commands,
        .jobs = row->jobs,
    };

    usage.cpu_us = usage.ran_us * (row->cpu > 0 ? row->cpu : 1);
    runtime_row_event(runtime, caller, row, "usage",
                      json_pack("{s:o, s:f, s:f, s:I, s:I, s:f, s:b}", "provider",
                                json_str(usage.provider), "seconds", (double)usage.ran_us / 1e6,
                                "cpu_seconds", (double)usage.cpu_us / 1e6, "commands",
                                (json_int_t)usage.commands, "jobs", (json_int_t)usage.jobs, "usd",
                                runtime_usage_round(runtime_usage_usd(runtime, &usage)), "running",
                                since_us != 0));
}

void runtime_usage_tell(struct runtime *runtime, const struct runtime_caller *caller, struct str id)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox row;
    struct error err;

    if (store_runtime_sandbox_get(runtime->config.store, caller->team_id, id, &arena, &row, &err) ==
        0)
        tell(runtime, caller, &row);
    else if (err.code != ERROR_NOT_FOUND)
        log_warn("runtime", "sandbox=%.*s usage not told: %s", STR_ARG(id), err.message);
}

void runtime_usage_tell_all(struct runtime *runtime)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox_query wanted = {.state = &(enum sandbox_state){SANDBOX_RUNNING},
                                                 .limit = HOURLY_MAX};
    struct store_runtime_sandbox *rows = NULL;
    size_t count = 0;
    struct error err;

    runtime_live_flush(runtime);
    if (store_runtime_sandbox_list(runtime->config.store, &wanted, &arena, &rows, &count, &err) <
        0) {
        log_warn("runtime", "usage not told: %s", err.message);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        struct runtime_caller caller = {.team_id = rows[i].team_id, .actor = STR("usage")};

        tell(runtime, &caller, &rows[i]);
    }
}
