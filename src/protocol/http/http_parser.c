/* How it works
 *
 * llhttp calls back with pieces of the target, of names and of values, cut wherever the input was
 * cut. They are appended to one text buffer; spans remember offsets, because the buffer moves while
 * it grows. At the end of the head the spans become struct pair with pointers.
 *
 * llhttp only reads heads; it is stopped at their end, so that no handler ever runs inside of it, and
 * initialised anew for every message. Bodies are http_body.c's.
 *
 * Requests get a second look: request smuggling lives on two parsers that disagree about where a
 * head ends, so scan_head() finds the end by the strictest reading (CR LF only, no folding, no
 * control bytes) and only the bytes up to there are given to llhttp, which has to agree. Responses
 * come from servers inside sandboxes whose heads are rewritten before they are passed on; there
 * llhttp's own reading is enough, except for the body's end: check_response() takes no encoding that
 * another reader might understand differently, and http_parser_framing() tells what was decided. */
#include "protocol/http/http_parser.h"

#include "base/alloc.h"

enum { TEXT_KEEP = 8 * 1024, TRAILERS_MAX = 64 };

static int fail(struct http_parser *parser, int status, const char *text)
{
    parser->error_status = status;
    parser->error_text = text;
    return HPE_USER;
}

static int add_text(struct http_parser *parser, const char *p, size_t len)
{
    if (!buf_add(&parser->text, p, len))
        return fail(parser, 431, "request head is too large");
    return 0;
}

static int on_first(llhttp_t *ll, const char *p, size_t len) /* target or reason */
{
    struct http_parser *parser = ll->data;

    parser->first_len += (uint32_t)len;
    if (parser->first_len > HTTP_URL_MAX)
        return fail(parser, 414, "request target is too long");
    return add_text(parser, p, len);
}

static int on_name(llhttp_t *ll, const char *p, size_t len)
{
    struct http_parser *parser = ll->data;

    if (parser->name_done) {
        if (parser->count == HTTP_HEADER_COUNT_MAX)
            return fail(parser, 431, "too many headers");
        if (parser->count == parser->cap) {
            parser->cap = parser->cap ? parser->cap * 2 : 16;
            parser->spans = xrealloc(parser->spans, parser->cap * sizeof(*parser->spans));
            parser->items = xrealloc(parser->items, parser->cap * sizeof(*parser->items));
        }
        parser->spans[parser->count++] = (struct http_span){.name = (uint32_t)parser->text.len};
        parser->name_done = false;
    }
    parser->spans[parser->count - 1].name_len += (uint32_t)len;
    return add_text(parser, p, len);
}

static int on_name_complete(llhttp_t *ll)
{
    struct http_parser *parser = ll->data;

    if (!parser->name_done) {
        parser->name_done = true;
        parser->spans[parser->count - 1].value = (uint32_t)parser->text.len;
    }
    return 0;
}

static int on_value(llhttp_t *ll, const char *p, size_t len)
{
    struct http_parser *parser = ll->data;

    if (parser->count == 0)
        return fail(parser, 400, "malformed header");
    parser->spans[parser->count - 1].value_len += (uint32_t)len;
    return add_text(parser, p, len);
}

/* False when a name is none: llhttp takes spaces inside of it, and others would see another name, or two lines. */
static bool resolve_headers(struct http_parser *parser)
{
    const char *text = parser->text.p;

    for (size_t i = 0; i < parser->count; i++) {
        const struct http_span *span = &parser->spans[i];

        parser->items[i].name = str_n(text + span->name, span->name_len);
        parser->items[i].value = str_trim(str_n(text + span->value, span->value_len));
        if (!str_is_token(parser->items[i].name))
            return false;
    }
    return true;
}

static int check_request(struct http_parser *parser)
{
    bool is_connect = parser->ll.method == HTTP_CONNECT;
    size_t hosts = 0, encodings = 0, lengths = 0;

    if (parser->ll.http_major != 1 || parser->ll.http_minor > 1)
        return fail(parser, 505, "only HTTP/1.0 and HTTP/1.1 are supported");
    if (is_connect && !parser->connects)
        return fail(parser, 501, "CONNECT is not supported");
    if (parser->first_len == 0 ||
        (!is_connect && parser->text.p[0] != '/' && parser->text.p[0] != '*'))
        return fail(parser, 400, "the request target must be a path");
    if (memchr(parser->text.p, '#', parser->first_len))
        return fail(parser, 400, "the request target must not have a fragment");
    for (size_t i = 0; i < parser->count; i++) {
        const struct pair *header = &parser->items[i];

        if (str_eq_nocase(header->name, STR("host"))) {
            hosts++;
        } else if (str_eq_nocase(header->name, STR("content-length"))) {
            lengths++;
        } else if (str_eq_nocase(header->name, STR("transfer-encoding"))) {
            encodings++;
            if (!str_eq_nocase(header->value, STR("chunked")))
                return fail(parser, 501, "unsupported transfer encoding");
        }
    }
    if (hosts > 1 || (hosts == 0 && parser->ll.http_minor == 1))
        return fail(parser, 400, "exactly one Host header is needed");
    if (is_connect && (lengths || encodings))
        return fail(parser, 400, "CONNECT has no body");
    if (lengths > 1 || encodings > 1 || (lengths && encodings))
        return fail(parser, 400, "ambiguous body length");
    if (encodings && parser->ll.http_minor == 0)
        return fail(parser, 400, "HTTP/1.0 has no transfer encodings");
    if (parser->ll.content_length > INT64_MAX)
        return fail(parser, 413, "body is too large");
    return 0;
}

/* Nothing but "chunked", once, is ever asked for (TE ends here), so nothing else is taken. "identity",
 * from before RFC 7230, says nothing. Both lengths at once, and two of them, llhttp refuses. */
static int check_response(struct http_parser *parser)
{
    size_t chunked = 0, others = 0;

    for (size_t i = 0; i < parser->count; i++) {
        const struct pair *header = &parser->items[i];

        if (!str_eq_nocase(header->name, STR("transfer-encoding")))
            continue;
        if (str_eq_nocase(header->value, STR("chunked")))
            chunked++;
        else if (!str_eq_nocase(header->value, STR("identity")))
            return fail(parser, 502, "unsupported transfer encoding");
        else
            others++;
    }
    if (chunked > 1 || (chunked && others) ||
        (chunked != 0) != ((parser->ll.flags & F_CHUNKED) != 0))
        return fail(parser, 502, "ambiguous body length");
    if (parser->ll.content_length > INT64_MAX)
        return fail(parser, 502, "body is too large");
    return 0;
}

static enum http_body_kind body_kind(const struct http_parser *parser)
{
    const llhttp_t *ll = &parser->ll;

    if (!parser->request && (parser->head_only || ll->status_code < 200 || ll->status_code == 204 ||
                             ll->status_code == 304))
        return HTTP_BODY_NONE;
    if (ll->flags & F_CHUNKED)
        return HTTP_BODY_CHUNKED;
    if ((ll->flags & F_CONTENT_LENGTH) && !(ll->flags & F_TRANSFER_ENCODING))
        return HTTP_BODY_LENGTH;
    return parser->request ? HTTP_BODY_NONE : HTTP_BODY_UNTIL_CLOSE;
}

static int on_headers_complete(llhttp_t *ll)
{
    struct http_parser *parser = ll->data;

    parser->head_done = true;
    parser->keep_alive = llhttp_should_keep_alive(ll);
    if (!resolve_headers(parser)) {
        (void)fail(parser, parser->request ? 400 : 502, "malformed header name");
        return -1;
    }
    if ((parser->request ? check_request(parser) : check_response(parser)) != 0)
        return -1;
    http_body_init(&parser->body, body_kind(parser), ll->content_length);
    parser->body.trailers = &parser->trailer_text;
    parser->complete = parser->body.complete;
    return 1; /* for llhttp the message ends here */
}

static int on_message_complete(llhttp_t *ll)
{
    (void)ll;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_url = on_first,
    .on_status = on_first,
    .on_header_field = on_name,
    .on_header_field_complete = on_name_complete,
    .on_header_value = on_value,
    .on_headers_complete = on_headers_complete,
    .on_message_complete = on_message_complete,
};

void http_parser_init(struct http_parser *parser, bool request, http_body_fn *on_body, void *arg)
{
    *parser = (struct http_parser){.request = request, .on_body = on_body, .arg = arg};
    buf_init(&parser->text, HTTP_HEAD_MAX);
    buf_init(&parser->trailer_text, (size_t)2 * HTTP_TRAILER_BYTES_MAX);
    http_parser_next(parser);
}

static void forget_trailers(struct http_parser *parser)
{
    buf_done(&parser->trailer_text);
    free(parser->trailers.items);
    parser->trailers = (struct http_headers){0};
}

void http_parser_done(struct http_parser *parser)
{
    buf_done(&parser->text);
    forget_trailers(parser);
    free(parser->spans);
    free(parser->items);
    parser->spans = NULL;
    parser->items = NULL;
    parser->count = parser->cap = 0;
}

void http_parser_next(struct http_parser *parser)
{
    llhttp_init(&parser->ll, parser->request ? HTTP_REQUEST : HTTP_RESPONSE, &settings);
    parser->ll.data = parser;
    parser->head_only = parser->head_done = parser->complete = false;
    parser->name_done = true;
    parser->scan_last = 0;
    parser->scan_line = parser->scan_any = parser->scan_first = false;
    parser->head_bytes = 0;
    if (parser->text.cap > TEXT_KEEP)
        buf_done(&parser->text);
    buf_clear(&parser->text);
    forget_trailers(parser);
    parser->first_len = 0;
    parser->count = 0;
    parser->error_status = 0;
    parser->error_text = NULL;
}

/* Length of the head's part of `in`; *out_end when its last byte is in it. -1 on a bad byte. */
static ptrdiff_t scan_head(struct http_parser *parser, struct str in, bool *out_end)
{
    char last = parser->scan_last;

    for (size_t i = 0; i < in.len; i++) {
        char c = in.p[i];

        if (last == '\r' ? c != '\n' : c == '\n')
            return -1;
        if (c == '\n') {
            if (!parser->scan_line && parser->scan_any) {
                *out_end = true;
                return (ptrdiff_t)i + 1;
            }
            parser->scan_first = parser->scan_any;
            parser->scan_line = false;
        } else if (c != '\r') {
            if ((c == ' ' || c == '\t' || c == ':') && !parser->scan_line)
                return -1; /* folding, or a header without a name */
            if (!parser->scan_first && (c == '\t' || (c == ' ' && last == ' ')))
                return -1;
            if (((unsigned char)c < ' ' && c != '\t') || c == 0x7f)
                return -1;
            parser->scan_line = parser->scan_any = true;
        }
        last = c;
    }
    parser->scan_last = last;
    return (ptrdiff_t)in.len;
}

static enum http_parse report_error(struct http_parser *parser, llhttp_errno_t error)
{
    if (!parser->error_status) {
        parser->error_status = 400;
        parser->error_text = "malformed HTTP message";
        if (error == HPE_INVALID_METHOD)
            parser->error_text = "unknown method";
        else if (error == HPE_INVALID_VERSION)
            parser->error_text = "malformed HTTP version";
        else if (error == HPE_UNEXPECTED_CONTENT_LENGTH || error == HPE_INVALID_TRANSFER_ENCODING)
            parser->error_text = "ambiguous body length";
    }
    return HTTP_PARSE_ERROR;
}

/* Feeds llhttp, up to the end of the head at most. */
static enum http_parse feed_head(struct http_parser *parser, struct str *in)
{
    llhttp_errno_t error = llhttp_execute(&parser->ll, in->p, in->len);

    if (error == HPE_OK) {
        *in = str_skip(*in, in->len);
        return HTTP_PARSE_MORE;
    }
    if (error != HPE_PAUSED || !parser->head_done)
        return report_error(parser, error);
    *in = str_skip(*in, (size_t)(llhttp_get_error_pos(&parser->ll) - in->p));
    return HTTP_PARSE_HEAD;
}

static enum http_parse feed_request_head(struct http_parser *parser, struct str *in)
{
    bool end = false;
    ptrdiff_t len = scan_head(parser, *in, &end);
    enum http_parse result;
    struct str head;

    if (len < 0) {
        (void)fail(parser, 400, "malformed request head");
        return HTTP_PARSE_ERROR;
    }
    parser->head_bytes += (size_t)len;
    if (parser->head_bytes > HTTP_HEAD_MAX) {
        (void)fail(parser, 431, "request head is too large");
        return HTTP_PARSE_ERROR;
    }
    head = str_n(in->p, (size_t)len);
    result = feed_head(parser, &head);
    if (result == HTTP_PARSE_ERROR)
        return result;
    if (head.len || end != (result == HTTP_PARSE_HEAD)) {
        (void)fail(parser, 400, "malformed request head");
        return HTTP_PARSE_ERROR;
    }
    *in = str_skip(*in, (size_t)len);
    return result;
}

static bool split_trailers(struct http_parser *parser)
{
    struct str text = buf_str(&parser->trailer_text);
    struct http_headers *out = &parser->trailers;

    if (text.len)
        out->items = xcalloc(TRAILERS_MAX, sizeof(*out->items));
    while (text.len) {
        struct str line = str_split(&text, '\n'), name = str_split(&line, ':');

        if (out->count == TRAILERS_MAX || !line.p || !str_is_token(name))
            return false;
        out->items[out->count++] = (struct pair){name, str_trim(line)};
    }
    return true;
}

static enum http_parse feed_body(struct http_parser *parser, struct str *in)
{
    if (http_body_feed(&parser->body, in, parser->on_body, parser->arg) < 0) {
        (void)fail(parser, 400, "malformed chunked body");
        return HTTP_PARSE_ERROR;
    }
    parser->complete = parser->body.complete;
    if (parser->complete && !split_trailers(parser)) {
        (void)fail(parser, 400, "malformed trailers");
        return HTTP_PARSE_ERROR;
    }
    if (parser->complete)
        return HTTP_PARSE_DONE;
    return in->len ? HTTP_PARSE_PAUSED : HTTP_PARSE_MORE;
}

enum http_parse http_parser_feed(struct http_parser *parser, struct str *in)
{
    size_t before = in->len;
    enum http_parse result;

    if (parser->error_status)
        return HTTP_PARSE_ERROR;
    if (parser->complete)
        return HTTP_PARSE_DONE;
    if (!in->len)
        return HTTP_PARSE_MORE;
    if (parser->head_done)
        return feed_body(parser, in);
    if (parser->request)
        return feed_request_head(parser, in);
    result = feed_head(parser, in);
    parser->head_bytes += before - in->len;
    if (result != HTTP_PARSE_ERROR && parser->head_bytes > HTTP_HEAD_MAX) {
        (void)fail(parser, 431, "response head is too large");
        return HTTP_PARSE_ERROR;
    }
    return result;
}

bool http_parser_finish(struct http_parser *parser)
{
    if (!parser->error_status && parser->head_done && parser->body.kind == HTTP_BODY_UNTIL_CLOSE)
        parser->complete = true;
    return parser->complete;
}

bool http_parser_begun(const struct http_parser *parser)
{
    return parser->head_bytes > 0;
}

struct http_headers http_parser_headers(const struct http_parser *parser)
{
    return (struct http_headers){.items = parser->items, .count = parser->count};
}

const struct http_headers *http_parser_trailers(const struct http_parser *parser)
{
    return &parser->trailers;
}

struct http_framing http_parser_framing(const struct http_parser *parser)
{
    const llhttp_t *ll = &parser->ll;

    return (struct http_framing){
        .kind = parser->body.kind,
        .length = ll->flags & F_CONTENT_LENGTH ? (int64_t)ll->content_length : -1};
}

struct str http_parser_reason(const struct http_parser *parser)
{
    return str_n(parser->text.p ? parser->text.p : "", parser->first_len);
}

void http_parser_request(const struct http_parser *parser, struct http_request *out)
{
    struct str target = str_n(parser->text.p, parser->first_len), rest = target;

    out->method = str_of(llhttp_method_name((llhttp_method_t)parser->ll.method));
    out->target = target;
    out->path = str_split(&rest, '?');
    out->query = rest;
    out->headers = http_parser_headers(parser);
    out->chunked = parser->ll.flags & F_CHUNKED;
    out->content_length =
        parser->ll.flags & F_CONTENT_LENGTH ? (int64_t)parser->ll.content_length : -1;
    out->upgrade = parser->ll.upgrade && parser->ll.method != HTTP_CONNECT;
    out->minor = parser->ll.http_minor;
}
