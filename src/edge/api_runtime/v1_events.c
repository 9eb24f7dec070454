/* Events: as a stream, or as a list of what was. */
#include "edge/api_runtime/v1_sse.h"
#include "edge/api_runtime/v1_types.h"
#include "protocol/json/json_out.h"
#include "runtime/session/session.h"

enum { RECENT = 10, BUFFERED = 100 };

static int read_filter(struct v1_call *call, struct runtime_event_filter *out, struct error *err)
{
    out->agent_id = call->caller.agent_id;
    if (v1_query_str(call, "sandbox_id", &out->sandbox_id, err) < 0 ||
        v1_query_str(call, "session_id", &out->session_id, err) < 0 ||
        v1_query_str(call, "process_id", &out->process_id, err) < 0 ||
        v1_query_str(call, "type", &out->type, err) < 0)
        return -1;
    if (!call->key_sandbox.len)
        return 0;
    if (out->sandbox_id.len && !str_eq(out->sandbox_id, call->key_sandbox))
        return error_set(err, ERROR_FORBIDDEN, "this API key is for sandbox '%.*s' only",
                         STR_ARG(call->key_sandbox));
    out->sandbox_id = call->key_sandbox;
    return 0;
}

/* Where the client stopped the last time: the header of a reconnecting EventSource, or the query.
 * Keeps what is in out when there is neither. */
static int read_since(struct v1_call *call, int64_t *out, struct error *err)
{
    int64_t number;

    if (v1_query_int(call, "since", 0, INT64_MAX, out, err) < 0)
        return -1;
    if (str_to_i64(call->last_event_id, &number) && number > 0)
        *out = number;
    return 0;
}

/* Those behind `since`; without one the newest, in their order. */
static int read_events(struct v1_call *call, const struct runtime_event_filter *filter,
                       int64_t since, struct runtime_event_texts *out, struct error *err)
{
    struct runtime *runtime = call->v1->config.runtime;
    int64_t limit = 100;

    if (v1_query_int(call, "limit", 1, RUNTIME_EVENTS_MAX, &limit, err) < 0)
        return -1;
    return since < 0 ? runtime_event_last(runtime, &call->caller, filter, (size_t)limit,
                                          &call->arena, out, err)
                     : runtime_event_list(runtime, &call->caller, filter, since, (size_t)limit,
                                          &call->arena, out, err);
}

static int answer_list(struct v1_call *call, const struct runtime_event_filter *filter,
                       int64_t since, struct error *err)
{
    struct runtime_event_texts events = {0};
    auto_buf struct buf text = {0};

    if (read_since(call, &since, err) < 0 || read_events(call, filter, since, &events, err) < 0)
        return -1;
    buf_init_charged(&text, SIZE_MAX);
    json_out_open(&text, NULL, '{');
    json_out_open(&text, "events", '[');
    for (size_t i = 0; i < events.count; i++)
        json_out_raw(&text, NULL, events.items[i].json);
    json_out_close(&text, "]");
    json_out_int(&text, "next",
                 events.count ? events.items[events.count - 1].id
                 : since > 0  ? since
                              : 0);
    json_out_close(&text, "}");
    if (text.refused)
        return buf_refuse(&text, err);
    call->text = buf_take(&text);
    call->status = 200;
    return 0;
}

/* A stream unless JSON was asked for, by what is accepted or by a limit. */
static bool wants_list(struct v1_call *call)
{
    struct str limit = STR_NONE, format = STR_NONE;
    struct error ignored;

    if (str_find_str(call->accept, STR("text/event-stream")) >= 0)
        return false;
    if (str_find_str(call->accept, STR("application/json")) >= 0)
        return true;
    (void)v1_query_str(call, "limit", &limit, &ignored);
    (void)v1_query_str(call, "format", &format, &ignored);
    return limit.len || str_is(format, "json");
}

int v1_events(struct v1_call *call, struct error *err)
{
    struct v1_sse_options options = {.since = -1};

    if (read_filter(call, &options.filter, err) < 0)
        return -1;
    if (wants_list(call))
        return answer_list(call, &options.filter, -1, err);
    if (read_since(call, &options.since, err) < 0)
        return -1;
    return v1_sse_open(call, &options, err);
}

int v1_events_recent(struct v1_call *call, struct error *err)
{
    struct v1_sse_options options = {
        .since = -1, .replay = RECENT, .buffered = BUFFERED, .plain_names = true};

    if (read_filter(call, &options.filter, err) < 0 || read_since(call, &options.since, err) < 0)
        return -1;
    return v1_sse_open(call, &options, err);
}

/* The session of the path, which must be there and the caller's. */
static int read_session(struct v1_call *call, struct runtime_event_filter *out, struct error *err)
{
    struct session session = {0};

    if (session_get(call->v1->config.runtime, &call->caller, call->params[0], &call->arena,
                    &session, err) < 0 ||
        v1_query_str(call, "type", &out->type, err) < 0)
        return -1;
    out->session_id = call->params[0];
    return 0;
}

/* From the session's beginning, unless the client has seen some of it. */
int v1_events_session(struct v1_call *call, struct error *err)
{
    struct v1_sse_options options = {0};

    if (read_session(call, &options.filter, err) < 0 || read_since(call, &options.since, err) < 0)
        return -1;
    return v1_sse_open(call, &options, err);
}

int v1_sessions_events(struct v1_call *call, struct error *err)
{
    struct runtime_event_filter filter = {0};

    if (read_session(call, &filter, err) < 0)
        return -1;
    return answer_list(call, &filter, 0, err);
}
