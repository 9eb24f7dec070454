/* The end of a sandbox's time. The store decides (its revision orders concurrent changes), the
 * table follows. */
#include <inttypes.h>

#include "base/clock.h"
#include "sandbox/sandbox_internal.h"

int check_timeout_max(const struct sandboxes *all, int64_t timeout_s, struct error *err)
{
    if (timeout_s > all->max_timeout_s)
        return error_set(err, ERROR_INVALID, "Timeout cannot be greater than %" PRId64 " hours",
                         all->max_timeout_s / 3600);
    return 0;
}

static int set_end(struct sandboxes *all, struct str team_id, struct str id, int64_t timeout_s,
                   bool only_later, struct error *err)
{
    int64_t end_at_us = clock_wall_us() + timeout_s * 1000000, revision = 0;

    if (!table_visible(all, team_id, id))
        return sandbox_not_found(id, err);
    if (store_sandbox_set_end(all->store, id, end_at_us, only_later, &end_at_us, &revision, err) <
        0)
        return -1;
    /* It may have ended in between. */
    if (!table_set_end(all, id, end_at_us, revision))
        return sandbox_not_found(id, err);
    return 0;
}

int sandbox_set_timeout(struct sandboxes *all, struct str team_id, struct str id, int64_t timeout_s,
                        struct error *err)
{
    struct sandbox *sandbox;

    if (timeout_s < 0)
        return error_set(err, ERROR_INVALID, "Timeout must be greater than or equal to 0");
    if (check_timeout_max(all, timeout_s, err) < 0)
        return -1;
    if (timeout_s > 0)
        return set_end(all, team_id, id, timeout_s, false, err);
    sandbox = table_take(all, team_id, id, "timeout");
    if (!sandbox)
        return sandbox_not_found(id, err);
    return sandbox_teardown(all, sandbox, err);
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
