#include "runtime/session/acp.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"

const char *acp_url(const struct acp_target *target, struct arena *arena)
{
    return arena_printf(arena, "%s/v1/acp/%s?agent=%s", target->base_url, target->server_id,
                        target->agent);
}

/* The words of a refusal: a problem document's detail, or the beginning of the text. */
static int refused(int status, struct str text, struct error *err)
{
    auto_json json_t *json = NULL;
    struct error ignored;
    struct str detail = STR_NONE;
    enum error_code code = status == 404   ? ERROR_NOT_FOUND
                           : status == 401 ? ERROR_UNAUTHORIZED
                           : status >= 500 ? ERROR_UNAVAILABLE
                                           : ERROR_INVALID;

    if (json_parse(text, &json, &ignored) == 0) {
        detail = json_get_str(json, "detail");
        if (!detail.p)
            detail = json_get_str(json, "message");
    }
    if (!detail.p)
        detail = str_n(text.p, text.len < 200 ? text.len : 200);
    return error_set(err, code, "sandbox-agent answered %d: %.*s", status, STR_ARG(detail));
}

static int read_answer(const struct fetch_response *response, json_t **out, struct error *err)
{
    struct str text = buf_str(&response->body);

    if (response->status < 200 || response->status > 299)
        return refused(response->status, text, err);
    if (!out)
        return 0;
    *out = NULL;
    if (str_trim(text).len == 0)
        return 0;
    if (json_parse(text, out, err) < 0)
        return error_set(err, ERROR_UNAVAILABLE, "sandbox-agent's answer is not JSON");
    return 0;
}

int acp_rest(struct fetch *fetch, const struct acp_target *target, const char *method,
             const char *path, struct str body, uint32_t timeout_ms, json_t **out,
             struct error *err)
{
    auto_response struct fetch_response response = {0};
    auto_arena struct arena arena = {0};
    struct fetch_request request = {
        .method = method,
        .url = arena_printf(&arena, "%s%s", target->base_url, path),
        .headers = target->headers,
        .header_count = target->header_count,
        .reach = fetch_reach(target->public_only),
        .body = body,
        .timeout_ms = timeout_ms,
        .response_max = ACP_MESSAGE_MAX,
    };

    if (fetch_call(fetch, &request, &response, err) < 0)
        return error_prefix(err, "sandbox-agent");
    return read_answer(&response, out, err);
}

static char *message_text(json_t *message_consume, const char *name, json_t *part_consume)
{
    char *text;

    (void)json_object_set_new(message_consume, "jsonrpc", json_string("2.0"));
    (void)json_object_set_new(message_consume, name, part_consume ? part_consume : json_object());
    text = json_text(message_consume);
    json_decref(message_consume);
    return text;
}

char *acp_request_text(int64_t id, const char *method, json_t *params_consume)
{
    return message_text(json_pack("{s:I,s:s}", "id", (json_int_t)id, "method", method), "params",
                        params_consume);
}

char *acp_notice_text(const char *method, json_t *params_consume)
{
    return message_text(json_pack("{s:s}", "method", method), "params", params_consume);
}

char *acp_result_text(json_t *id, json_t *result_consume)
{
    return message_text(json_pack("{s:O}", "id", id), "result", result_consume);
}

char *acp_refusal_text(json_t *id, int code, const char *message)
{
    return message_text(json_pack("{s:O}", "id", id), "error",
                        json_pack("{s:i,s:s}", "code", code, "message", message));
}

int acp_outcome(int status, struct str text, json_t **out, struct error *err)
{
    auto_json json_t *json = NULL;
    const json_t *problem;
    json_t *result;

    *out = NULL;
    if (status < 200 || status > 299)
        return refused(status, text, err);
    if (json_parse(text, &json, err) < 0)
        return error_set(err, ERROR_UNAVAILABLE, "sandbox-agent's answer is not JSON");
    problem = json_object_get(json, "error");
    if (json_is_object(problem)) {
        struct str words = json_get_str(problem, "message");

        return error_set(err, ERROR_INVALID, "the agent refused: %.*s", STR_ARG(words));
    }
    result = json_object_get(json, "result");
    *out = result ? json_incref(result) : json_object();
    return 0;
}

int acp_call(struct fetch *fetch, const struct acp_target *target, int64_t id, const char *method,
             json_t *params_consume, uint32_t timeout_ms, json_t **out, struct error *err)
{
    auto_free char *text = acp_request_text(id, method, params_consume);
    auto_response struct fetch_response response = {0};
    auto_arena struct arena arena = {0};
    struct fetch_request request = {
        .method = "POST",
        .url = acp_url(target, &arena),
        .headers = target->headers,
        .header_count = target->header_count,
        .reach = fetch_reach(target->public_only),
        .body = str_of(text),
        .timeout_ms = timeout_ms,
        .response_max = ACP_MESSAGE_MAX,
    };

    if (fetch_call(fetch, &request, &response, err) < 0 ||
        acp_outcome(response.status, buf_str(&response.body), out, err) < 0)
        return error_prefix(err, "%s", method);
    return 0;
}

/* ---- the stream of events ---- */

void acp_feed_init(struct acp_feed *feed)
{
    *feed = (struct acp_feed){0};
    buf_init(&feed->line, ACP_MESSAGE_MAX + 64);
    buf_init(&feed->data, ACP_MESSAGE_MAX);
}

void acp_feed_done(struct acp_feed *feed)
{
    buf_done(&feed->line);
    buf_done(&feed->data);
}

/* An empty line ends an event. */
static void event_end(struct acp_feed *feed, acp_message_fn *fn, void *arg)
{
    auto_json json_t *message = NULL;
    struct error ignored;

    if (feed->data.len || feed->data.overflowed) {
        if (feed->data.overflowed || json_parse(buf_str(&feed->data), &message, &ignored) < 0)
            feed->dropped++;
        else
            fn(arg, feed->id, message);
    }
    buf_clear(&feed->data);
}

static void field(struct acp_feed *feed, struct str line)
{
    struct str value = line, name = str_split(&value, ':');

    if (value.len && value.p[0] == ' ')
        value = str_skip(value, 1);
    if (str_is(name, "id")) {
        int64_t id;

        if (str_to_i64(value, &id) && id >= 0)
            feed->id = id;
    } else if (str_is(name, "data")) {
        if (feed->data.len)
            (void)buf_add_char(&feed->data, '\n');
        (void)buf_add_str(&feed->data, value);
    }
}

void acp_feed_add(struct acp_feed *feed, struct str bytes, acp_message_fn *fn, void *arg)
{
    while (bytes.len) {
        ptrdiff_t end = str_find(bytes, '\n');
        struct str line;

        if (end < 0) {
            (void)buf_add_str(&feed->line, bytes);
            return;
        }
        (void)buf_add(&feed->line, bytes.p, (size_t)end);
        bytes = str_skip(bytes, (size_t)end + 1);
        line = buf_str(&feed->line);
        if (line.len && line.p[line.len - 1] == '\r')
            line.len--;
        if (feed->line.overflowed)
            feed->data.overflowed = true;
        else if (line.len == 0)
            event_end(feed, fn, arg);
        else
            field(feed, line);
        buf_clear(&feed->line);
    }
}
