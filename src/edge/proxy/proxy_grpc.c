#include "edge/proxy/proxy_grpc.h"

#include "base/alloc.h"
#include "edge/proxy/proxy_head.h"
#include "protocol/http2/http2_client.h"

struct proxy_grpc {
    struct loop *loop;
    struct http_exchange *ex;
    struct http2_client *client;
    enum proxy_place place;
    const struct proxy_grpc_events *events;
    void *arg;
};

bool proxy_grpc_wanted(const struct http_request *request)
{
    struct str type = http_headers_get(&request->headers, "content-type");
    struct str grpc = STR("application/grpc");

    return request->http2 && type.len >= grpc.len && str_eq_nocase(str_n(type.p, grpc.len), grpc);
}

/* ---- request ---- */

static void on_request_data(struct http_exchange *ex, struct str data, void *arg)
{
    struct proxy_grpc *grpc = arg;

    if (grpc->client && http2_client_write(grpc->client, data.p, data.len) > HTTP_HIGH_WATER)
        http_pause(ex);
}

static void on_request_end(struct http_exchange *ex, void *arg)
{
    struct proxy_grpc *grpc = arg;

    if (grpc->client)
        http2_client_end(grpc->client, http_trailers(ex));
}

static void on_client_drain(struct http2_client *client, void *arg)
{
    struct proxy_grpc *grpc = arg;

    (void)client;
    http_resume(grpc->ex);
}

/* ---- answer ---- */

static void on_exchange_drain(struct http_exchange *ex, void *arg)
{
    struct proxy_grpc *grpc = arg;

    (void)ex;
    if (grpc->client)
        http2_client_resume(grpc->client);
}

static struct http_framing framing_of(const struct http_headers *headers, bool bare)
{
    struct http_framing framing = {bare ? HTTP_BODY_NONE : HTTP_BODY_UNTIL_CLOSE, -1};

    if (str_to_i64(http_headers_get(headers, "content-length"), &framing.length) && !bare)
        framing.kind = HTTP_BODY_LENGTH;
    return framing;
}

static void on_head(struct http2_client *client, int status, const struct http_headers *headers,
                    bool bare, void *arg)
{
    struct proxy_grpc *grpc = arg;
    struct http_headers kept = proxy_head_response(headers, grpc->place, http_arena(grpc->ex));
    struct http_framing framing = framing_of(headers, bare);

    (void)client;
    grpc->events->on_head(grpc->arg);
    http_on_drain(grpc->ex, on_exchange_drain, grpc);
    http_begin_raw(grpc->ex, status, STR_NONE, kept.items, kept.count, &framing);
}

static void on_data(struct http2_client *client, struct str data, void *arg)
{
    struct proxy_grpc *grpc = arg;

    if (http_write(grpc->ex, data.p, data.len) > HTTP_LOW_WATER)
        http2_client_pause(client);
}

static void on_end(struct http2_client *client, const struct http_headers *trailers, void *arg)
{
    struct proxy_grpc *grpc = arg;

    http_end_trailers(grpc->ex, trailers->items, trailers->count);
    grpc->client = NULL;
    http2_client_free(client);
    grpc->events->on_answered(grpc->arg);
}

static void on_error(struct http2_client *client, int errnum, void *arg)
{
    struct proxy_grpc *grpc = arg;

    (void)errnum;
    grpc->client = NULL;
    http2_client_free(client);
    grpc->events->on_broken(grpc->arg);
}

static const struct http2_client_events client_events = {
    .on_head = on_head,
    .on_data = on_data,
    .on_end = on_end,
    .on_error = on_error,
    .on_drain = on_client_drain,
};

/* ---- head ---- */

/* What HTTP/2 says in another way. */
static bool is_framing(struct str name)
{
    return str_is(name, "connection") || str_is(name, "transfer-encoding") ||
           str_is(name, "upgrade") || str_is(name, "host") || str_is(name, "te");
}

static struct str next_line(struct str *rest)
{
    return str_trim(str_split(rest, '\n'));
}

/* The head of HTTP/1 as fields. */
static struct http_headers take_apart(struct arena *arena, struct str head, bool secure)
{
    enum { PSEUDO = 4, ADDED = 1 };
    struct pair *items =
        arena_alloc(arena, (2 * HTTP_HEADER_COUNT_MAX + PSEUDO + ADDED) * sizeof(*items));
    struct str first = next_line(&head), line;
    size_t count = 0;

    items[count++] = (struct pair){STR(":method"), str_split(&first, ' ')};
    items[count++] = (struct pair){STR(":scheme"), secure ? STR("https") : STR("http")};
    items[count++] = (struct pair){STR(":path"), str_split(&first, ' ')};
    items[count++] = (struct pair){STR(":authority"), STR("localhost")};
    while ((line = next_line(&head)).len && count < 2 * HTTP_HEADER_COUNT_MAX + PSEUDO) {
        struct str name = arena_lower(arena, str_split(&line, ':'));

        if (str_is(name, "host"))
            items[PSEUDO - 1].value = str_trim(line);
        else if (!is_framing(name))
            items[count++] = (struct pair){name, str_trim(line)};
    }
    items[count++] = (struct pair){STR("te"), STR("trailers")};
    return (struct http_headers){items, count};
}

struct proxy_grpc *proxy_grpc_start(struct loop *loop, struct stream *stream_consume,
                                    struct http_exchange *ex, struct str head, bool secure,
                                    enum proxy_place place, const struct proxy_grpc_events *events,
                                    void *arg)
{
    const struct http_request *request = http_request(ex);
    bool has_body = request->chunked || request->content_length > 0;
    struct http_headers headers = take_apart(http_arena(ex), head, secure);
    struct proxy_grpc *grpc = xcalloc(1, sizeof(*grpc));

    *grpc =
        (struct proxy_grpc){.loop = loop, .ex = ex, .place = place, .events = events, .arg = arg};
    grpc->client = http2_client_new(loop, stream_consume, &headers, has_body, &client_events, grpc);
    if (!grpc->client) {
        free(grpc);
        return NULL;
    }
    if (has_body)
        http_read_stream(ex, on_request_data, on_request_end, grpc);
    return grpc;
}

void proxy_grpc_free(struct proxy_grpc *grpc)
{
    if (!grpc)
        return;
    if (grpc->client)
        http2_client_free(grpc->client);
    loop_free_later(grpc->loop, grpc);
}
