/* A sandbox made ready for one operation. The usual case, one that runs and has time left, costs one
 * read of its row and no call to its provider. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/sandbox_parts.h"

void runtime_use_extend(struct runtime *runtime, struct provider *provider,
                        const struct provider_ref *ref, struct str id, int64_t ttl_s)
{
    struct error err;

    if (runtime_live_life(runtime, id, ttl_s) == LIFE_LONG)
        return;
    if (provider_extend(provider, ref, ttl_s, &err) < 0) {
        log_info("runtime", "sandbox=%.*s not extended: %s", STR_ARG(id), err.message);
        return;
    }
    runtime_live_extended(runtime, id, ttl_s);
}

static enum permission permission_of(struct str name)
{
    unsigned found;

    return name_find(&permission_names, name, &found) ? found : PERMISSION_ASK;
}

static void fill(const struct store_runtime_sandbox *row, struct backend *backend,
                 struct arena *arena, struct runtime_use *out)
{
    json_t *settings = arena_parse(arena, row->settings);

    out->backend = backend;
    out->provider = backend_provider(backend);
    out->ref = runtime_row_ref(row, 0);
    runtime_sandbox_of(row, arena, &out->sandbox);
    out->timeout_s = json_integer_value(json_object_get(settings, "timeout"));
    out->output_limit = json_integer_value(json_object_get(settings, "output"));
    out->keep_output = json_is_true(json_object_get(settings, "keep_output"));
    out->env = json_object_get(settings, "env");
    out->permission = permission_of(json_get_str(settings, "permission"));
    out->workspace_root = json_get_str(settings, "workspace_root");
}

/* Running, and for a while; who only looks finds it as it is. */
static int make_ready(struct runtime *runtime, const struct runtime_caller *caller,
                      struct backend *backend, struct store_runtime_sandbox *row,
                      struct arena *arena, struct error *err)
{
    int64_t ttl_s = runtime_row_ttl(runtime, backend, row);
    struct provider_ref ref;

    if (caller->looks)
        return row->state == SANDBOX_RUNNING
                   ? 0
                   : error_set(err, ERROR_CONFLICT,
                               "sandbox '%.*s' does not run, and a viewer's API key wakes nothing",
                               STR_ARG(row->id));
    if (row->state != SANDBOX_RUNNING ||
        runtime_live_life(runtime, row->id, ttl_s) == LIFE_UNKNOWN) {
        if (machine_wake(runtime, caller, backend, row, arena, err) < 0)
            return -1;
    } else {
        ref = runtime_row_ref(row, caller->deadline_us);
        runtime_use_extend(runtime, backend_provider(backend), &ref, row->id, ttl_s);
    }
    runtime_live_used(runtime, row->id, 0, 0);
    return 0;
}

int runtime_use(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                unsigned features, struct arena *arena, struct runtime_use *out, struct error *err)
{
    struct store_runtime_sandbox row;
    struct backend *backend = NULL;

    if (runtime_row_get(runtime, caller, id, arena, &row, err) < 0 ||
        runtime_row_alive(&row, err) < 0 ||
        runtime_row_backend(runtime, caller, &row, &backend, err) < 0 ||
        backend_require(backend, features, err) < 0 ||
        runtime_row_check_over(runtime, caller, backend, &row, err) < 0 ||
        make_ready(runtime, caller, backend, &row, arena, err) < 0)
        return -1;
    fill(&row, backend, arena, out);
    return 0;
}

void runtime_use_lost(struct runtime *runtime, const struct runtime_caller *caller,
                      const struct runtime_use *use)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox row;
    struct error err;

    if (store_runtime_sandbox_get(runtime->config.store, caller->team_id, use->sandbox.id, &arena,
                                  &row, &err) == 0 &&
        !row.destroyed_at_us && str_eq(row.external_id, use->ref.id))
        (void)runtime_row_gone(runtime, caller, &row,
                               "gone: its provider does not know it any more");
}

int runtime_use_recover(struct runtime *runtime, const struct runtime_caller *caller,
                        struct runtime_use *use, struct arena *arena, struct error *err)
{
    struct store_runtime_sandbox row;
    struct error problem = {0};
    int woken;

    if (caller->looks || (err->code != ERROR_NOT_FOUND && err->code != ERROR_CONFLICT &&
                          err->code != ERROR_UNAVAILABLE))
        return 0;
    if (store_runtime_sandbox_get(runtime->config.store, caller->team_id, use->sandbox.id, arena,
                                  &row, &problem) < 0)
        return 0;
    woken = machine_wake(runtime, caller, use->backend, &row, arena, &problem);
    if (woken < 0 && problem.code == ERROR_NOT_FOUND) {
        *err = problem;
        return -1;
    }
    /* It was paused when we asked, and somebody has resumed it since. */
    if (woken == 0 && err->errnum == EHOSTDOWN)
        woken = 1;
    if (woken <= 0)
        return 0;
    use->ref = runtime_row_ref(&row, 0);
    return 1;
}
