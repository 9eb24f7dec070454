/* retention_days: deletes kept sandboxes that nobody used for so many days; off by default.
 *
 * The event 'sandbox.expiring' announces each deletion at least NOTICE_S before it happens, also when the server
 * was off or the setting is new. Any use of the sandbox meanwhile cancels it. */
#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/sandbox_parts.h"

enum { DAY_S = 24 * 3600, NOTICE_S = DAY_S };

static void announce(struct runtime *runtime, const struct store_runtime_sandbox *row,
                     int64_t delete_at_us)
{
    struct runtime_caller caller = {.team_id = row->team_id, .actor = STR("prune")};
    char since[CLOCK_TEXT_SIZE], at[CLOCK_TEXT_SIZE];

    clock_format(runtime_row_unused_since(row), since);
    clock_format(delete_at_us, at);
    runtime_row_event(runtime, &caller, row, "sandbox.expiring",
                      json_pack("{s:s, s:s, s:s}", "reason", "retention", "unused_since", since,
                                "delete_after", at));
    log_info("runtime", "sandbox=%.*s unused since %s, to be deleted after %s (retention_days)",
             STR_ARG(row->id), since, at);
}

bool runtime_retention_row(struct runtime *runtime, const struct store_runtime_sandbox *row,
                           int64_t now_us)
{
    int64_t limit_us = runtime->config.settings->retention_days * DAY_S * 1000000;
    int64_t unused_us = now_us - runtime_row_unused_since(row), notice_us = NOTICE_S * 1000000LL;
    int64_t announced_us = 0;
    struct error err;

    /* E2B's API uses an adopted one without our knowledge while it runs. */
    if (limit_us <= 0 || unused_us < limit_us - notice_us ||
        (row->adopted && row->state != SANDBOX_PAUSED))
        return false;
    if (store_runtime_sandbox_announce(runtime->config.store, row->id, now_us, &announced_us,
                                       &err) < 0) {
        log_warn("runtime", "sandbox=%.*s not deleted by retention_days: %s", STR_ARG(row->id),
                 err.message);
        return false;
    }
    if (announced_us == now_us)
        announce(runtime, row,
                 now_us + (limit_us - unused_us > notice_us ? limit_us - unused_us : notice_us));
    return unused_us >= limit_us && now_us - announced_us >= notice_us &&
           runtime_prune_kill(runtime, row, "retention", 0);
}
