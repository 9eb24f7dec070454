/* Sessions: decode, call the domain, encode. */
#include "edge/api_runtime/v1_members.h"
#include "edge/api_runtime/v1_types.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/sandbox.h"
#include "runtime/session/changes.h"
#include "runtime/session/session.h"

static struct runtime *runtime_of(const struct v1_call *call)
{
    return call->v1->config.runtime;
}

int v1_sessions_create(struct v1_call *call, struct error *err)
{
    struct session_request request = {.agent_id = call->caller.agent_id};
    struct session session = {0};
    bool wait = false;

    if (v1_types_overrides(call, &request.overrides, err) < 0 ||
        v1_body_str(call, "agent", &request.agent, err) < 0 ||
        v1_body_str(call, "sandbox_id", &request.sandbox_id, err) < 0 ||
        v1_body_str(call, "repo", &request.repo, err) < 0 ||
        v1_body_str(call, "branch", &request.branch, err) < 0 ||
        v1_body_str(call, "permission_mode", &request.permission, err) < 0 ||
        v1_body_str(call, "mode", &request.mode, err) < 0 ||
        v1_body_str(call, "task_id", &request.task_id, err) < 0 ||
        v1_body_str(call, "checkpoint", &request.checkpoint, err) < 0 ||
        v1_body_str(call, "message", &request.message, err) < 0 ||
        v1_body_str(call, "git_token", &request.git_token, err) < 0 ||
        v1_body_strings(call, "env", JSON_OBJECT, &request.env, err) < 0 ||
        v1_body_bool(call, "wait", &wait, err) < 0)
        return -1;
    if (session_new(runtime_of(call), &call->caller, &request, wait, &call->arena, &session, err) <
        0)
        return -1;
    call_header(&call->call, "Location",
                str_of(arena_printf(&call->arena, "/api/v1/sessions/%.*s", STR_ARG(session.id))));
    call_answer(&call->call, 201, v1_types_session(&session));
    return 0;
}

int v1_sessions_list(struct v1_call *call, struct error *err)
{
    struct session *items = NULL;
    size_t count = 0;
    json_t *array;

    if (session_list(runtime_of(call), &call->caller, &call->arena, &items, &count, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, v1_types_session(&items[i]));
    call_answer(&call->call, 200, json_pack("{s:o}", "sessions", array));
    return 0;
}

static int answer_session(struct v1_call *call, int status, struct error *err)
{
    struct session session = {0};

    if (session_get(runtime_of(call), &call->caller, call->params[0], &call->arena, &session, err) <
        0)
        return -1;
    call_answer(&call->call, status, v1_types_session(&session));
    return 0;
}

int v1_sessions_get(struct v1_call *call, struct error *err)
{
    return answer_session(call, 200, err);
}

/* Ended, and its sandbox with it unless ?keep_sandbox. */
int v1_sessions_delete(struct v1_call *call, struct error *err)
{
    bool keep = false, force = false;
    struct error why = {0};
    int r;

    if (v1_query_bool(call, "keep_sandbox", &keep, err) < 0 ||
        v1_query_bool(call, "force", &force, err) < 0)
        return -1;
    r = session_cancel(runtime_of(call), &call->caller, call->params[0], !keep, force ? &why : NULL,
                       err);
    if (r < 0)
        return -1;
    v1_types_removed(call, r, &why);
    return 0;
}

int v1_sessions_message(struct v1_call *call, struct error *err)
{
    struct str text = STR_NONE;

    if (v1_body_str(call, "text", &text, err) < 0 || v1_body_str(call, "message", &text, err) < 0)
        return -1;
    if (!text.len)
        return error_set(err, ERROR_INVALID, "'message' is missing");
    if (session_send(runtime_of(call), &call->caller, call->params[0], text, err) < 0)
        return -1;
    return answer_session(call, 202, err);
}

int v1_sessions_pause(struct v1_call *call, struct error *err)
{
    if (session_pause(runtime_of(call), &call->caller, call->params[0], err) < 0)
        return -1;
    return answer_session(call, 200, err);
}

int v1_sessions_resume(struct v1_call *call, struct error *err)
{
    if (session_resume(runtime_of(call), &call->caller, call->params[0], err) < 0)
        return -1;
    return answer_session(call, 200, err);
}

int v1_sessions_interrupt(struct v1_call *call, struct error *err)
{
    if (session_interrupt(runtime_of(call), &call->caller, call->params[0], err) < 0)
        return -1;
    return answer_session(call, 200, err);
}

int v1_sessions_cancel(struct v1_call *call, struct error *err)
{
    bool kill_sandbox = false;

    if (v1_body_bool(call, "kill_sandbox", &kill_sandbox, err) < 0 ||
        session_cancel(runtime_of(call), &call->caller, call->params[0], kill_sandbox, NULL, err) <
            0)
        return -1;
    return answer_session(call, 200, err);
}

int v1_sessions_snapshot(struct v1_call *call, struct error *err)
{
    struct runtime_snapshot snapshot = {0};
    struct str alias = STR_NONE;

    if (v1_body_str(call, "alias", &alias, err) < 0 || v1_scope_snapshot(call, alias, err) < 0 ||
        session_snapshot(runtime_of(call), &call->caller, call->params[0], alias, &call->arena,
                         &snapshot, err) < 0)
        return -1;
    call_answer(&call->call, 201, v1_types_snapshot(&snapshot));
    return 0;
}

int v1_sessions_approve(struct v1_call *call, struct error *err)
{
    struct str request_id = STR_NONE, option = STR_NONE;
    bool allow = true;

    if (v1_body_str(call, "request_id", &request_id, err) < 0 ||
        v1_body_str(call, "option", &option, err) < 0 ||
        v1_body_bool(call, "allow", &allow, err) < 0)
        return -1;
    if (!request_id.len)
        return error_set(err, ERROR_INVALID,
                         "'request_id' is missing: it is in the event permission.requested");
    if (session_approve(runtime_of(call), &call->caller, call->params[0], request_id, option, allow,
                        err) < 0)
        return -1;
    return answer_session(call, 200, err);
}

static const struct json_field pull_fields[] = {
    JSON_FIELD(struct runtime_pull, title, "title", 0),
    JSON_FIELD(struct runtime_pull, body, "body", 0),
    JSON_FIELD(struct runtime_pull, base, "base", 0),
    JSON_FIELD(struct runtime_pull, draft, "draft", 0),
    JSON_END,
};

static int body_pull(struct v1_call *call, struct runtime_pull *out, struct runtime_push *push,
                     struct error *err)
{
    json_t *given = NULL;

    if (v1_body_object(call, "pr", &given, err) < 0)
        return -1;
    if (!given)
        return 0;
    push->pull = out;
    return v1_members_check(given, v1_members_pull, err) < 0 ||
                   json_read(pull_fields, given, out, err) < 0
               ? error_prefix(err, "'pr'")
               : 0;
}

static json_t *pushed_json(const struct runtime_pushed *pushed)
{
    const struct runtime_pulled *pull = &pushed->pull;
    json_t *json = json_pack("{s:o, s:o, s:b}", "branch", json_str(pushed->branch), "commit",
                             pushed->commit.len ? json_str(pushed->commit) : json_null(), "nothing",
                             (int)pushed->nothing);

    if (pull->number)
        (void)json_object_set_new(
            json, "pr",
            json_pack("{s:I, s:o, s:o, s:b}", "number", (json_int_t)pull->number, "url",
                      pull->url.len ? json_str(pull->url) : json_null(), "base",
                      json_str(pull->base), "existed", (int)pull->existed));
    return json;
}

int v1_sessions_push(struct v1_call *call, struct error *err)
{
    struct runtime_push push = {0};
    struct runtime_pushed pushed = {0};
    struct runtime_pull pull = {0};

    if (v1_body_str(call, "branch", &push.branch, err) < 0 ||
        v1_body_str(call, "message", &push.message, err) < 0 ||
        v1_body_str(call, "remote", &push.remote, err) < 0 ||
        v1_body_str(call, "git_token", &push.token, err) < 0 ||
        v1_body_bool(call, "force", &push.force, err) < 0 || body_pull(call, &pull, &push, err) < 0)
        return -1;
    if (session_push(runtime_of(call), &call->caller, call->params[0], &push, &call->arena, &pushed,
                     err) < 0) {
        /* The repository did not take our credentials: something has to be set up first. */
        if (err->code != ERROR_CONFLICT || !str_starts(str_of(err->message), STR("auth")))
            return -1;
        v1_refuse(call, 412, "precondition", err->message, NULL);
        return 0;
    }
    call_answer(&call->call, 200, pushed_json(&pushed));
    return 0;
}

int v1_sessions_history(struct v1_call *call, struct error *err)
{
    int64_t limit = SESSION_HISTORY;
    json_t *history = NULL;

    if (v1_query_int(call, "limit", 1, SESSION_HISTORY_MAX, &limit, err) < 0 ||
        session_history(runtime_of(call), &call->caller, call->params[0], limit, &history, err) < 0)
        return -1;
    call_answer(&call->call, 200, history);
    return 0;
}

static const char *change_word(char status)
{
    return status == 'A' ? "added" : status == 'D' ? "deleted" : "modified";
}

static json_t *change_json(const struct session_change *change)
{
    return json_pack("{s:o, s:s, s:o, s:o, s:b, s:o, s:b}", "path", json_str(change->path),
                     "status", change_word(change->status), "added",
                     change->binary ? json_null() : json_integer(change->added), "removed",
                     change->binary ? json_null() : json_integer(change->removed), "binary",
                     (int)change->binary, "diff",
                     change->diff.len && !change->binary ? json_str(change->diff) : json_null(),
                     "truncated", (int)change->cut);
}

int v1_sessions_changes(struct v1_call *call, struct error *err)
{
    struct session_changes changes;
    json_t *files;

    if (session_changes(runtime_of(call), &call->caller, call->params[0], &call->arena, &changes,
                        err) < 0)
        return -1;
    files = json_array();
    for (size_t i = 0; i < changes.count; i++)
        (void)json_array_append_new(files, change_json(&changes.items[i]));
    call_answer(&call->call, 200,
                json_pack("{s:o, s:o, s:o, s:b}", "kind", json_str(changes.kind), "base",
                          changes.base.len ? json_str(changes.base) : json_null(), "files", files,
                          "truncated", (int)changes.truncated));
    return 0;
}
