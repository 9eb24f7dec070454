/* How it works
 *
 * Only one head is received at a time on a connection, so its fields are collected in the session and copied
 * to the stream's arena one by one. nghttp2 has looked at each: names are lower case, values have no control
 * characters, fields of a connection (Connection, Transfer-Encoding, ...) are refused, pseudo fields are there
 * once. What is left to us is what HTTP/1 refuses as well (http_parser.c): sizes, the target, which host it
 * is; and to join the crumbs of a cookie. */
#include "protocol/http2/http2_session.h"

enum { FIELD_COST = 4, TRAILER_BYTES_MAX = 16 * 1024 };

void http2_head_begin(struct http2_session *session, struct http2_stream *stream, bool trailers)
{
    struct http2_head *head = &session->head;

    head->stream = stream;
    head->method = head->path = head->authority = head->scheme = STR_NONE;
    head->count = head->fields = head->bytes = head->cookies = 0;
    head->trailers = trailers;
    head->refusal = 0;
    session->in_head = true;
}

static void refuse(struct http2_head *head, int status, const char *text)
{
    if (head->refusal)
        return;
    head->refusal = status;
    head->refusal_text = text;
}

/* Where a pseudo field's value goes. */
static struct str *pseudo_of(struct http2_head *head, struct str name)
{
    if (str_is(name, ":method"))
        return &head->method;
    if (str_is(name, ":path"))
        return &head->path;
    if (str_is(name, ":authority"))
        return &head->authority;
    return str_is(name, ":scheme") ? &head->scheme : NULL;
}

static void add_field(struct http2_head *head, struct str name, struct str value)
{
    struct arena *arena = &head->stream->ex.arena;
    size_t max = head->trailers ? HTTP2_TRAILERS_MAX : HTTP_HEADER_COUNT_MAX;
    struct str *pseudo;

    if (name.len && name.p[0] == ':') {
        pseudo = pseudo_of(head, name);
        if (pseudo)
            *pseudo = arena_str(arena, value);
        return;
    }
    if (head->count >= max) {
        refuse(head, 431, "too many headers");
        return;
    }
    head->cookies += str_is(name, "cookie");
    head->items[head->count++] = (struct pair){arena_str(arena, name), arena_str(arena, value)};
}

int http2_head_field(struct http2_session *session, struct str name, struct str value)
{
    struct http2_head *head = &session->head;
    size_t max = head->trailers ? TRAILER_BYTES_MAX : HTTP_HEAD_MAX;

    if (++head->fields > HTTP2_FIELDS_MAX) {
        http2_session_charge(session, HTTP2_CREDIT * 2);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    if (!head->stream || head->stream->over)
        return 0;
    head->bytes += name.len + value.len + FIELD_COST;
    if (head->bytes > max)
        refuse(head, 431, "request head is too large");
    else
        add_field(head, name, value);
    return 0;
}

/* RFC 9113, 8.2.3: crumbs of one cookie, in their order, as the one header that it is elsewhere. */
static void join_cookies(struct http2_head *head)
{
    auto_buf struct buf all = {0};
    size_t kept = 0, first = 0;
    bool any = false;

    if (head->cookies < 2)
        return;
    buf_init(&all, (size_t)2 * HTTP_HEAD_MAX);
    for (size_t i = 0; i < head->count; i++) {
        if (!str_is(head->items[i].name, "cookie")) {
            head->items[kept++] = head->items[i];
            continue;
        }
        if (any)
            (void)buf_add_str(&all, STR("; "));
        else
            first = kept++;
        any = true;
        (void)buf_add_str(&all, head->items[i].value);
    }
    head->items[first] =
        (struct pair){STR("cookie"), arena_str(&head->stream->ex.arena, buf_str(&all))};
    head->count = kept;
}

/* The one Host header is :authority. */
static void settle_host(struct http2_head *head)
{
    struct str host = head->authority;
    size_t kept = 0, hosts = 0;

    for (size_t i = 0; i < head->count; i++) {
        if (!str_is(head->items[i].name, "host")) {
            head->items[kept++] = head->items[i];
            continue;
        }
        hosts++;
        if (host.len && !str_eq_nocase(host, head->items[i].value))
            refuse(head, 400, "Host is not :authority");
        host = head->items[i].value;
    }
    if (hosts > 1 || !host.len)
        refuse(head, 400, "exactly one Host header is needed");
    head->count = kept;
    if (head->authority.len)
        host = head->authority;
    head->items[head->count++] = (struct pair){STR("host"), host};
}

/* The target goes into heads of HTTP/1 behind us: what would end it there must not be in it. */
static bool is_target(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.p[i];

        if (c <= ' ' || c == 0x7f || c == '#')
            return false;
    }
    return s.len && (s.p[0] == '/' || s.p[0] == '*');
}

static void check(struct http2_head *head)
{
    if (!str_is_token(head->method))
        refuse(head, 400, "unknown method");
    else if (str_is(head->method, "CONNECT"))
        refuse(head, 501, "CONNECT is not supported");
    else if (head->path.len > HTTP_URL_MAX)
        refuse(head, 414, "request target is too long");
    else if (!is_target(head->path))
        refuse(head, 400, "the request target must be a path");
}

static struct http_headers copy_items(struct http2_head *head)
{
    struct arena *arena = &head->stream->ex.arena;
    struct http_headers out = {.count = head->count};

    out.items = arena_alloc(arena, (head->count + 1) * sizeof(*out.items));
    memcpy(out.items, head->items, head->count * sizeof(*out.items));
    return out;
}

bool http2_head_request(struct http2_session *session, bool has_body)
{
    struct http2_head *head = &session->head;
    struct http_request *request = &head->stream->ex.request;
    struct str rest = head->path, length;

    check(head);
    if (!head->refusal) {
        join_cookies(head);
        settle_host(head);
    }
    request->method = head->method;
    request->target = head->path;
    request->path = str_split(&rest, '?');
    request->query = rest;
    request->headers = copy_items(head);
    request->minor = 1;
    request->http2 = true;
    length = http_headers_get(&request->headers, "content-length");
    if (!str_to_i64(length, &request->content_length))
        request->content_length = -1;
    request->chunked = has_body && request->content_length < 0;
    return head->refusal == 0;
}

void http2_head_trailers(struct http2_session *session)
{
    struct http2_head *head = &session->head;

    if (head->stream && !head->stream->over && !head->refusal)
        head->stream->ex.trailers = copy_items(head);
}
