/* The one way a sandbox goes: failed create, kill, end of time, death of its box, recovery. Every
 * step is idempotent and is done even when one before it failed; the whole is repeated until it
 * succeeds once.
 *
 * Order: the route first, so that nobody gets in any more; then the intent in the store, so that a
 * crash from here on is finished by recovery; then the box; then the row, and last the entry, which
 * keeps the id taken until nothing of it is left. */
#include "base/clock.h"
#include "base/log.h"
#include "domain/route/route.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "domain/sandbox/sandbox_life.h"
#include "domain/sandbox/sandbox_network.h"
#include "domain/sandbox/sandbox_stats.h"
#include "domain/sandbox/sandbox_table.h"

static const char *reason_of(const struct sandbox *sandbox)
{
    return name_of(&sandbox_end_names, sandbox->reason);
}

static int end_row(struct sandboxes *all, struct sandbox *sandbox)
{
    struct store_event event = history_ended(sandbox->reason);
    struct error err = {0};
    bool freed = false;

    if (store_sandbox_ended(all->store, str_of(sandbox->id), str_of(reason_of(sandbox)), &event,
                            clock_wall_us(), &freed, &err) == 0) {
        if (freed)
            layers_collect_soon(all);
        if (sandbox->team_id[0]) /* not a box of nobody */
            stats_add(all, STAT_ENDED);
        return 0;
    }
    log_error("sandbox", "id=%s: %s, trying again", sandbox->id, err.message);
    return -1;
}

int sandbox_teardown(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    struct error store_err = {0};
    int killed, ended = -1;

    routes_end(all->routes, sandbox->id, reason_of(sandbox));
    if (store_sandbox_killing(all->store, str_of(sandbox->id), str_of(reason_of(sandbox)),
                              &store_err) < 0)
        log_warn("sandbox", "id=%s: %s, ignoring", sandbox->id, store_err.message);
    egress_leave(all, sandbox->id);
    killed = all->engine->ops->kill(all->engine, sandbox->id, err);
    if (killed < 0) {
        (void)error_prefix(err, "end sandbox '%s'", sandbox->id);
        log_error("sandbox", "%s, trying again", err->message);
    } else {
        ended = end_row(all, sandbox);
    }
    if (ended < 0) {
        table_retry_later(all, sandbox);
        return killed;
    }
    log_info("sandbox", "ended id=%s reason='%s'", sandbox->id, reason_of(sandbox));
    peer_networks_leave(all->peers, str_of(sandbox->id));
    table_remove(all, sandbox);
    return 0;
}

int sandbox_kill(struct sandboxes *all, struct str team_id, struct str id, struct error *err)
{
    struct table_claim claim = {.to = SANDBOX_KILLING, .reason = END_KILLED};
    struct sandbox *sandbox;

    if (table_claim(all, team_id, id, &claim, &sandbox, err) < 0)
        return -1;
    return sandbox_teardown(all, sandbox, err);
}
