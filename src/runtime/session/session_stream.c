/* What goes to the agent and what comes from it, on the hub's thread.
 *
 * The events of an agent become events of the runtime: pieces of text are only passed on, everything
 * else is kept. A request for permission is answered at once when the session's mode allows it, else
 * it waits for session_approve(). */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"
#include "runtime/session/session_internal.h"

enum {
    POST_MS = 20000,
    TURN_MS = 24 * 3600 * 1000, /* an agent may take long */
    TYPE_MAX = 64,
};

/* ---- one message that nobody waits for ---- */

struct post {
    struct live_session *live;
    struct fetch_hub_stream *stream;
};

static void post_end(void *arg, const struct error *why)
{
    struct post *post = arg;

    /* The one who sent it has the lock until post->stream is set. */
    (void)pthread_mutex_lock(&post->live->lock);
    post->live->posts--;
    (void)pthread_mutex_unlock(&post->live->lock);
    if (why)
        log_warn("session", "id=%.*s message to the agent failed: %s", STR_ARG(post->live->row.id),
                 why->message);
    fetch_hub_close(post->stream);
    session_unref(post->live);
    free(post);
}

static void ignore_head(void *arg, int status)
{
    (void)arg;
    (void)status;
}

static void ignore_data(void *arg, struct str data)
{
    (void)arg;
    (void)data;
}

bool session_post(struct live_session *live, char *text_consume)
{
    static const struct fetch_hub_events events = {
        .on_head = ignore_head, .on_data = ignore_data, .on_end = post_end};
    auto_arena struct arena arena = {0};
    auto_free char *text = text_consume;
    struct post *post;
    struct fetch_request request = {
        .method = "POST",
        .url = acp_url(&live->target, &arena),
        .headers = live->target.headers,
        .header_count = live->target.header_count,
        .reach = fetch_reach(live->target.public_only),
        .body = str_of(text),
        .timeout_ms = POST_MS,
    };

    if (live->posts >= SESSION_POSTS_MAX)
        return false;
    live->posts++;
    post = xcalloc(1, sizeof(*post));
    post->live = session_ref(live);
    post->stream = fetch_hub_open(live->runtime->sessions->hub, &request, &events, post);
    return true;
}

bool session_post_cancel(struct live_session *live)
{
    return session_post(live,
                        acp_notice_text("session/cancel",
                                        json_pack("{s:s}", "sessionId", live->row.acp_session.p)));
}

/* ---- permissions ---- */

bool session_permitted(enum permission permission, struct str tool_kind)
{
    static const char *const reading[] = {"read", "search", "think"};
    static const char *const editing[] = {"edit", "delete", "move"};

    if (permission == PERMISSION_BYPASS)
        return true;
    for (size_t i = 0; i < sizeof(reading) / sizeof(reading[0]); i++)
        if (str_is(tool_kind, reading[i]))
            return true;
    for (size_t i = 0; i < sizeof(editing) / sizeof(editing[0]); i++)
        if (str_is(tool_kind, editing[i]))
            return permission == PERMISSION_EDIT;
    return false;
}

struct str session_option(const json_t *options, bool allow)
{
    static const char *const kinds[2][2] = {{"reject_once", "reject_always"},
                                            {"allow_once", "allow_always"}};

    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < json_array_size(options); i++) {
            const json_t *option = json_array_get(options, i);

            if (str_is(json_get_str(option, "kind"), kinds[allow][k]))
                return json_get_str(option, "optionId");
        }
    return STR_NONE;
}

/* As text, whatever it is: the name by which it is approved. */
static char *request_name(const json_t *id)
{
    return json_is_string(id) ? xstrdup(json_string_value(id)) : json_dumps(id, JSON_ENCODE_ANY);
}

json_t *session_selected(struct str option)
{
    return option.len ? json_pack("{s:{s:s,s:s%}}", "outcome", "outcome", "selected", "optionId",
                                  option.p, option.len)
                      : json_pack("{s:{s:s}}", "outcome", "outcome", "cancelled");
}

static struct str short_option(const json_t *options, bool allow)
{
    struct str option = session_option(options, allow);

    return option.p && option.len <= SESSION_PERMISSION_NAME_MAX ? option : STR("");
}

bool session_expect(struct live_session *live, json_t *id, const json_t *options)
{
    auto_free char *name = request_name(id);

    if (!name || strlen(name) > SESSION_PERMISSION_NAME_MAX ||
        json_object_get(live->permissions, name) ||
        json_object_size(live->permissions) >= SESSION_PERMISSIONS_MAX)
        return false;
    return json_object_set_new(live->permissions, name,
                               json_pack("{s:O, s:o, s:o}", "id", id, "allow",
                                         json_str(short_option(options, true)), "deny",
                                         json_str(short_option(options, false)))) == 0;
}

static void on_permission(struct live_session *live, json_t *id, json_t *params)
{
    json_t *options = json_object_get(params, "options");
    json_t *tool = json_object_get(params, "toolCall");
    auto_free char *name = request_name(id);
    json_t *data = json_pack("{s:s,s:O?,s:O?}", "request_id", name ? name : "", "tool", tool,
                             "options", options);

    if (session_permitted(live->row.permission, json_get_str(tool, "kind"))) {
        session_event(live, "permission.granted", data);
        (void)session_post(live,
                           acp_result_text(id, session_selected(session_option(options, true))));
        return;
    }
    if (!session_expect(live, id, options)) {
        session_event(live, "permission.denied", data);
        (void)session_post(live,
                           acp_result_text(id, session_selected(session_option(options, false))));
        return;
    }
    session_event(live, "permission.requested", data);
}

/* ---- events ---- */

bool session_told_admit(struct session_told *told, int64_t now_ms)
{
    int64_t more =
        told->at_ms ? (now_ms - told->at_ms) * SESSION_TOLD_PER_S / 1000 : SESSION_TOLD_BURST;

    if (more > 0) {
        told->room =
            told->room + more < SESSION_TOLD_BURST ? told->room + more : SESSION_TOLD_BURST;
        told->at_ms = now_ms;
    }
    if (told->room > 0) {
        told->room--;
        return true;
    }
    told->dropped++;
    return false;
}

/* An agent that tells too much is not listened to for a while: all sessions share one thread, and all
 * teams one store. That it happened is told. */
static bool admit(struct live_session *live)
{
    int64_t dropped = live->told.dropped;

    if (!session_told_admit(&live->told, clock_mono_ms()))
        return false;
    if (dropped) {
        live->told.dropped = 0;
        session_event(live, "agent.events.dropped",
                      json_pack("{s:I}", "count", (json_int_t)dropped));
    }
    return true;
}

/* "session/foo_Bar" -> "agent.session.foo_bar"; what does not fit becomes '_'. */
static void event_type(struct str method, char out[TYPE_MAX])
{
    size_t n = 6;

    memcpy(out, "agent.", n);
    for (size_t i = 0; i < method.len && n < TYPE_MAX - 1; i++) {
        char c = method.p[i];

        if (c >= 'A' && c <= 'Z')
            c = (char)(c - 'A' + 'a');
        else if (c == '/')
            c = '.';
        else if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.'))
            c = '_';
        out[n++] = c;
    }
    out[n] = '\0';
}

static void on_update(struct live_session *live, json_t *params)
{
    json_t *update = json_object_get(params, "update");
    struct str kind = json_get_str(update, "sessionUpdate");
    char type[TYPE_MAX];

    if (str_ends(kind, STR("_chunk"))) {
        if (str_is(kind, "agent_message_chunk"))
            session_said(live, json_get_str(json_object_get(update, "content"), "text"));
        event_type(kind, type);
        session_pass(live, type, update);
        return;
    }
    event_type(kind.len ? kind : STR("update"), type);
    session_event(live, type, json_incref(update ? update : params));
}

/* The built-in mock agent sends back each request as it came. Of these only a prompt is worth showing, as an answer. */
static void on_mock_echo(struct live_session *live, const json_t *params)
{
    const json_t *request = json_object_get(params, "message");
    const json_t *prompt = json_object_get(json_object_get(request, "params"), "prompt");
    struct str text = json_get_str(json_array_get(prompt, 0), "text");

    if (str_is(json_get_str(request, "method"), "session/prompt"))
        session_event(live, "agent.message",
                      json_pack("{s:o}", "text", json_sprintf("You said: %.*s", STR_ARG(text))));
}

static void on_notice(struct live_session *live, struct str method, json_t *params)
{
    char type[TYPE_MAX];

    if (str_is(method, "mock/echo")) {
        on_mock_echo(live, params);
        return;
    }

    if (str_is(method, "session/update")) {
        on_update(live, params);
        return;
    }
    if (str_is(method, "_adapter/agent_exited")) {
        session_event(live, "agent.exited", params ? json_incref(params) : NULL);
        live->agent_exited = true;
        session_wake(live);
        return;
    }
    event_type(method, type);
    session_event(live, type, params ? json_incref(params) : NULL);
}

/* Answers reach whoever asked; but the end of a turn that was begun by an earlier process, or whose
 * connection broke, is only seen here. */
static void on_answer(struct live_session *live, const json_t *message)
{
    json_t *reason = json_object_get(json_object_get(message, "result"), "stopReason");
    int64_t id = json_integer_value(json_object_get(message, "id"));

    if (!reason || live->orphan_id == 0 || (live->orphan_id > 0 && live->orphan_id != id))
        return;
    live->orphan_id = 0;
    session_event(live, "agent.turn.completed", json_pack("{s:O}", "stop_reason", reason));
    live->turn_done = true;
    session_wake(live);
}

static void on_message(void *arg, int64_t id, json_t *message)
{
    struct live_session *live = arg;
    struct str method = json_get_str(message, "method");
    json_t *request_id = json_object_get(message, "id");
    json_t *params = json_object_get(message, "params");

    if (id && id <= live->row.last_acp_id) {
        /* Seen by an earlier process; but whoever was asked for permission may still answer. */
        if (str_is(method, "session/request_permission") && request_id)
            (void)session_expect(live, request_id, json_object_get(params, "options"));
        return;
    }
    if (id)
        live->row.last_acp_id = id;
    if (live->prompt && !live->prompt_taken) {
        live->prompt_taken = true;
        if (live->interrupted)
            (void)session_post_cancel(live);
        live->interrupted = false;
        session_wake(live);
    }
    if (!method.p) {
        on_answer(live, message);
        return;
    }
    if (!str_is(method, "_adapter/agent_exited") && !admit(live))
        return;
    if (!request_id || json_is_null(request_id))
        on_notice(live, method, params);
    else if (str_is(method, "session/request_permission"))
        on_permission(live, request_id, params);
    else
        (void)session_post(live,
                           acp_refusal_text(request_id, -32601, "not offered by this client"));
    session_note_seen(live, id);
}

static void events_data(void *arg, struct str data)
{
    struct live_session *live = arg;

    (void)pthread_mutex_lock(&live->lock);
    if (live->events)
        acp_feed_add(&live->feed, data, on_message, live);
    session_unlock_soon(live);
}

static void events_end(void *arg, const struct error *why)
{
    struct live_session *live = arg;

    (void)pthread_mutex_lock(&live->lock);
    live->attached = false;
    live->lost = true;
    (void)pthread_mutex_unlock(&live->lock);
    log_info("session", "id=%.*s events of the agent ended: %s", STR_ARG(live->row.id),
             why ? why->message : "complete");
    session_kick(live);
}

void session_stream_open(struct live_session *live)
{
    static const struct fetch_hub_events events = {
        .on_head = ignore_head, .on_data = events_data, .on_end = events_end};
    auto_arena struct arena arena = {0};
    struct pair headers[ACP_HEADERS_MAX + 1];
    struct fetch_request request = {
        .method = "GET",
        .url = acp_url(&live->target, &arena),
        .headers = headers,
        .header_count = live->target.header_count + 1,
        .reach = fetch_reach(live->target.public_only),
    };

    memcpy(headers, live->target.headers, live->target.header_count * sizeof(headers[0]));
    headers[live->target.header_count] = (struct pair){STR("Accept"), STR("text/event-stream")};
    acp_feed_done(&live->feed);
    acp_feed_init(&live->feed);
    live->lost = false;
    live->events = fetch_hub_open(live->runtime->sessions->hub, &request, &events, live);
}

/* ---- prompts ---- */

static void prompt_head(void *arg, int status)
{
    struct live_session *live = arg;

    (void)pthread_mutex_lock(&live->lock);
    live->prompt_status = status;
    (void)pthread_mutex_unlock(&live->lock);
}

static void prompt_data(void *arg, struct str data)
{
    struct live_session *live = arg;

    (void)pthread_mutex_lock(&live->lock);
    (void)buf_add_str(&live->prompt_answer, data);
    (void)pthread_mutex_unlock(&live->lock);
}

static void prompt_end(void *arg, const struct error *why)
{
    struct live_session *live = arg;

    (void)pthread_mutex_lock(&live->lock);
    live->prompt_over = true;
    live->prompt_error = why ? *why : (struct error){0};
    (void)pthread_mutex_unlock(&live->lock);
    session_kick(live);
}

void session_prompt(struct live_session *live, int64_t seq, struct str text)
{
    static const struct fetch_hub_events events = {
        .on_head = prompt_head, .on_data = prompt_data, .on_end = prompt_end};
    auto_arena struct arena arena = {0};
    int64_t id = live->next_id++;
    auto_free char *body =
        acp_request_text(id, "session/prompt",
                         json_pack("{s:s,s:[{s:s,s:o}]}", "sessionId", live->row.acp_session.p,
                                   "prompt", "type", "text", "text", json_str(text)));
    struct fetch_request request = {
        .method = "POST",
        .url = acp_url(&live->target, &arena),
        .headers = live->target.headers,
        .header_count = live->target.header_count,
        .reach = fetch_reach(live->target.public_only),
        .body = str_of(body),
        .timeout_ms = TURN_MS,
    };

    live->prompt_seq = seq;
    live->prompt_id = id;
    live->prompt_over = live->prompt_taken = false;
    live->prompt_status = 0;
    buf_done(&live->prompt_answer);
    buf_init(&live->prompt_answer, ACP_MESSAGE_MAX);
    live->prompt = fetch_hub_open(live->runtime->sessions->hub, &request, &events, live);
}

struct session_streams session_stream_take(struct live_session *live)
{
    struct session_streams streams = {live->events, live->prompt};

    live->events = live->prompt = NULL;
    live->attached = false;
    return streams;
}

void session_stream_close(struct session_streams streams)
{
    if (streams.events)
        fetch_hub_close(streams.events);
    if (streams.prompt)
        fetch_hub_close(streams.prompt);
}
