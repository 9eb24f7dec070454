#include "edge/api_runtime/v1_types.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"

static json_t *text(struct str s)
{
    return s.len ? json_str(s) : json_null();
}

static json_t *name(const struct names *names, unsigned value)
{
    return text(str_of(name_of(names, value)));
}

static void put(json_t *object, const char *name, json_t *value_consume)
{
    (void)json_object_set_new(object, name, value_consume);
}

json_t *v1_types_time(int64_t at_us)
{
    char out[CLOCK_TEXT_SIZE];

    if (at_us <= 0)
        return json_null();
    clock_format(at_us, out);
    return json_string(out);
}

/* The word of those who only ask whether it works. */
static const char *const statuses[] = {
    [SANDBOX_CREATING] = "creating", [SANDBOX_RUNNING] = "running", [SANDBOX_PAUSED] = "stopped",
    [SANDBOX_ENDED] = "stopped",     [SANDBOX_LOST] = "error",
};

static void add_text(struct buf *out, const char *name, struct str value)
{
    if (value.len)
        json_out_str(out, name, value);
    else
        json_out_null(out, name);
}

static void add_object(struct buf *out, const char *name, const json_t *value)
{
    auto_free char *text = value ? json_text(value) : NULL;

    json_out_raw(out, name, text ? str_of(text) : STR("{}"));
}

static void add_time(struct buf *out, const char *name, int64_t at_us)
{
    char text[CLOCK_TEXT_SIZE] = "";

    if (at_us > 0)
        clock_format(at_us, text);
    add_text(out, name, str_of(text));
}

static void add_previous(struct buf *out, const struct runtime_previous *previous)
{
    char at[CLOCK_TEXT_SIZE] = "";
    auto_json json_t *object = json_pack("{s:o, s:s}", "id", json_str(previous->id), "files",
                                         previous->kept ? "kept" : "gone");

    if (!previous->kept) {
        if (previous->ended_at_us > 0)
            clock_format(previous->ended_at_us, at);
        (void)json_object_set_new(object, "reason", json_str(previous->reason));
        (void)json_object_set_new(object, "ended_at", json_string(at));
    }
    add_object(out, "previous", object);
}

static void add_ports(struct buf *out, const struct provider_ports *ports)
{
    if (!ports) {
        json_out_null(out, "ports");
        return;
    }
    json_out_open(out, "ports", '[');
    for (size_t i = 0; i < ports->count; i++) {
        json_out_open(out, NULL, '{');
        json_out_uint(out, "port", ports->at[i].number);
        json_out_bool(out, "loopback", ports->at[i].loopback);
        json_out_close(out, "}");
    }
    json_out_close(out, "]");
}

void v1_types_sandbox(struct buf *out, const struct runtime_sandbox *sandbox,
                      const struct v1_besides *besides)
{
    json_out_open(out, NULL, '{');
    add_text(out, "id", sandbox->id);
    add_text(out, "sandbox_id", sandbox->id);
    add_text(out, "key", sandbox->key);
    add_text(out, "state", str_of(name_of(&runtime_state_names, sandbox->state)));
    add_text(out, "status", str_of(statuses[sandbox->state]));
    add_text(out, "error", sandbox->error);
    add_text(out, "provider", sandbox->provider);
    add_text(out, "external_id", sandbox->external_id);
    add_text(out, "template", sandbox->image);
    add_text(out, "profile", sandbox->profile);
    add_text(out, "spec_hash", sandbox->spec_hash);
    add_text(out, "agent_id", sandbox->agent_id);
    add_text(out, "task_id", sandbox->task_id);
    add_text(out, "snapshot_id", sandbox->snapshot_id);
    add_text(out, "cdp_url", sandbox->cdp_url);
    add_object(out, "metadata", sandbox->metadata);
    add_text(out, "workspace_root", sandbox->workspace_root);
    add_object(out, "limits", sandbox->limits);
    json_out_bool(out, "persistent", sandbox->persistent);
    json_out_bool(out, "adopted", sandbox->adopted);
    json_out_int(out, "idle_timeout", sandbox->idle_s);
    json_out_int(out, "max_lifetime", sandbox->max_lifetime_s);
    json_out_int(out, "expire_after", sandbox->expire_s);
    add_time(out, "created_at", sandbox->created_at_us);
    add_time(out, "last_used_at", sandbox->last_used_at_us);
    add_time(out, "destroyed_at", sandbox->destroyed_at_us);
    if (besides->ports)
        add_ports(out, sandbox->ports);
    if (besides->tier.p)
        add_text(out, "tier", besides->tier);
    if (sandbox->previous.id.p)
        add_previous(out, &sandbox->previous);
    if (sandbox->warning.p) {
        auto_json json_t *warnings = json_pack("[o]", json_str(sandbox->warning));

        add_object(out, "warnings", warnings);
    }
    if (besides->team_id.p) {
        add_text(out, "team", besides->team);
        add_text(out, "team_id", besides->team_id);
    }
    json_out_close(out, "}");
}

json_t *v1_types_job(const struct job *job)
{
    json_t *out = json_object();

    put(out, "id", text(job->id));
    put(out, "process_id", text(job->id));
    put(out, "sandbox_id", text(job->sandbox_id));
    put(out, "agent_id", text(job->agent_id));
    put(out, "command", text(job->command));
    put(out, "state", name(&job_state_names, job->state));
    put(out, "sandbox_state", job->sandbox_state.len ? text(job->sandbox_state) : json_null());
    put(out, "exit_code", job->has_exit_code ? json_integer(job->exit_code) : json_null());
    put(out, "error", text(job->error));
    put(out, "callback_state", name(&callback_state_names, job->callback_state));
    put(out, "callback_attempts", json_integer(job->callback_attempts));
    put(out, "callback_next_at", v1_types_time(job->callback_next_at_us));
    put(out, "started_at", v1_types_time(job->started_at_us));
    put(out, "ended_at", v1_types_time(job->ended_at_us));
    return out;
}

json_t *v1_types_execution(const struct store_execution *execution)
{
    json_t *out = json_object();
    bool failed = execution->error.len != 0;

    put(out, "id", text(execution->id));
    put(out, "process_id", text(execution->id));
    put(out, "sandbox_id", text(execution->sandbox_id));
    put(out, "agent_id", text(execution->agent_id));
    put(out, "task_id", text(execution->task_id));
    put(out, "actor", text(execution->actor));
    put(out, "command", text(execution->command));
    put(out, "exit_code", failed ? json_null() : json_integer(execution->exit_code));
    put(out, "error", text(execution->error));
    put(out, "duration_ms", json_integer(execution->duration_ms));
    put(out, "timed_out", json_boolean(execution->timed_out));
    put(out, "truncated", json_boolean(execution->truncated));
    put(out, "started_at", v1_types_time(execution->started_at_us));
    put(out, "ended_at", v1_types_time(execution->ended_at_us));
    return out;
}

void v1_types_kept(json_t *out, const struct runtime_result *result)
{
    if (!result->keep_id[0])
        return;
    put(out, "process_id", json_string(result->keep_id));
    put(out, "kept", json_boolean(result->kept));
}

json_t *v1_types_snapshot(const struct runtime_snapshot *snapshot)
{
    json_t *out = json_object();

    put(out, "id", text(snapshot->id));
    put(out, "snapshot_id", text(snapshot->id));
    put(out, "kind", text(snapshot->kind));
    put(out, "provider", text(snapshot->provider));
    put(out, "external_id", text(snapshot->external_id));
    put(out, "sandbox_id", text(snapshot->sandbox_id));
    put(out, "template", text(snapshot->image));
    put(out, "alias", text(snapshot->alias));
    put(out, "state", name(&snapshot_state_names, snapshot->state));
    put(out, "created_at", v1_types_time(snapshot->created_at_us));
    put(out, "expires_at", v1_types_time(snapshot->expires_at_us));
    return out;
}

/* What a client needs to speak to sandbox-agent itself. */
static json_t *runtime_of(const struct session *session)
{
    json_t *out = json_object();

    put(out, "provider", text(session->provider));
    put(out, "sandbox_id", text(session->sandbox_id));
    put(out, "sandbox_name", text(session->sandbox_id));
    put(out, "sandbox_port", json_integer(session->port));
    put(out, "base_url", text(session->base_url));
    put(out, "session_id", text(session->acp_session));
    put(out, "snapshot_id", text(session->snapshot_id));
    put(out, "workdir", text(session->workdir));
    return out;
}

json_t *v1_types_session(const struct session *session)
{
    json_t *out = json_object();

    put(out, "id", text(session->id));
    put(out, "session_id", text(session->id));
    put(out, "state", name(&session_state_names, session->state));
    put(out, "status", name(&session_state_names, session->state));
    put(out, "reason", text(session->reason));
    put(out, "sandbox_id", text(session->sandbox_id));
    put(out, "agent", text(session->agent));
    put(out, "repo", text(session->repo));
    put(out, "branch", text(session->branch));
    put(out, "profile", text(session->profile));
    put(out, "provider", text(session->provider));
    put(out, "permission_mode", name(&permission_names, session->permission));
    put(out, "snapshot_id", text(session->snapshot_id));
    put(out, "checkpoint", text(session->checkpoint));
    put(out, "agent_id", text(session->agent_id));
    put(out, "task_id", text(session->task_id));
    put(out, "runtime", runtime_of(session));
    put(out, "created_at", v1_types_time(session->created_at_us));
    put(out, "updated_at", v1_types_time(session->updated_at_us));
    return out;
}

json_t *v1_types_file(const struct provider_file *file)
{
    json_t *out = json_object();
    char mode[8];

    (void)snprintf(mode, sizeof(mode), "%04o", file->mode & 07777);
    put(out, "name", text(file->name));
    put(out, "path", text(file->path));
    put(out, "type", json_string(file->directory ? "directory" : "file"));
    put(out, "size", json_integer(file->size));
    put(out, "mode", json_string(mode));
    put(out, "modified_at", v1_types_time(file->modified_at_us));
    return out;
}

/* ---- the body ---- */

static json_t *member(struct v1_call *call, const char *name)
{
    json_t *value = json_object_get(call->json, name);

    return json_is_null(value) ? NULL : value;
}

static int wrong(struct error *err, const char *name, const char *what)
{
    return error_set(err, ERROR_INVALID, "'%s' must be %s", name, what);
}

int v1_body_str(struct v1_call *call, const char *name, struct str *out, struct error *err)
{
    json_t *value = member(call, name);

    if (!value)
        return 0;
    if (!json_is_string(value) || memchr(json_string_value(value), '\0', json_string_length(value)))
        return wrong(err, name, "a string");
    *out = str_n(json_string_value(value), json_string_length(value));
    return 0;
}

int v1_body_int(struct v1_call *call, const char *name, int64_t min, int64_t max, int64_t *out,
                struct error *err)
{
    json_t *value = member(call, name);
    double number = json_number_value(value);

    if (!value)
        return 0;
    if (!json_is_number(value) || number < (double)min || number > (double)max)
        return error_set(err, ERROR_INVALID, "'%s' must be a number from %lld to %lld", name,
                         (long long)min, (long long)max);
    *out = json_is_integer(value) ? json_integer_value(value) : (int64_t)number;
    return 0;
}

int v1_body_bool(struct v1_call *call, const char *name, bool *out, struct error *err)
{
    json_t *value = member(call, name);

    if (!value)
        return 0;
    if (!json_is_boolean(value))
        return wrong(err, name, "true or false");
    *out = json_is_true(value);
    return 0;
}

int v1_body_object(struct v1_call *call, const char *name, json_t **out, struct error *err)
{
    json_t *value = member(call, name);

    if (!value)
        return 0;
    if (!json_is_object(value))
        return wrong(err, name, "an object");
    *out = value;
    return 0;
}

int v1_body_strings(struct v1_call *call, const char *name, json_type kind, json_t **out,
                    struct error *err)
{
    json_t *value = member(call, name), *item;
    const char *what = kind == JSON_ARRAY ? "an array of strings" : "an object of strings";
    const char *key;
    size_t i;

    if (!value)
        return 0;
    if (json_typeof(value) != kind)
        return wrong(err, name, what);
    json_array_foreach (value, i, item)
        if (!json_is_string(item))
            return wrong(err, name, what);
    json_object_foreach (value, key, item)
        if (!json_is_string(item))
            return wrong(err, name, what);
    *out = value;
    return 0;
}

/* How long it lives without use, in the words of E2B's clients: into the lifecycle. */
static int read_life(struct v1_call *call, struct error *err)
{
    json_t *lifecycle = NULL;
    int64_t ms = 0;

    if (v1_body_int(call, "timeout_ms", 1, (int64_t)7 * 86400 * 1000, &ms, err) < 0 ||
        v1_body_object(call, "lifecycle", &lifecycle, err) < 0)
        return -1;
    if (!ms)
        return 0;
    if (!lifecycle) {
        lifecycle = json_object();
        (void)json_object_set_new(call->json, "lifecycle", lifecycle);
    }
    if (json_object_get(lifecycle, "idleTimeoutSeconds"))
        return error_set(err, ERROR_INVALID,
                         "'timeout_ms' and 'lifecycle.idleTimeoutSeconds' say the same: give one");
    (void)json_object_set_new(lifecycle, "idleTimeoutSeconds", json_integer((ms + 999) / 1000));
    return 0;
}

int v1_types_overrides(struct v1_call *call, struct runtime_overrides *out, struct error *err)
{
    json_t *mounts = member(call, "mounts");

    if (read_life(call, err) < 0)
        return -1;

    if (v1_body_str(call, "profile", &out->profile, err) < 0 ||
        v1_body_str(call, "provider", &out->provider, err) < 0 ||
        v1_body_str(call, "template", &out->image, err) < 0 ||
        v1_body_str(call, "agent_type", &out->agent_type, err) < 0 ||
        v1_body_str(call, "workspace_root", &out->workspace_root, err) < 0 ||
        v1_body_object(call, "network", &out->network, err) < 0 ||
        v1_body_object(call, "lifecycle", &out->lifecycle, err) < 0 ||
        v1_body_object(call, "limits", &out->limits, err) < 0 ||
        v1_body_strings(call, "env", JSON_OBJECT, &out->env, err) < 0 ||
        v1_body_object(call, "mcp", &out->mcp, err) < 0 ||
        v1_body_object(call, "options", &out->options, err) < 0 ||
        v1_body_int(call, "timeout", 0, INT32_MAX, &out->timeout_s, err) < 0 ||
        v1_body_int(call, "output_limit", 0, INT32_MAX, &out->output_limit, err) < 0 ||
        v1_body_bool(call, "persistent", &out->persistent, err) < 0)
        return -1;
    if (mounts && !json_is_array(mounts))
        return wrong(err, "mounts", "an array");
    out->mounts = mounts;
    out->persistent_given = member(call, "persistent") != NULL;
    return 0;
}

void v1_types_removed(struct v1_call *call, int r, const struct error *forced)
{
    if (r == 0)
        call_answer(&call->call, 204, NULL);
    else
        call_answer(&call->call, 200,
                    json_pack("{s:o, s:b, s:o}", "id", json_str(call->params[0]), "forgotten", 1,
                              "message",
                              json_str(str_of(arena_printf(&call->arena,
                                                           "forgotten; what it was could not be"
                                                           " reached and may still be there: %s",
                                                           forced->message)))));
}
