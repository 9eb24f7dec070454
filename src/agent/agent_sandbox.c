/* Sandboxes by id: shown, listed, paused, resumed, killed. */
#include "agent/agent_sandbox.h"

#include <stdlib.h>

#include "agent/agent_sandbox_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "json/json_shape.h"

enum { LIST_DEFAULT = 100, LIST_MAX = 1000 };

/* What the provider says now; the row is corrected. */
static int refresh_row(struct agents *agents, const struct agent_caller *caller,
                       struct store_agent_sandbox *row, struct arena *arena, struct error *err)
{
    struct agent_try try = {.once_more_is_safe = true};
    struct provider_ref ref = agent_row_ref(row);
    struct provider_sandbox machine = {0};
    struct agent_backend *backend = NULL;
    bool changed;
    int r;

    if (row->destroyed_at_us || str_is(row->state, "creating") || str_is(row->state, "error"))
        return 0;
    if (agent_row_backend(agents, caller, row, &backend, err) < 0 ||
        agent_try_begin(&try, agents, backend, err) < 0)
        return -1;
    do
        r = provider_get(agent_backend_provider(backend), &ref, arena, &machine, err);
    while (agent_try_again(&try, r, err));
    if ((r < 0 && err->code == ERROR_NOT_FOUND) || (r == 0 && machine.state == PROVIDER_ENDED))
        (void)agent_row_gone(agents, caller, row, "gone: its provider does not know it any more");
    else if (r < 0)
        return -1;
    else if (machine.state == PROVIDER_PAUSED && str_is(row->state, "running"))
        agent_row_paused(agents, caller, row, "provider");
    else if (machine.state == PROVIDER_RUNNING && str_is(row->state, "paused") &&
             store_agent_sandbox_seen(agents->config.store, row->id, row->external_id, "running",
                                      STR_NONE, clock_wall_us(), &changed, err) == 0 &&
             changed)
        agent_row_event(agents, caller, row, "sandbox.resumed",
                        json_pack("{s:s}", "by", "provider"));
    return agent_row_get(agents, caller, row->id, arena, row, err);
}

int agent_sandbox_get(struct agents *agents, const struct agent_caller *caller, struct str id,
                      bool refresh, struct arena *arena, struct agent_sandbox *out,
                      struct error *err)
{
    struct store_agent_sandbox row;

    if (agent_row_get(agents, caller, id, arena, &row, err) < 0 ||
        (refresh && refresh_row(agents, caller, &row, arena, err) < 0))
        return -1;
    agent_sandbox_of(&row, arena, out);
    return 0;
}

int agent_sandbox_list(struct agents *agents, const struct agent_caller *caller,
                       const struct agent_sandbox_filter *filter, struct arena *arena,
                       struct agent_sandbox **out, size_t *out_count, struct error *err)
{
    struct store_agent_query wanted = {
        .team_id = caller->team_id,
        .state = filter->state,
        .agent_id = caller->agent_id.p ? caller->agent_id : filter->agent_id,
        .task_id = filter->task_id,
        .provider = filter->provider,
        .destroyed = str_is(filter->state, "killed"),
        .before_us = filter->before_us,
        .limit = filter->limit ? filter->limit : LIST_DEFAULT,
    };
    struct store_agent_sandbox *rows = NULL;
    size_t count = 0;

    agent_follow_now(agents);
    if (wanted.limit > LIST_MAX)
        wanted.limit = LIST_MAX;
    if (store_agent_sandbox_list(agents->config.store, &wanted, arena, &rows, &count, err) < 0)
        return -1;
    *out = arena_alloc(arena, (count + 1) * sizeof(**out));
    for (size_t i = 0; i < count; i++) {
        rows[i].last_used_at_us = agent_live_last_used(agents, rows[i].id, rows[i].last_used_at_us);
        agent_sandbox_of(&rows[i], arena, &(*out)[i]);
    }
    *out_count = count;
    return 0;
}

static int pause_locked(struct agents *agents, const struct agent_caller *caller, struct str id,
                        struct arena *arena, struct error *err)
{
    struct agent_try try = {.once_more_is_safe = true};
    struct agent_backend *backend = NULL;
    struct store_agent_sandbox row;
    struct provider_ref ref;
    int r;

    if (agent_row_get(agents, caller, id, arena, &row, err) < 0 || agent_row_alive(&row, err) < 0 ||
        agent_row_backend(agents, caller, &row, &backend, err) < 0 ||
        agent_backend_require(backend, PROVIDER_PAUSE, err) < 0)
        return -1;
    if (str_is(row.state, "paused"))
        return 0;
    ref = agent_row_ref(&row);
    if (agent_try_begin(&try, agents, backend, err) < 0)
        return -1;
    do
        r = provider_pause(agent_backend_provider(backend), &ref, err);
    while (agent_try_again(&try, r, err));
    if (r < 0 && err->code == ERROR_NOT_FOUND) {
        (void)agent_row_gone(agents, caller, &row, "gone: its provider does not know it any more");
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' is gone from provider '%s'",
                         STR_ARG(row.id), agent_backend_name(backend));
    }
    if (r < 0)
        return -1;
    agent_live_used(agents, row.id, 0, 0);
    agent_live_forget(agents, row.id);
    (void)store_agent_sandbox_used(agents->config.store, row.id, clock_wall_us(), 0, 0, err);
    agent_row_paused(agents, caller, &row, "request");
    return 0;
}

int agent_sandbox_pause(struct agents *agents, const struct agent_caller *caller, struct str id,
                        struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_agent_sandbox row;
    struct agent_key_lock *lock;
    int r;

    if (agent_row_get(agents, caller, id, &arena, &row, err) < 0)
        return -1;
    lock = agent_key_lock(agents, row.team_id, row.id);
    r = pause_locked(agents, caller, row.id, &arena, err);
    agent_key_unlock(agents, lock);
    return r;
}

int agent_sandbox_resume(struct agents *agents, const struct agent_caller *caller, struct str id,
                         struct error *err)
{
    auto_arena struct arena arena = {0};
    struct agent_backend *backend = NULL;
    struct store_agent_sandbox row;

    if (agent_row_get(agents, caller, id, &arena, &row, err) < 0 ||
        agent_row_alive(&row, err) < 0 ||
        agent_row_backend(agents, caller, &row, &backend, err) < 0)
        return -1;
    if (agent_machine_wake(agents, caller, backend, &row, &arena, err) < 0)
        return -1;
    agent_live_used(agents, row.id, 0, 0);
    return 0;
}

int agent_sandbox_kill(struct agents *agents, const struct agent_caller *caller, struct str id,
                       struct error *forced, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct agent_backend *backend = NULL;
    struct store_agent_sandbox row;
    struct agent_key_lock *lock;
    int r;

    if (agent_row_get(agents, caller, id, &arena, &row, err) < 0)
        return -1;
    if (row.destroyed_at_us)
        return 0;
    lock = agent_key_lock(agents, row.team_id, row.id);
    r = agent_row_backend(agents, caller, &row, &backend, err);
    /* One that is being made finds its row killed and kills its machine itself. */
    if (r == 0)
        r = agent_row_kill(agents, caller, backend, &row, "on request", err);
    if (r < 0 && forced) {
        *forced = *err;
        agent_row_forget(agents, caller, &row, err);
        r = 1;
    }
    agent_key_unlock(agents, lock);
    return r;
}

int agent_sandbox_endpoint(struct agents *agents, const struct agent_caller *caller, struct str id,
                           uint16_t port, struct arena *arena, struct provider_endpoint *out,
                           struct error *err)
{
    struct agent_use use;

    if (agent_use(agents, caller, id, PROVIDER_PORTS, arena, &use, err) < 0)
        return -1;
    return provider_endpoint(use.provider, &use.ref, port, arena, out, err);
}
