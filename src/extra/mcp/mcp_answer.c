/* How requests are answered: one JSON text, or events of which the last is the answer. */
#include "extra/mcp/mcp_tool.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/http/http_errors.h"
#include "protocol/json/json_shape.h"

enum { BEAT_MS = 10 * 1000, TTL_MS = 60 * 1000 };

static void begin_stream(struct mcp_call *call)
{
    if (!call->pipe.writes)
        call_pipe_begin(&call->pipe, 200, "text/event-stream; charset=utf-8");
}

static int send_event(struct mcp_call *call, json_t *message_consume)
{
    auto_json json_t *message = message_consume;
    auto_free char *text = json_text(message);
    auto_buf struct buf event = {0};

    begin_stream(call);
    buf_init(&event, strlen(text) + 64);
    (void)buf_printf(&event, "event: message\ndata: ");
    (void)buf_add_str(&event, str_of(text));
    (void)buf_add_str(&event, STR("\n\n"));
    call->progress.told_ms = clock_mono_ms();
    return call_pipe_write(&call->pipe, buf_str(&event));
}

/* What may be kept by its client for a while. */
static bool is_kept(struct str method)
{
    return str_ends(method, STR("/list")) || str_is(method, "server/discover") ||
           str_is(method, "resources/read");
}

/* What results have in the stateless revision. Tools differ by API key, so what is kept is one client's. */
static void add_meta(struct str method, json_t *result)
{
    if (is_kept(method)) {
        (void)json_object_set_new(result, "ttlMs", json_integer(TTL_MS));
        (void)json_object_set_new(result, "cacheScope", json_string("private"));
    }
    if (!json_object_get(result, "resultType"))
        (void)json_object_set_new(result, "resultType", json_string("complete"));
    if (!json_object_get(result, "_meta"))
        (void)json_object_set_new(result, "_meta",
                                  json_pack("{s:{s:s, s:s}}", "io.modelcontextprotocol/serverInfo",
                                            "name", "quicksand", "version", QUICKSAND_VERSION));
}

void mcp_answer(struct mcp_call *call, json_t *result_consume)
{
    json_t *answer;

    if (call->message.stateless)
        add_meta(call->message.method, result_consume);
    answer = json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", call->message.id, "result",
                       result_consume);
    if (call->pipe.writes)
        (void)send_event(call, answer);
    else
        call_answer(&call->call, 200, answer);
}

void mcp_answer_fault(struct mcp_call *call, struct mcp_fault *fault)
{
    json_t *answer = mcp_fault_json(fault, call->message.id);

    if (call->pipe.writes)
        (void)send_event(call, answer);
    else
        call_answer(&call->call, fault->status, answer);
}

void mcp_refuse(struct mcp_call *call, const struct error *err)
{
    struct mcp_fault fault;
    int status = http_error_status(err->code);

    (void)mcp_fault_set(&fault, status, MCP_REFUSED, "%s", mcp_tell(call, err).p);
    mcp_answer_fault(call, &fault);
    if (status == 401)
        call_header(&call->call, "WWW-Authenticate", STR("Bearer"));
    if (status == 429 || status == 503)
        call_header(&call->call, "Retry-After", STR("5"));
}

struct str mcp_tell(struct mcp_call *call, const struct error *err)
{
    char told[sizeof(err->message)];

    (void)str_copy(str_of(err->message), told, sizeof(told));
    runtime_mask(call->mcp->config.runtime, call->caller.team_id, told);
    if (err->code != ERROR_INTERNAL && err->code != ERROR_NONE)
        return arena_str(&call->arena, str_of(told));
    log_error("mcp", "request=%s %.*s: %s", call->request_id, STR_ARG(call->path), told);
    return str_of(arena_printf(&call->arena,
                               "internal error; the server's log has the details under request=%s",
                               call->request_id));
}

int mcp_notify(struct mcp_call *call, const char *method, json_t *params_consume)
{
    if (call->takes_events)
        return send_event(call, json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method,
                                          "params", params_consume));
    json_decref(params_consume);
    return call_pipe_gone(&call->pipe) ? -1 : 0;
}

int mcp_beat(struct mcp_call *call)
{
    int64_t now = clock_mono_ms();

    if (!call->progress.told_ms)
        call->progress.told_ms = call->started_us / 1000;
    if (!call->takes_events || now - call->progress.told_ms < BEAT_MS)
        return call_pipe_gone(&call->pipe) ? -1 : 0;
    call->progress.told_ms = now;
    begin_stream(call);
    return call_pipe_write(&call->pipe, STR(": it runs\n\n"));
}
