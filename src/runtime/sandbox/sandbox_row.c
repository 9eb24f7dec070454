/* Rows of sandboxes as the rest of the runtime sees them, and how a row is corrected when the world
 * has changed: paused by its provider, gone, killed. */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"
#include "runtime/sandbox/follow.h"
#include "runtime/sandbox/sandbox_parts.h"

static void decref(void *json)
{
    json_decref(json);
}

json_t *arena_json(struct arena *arena, json_t *json)
{
    if (json)
        arena_defer(arena, decref, json);
    return json;
}

json_t *arena_parse(struct arena *arena, struct str text)
{
    struct error ignored;
    json_t *json = NULL;

    if (text.len <= 2 || json_parse(text, &json, &ignored) < 0)
        return NULL;
    return arena_json(arena, json);
}

/* The settings as far as they are shown. Most rows have nothing of it, which shows without reading them. */
static const json_t *shown_settings(struct str settings, struct arena *arena)
{
    static const char *const names[] = {"\"workspace_root\"", "\"limits\"", "\"expire_after\""};

    for (size_t i = 0; settings.p && i < sizeof(names) / sizeof(names[0]); i++)
        if (memmem(settings.p, settings.len, names[i], strlen(names[i])))
            return arena_parse(arena, settings);
    return NULL;
}

void runtime_sandbox_of(const struct store_runtime_sandbox *row, struct arena *arena,
                        struct runtime_sandbox *out)
{
    const json_t *settings = shown_settings(row->settings, arena);

    *out = (struct runtime_sandbox){
        .id = row->id,
        .team_id = row->team_id,
        .key = row->key,
        .spec_hash = row->spec_hash,
        .provider = row->provider,
        .external_id = row->external_id,
        .image = row->image,
        .profile = row->profile,
        .agent_id = row->agent_id,
        .task_id = row->task_id,
        .state = row->state,
        .error = row->error,
        .snapshot_id = row->snapshot_id,
        .cdp_url = row->cdp_url,
        .metadata = arena_parse(arena, row->metadata),
        .created_at_us = row->created_at_us,
        .last_used_at_us = row->last_used_at_us,
        .destroyed_at_us = row->destroyed_at_us,
        .idle_s = row->idle_s,
        .max_lifetime_s = row->max_lifetime_s,
        .persistent = row->persistent,
        .adopted = row->adopted,
        .workspace_root = json_get_str(settings, "workspace_root"),
        .limits = json_object_get(settings, "limits"),
        .expire_s = json_integer_value(json_object_get(settings, "expire_after")),
    };
}

int runtime_row_get(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    struct arena *arena, struct store_runtime_sandbox *out, struct error *err)
{
    struct store *store = runtime->config.store;
    bool by_key = str_starts(id, STR("key:"));
    int r = by_key ? store_runtime_sandbox_find(store, caller->team_id, str_skip(id, 4), STR_NONE,
                                                arena, out, err)
                   : store_runtime_sandbox_get(store, caller->team_id, id, arena, out, err);

    if (r < 0 && err->code == ERROR_NOT_FOUND && !by_key && id_valid(id)) {
        runtime_follow_now(runtime); /* made a moment ago, by the engine's own API */
        r = store_runtime_sandbox_get(store, caller->team_id, id, arena, out, err);
    }
    if (r < 0)
        return err->code == ERROR_NOT_FOUND
                   ? error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' not found", STR_ARG(id))
                   : -1;
    if (caller->agent_id.p && !str_eq(caller->agent_id, out->agent_id))
        return error_set(err, ERROR_FORBIDDEN,
                         "sandbox '%.*s' belongs to another agent than '%.*s'", STR_ARG(out->id),
                         STR_ARG(caller->agent_id));
    out->last_used_at_us = runtime_live_last_used(runtime, out->id, out->last_used_at_us);
    return 0;
}

/* Rows hold the exact name: another provider of the same type has other machines. */
int runtime_row_provider(struct runtime *runtime, const struct runtime_caller *caller,
                         struct str provider, const char *what, struct backend **out,
                         struct error *err)
{
    if (backend_find(runtime, caller, provider, out, err) < 0) {
        if (err->code != ERROR_INVALID)
            return error_prefix(err, "%s", what);
    } else if (str_is(provider, backend_name(*out))) {
        return 0;
    }
    (void)error_set(err, ERROR_CONFLICT,
                    "%s is on provider '%.*s', which is not configured: it cannot be reached there."
                    " Configure the provider again, or forget it by a removal with force",
                    what, STR_ARG(provider));
    err->errnum = ENODEV;
    return -1;
}

int runtime_row_backend(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct store_runtime_sandbox *row, struct backend **out,
                        struct error *err)
{
    char what[64];

    (void)snprintf(what, sizeof(what), "sandbox '%.*s'", STR_ARG(row->id));
    return runtime_row_provider(runtime, caller, row->provider, what, out, err);
}

int runtime_row_alive(const struct store_runtime_sandbox *row, struct error *err)
{
    char when[CLOCK_TEXT_SIZE];

    if (row->destroyed_at_us) {
        clock_format(row->destroyed_at_us, when);
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' was killed at %s (%.*s)",
                         STR_ARG(row->id), when,
                         STR_ARG(row->error.p ? row->error : STR("on request")));
    }
    if (row->state == SANDBOX_LOST)
        return error_set(err, ERROR_NOT_FOUND,
                         "sandbox '%.*s' does not exist any more (%.*s): ensure its key again, or"
                         " make a new one",
                         STR_ARG(row->id), STR_ARG(row->error));
    if (row->state == SANDBOX_CREATING)
        return error_set(err, ERROR_CONFLICT, "sandbox '%.*s' is being made: try again soon",
                         STR_ARG(row->id));
    return 0;
}

struct provider_ref runtime_row_ref(const struct store_runtime_sandbox *row, int64_t deadline_us)
{
    return (struct provider_ref){
        .team_id = row->team_id,
        .id = row->external_id,
        .token = row->token,
        .address = row->address,
        .deadline_us = deadline_us,
    };
}

int64_t runtime_row_ttl(const struct runtime *runtime, struct backend *backend,
                        const struct store_runtime_sandbox *row)
{
    int64_t ttl_s =
        row->idle_s > 0 ? row->idle_s : runtime->config.settings->sandbox_timeout_ms / 1000;

    /* An adopted one keeps the limit it was made with. */
    if (row->adopted || !(provider_caps(backend_provider(backend))->features & PROVIDER_TTL))
        return 0;
    if (row->max_lifetime_s > 0) {
        int64_t left_s = row->max_lifetime_s - (clock_wall_us() - row->created_at_us) / 1000000;

        if (left_s < ttl_s)
            ttl_s = left_s > 1 ? left_s : 1;
    }
    return ttl_s > 0 ? ttl_s : 1;
}

bool runtime_row_kept(const struct store_runtime_sandbox *row)
{
    return row->key.p || row->persistent || row->state == SANDBOX_PAUSED;
}

int64_t runtime_row_unused_since(const struct store_runtime_sandbox *row)
{
    bool paused_later = row->state == SANDBOX_PAUSED && row->state_at_us > row->last_used_at_us;

    return paused_later ? row->state_at_us : row->last_used_at_us;
}

/* Most rows have no such setting, which shows without parsing them. */
static int64_t expire_s(const struct store_runtime_sandbox *row)
{
    static const char name[] = "\"expire_after\"";
    auto_json json_t *settings = NULL;
    struct error ignored;

    if (!row->settings.p || !memmem(row->settings.p, row->settings.len, name, strlen(name)) ||
        json_parse(row->settings, &settings, &ignored) < 0)
        return 0;
    return json_integer_value(json_object_get(settings, "expire_after"));
}

const char *runtime_row_over(const struct store_runtime_sandbox *row, int64_t now_us)
{
    int64_t expire;

    if (row->max_lifetime_s > 0 && now_us - row->created_at_us > row->max_lifetime_s * 1000000)
        return "max lifetime";
    expire = expire_s(row);
    return expire > 0 && now_us - runtime_row_unused_since(row) > expire * 1000000 ? "expired"
                                                                                   : NULL;
}

int runtime_row_check_over(struct runtime *runtime, const struct runtime_caller *caller,
                           struct backend *backend, const struct store_runtime_sandbox *row,
                           struct error *err)
{
    const char *reason = runtime_row_over(row, clock_wall_us());
    struct error ignored;

    if (!reason)
        return 0;
    (void)runtime_row_kill(runtime, caller, backend, row, reason, &ignored);
    return error_set(
        err, ERROR_NOT_FOUND, "sandbox '%.*s' has reached the end of its %s and was deleted",
        STR_ARG(row->id),
        strcmp(reason, "expired") == 0 ? "lifecycle.expireAfterSeconds" : "maximum lifetime");
}

struct runtime_event runtime_row_event_of(const struct runtime_caller *caller,
                                          const struct store_runtime_sandbox *row, const char *type,
                                          json_t *data)
{
    return (struct runtime_event){
        .type = str_of(type),
        .sandbox_id = row->id,
        .agent_id = row->agent_id,
        .task_id = row->task_id,
        .actor = caller->actor,
        .data = data,
    };
}

void runtime_row_event(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct store_runtime_sandbox *row, const char *type, json_t *data)
{
    struct runtime_event event = runtime_row_event_of(caller, row, type, data);

    runtime_event_add(runtime, caller, &event);
    json_decref(data);
}

/* What was seen of the row's machine; it may have another by now. */
static bool seen(struct runtime *runtime, const struct store_runtime_sandbox *row,
                 enum sandbox_state state, const char *reason, int64_t at_us)
{
    bool changed = false;
    struct error err;

    if (store_runtime_sandbox_seen(runtime->config.store, row->id, row->external_id, state,
                                   str_of(reason), at_us, &changed, &err) < 0)
        log_error("runtime", "sandbox=%.*s state=%s not recorded: %s", STR_ARG(row->id),
                  name_of(&runtime_state_names, state), err.message);
    return changed;
}

/* When nobody saw it end, its provider's clock did. */
static int64_t ended_at(const struct store_runtime_sandbox *row)
{
    int64_t now_us = clock_wall_us(), end_us = row->last_used_at_us + row->idle_s * 1000000;

    return row->idle_s > 0 && !row->adopted && end_us < now_us ? end_us : now_us;
}

void runtime_row_paused(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct store_runtime_sandbox *row, const char *by)
{
    bool by_caller = strcmp(by, "request") == 0;

    if (!seen(runtime, row, SANDBOX_PAUSED, NULL, by_caller ? clock_wall_us() : ended_at(row)))
        return;
    runtime_row_event(runtime, caller, row, "sandbox.paused", json_pack("{s:s}", "by", by));
    runtime_live_forget(runtime, row->id);
    runtime_usage_tell(runtime, caller, row->id);
}

static double ran_s(const struct store_runtime_sandbox *row, int64_t until_us)
{
    int64_t since_us = row->running_since_us;

    return (double)(row->ran_us + (since_us && since_us < until_us ? until_us - since_us : 0)) /
           1e6;
}

/* One with a key can come back under its id: from its newest snapshot. */
static enum sandbox_state state_of_gone(const struct store_runtime_sandbox *row)
{
    return row->key.p ? SANDBOX_LOST : SANDBOX_ENDED;
}

static void tell_gone(struct runtime *runtime, const struct runtime_caller *caller,
                      const struct store_runtime_sandbox *row, const char *reason, const char *why,
                      int64_t at_us)
{
    runtime_row_event(runtime, caller, row, "sandbox.killed",
                      json_pack("{s:s, s:s, s:f}", "reason", reason, "message", why,
                                "runtime_seconds", ran_s(row, at_us)));
    runtime_live_forget(runtime, row->id);
    runtime_tell_gone(runtime, row->id);
    runtime_usage_tell(runtime, caller, row->id);
}

bool runtime_row_gone(struct runtime *runtime, const struct runtime_caller *caller,
                      const struct store_runtime_sandbox *row, const char *why)
{
    int64_t at_us = ended_at(row);
    bool changed = false;

    if (runtime_follow_end(runtime, row, &changed))
        return changed;
    if (!seen(runtime, row, state_of_gone(row), why, at_us))
        return false;
    tell_gone(runtime, caller, row, "gone", why, at_us);
    return true;
}

static bool told(struct runtime *runtime, const struct store_runtime_sandbox *row,
                 enum sandbox_state state, const char *reason, int64_t at_us)
{
    bool changed = false;
    struct error err;

    if (store_runtime_sandbox_told(runtime->config.store, row->id, row->external_id, state,
                                   str_of(reason), at_us, &changed, &err) < 0)
        log_error("runtime", "sandbox=%.*s state=%s not recorded: %s", STR_ARG(row->id),
                  name_of(&runtime_state_names, state), err.message);
    return changed;
}

bool runtime_row_told(struct runtime *runtime, const struct runtime_caller *caller,
                      const struct store_runtime_sandbox *row, enum sandbox_state state,
                      int64_t at_us)
{
    bool paused = state == SANDBOX_PAUSED;

    if (!told(runtime, row, state, NULL, at_us))
        return false;
    runtime_row_event(runtime, caller, row, paused ? "sandbox.paused" : "sandbox.resumed",
                      json_pack("{s:s}", "by", "provider"));
    runtime_live_forget(runtime, row->id);
    if (paused)
        runtime_usage_tell(runtime, caller, row->id);
    else
        runtime_tell_resumed(runtime, row->id);
    return true;
}

bool runtime_row_ended(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct store_runtime_sandbox *row, const char *reason, const char *why,
                       int64_t at_us)
{
    if (!told(runtime, row, state_of_gone(row), why, at_us))
        return false;
    tell_gone(runtime, caller, row, reason, why, at_us);
    return true;
}

/* message: NULL = none. */
static void mark_killed(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct store_runtime_sandbox *row, const char *reason,
                        const char *message)
{
    int64_t now_us = clock_wall_us();
    bool changed = false;
    struct error err;
    json_t *data;

    if (store_runtime_sandbox_state(runtime->config.store, row->id, SANDBOX_ENDED,
                                    str_of(message ? message : reason), now_us, &changed, &err) < 0)
        log_error("runtime", "sandbox=%.*s state=killed not recorded: %s", STR_ARG(row->id),
                  err.message);
    if (changed) {
        data = json_pack("{s:s, s:f}", "reason", reason, "runtime_seconds", ran_s(row, now_us));
        if (message)
            (void)json_object_set_new(data, "message", json_str(str_of(message)));
        runtime_row_event(runtime, caller, row, "sandbox.killed", data);
    }
    runtime_live_forget(runtime, row->id);
    runtime_tell_gone(runtime, row->id);
    if (changed)
        runtime_usage_tell(runtime, caller, row->id);
}

/* For people: which setting ended it. */
static const char *setting_of(const char *reason)
{
    return strcmp(reason, "expired") == 0
               ? "unused for longer than its lifecycle.expireAfterSeconds"
           : strcmp(reason, "max lifetime") == 0 ? "older than its lifecycle.maxLifetimeSeconds"
           : strcmp(reason, "retention") == 0 ? "unused for longer than the server's retention_days"
                                              : NULL;
}

int runtime_row_kill(struct runtime *runtime, const struct runtime_caller *caller,
                     struct backend *backend, const struct store_runtime_sandbox *row,
                     const char *reason, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox now;

    if (machine_kill(runtime, backend, row, caller->deadline_us, err) < 0)
        return -1;
    mark_killed(runtime, caller, row, reason, setting_of(reason));
    /* It may have been given another machine meanwhile; from now on it gets none. */
    if (store_runtime_sandbox_get(runtime->config.store, row->team_id, row->id, &arena, &now, err) <
            0 ||
        str_eq(now.external_id, row->external_id))
        return 0;
    if (machine_kill(runtime, backend, &now, caller->deadline_us, err) < 0)
        log_warn("runtime", "sandbox=%.*s second machine not killed, left to the sweep: %s",
                 STR_ARG(row->id), err->message);
    return 0;
}

void runtime_row_forget(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct store_runtime_sandbox *row, const struct error *why)
{
    char message[sizeof(why->message) + 64];

    (void)snprintf(message, sizeof(message), "forgotten; its machine could not be reached: %s",
                   why->message);
    runtime_mask(runtime, row->team_id, message);
    log_warn("runtime", "sandbox=%.*s provider=%.*s machine=%.*s %s", STR_ARG(row->id),
             STR_ARG(row->provider), STR_ARG(row->external_id), message);
    mark_killed(runtime, caller, row, "forgotten", message);
}

void runtime_row_failed(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct store_runtime_sandbox *row, const struct error *why)
{
    char message[sizeof(why->message)];

    (void)snprintf(message, sizeof(message), "%s", why->message);
    runtime_mask(runtime, caller->team_id, message);
    runtime_row_event(runtime, caller, row, "sandbox.error",
                      json_pack("{s:o, s:s}", "message", json_str(str_of(message)), "code",
                                error_code_name(why->code)));
}

void runtime_log_failure(const struct runtime *runtime, struct str team_id,
                         const struct runtime_sandbox *sandbox, const char *operation,
                         const struct error *why)
{
    char message[sizeof(why->message)];

    switch (why->code) {
    case ERROR_INVALID:
    case ERROR_FORBIDDEN:
    case ERROR_NOT_FOUND:
    case ERROR_CONFLICT:
    case ERROR_EXISTS:
    case ERROR_LIMIT:
    case ERROR_UNSUPPORTED:
        return;
    default:
        break;
    }
    (void)snprintf(message, sizeof(message), "%s", why->message);
    runtime_mask(runtime, team_id, message);
    log_warn("runtime", "%s failed sandbox=%.*s provider=%.*s agent=%.*s task=%.*s code=%s: %s",
             operation, STR_ARG(sandbox->id), STR_ARG(sandbox->provider),
             STR_ARG(sandbox->agent_id), STR_ARG(sandbox->task_id), error_code_name(why->code),
             message);
}
