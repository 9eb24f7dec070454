/* Sandboxes by id: shown, listed, paused, resumed, killed. */
#include "runtime/sandbox/sandbox.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/follow.h"
#include "runtime/sandbox/sandbox_parts.h"

enum { LIST_DEFAULT = 100, LIST_MAX = 1000 };

/* What the provider says now; the row is corrected. */
static int refresh_row(struct runtime *runtime, const struct runtime_caller *caller,
                       struct store_runtime_sandbox *row, struct arena *arena, struct error *err)
{
    struct backend_try try = {.once_more_is_safe = true, .deadline_us = caller->deadline_us};
    struct provider_ref ref = runtime_row_ref(row, caller->deadline_us);
    struct provider_sandbox machine = {0};
    struct backend *backend = NULL;
    bool changed;
    int r;

    if (row->destroyed_at_us || row->state == SANDBOX_CREATING || row->state == SANDBOX_LOST)
        return 0;
    if (runtime_row_backend(runtime, caller, row, &backend, err) < 0 ||
        backend_try_begin(&try, runtime, backend, err) < 0)
        return -1;
    do
        r = provider_get(backend_provider(backend), &ref, arena, &machine, err);
    while (backend_try_again(&try, r, err));
    if ((r < 0 && err->code == ERROR_NOT_FOUND) || (r == 0 && machine.state == PROVIDER_ENDED))
        (void)runtime_row_gone(runtime, caller, row,
                               "gone: its provider does not know it any more");
    else if (r < 0)
        return -1;
    else if (machine.state == PROVIDER_PAUSED && row->state == SANDBOX_RUNNING)
        runtime_row_paused(runtime, caller, row, "provider");
    else if (machine.state == PROVIDER_RUNNING && row->state == SANDBOX_PAUSED &&
             store_runtime_sandbox_seen(runtime->config.store, row->id, row->external_id,
                                        SANDBOX_RUNNING, STR_NONE, clock_wall_us(), &changed,
                                        err) == 0 &&
             changed)
        runtime_row_event(runtime, caller, row, "sandbox.resumed",
                          json_pack("{s:s}", "by", "provider"));
    return runtime_row_get(runtime, caller, row->id, arena, row, err);
}

int runtime_sandbox_get(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                        bool refresh, struct arena *arena, struct runtime_sandbox *out,
                        struct error *err)
{
    struct store_runtime_sandbox row;

    if (runtime_row_get(runtime, caller, id, arena, &row, err) < 0 ||
        (refresh && refresh_row(runtime, caller, &row, arena, err) < 0))
        return -1;
    runtime_sandbox_of(&row, arena, out);
    return 0;
}

int runtime_sandbox_list(struct runtime *runtime, const struct runtime_caller *caller,
                         const struct runtime_sandbox_filter *filter, struct arena *arena,
                         struct runtime_sandbox **out, size_t *out_count, struct error *err)
{
    struct store_runtime_sandbox_query wanted = {
        .team_id = caller->team_id,
        .state = filter->state,
        .agent_id = caller->agent_id.p ? caller->agent_id : filter->agent_id,
        .task_id = filter->task_id,
        .provider = filter->provider,
        .destroyed = filter->state && *filter->state == SANDBOX_ENDED,
        .before_us = filter->before_us,
        .limit = filter->limit ? filter->limit : LIST_DEFAULT,
    };
    struct store_runtime_sandbox *rows = NULL;
    size_t count = 0;

    runtime_follow_now(runtime);
    if (wanted.limit > LIST_MAX)
        wanted.limit = LIST_MAX;
    if (store_runtime_sandbox_list(runtime->config.store, &wanted, arena, &rows, &count, err) < 0)
        return -1;
    *out = arena_alloc(arena, (count + 1) * sizeof(**out));
    for (size_t i = 0; i < count; i++) {
        rows[i].last_used_at_us =
            runtime_live_last_used(runtime, rows[i].id, rows[i].last_used_at_us);
        runtime_sandbox_of(&rows[i], arena, &(*out)[i]);
    }
    *out_count = count;
    return 0;
}

static int pause_locked(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                        struct arena *arena, struct error *err)
{
    struct backend_try try = {.once_more_is_safe = true, .deadline_us = caller->deadline_us};
    struct backend *backend = NULL;
    struct store_runtime_sandbox row;
    struct provider_ref ref;
    int r;

    if (runtime_row_get(runtime, caller, id, arena, &row, err) < 0 ||
        runtime_row_alive(&row, err) < 0 ||
        runtime_row_backend(runtime, caller, &row, &backend, err) < 0 ||
        backend_require(backend, PROVIDER_PAUSE, err) < 0)
        return -1;
    if (row.state == SANDBOX_PAUSED)
        return 0;
    ref = runtime_row_ref(&row, caller->deadline_us);
    if (backend_try_begin(&try, runtime, backend, err) < 0)
        return -1;
    do
        r = provider_pause(backend_provider(backend), &ref, err);
    while (backend_try_again(&try, r, err));
    if (r < 0 && err->code == ERROR_NOT_FOUND) {
        (void)runtime_row_gone(runtime, caller, &row,
                               "gone: its provider does not know it any more");
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' is gone from provider '%s'",
                         STR_ARG(row.id), backend_name(backend));
    }
    if (r < 0)
        return -1;
    runtime_live_used(runtime, row.id, 0, 0);
    runtime_live_forget(runtime, row.id);
    (void)store_runtime_sandbox_used(runtime->config.store, row.id, clock_wall_us(), 0, 0, err);
    runtime_row_paused(runtime, caller, &row, "request");
    return 0;
}

int runtime_sandbox_pause(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str id, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox row;
    struct runtime_hold *hold;
    int r;

    if (runtime_row_get(runtime, caller, id, &arena, &row, err) < 0)
        return -1;
    hold = runtime_hold(runtime, row.team_id, row.id);
    r = pause_locked(runtime, caller, row.id, &arena, err);
    runtime_hold_end(runtime, hold);
    return r;
}

int runtime_sandbox_resume(struct runtime *runtime, const struct runtime_caller *caller,
                           struct str id, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct backend *backend = NULL;
    struct store_runtime_sandbox row;

    if (runtime_row_get(runtime, caller, id, &arena, &row, err) < 0 ||
        runtime_row_alive(&row, err) < 0 ||
        runtime_row_backend(runtime, caller, &row, &backend, err) < 0 ||
        runtime_row_check_over(runtime, caller, backend, &row, err) < 0)
        return -1;
    if (machine_wake(runtime, caller, backend, &row, &arena, err) < 0)
        return -1;
    runtime_live_used(runtime, row.id, 0, 0);
    return 0;
}

int runtime_sandbox_kill(struct runtime *runtime, const struct runtime_caller *caller,
                         struct str id, struct error *forced, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct backend *backend = NULL;
    struct store_runtime_sandbox row;
    struct runtime_hold *hold;
    int r;

    if (runtime_row_get(runtime, caller, id, &arena, &row, err) < 0)
        return -1;
    if (row.destroyed_at_us)
        return 0;
    hold = runtime_hold(runtime, row.team_id, row.id);
    r = runtime_row_backend(runtime, caller, &row, &backend, err);
    /* One that is being made finds its row killed and kills its machine itself. */
    if (r == 0)
        r = runtime_row_kill(runtime, caller, backend, &row, "on request", err);
    if (r < 0 && forced) {
        *forced = *err;
        runtime_row_forget(runtime, caller, &row, err);
        r = 1;
    }
    runtime_hold_end(runtime, hold);
    return r;
}

int runtime_sandbox_address(struct runtime *runtime, const struct runtime_caller *caller,
                            struct str id, uint16_t port, struct arena *arena,
                            struct provider_address *out, struct error *err)
{
    struct runtime_use use;

    if (runtime_use(runtime, caller, id, PROVIDER_PORTS, arena, &use, err) < 0)
        return -1;
    return provider_address(use.provider, &use.ref, port, arena, out, err);
}

/* For what is asked of its machine without waking it. */
static int look_at(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                   struct arena *arena, struct provider **out, struct provider_ref *out_ref,
                   struct error *err)
{
    struct store_runtime_sandbox row;
    struct backend *backend = NULL;

    if (runtime_row_get(runtime, caller, id, arena, &row, err) < 0 ||
        runtime_row_alive(&row, err) < 0 ||
        runtime_row_backend(runtime, caller, &row, &backend, err) < 0)
        return -1;
    *out = backend_provider(backend);
    *out_ref = runtime_row_ref(&row, 0);
    return 0;
}

int runtime_sandbox_usage(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str id, struct provider_usage *out, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct provider *provider;
    struct provider_ref ref;

    if (look_at(runtime, caller, id, &arena, &provider, &ref, err) < 0)
        return -1;
    return provider_usage(provider, &ref, out, err);
}

int runtime_sandbox_traffic(struct runtime *runtime, const struct runtime_caller *caller,
                            struct str id, struct provider_traffic *out, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct provider *provider;
    struct provider_ref ref;

    if (look_at(runtime, caller, id, &arena, &provider, &ref, err) < 0)
        return -1;
    return provider_traffic(provider, &ref, out, err);
}

void runtime_sandbox_ports(struct runtime *runtime, const struct runtime_caller *caller,
                           struct runtime_sandbox *items, size_t count, struct arena *arena)
{
    int64_t until_ms = clock_mono_ms() + RUNTIME_PORTS_MS;
    size_t asked = 0;

    for (size_t i = 0; i < count && asked < RUNTIME_PORTS_SANDBOXES; i++) {
        struct runtime_caller owner = *caller;
        struct provider *provider;
        struct provider_ref ref;
        struct provider_ports ports;
        struct error ignored = {0};

        if (items[i].state != SANDBOX_RUNNING || clock_mono_ms() >= until_ms)
            continue;
        asked++;
        owner.team_id = items[i].team_id;
        /* It may have ended since, and other providers do not know their ports. */
        if (look_at(runtime, &owner, items[i].id, arena, &provider, &ref, &ignored) < 0 ||
            provider_ports(provider, &ref, &ports, &ignored) < 0)
            continue;
        items[i].ports = arena_alloc(arena, sizeof(ports));
        *items[i].ports = ports;
    }
}
