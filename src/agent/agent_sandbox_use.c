/* A sandbox made ready for one operation. The usual case, one that runs and has time left, costs one
 * read of its row and no call to its provider. */
#include <errno.h>
#include <stdlib.h>

#include "agent/agent_sandbox_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "json/json_shape.h"

void agent_use_extend(struct agents *agents, struct provider *provider,
                      const struct provider_ref *ref, struct str id, int64_t ttl_s)
{
    struct error err;

    if (agent_live_life(agents, id, ttl_s) == LIFE_LONG)
        return;
    if (provider_extend(provider, ref, ttl_s, &err) < 0) {
        log_info("agent", "sandbox=%.*s not extended: %s", STR_ARG(id), err.message);
        return;
    }
    agent_live_extended(agents, id, ttl_s);
}

static enum agent_permission permission_of(struct str name)
{
    if (str_is(name, "bypass"))
        return PERMISSION_BYPASS;
    return str_is(name, "edit") ? PERMISSION_EDIT : PERMISSION_ASK;
}

static void fill(const struct store_agent_sandbox *row, struct agent_backend *backend,
                 struct arena *arena, struct agent_use *out)
{
    json_t *settings = agent_arena_parse(arena, row->settings);

    out->backend = backend;
    out->provider = agent_backend_provider(backend);
    out->ref = agent_row_ref(row);
    agent_sandbox_of(row, arena, &out->sandbox);
    out->timeout_s = json_integer_value(json_object_get(settings, "timeout"));
    out->output_limit = json_integer_value(json_object_get(settings, "output"));
    out->keep_output = json_is_true(json_object_get(settings, "keep_output"));
    out->env = json_object_get(settings, "env");
    out->permission = permission_of(json_get_str(settings, "permission"));
    out->workspace_root = json_get_str(settings, "workspace_root");
}

/* Nothing ends a sandbox of a provider without a clock of its own but us. */
static int check_lifetime(struct agents *agents, const struct agent_caller *caller,
                          struct agent_backend *backend, const struct store_agent_sandbox *row,
                          struct error *err)
{
    int64_t age_s = (clock_wall_us() - row->created_at_us) / 1000000;
    struct error ignored;

    if (row->max_lifetime_s <= 0 || age_s < row->max_lifetime_s)
        return 0;
    (void)agent_row_kill(agents, caller, backend, row, "max lifetime", &ignored);
    return error_set(err, ERROR_NOT_FOUND,
                     "sandbox '%.*s' reached its maximum lifetime of %lld s and was killed",
                     STR_ARG(row->id), (long long)row->max_lifetime_s);
}

int agent_use(struct agents *agents, const struct agent_caller *caller, struct str id,
              unsigned features, struct arena *arena, struct agent_use *out, struct error *err)
{
    struct store_agent_sandbox row;
    struct agent_backend *backend = NULL;
    int64_t ttl_s;

    if (agent_row_get(agents, caller, id, arena, &row, err) < 0 || agent_row_alive(&row, err) < 0 ||
        agent_row_backend(agents, caller, &row, &backend, err) < 0 ||
        agent_backend_require(backend, features, err) < 0 ||
        check_lifetime(agents, caller, backend, &row, err) < 0)
        return -1;
    ttl_s = agent_row_ttl(agents, backend, &row);
    if (!str_is(row.state, "running") || agent_live_life(agents, row.id, ttl_s) == LIFE_UNKNOWN) {
        if (agent_machine_wake(agents, caller, backend, &row, arena, err) < 0)
            return -1;
    } else {
        struct provider_ref ref = agent_row_ref(&row);

        agent_use_extend(agents, agent_backend_provider(backend), &ref, row.id, ttl_s);
    }
    agent_live_used(agents, row.id, 0, 0);
    fill(&row, backend, arena, out);
    return 0;
}

void agent_use_lost(struct agents *agents, const struct agent_caller *caller,
                    const struct agent_use *use)
{
    auto_arena struct arena arena = {0};
    struct store_agent_sandbox row;
    struct error err;

    if (store_agent_sandbox_get(agents->config.store, caller->team_id, use->sandbox.id, &arena,
                                &row, &err) == 0 &&
        !row.destroyed_at_us && str_eq(row.external_id, use->ref.id))
        (void)agent_row_gone(agents, caller, &row, "gone: its provider does not know it any more");
}

int agent_use_recover(struct agents *agents, const struct agent_caller *caller,
                      struct agent_use *use, struct arena *arena, struct error *err)
{
    struct store_agent_sandbox row;
    struct error problem = {0};
    int woken;

    if (err->code != ERROR_NOT_FOUND && err->code != ERROR_CONFLICT &&
        err->code != ERROR_UNAVAILABLE)
        return 0;
    if (store_agent_sandbox_get(agents->config.store, caller->team_id, use->sandbox.id, arena, &row,
                                &problem) < 0)
        return 0;
    woken = agent_machine_wake(agents, caller, use->backend, &row, arena, &problem);
    if (woken < 0 && problem.code == ERROR_NOT_FOUND) {
        *err = problem;
        return -1;
    }
    /* It was paused when we asked, and somebody has resumed it since. */
    if (woken == 0 && err->errnum == EHOSTDOWN)
        woken = 1;
    if (woken <= 0)
        return 0;
    use->ref = agent_row_ref(&row);
    return 1;
}
