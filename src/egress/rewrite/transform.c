#include "egress/rewrite/transform.h"

static bool broke(struct transform *transform, const char *fault)
{
    if (!transform->fault)
        transform->fault = fault;
    return false;
}

/* ---- what is on its way ---- */

bool transform_waits(const struct transform *transform)
{
    return !transform->opaque && !transform->fault && !transform->blind &&
           !http_parser_begun(&transform->request) &&
           (transform->asked.count == ASKED_MAX ||
            asked_newest(&transform->asked) == ASKED_UPGRADE);
}

/* ---- writing ---- */

static void put_header(struct buf *out, struct str name, struct str value)
{
    (void)buf_add_str(out, name);
    (void)buf_add_str(out, STR(": "));
    (void)buf_add_str(out, value);
    (void)buf_add_str(out, STR("\r\n"));
}

/* What holds for one connection only, and how long the body is, is said by us. */
static bool is_ours(struct str name)
{
    static const struct str ours[] = {
        STR_INIT("connection"), STR_INIT("content-length"),    STR_INIT("http2-settings"),
        STR_INIT("keep-alive"), STR_INIT("proxy-connection"),  STR_INIT("te"),
        STR_INIT("trailer"),    STR_INIT("transfer-encoding"), STR_INIT("upgrade"),
    };

    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
        if (str_eq_nocase(name, ours[i]))
            return true;
    return false;
}

/* Of all that can be upgraded to, this alone is passed on: HTTP/2 would be out of our sight. */
static bool asks_websocket(const struct http_request *request)
{
    return request->upgrade && request->minor == 1 && str_is(request->method, "GET") &&
           !request->chunked && request->content_length <= 0 &&
           str_eq_nocase(http_headers_get(&request->headers, "upgrade"), STR("websocket"));
}

static void put_framing(const struct transform *transform, const struct http_request *request,
                        bool websocket, struct buf *out)
{
    bool lives = transform->request.keep_alive;

    if (websocket)
        (void)buf_add_str(out, STR("Connection: Upgrade\r\nUpgrade: websocket\r\n"));
    else if (lives != (request->minor == 1))
        put_header(out, STR("Connection"), lives ? STR("keep-alive") : STR("close"));
    if (request->chunked)
        (void)buf_add_str(out, STR("Transfer-Encoding: chunked\r\n"));
    else if (request->content_length >= 0)
        (void)buf_printf(out, "Content-Length: %lld\r\n", (long long)request->content_length);
    (void)buf_add_str(out, STR("\r\n"));
}

static void put_head(struct transform *transform, const struct http_request *request,
                     const struct rule *rule, bool websocket)
{
    struct buf *out = transform->out;

    (void)buf_printf(out, "%.*s %.*s HTTP/1.%d\r\n", STR_ARG(request->method),
                     STR_ARG(request->target), request->minor);
    for (size_t i = 0; i < request->headers.count; i++) {
        const struct pair *header = &request->headers.items[i];

        if (!is_ours(header->name) && !rule_sets(rule, header->name))
            put_header(out, header->name, header->value);
    }
    for (size_t i = 0; rule && i < rule->count; i++)
        if (rule->headers[i].value)
            put_header(out, str_of(rule->headers[i].name), str_of(rule->headers[i].value));
    put_framing(transform, request, websocket, out);
}

static bool take_head(struct transform *transform)
{
    struct http_request request = {0};
    const struct rule *rule = NULL;
    const char *refusal;
    bool websocket;

    http_parser_request(&transform->request, &request);
    if (transform->blind)
        return broke(transform, "the server's last answer was not understood");
    refusal = transform->fn(transform->arg, &request, &rule);
    if (refusal)
        return broke(transform, refusal);
    if (rule && str_is(request.method, "TRACE"))
        return broke(transform, "TRACE would show what the rule sets");
    websocket = asks_websocket(&request);
    put_head(transform, &request, rule, websocket);
    transform->chunked = request.chunked;
    asked_push(&transform->asked, websocket                        ? ASKED_UPGRADE
                                  : str_is(request.method, "HEAD") ? ASKED_HEAD
                                                                   : ASKED_PLAIN);
    return true;
}

static int on_body(void *arg, struct str payload)
{
    struct transform *transform = arg;

    if (!payload.len)
        return 0;
    if (transform->chunked)
        (void)buf_printf(transform->out, "%zx\r\n", payload.len);
    (void)buf_add_str(transform->out, payload);
    if (transform->chunked)
        (void)buf_add_str(transform->out, STR("\r\n"));
    return 0;
}

/* One step of the parser. */
static bool advance(struct transform *transform, struct str *in)
{
    switch (http_parser_feed(&transform->request, in)) {
    case HTTP_PARSE_HEAD:
        if (!take_head(transform))
            return false;
        break;
    case HTTP_PARSE_ERROR:
        return broke(transform, transform->request.error_text);
    case HTTP_PARSE_DONE:
    case HTTP_PARSE_MORE:
    case HTTP_PARSE_PAUSED:
        break;
    }
    if (transform->request.complete) {
        if (transform->chunked)
            (void)buf_add_str(transform->out, STR("0\r\n\r\n"));
        transform->chunked = false;
        http_parser_next(&transform->request);
    }
    return true;
}

bool transform_request(struct transform *transform, struct str *in, struct buf *out)
{
    transform->out = out;
    while (in->len && out->len < TRANSFORM_STEP && !transform->fault) {
        if (transform->opaque) {
            (void)buf_add_str(out, *in);
            *in = str_skip(*in, in->len);
        } else if (transform_waits(transform) || !advance(transform, in)) {
            break;
        }
    }
    if (out->overflowed)
        return broke(transform, "a request is too large");
    return !transform->fault;
}

/* ---- answers ---- */

static bool take_status(struct transform *transform)
{
    int status = transform->answer.ll.status_code;

    if (status != 101)
        return true;
    if (asked_oldest(&transform->asked) != ASKED_UPGRADE || transform->asked.count != 1)
        return broke(transform, "the server changes to another protocol unasked");
    transform->opaque = true;
    return true;
}

static void end_answer(struct transform *transform)
{
    if (transform->answer.ll.status_code >= 200)
        asked_pop(&transform->asked);
    http_parser_next(&transform->answer);
}

bool transform_answer(struct transform *transform, struct str bytes)
{
    while (bytes.len && !transform->opaque && !transform->blind && !transform->fault) {
        if (!transform->answer.head_done)
            transform->answer.head_only = asked_oldest(&transform->asked) == ASKED_HEAD;
        switch (http_parser_feed(&transform->answer, &bytes)) {
        case HTTP_PARSE_HEAD:
            if (!take_status(transform))
                return false;
            break;
        case HTTP_PARSE_ERROR:
            transform->blind = true; /* it arrives as it is, but is the last one */
            break;
        case HTTP_PARSE_DONE:
        case HTTP_PARSE_MORE:
        case HTTP_PARSE_PAUSED:
            break;
        }
        if (transform->answer.complete && !transform->opaque)
            end_answer(transform);
    }
    return !transform->fault;
}

void transform_init(struct transform *transform, transform_fn *fn, void *arg)
{
    *transform = (struct transform){.fn = fn, .arg = arg};
    http_parser_init(&transform->request, true, on_body, transform);
    http_parser_init(&transform->answer, false, NULL, NULL);
}

void transform_done(struct transform *transform)
{
    http_parser_done(&transform->request);
    http_parser_done(&transform->answer);
}
