/* The end of a sandbox's time. The store decides (its revision orders concurrent changes), the
 * table follows. */
#include <inttypes.h>

#include "base/clock.h"
#include "domain/sandbox/sandbox_check.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_life.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_table.h"

int check_timeout_max(const struct sandboxes *all, int64_t timeout_s, struct error *err)
{
    return sandbox_timeout_check(timeout_s, all->max_timeout_s, err);
}

int64_t sandbox_timeout_max(struct sandboxes *all)
{
    return all->max_timeout_s;
}

int64_t end_within_life(const struct sandboxes *all, int64_t running_since_us, int64_t end_at_us)
{
    int64_t last = running_since_us + all->max_life_s * 1000000;

    return all->max_life_s && end_at_us > last ? last : end_at_us;
}

static int set_end(struct sandboxes *all, struct str team_id, struct str id, int64_t timeout_s,
                   bool only_later, struct error *err)
{
    int64_t end_at_us = now_us(all) + timeout_s * 1000000, revision = 0;
    char text[ID_SIZE];

    if (table_check_runs(all, team_id, id, err) < 0)
        return -1;
    if (store_sandbox_set_end(all->store, id,
                              &(struct store_sandbox_end){.end_at_us = end_at_us,
                                                          .only_later = only_later,
                                                          .max_life_us = all->max_life_s * 1000000},
                              &end_at_us, &revision, err) < 0) {
        /* It may have been paused in between. */
        if (err->code == ERROR_NOT_FOUND && table_visible(all, team_id, id, NULL))
            return error_set(err, ERROR_CONFLICT, "Sandbox %.*s is paused", STR_ARG(id));
        return -1;
    }
    if (!table_set_end(all, id, end_at_us, revision))
        return table_check_runs(all, team_id, id, err) < 0 ? -1 : sandbox_not_found(id, err);
    if (str_copy(id, text, sizeof(text)))
        lease_tell(all, text, end_at_us, revision);
    return 0;
}

/* As if its time were up. */
static int end_now(struct sandboxes *all, struct str team_id, struct str id, struct error *err)
{
    struct table_claim claim = {.to = SANDBOX_KILLING, .reason = END_TIMEOUT};
    struct sandbox *sandbox;
    struct pause pause = {.at_end = true};
    bool pauses = false;

    if (table_check_runs(all, team_id, id, err) < 0)
        return -1;
    (void)pthread_mutex_lock(&all->lock);
    sandbox = table_find(all, team_id, id);
    if (sandbox) {
        pauses = sandbox->auto_pause;
        pause.disk_only = sandbox->auto_pause_disk;
    }
    (void)pthread_mutex_unlock(&all->lock);
    if (pauses)
        claim.to = SANDBOX_PAUSING;
    if (table_claim(all, team_id, id, &claim, &sandbox, err) < 0)
        return -1;
    if (!sandbox)
        return 0;
    return pauses ? pause_owned(all, sandbox, &pause, err) : sandbox_teardown(all, sandbox, err);
}

int sandbox_set_timeout(struct sandboxes *all, struct str team_id, struct str id, int64_t timeout_s,
                        struct error *err)
{
    char text[32];

    if (timeout_s < 0)
        return error_set(err, ERROR_INVALID, "Timeout must be greater than or equal to 0");
    if (check_timeout_max(all, timeout_s, err) < 0)
        return -1;
    if (timeout_s == 0)
        return end_now(all, team_id, id, err);
    if (set_end(all, team_id, id, timeout_s, false, err) < 0)
        return -1;
    (void)snprintf(text, sizeof(text), "%" PRId64 " s", timeout_s);
    history_updated(all, id, str_of(text));
    return 0;
}

int sandbox_extend(struct sandboxes *all, struct str team_id, struct str id, int64_t timeout_s,
                   struct arena *arena, struct sandbox_view *out, struct error *err)
{
    if (timeout_s < 0)
        return error_set(err, ERROR_INVALID, "Timeout must be greater than or equal to 0");
    if (check_timeout_max(all, timeout_s, err) < 0 ||
        set_end(all, team_id, id, timeout_s, true, err) < 0)
        return -1;
    return sandbox_get(all, team_id, id, arena, out, err);
}
