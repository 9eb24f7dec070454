#include "sandbox/sandbox_internal.h"

int sandbox_not_found(struct str id, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' not found",
                     (int)(id.len < 64 ? id.len : 64), id.p ? id.p : "");
}

int sandbox_kill(struct sandboxes *all, struct str team_id, struct str id, struct error *err)
{
    struct sandbox *sandbox = table_take(all, team_id, id, "killed");

    if (!sandbox)
        return sandbox_not_found(id, err);
    return sandbox_teardown(all, sandbox, err);
}
