#include "domain/sandbox/sandbox_internal.h"

int sandbox_not_found(struct str id, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' not found",
                     (int)(id.len < 64 ? id.len : 64), id.p ? id.p : "");
}

int sandbox_kill(struct sandboxes *all, struct str team_id, struct str id, struct error *err)
{
    struct table_claim claim = {.to = SANDBOX_KILLING, .reason = "killed"};
    struct sandbox *sandbox;

    if (table_claim(all, team_id, id, &claim, &sandbox, err) < 0)
        return -1;
    return sandbox_teardown(all, sandbox, err);
}
