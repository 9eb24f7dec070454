/* Health, providers and profiles. */
#include "edge/api_runtime/v1_types.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/profile.h"

static struct runtime *runtime_of(const struct v1_call *call)
{
    return call->v1->config.runtime;
}

int v1_health(struct v1_call *call, struct error *err)
{
    (void)err;
    call_answer(&call->call, 200,
                json_pack("{s:s, s:s, s:s, s:s}", "status", "ok", "name", "quicksand", "version",
                          QUICKSAND_VERSION, "isolation", "namespaces"));
    return 0;
}

/* ---- providers ---- */

int v1_providers_list(struct v1_call *call, struct error *err)
{
    bool check = false;

    if (v1_query_bool(call, "check", &check, err) < 0)
        return -1;
    call_answer(
        &call->call, 200,
        json_pack("{s:o}", "providers", backends_json(runtime_of(call), &call->caller, check)));
    return 0;
}

int v1_providers_get(struct v1_call *call, struct error *err)
{
    auto_json json_t *all = NULL;
    json_t *item;
    bool check = false;
    size_t i;

    if (v1_query_bool(call, "check", &check, err) < 0)
        return -1;
    all = backends_json(runtime_of(call), &call->caller, check);
    json_array_foreach (all, i, item)
        if (str_eq_nocase(json_get_str(item, "name"), call->params[0])) {
            call_answer(&call->call, 200, json_incref(item));
            return 0;
        }
    return error_set(err, ERROR_NOT_FOUND, "provider '%.*s' was not found",
                     STR_ARG(call->params[0]));
}

int v1_providers_register(struct v1_call *call, struct error *err)
{
    struct runner runner = {.max_sessions = 1};
    struct str type = STR_NONE;

    if (v1_body_str(call, "runner_id", &runner.name, err) < 0 ||
        v1_body_str(call, "name", &runner.name, err) < 0 ||
        v1_body_str(call, "type", &type, err) < 0 ||
        v1_body_str(call, "base_url", &runner.base_url, err) < 0 ||
        v1_body_str(call, "token", &runner.token, err) < 0 ||
        v1_body_int(call, "max_sessions", 1, 100000, &runner.max_sessions, err) < 0)
        return -1;
    if (type.len && !str_is(type, "runner"))
        return error_set(err, ERROR_INVALID, "'type' must be runner: others are set in the file");
    if (!runner.name.len || !runner.base_url.len)
        return error_set(err, ERROR_INVALID, "a runner needs 'name' and 'base_url'");
    if (runner_register(runtime_of(call), &call->caller, &runner, err) < 0)
        return -1;
    call_answer(&call->call, 201,
                json_pack("{s:o, s:s, s:o, s:I}", "name", json_str(runner.name), "type", "runner",
                          "base_url", json_str(runner.base_url), "max_sessions",
                          (json_int_t)runner.max_sessions));
    return 0;
}

int v1_providers_heartbeat(struct v1_call *call, struct error *err)
{
    int64_t active = 0;

    if (v1_body_int(call, "active_sessions", 0, 100000, &active, err) < 0)
        return -1;
    if (runner_heartbeat(runtime_of(call), &call->caller, call->params[0], active, err) < 0)
        return -1;
    call_answer(&call->call, 200, json_pack("{s:s}", "status", "ok"));
    return 0;
}

int v1_providers_remove(struct v1_call *call, struct error *err)
{
    if (runner_remove(runtime_of(call), &call->caller, call->params[0], err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}

/* ---- profiles ---- */

int v1_profiles_list(struct v1_call *call, struct error *err)
{
    (void)err;
    call_answer(&call->call, 200,
                json_pack("{s:o}", "profiles", profile_list(runtime_of(call), &call->caller)));
    return 0;
}

int v1_profiles_get(struct v1_call *call, struct error *err)
{
    json_t *record = NULL;

    if (profile_get(runtime_of(call), &call->caller, call->params[0], &record, err) < 0)
        return -1;
    call_answer(&call->call, 200, record);
    return 0;
}

int v1_profiles_put(struct v1_call *call, struct error *err)
{
    auto_json json_t *faults = NULL, *details = NULL;

    if (profile_put(runtime_of(call), &call->caller, call->params[0], call->json, &faults, err) ==
        0)
        return v1_profiles_get(call, err);
    if (!json_array_size(faults))
        return -1;
    details = json_pack("{s:O}", "faults", faults);
    v1_refuse(call, 400, "invalid", err->message, details);
    return 0;
}

int v1_profiles_delete(struct v1_call *call, struct error *err)
{
    if (profile_delete(runtime_of(call), &call->caller, call->params[0], err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}

/* Of the record that was sent or, without one, of the stored one. */
int v1_profiles_validate(struct v1_call *call, struct error *err)
{
    auto_json json_t *faults = NULL, *stored = NULL;
    json_t *record = call->json;
    int r;

    if (!json_object_size(record)) {
        if (profile_get(runtime_of(call), &call->caller, call->params[0], &stored, err) < 0)
            return -1;
        record = stored;
    }
    r = profile_check(runtime_of(call), &call->caller, record, &faults, err);
    if (r < 0 && (err->code != ERROR_INVALID || !json_array_size(faults)))
        return -1;
    call_answer(&call->call, 200,
                json_pack("{s:b, s:O}", "valid", r == 0, "faults", faults ? faults : json_null()));
    return 0;
}
