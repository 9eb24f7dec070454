/* Snapshots: references to what a provider keeps, with a name of the team's and an end. The row is
 * written before the provider is asked, so that none is forgotten; a name changes hands only when the
 * new snapshot is ready, and the old one is deleted then. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"
#include "runtime/sandbox/sandbox_parts.h"

enum { ALIAS_MAX = 512 };

static void snapshot_of(const struct store_runtime_snapshot *row, struct runtime_snapshot *out)
{
    *out = (struct runtime_snapshot){
        .id = row->id,
        .kind = row->kind,
        .provider = row->provider,
        .external_id = row->external_id,
        .sandbox_id = row->sandbox_id,
        .image = row->image,
        .alias = row->alias,
        .state = row->state,
        .created_at_us = row->created_at_us,
        .expires_at_us = row->expires_at_us,
    };
    if (out->expires_at_us && out->expires_at_us <= clock_wall_us())
        out->state = SNAPSHOT_EXPIRED;
}

int runtime_snapshot_usable(struct runtime *runtime, const struct backend *backend,
                            const struct store_runtime_snapshot *row, struct error *err)
{
    struct provider *provider = backend_provider((struct backend *)(uintptr_t)backend);
    const char *kind = provider_caps(provider)->snapshot_kind;

    (void)runtime;
    if (!kind)
        return error_set(err, ERROR_UNSUPPORTED, "provider '%s' does not support %s",
                         backend_name(backend), provider_feature_name(PROVIDER_SNAPSHOT));
    if (!str_is(row->kind, kind))
        return error_set(err, ERROR_UNSUPPORTED,
                         "snapshot '%.*s' is of kind '%.*s'; provider '%s' starts only from '%s'",
                         STR_ARG(row->id), STR_ARG(row->kind), backend_name(backend), kind);
    if (!str_is(row->provider, backend_name(backend)))
        return error_set(err, ERROR_UNSUPPORTED,
                         "snapshot '%.*s' is kept by provider '%.*s', not by '%s'",
                         STR_ARG(row->id), STR_ARG(row->provider), backend_name(backend));
    if (row->expires_at_us && row->expires_at_us <= clock_wall_us())
        return error_set(err, ERROR_NOT_FOUND, "snapshot '%.*s' has expired", STR_ARG(row->id));
    if (row->state != SNAPSHOT_READY)
        return error_set(err, ERROR_CONFLICT, "snapshot '%.*s' is not ready (%s)", STR_ARG(row->id),
                         name_of(&snapshot_state_names, row->state));
    return 0;
}

static void tell(struct runtime *runtime, const struct runtime_caller *caller,
                 const struct runtime_use *use, const char *type,
                 const struct store_runtime_snapshot *row, const struct error *why)
{
    json_t *data = json_pack("{s:o}", "snapshot_id", json_str(row->id));
    struct runtime_event event = {
        .type = str_of(type),
        .sandbox_id = use->sandbox.id,
        .agent_id = use->sandbox.agent_id,
        .task_id = use->sandbox.task_id,
        .actor = caller->actor,
        .data = data,
    };

    if (row->alias.p)
        (void)json_object_set_new(data, "alias", json_str(row->alias));
    if (why)
        (void)json_object_set_new(data, "message", json_str(str_of(why->message)));
    runtime_event_add(runtime, caller, &event);
    json_decref(data);
}

/* Who held the name before is not needed any more. */
static void drop_replaced(struct runtime *runtime, const struct runtime_caller *caller,
                          const struct store_runtime_snapshot *old)
{
    struct error err;

    if (runtime_snapshot_drop(runtime, caller, old, &err) < 0)
        log_warn("runtime", "snapshot=%.*s replaced but not deleted, left to the sweep: %s",
                 STR_ARG(old->id), err.message);
}

static int make(struct runtime *runtime, const struct runtime_caller *caller,
                struct runtime_use *use, struct store_runtime_snapshot *row, struct arena *arena,
                struct error *err)
{
    const char *name = arena_printf(arena, "qs-%s", row->id.p + sizeof("snap_") - 1);
    struct backend_try try = {0};
    int r;

    if (backend_try_begin(&try, runtime, use->backend, err) < 0)
        return -1;
    /* Once: a second one could be made beside one whose answer got lost. */
    try.attempt = (int)runtime->config.settings->retry.attempts;
    r = provider_snapshot(use->provider, &use->ref, name, arena, &row->external_id, err);
    (void)backend_try_again(&try, r, err);
    if (r < 0 && runtime_use_recover(runtime, caller, use, arena, err) > 0)
        r = provider_snapshot(use->provider, &use->ref, name, arena, &row->external_id, err);
    if (r == 0 && !row->external_id.len)
        return error_set(err, ERROR_UNAVAILABLE,
                         "provider '%s' has made a snapshot without an id (invalid-snapshot-id)",
                         backend_name(use->backend));
    return r;
}

int runtime_snapshot_create(struct runtime *runtime, const struct runtime_caller *caller,
                            struct str id, struct str alias, int64_t ttl_s, struct arena *arena,
                            struct runtime_snapshot *out, struct error *err)
{
    struct store *store = runtime->config.store;
    struct store_runtime_snapshot row, old;
    char snapshot_id[RUNTIME_ID_SIZE];
    struct error ignored;
    struct runtime_use use;
    bool replaces;

    if (alias.p && (!alias.len || alias.len > ALIAS_MAX || !str_valid_utf8(alias) ||
                    memchr(alias.p, '\0', alias.len)))
        return error_set(err, ERROR_INVALID, "alias must be 1 to %d bytes of text", ALIAS_MAX);
    if (runtime_use(runtime, caller, id, PROVIDER_SNAPSHOT, arena, &use, err) < 0)
        return -1;
    runtime_id("snap_", snapshot_id);
    if (ttl_s < 0)
        ttl_s = runtime->config.settings->checkpoint_ttl_s;
    row = (struct store_runtime_snapshot){
        .id = arena_str(arena, str_of(snapshot_id)),
        .team_id = caller->team_id,
        .alias = arena_str(arena, alias),
        .kind = str_of(provider_caps(use.provider)->snapshot_kind),
        .provider = str_of(backend_name(use.backend)),
        .sandbox_id = use.sandbox.id,
        .image = use.sandbox.image,
        .state = SNAPSHOT_READY,
        .created_at_us = clock_wall_us(),
    };
    row.expires_at_us = ttl_s > 0 ? row.created_at_us + ttl_s * 1000000 : 0;
    if (store_runtime_snapshot_insert(store, &row, err) < 0)
        return -1;
    tell(runtime, caller, &use, "snapshot.started", &row, NULL);
    replaces = alias.p && store_runtime_snapshot_get(store, caller->team_id, alias, arena, &old,
                                                     &ignored) == 0;
    if (make(runtime, caller, &use, &row, arena, err) < 0 ||
        store_runtime_snapshot_ready(store, &row, clock_wall_us(), err) < 0) {
        (void)store_runtime_snapshot_state(store, row.id, SNAPSHOT_ERROR, &ignored);
        tell(runtime, caller, &use, "snapshot.failed", &row, err);
        return -1;
    }
    tell(runtime, caller, &use, "snapshot.succeeded", &row, NULL);
    if (replaces && !str_eq(old.id, row.id))
        drop_replaced(runtime, caller, &old);
    snapshot_of(&row, out);
    return 0;
}

int runtime_snapshot_allowed(struct runtime *runtime, const struct runtime_caller *caller,
                             const struct store_runtime_snapshot *row, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox sandbox;

    if (!caller->agent_id.p || row->alias.p || !row->sandbox_id.p ||
        runtime_row_get(runtime, caller, row->sandbox_id, &arena, &sandbox, err) == 0)
        return 0;
    return err->code == ERROR_NOT_FOUND ? 0
                                        : error_prefix(err, "snapshot '%.*s'", STR_ARG(row->id));
}

int runtime_snapshot_get(struct runtime *runtime, const struct runtime_caller *caller,
                         struct str name, struct arena *arena, struct runtime_snapshot *out,
                         struct error *err)
{
    struct store_runtime_snapshot row;

    if (store_runtime_snapshot_get(runtime->config.store, caller->team_id, name, arena, &row, err) <
            0 ||
        runtime_snapshot_allowed(runtime, caller, &row, err) < 0)
        return -1;
    snapshot_of(&row, out);
    return 0;
}

int runtime_snapshot_list(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str sandbox_id, struct arena *arena, struct runtime_snapshot **out,
                          size_t *out_count, struct error *err)
{
    struct store_runtime_snapshot *rows = NULL;
    struct store_runtime_sandbox sandbox;
    struct error ignored;
    size_t count = 0, kept = 0;

    if (sandbox_id.p) {
        if (runtime_row_get(runtime, caller, sandbox_id, arena, &sandbox, err) < 0)
            return -1;
        sandbox_id = sandbox.id;
    }
    if (store_runtime_snapshot_list(runtime->config.store, caller->team_id, sandbox_id, NULL, arena,
                                    &rows, &count, err) < 0)
        return -1;
    *out = arena_alloc(arena, (count + 1) * sizeof(**out));
    for (size_t i = 0; i < count; i++)
        if (runtime_snapshot_allowed(runtime, caller, &rows[i], &ignored) == 0)
            snapshot_of(&rows[i], &(*out)[kept++]);
    *out_count = kept;
    return 0;
}

int runtime_snapshot_drop(struct runtime *runtime, const struct runtime_caller *caller,
                          const struct store_runtime_snapshot *row, struct error *err)
{
    struct backend_try try = {.once_more_is_safe = true};
    struct backend *backend = NULL;
    int r;

    if (row->external_id.p) {
        char what[64];

        (void)snprintf(what, sizeof(what), "snapshot '%.*s'", STR_ARG(row->id));
        if (runtime_row_provider(runtime, caller, row->provider, what, &backend, err) < 0 ||
            backend_try_begin(&try, runtime, backend, err) < 0)
            return -1;
        do
            r = provider_snapshot_delete(backend_provider(backend), row->team_id, row->external_id,
                                         err);
        while (backend_try_again(&try, r, err));
        if (r < 0 && err->code != ERROR_NOT_FOUND)
            return -1;
    }
    return store_runtime_snapshot_delete(runtime->config.store, row->id, err);
}

int runtime_snapshot_delete(struct runtime *runtime, const struct runtime_caller *caller,
                            struct str name, struct error *forced, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_snapshot row;

    if (store_runtime_snapshot_get(runtime->config.store, caller->team_id, name, &arena, &row,
                                   err) < 0 ||
        runtime_snapshot_allowed(runtime, caller, &row, err) < 0)
        return -1;
    if (runtime_snapshot_drop(runtime, caller, &row, err) == 0)
        return 0;
    if (!forced)
        return -1;
    *forced = *err;
    log_warn("runtime", "snapshot=%.*s provider=%.*s is forgotten, not deleted there: %s",
             STR_ARG(row.id), STR_ARG(row.provider), forced->message);
    return store_runtime_snapshot_delete(runtime->config.store, row.id, err) < 0 ? -1 : 1;
}
