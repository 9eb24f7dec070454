/* Members of bodies. One that nobody reads is an error: a limit with a slip in its name must not be taken for
 * set. Other spellings are brought into ours, so that handlers know one name for each thing. */
#include "edge/api_runtime/v1_members.h"

#include "base/near.h"
#include "protocol/json/json_shape.h"

enum { NAMES_MAX = 128, NAME_SIZE = NEAR_NAME_SIZE };

/* What creates of sandboxes and sessions have in common. */
#define OVERRIDES                                                                              \
    "profile", "provider backend", "template image template_id sandbox_image", "agent_type",   \
        "network", "lifecycle", "limits", "env env_vars envs", "options", "mounts",            \
        "timeout timeout_seconds", "output_limit output_limit_bytes", "persistent", "task_id", \
        "workspace_root", "timeout_ms"

const char *const v1_members_any[] = {NULL};
const char *const v1_members_prune[] = {"older_than", "dry_run", NULL};
const char *const v1_members_runner[] = {"name runner_id", "type",         "base_url",
                                         "token",          "max_sessions", NULL};
const char *const v1_members_heartbeat[] = {"active_sessions", NULL};
const char *const v1_members_sandbox[] = {OVERRIDES,
                                          "key reservation_key",
                                          "snapshot snapshot_id",
                                          "metadata",
                                          "repo repo_url",
                                          "branch",
                                          "git_token",
                                          NULL};
const char *const v1_members_snapshot[] = {"alias", "ttl ttl_seconds", NULL};
const char *const v1_members_key[] = {"name", NULL};
const char *const v1_members_execute[] = {"command",
                                          "argv",
                                          "cwd workdir working_dir",
                                          "user",
                                          "stdin",
                                          "input",
                                          "input_base64",
                                          "env env_vars envs",
                                          "timeout_ms",
                                          "background",
                                          "timeout timeout_seconds",
                                          "output_limit output_limit_bytes",
                                          "stream",
                                          "encoding",
                                          "callback",
                                          "keep_output",
                                          NULL};
const char *const v1_members_input[] = {"data", "data_base64", "close", NULL};
const char *const v1_members_signal[] = {"signal", NULL};
const char *const v1_members_session[] = {OVERRIDES,
                                          "agent",
                                          "sandbox_id",
                                          "repo repo_url",
                                          "branch",
                                          "permission_mode",
                                          "mode",
                                          "checkpoint sandbox_checkpoint",
                                          "message prompt",
                                          "git_token",
                                          "wait",
                                          "mcp mcp_servers",
                                          NULL};
const char *const v1_members_message[] = {"message text", NULL};
const char *const v1_members_cancel[] = {"kill_sandbox", NULL};
const char *const v1_members_approve[] = {"request_id", "option", "allow", NULL};
const char *const v1_members_push[] = {"branch", "message",         "remote", "git_token",
                                       "force",  "pr pull_request", NULL};
const char *const v1_members_pull[] = {"title", "body", "base", "draft", NULL};

/* The canonical name in `out`; false when the row does not have the name. */
static bool in_row(const char *row, struct str name, char out[NAME_SIZE])
{
    struct str rest = str_of(row), canonical = str_split(&rest, ' ');
    bool found = str_eq(canonical, name);

    while (!found && rest.p)
        found = str_eq(str_split(&rest, ' '), name);
    return found && str_copy(canonical, out, NAME_SIZE);
}

static bool find(const char *const *known, const char *name, char out[NAME_SIZE])
{
    char plain[NAME_SIZE];

    if (!near_snake(name, plain))
        return false;
    if (in_row("agent_id", str_of(plain), out))
        return true;
    for (; *known; known++)
        if (in_row(*known, str_of(plain), out))
            return true;
    return false;
}

static int unknown(const char *const *known, const char *name, struct error *err)
{
    char names[NAMES_MAX][NAME_SIZE];
    const char *list[NAMES_MAX + 1], *meant;
    size_t count = 0;

    for (; *known; known++) {
        struct str rest = str_of(*known);

        while (rest.p && count < NAMES_MAX) {
            (void)str_copy(str_split(&rest, ' '), names[count], NAME_SIZE);
            list[count] = names[count];
            count++;
        }
    }
    list[count] = NULL;
    meant = near_word(str_of(name), list);
    return meant ? error_set(err, ERROR_INVALID, "unknown member '%.64s'; did you mean '%s'?", name,
                             meant)
                 : error_set(err, ERROR_INVALID, "unknown member '%.64s'; see /api/v1/openapi.json",
                             name);
}

int v1_members_check(json_t *body, const char *const *known, struct error *err)
{
    const char *name;
    json_t *value;
    void *next;

    if (known == v1_members_any)
        return 0;
    json_object_foreach_safe (body, next, name, value) {
        char canonical[NAME_SIZE];

        if (!find(known, name, canonical))
            return unknown(known, name, err);
        if (strcmp(canonical, name) == 0)
            continue;
        if (json_object_get(body, canonical))
            return error_set(err, ERROR_INVALID,
                             "'%.64s' is given twice: it is another name of '%s'", name, canonical);
        (void)json_object_set(body, canonical, value);
        (void)json_object_del(body, name);
    }
    return 0;
}
