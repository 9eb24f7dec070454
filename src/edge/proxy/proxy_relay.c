/* How it works
 *
 * A relay begins with a connection: a pooled or new one to envd, which is there at once, or
 * a dialled one. Then the head goes out, the client's body is asked for and passed on, and the
 * answer comes back; both bodies at the same time if the two sides like. Each side is paused while
 * the other one's queue is full.
 *
 * Ends: the exchange's on_done is the one place where a relay is released; when the upstream is
 * done first the answer is ended, when it breaks the answer is aborted, and on_done follows. After
 * a 101 the exchange is over and the tunnel's end releases the relay instead. */
#include "edge/proxy/proxy_relay.h"

#include <errno.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "edge/proxy/proxy_datagrams.h"
#include "edge/proxy/proxy_errors.h"
#include "edge/proxy/proxy_grpc.h"
#include "edge/proxy/proxy_head.h"
#include "protocol/stream/stream_tunnel.h"
#include "protocol/tls/tls.h"

struct proxy_relay {
    struct list node;
    struct loop *loop;
    struct proxy_upstream *upstream;
    struct shares *shares;
    size_t share;             /* of the sandbox's connections, held */
    struct http_exchange *ex; /* NULL from its end on */
    struct proxy_target target;
    struct proxy_keep keep; /* of the connection */
    bool https;             /* the server inside speaks TLS */
    const char *mask;       /* in the exchange's arena; "" = none */
    struct str path; /* asked for instead of the request's, likewise; STR_NONE = the request's */
    void (*ended)(void *arg);
    void *ended_arg;
    struct proxy_connect *connect;
    struct http_client *client;
    struct proxy_grpc *grpc; /* instead of the client */
    struct stream_tunnel *tunnel;
    struct proxy_datagrams *datagrams; /* instead of one */
    bool keeps;                        /* the connection may serve others after it */
    bool pooled;   /* the connection was used before and may have died meanwhile */
    bool has_body; /* the request has one */
    bool body_asked;
    bool body_moved; /* some of it was passed on */
    bool body_done;  /* all of it was */
    bool head_seen;  /* the answer has begun */
    bool answered;   /* all of it is there, if not at the client yet */
};

static void send_request(struct proxy_relay *relay, struct http_client *client);
static void connect_upstream(struct proxy_relay *relay, bool fresh);

/* A tunnel may have pipes besides the two sockets: three times the descriptors. */
enum { SHARE_OF_SESSION = 1, SHARE_OF_TUNNEL = 2 };

static bool take_share(struct proxy_relay *relay, size_t amount)
{
    if (!relay->shares)
        return true;
    if (shares_take(relay->shares, str_of(relay->target.id), amount) != SHARE_TAKEN)
        return false;
    relay->share += amount;
    return true;
}

static void drop_server(struct proxy_relay *relay)
{
    if (relay->client)
        http_client_free(take_ptr(&relay->client));
    proxy_grpc_free(take_ptr(&relay->grpc));
}

static void release(struct proxy_relay *relay)
{
    if (relay->share)
        shares_give(relay->shares, str_of(relay->target.id), relay->share);
    list_remove(&relay->node);
    if (relay->ended)
        relay->ended(relay->ended_arg);
    if (relay->connect)
        proxy_connect_cancel(take_ptr(&relay->connect));
    drop_server(relay);
    loop_free_later(relay->loop, relay);
}

static void on_done(struct http_exchange *ex, void *arg)
{
    struct proxy_relay *relay = arg;

    (void)ex;
    relay->ex = NULL;
    if (!relay->tunnel && !relay->datagrams)
        release(relay);
}

static void refuse(struct proxy_relay *relay, enum proxy_error error)
{
    drop_server(relay);
    if (relay->ex)
        proxy_errors_reply(relay->ex, error, &relay->target);
}

/* ---- request body: client to server ---- */

static void on_request_data(struct http_exchange *ex, struct str data, void *arg)
{
    struct proxy_relay *relay = arg;
    size_t waiting;

    if (!relay->client)
        return; /* answered already; the rest is dropped */
    relay->body_moved = true;
    waiting = http_request(ex)->chunked ? http_client_write_chunk(relay->client, data.p, data.len)
                                        : http_client_write(relay->client, data.p, data.len);
    if (waiting > HTTP_HIGH_WATER)
        http_pause(ex);
}

static void end_chunks(struct proxy_relay *relay)
{
    struct http_headers trailers =
        proxy_head_trailers(http_trailers(relay->ex), PROXY_PLACE_OWN, http_arena(relay->ex));
    auto_buf struct buf end = {0};

    buf_init(&end, (size_t)2 * HTTP_HEAD_MAX);
    proxy_head_chunks_end(&trailers, &end);
    (void)http_client_write(relay->client, end.p, end.len);
}

static void on_request_end(struct http_exchange *ex, void *arg)
{
    struct proxy_relay *relay = arg;

    relay->body_moved = relay->body_done = true;
    if (relay->client && http_request(ex)->chunked)
        end_chunks(relay);
}

static void on_client_drain(struct http_client *client, void *arg)
{
    struct proxy_relay *relay = arg;

    (void)client;
    if (relay->ex)
        http_resume(relay->ex);
}

/* ---- answer: server to client ---- */

static void on_exchange_drain(struct http_exchange *ex, void *arg)
{
    struct proxy_relay *relay = arg;

    (void)ex;
    if (relay->client)
        http_client_resume(relay->client);
}

static void on_tunnel_end(void *arg)
{
    struct proxy_relay *relay = arg;

    stream_tunnel_free(take_ptr(&relay->tunnel), false);
    proxy_datagrams_free(take_ptr(&relay->datagrams), false);
    if (!relay->ex)
        release(relay);
}

/* The two connections are one from here on. */
static void join(struct proxy_relay *relay, struct stream *server, struct str to_client)
{
    bool datagrams = proxy_raw_of(http_request(relay->ex)) == PROXY_RAW_DATAGRAMS;
    auto_buf struct buf to_server = {0};
    struct stream *client;

    buf_init(&to_server, LOOP_READ_SIZE);
    client = http_detach(relay->ex, &to_server);
    if (!client) {
        stream_close(server, true);
        http_abort(relay->ex);
        return;
    }
    if (datagrams)
        relay->datagrams = proxy_datagrams_new(relay->loop, client, server, to_client,
                                               buf_str(&to_server), on_tunnel_end, relay);
    else
        relay->tunnel = stream_tunnel_new(relay->loop, client, server, to_client,
                                          buf_str(&to_server), on_tunnel_end, relay);
}

static void start_tunnel(struct proxy_relay *relay, struct str reason,
                         const struct http_headers *headers)
{
    auto_buf struct buf to_client = {0};
    struct stream *server;

    buf_init(&to_client, (size_t)2 * HTTP_HEAD_MAX + LOOP_READ_WIDE);
    proxy_head_switching(reason, headers, relay->target.place, &to_client);
    server = http_client_detach(take_ptr(&relay->client), &to_client);
    join(relay, server, buf_str(&to_client));
}

static void on_head(struct http_client *client, int status, struct str reason,
                    const struct http_headers *headers, const struct http_framing *framing,
                    void *arg)
{
    struct proxy_relay *relay = arg;
    struct http_headers kept;

    (void)client;
    relay->head_seen = true;
    if (status == 101) {
        if (!proxy_head_switches(http_request(relay->ex), headers))
            refuse(relay, PROXY_ERROR_BROKEN);
        else if (!take_share(relay, SHARE_OF_TUNNEL))
            refuse(relay, PROXY_ERROR_BUSY);
        else
            start_tunnel(relay, reason, headers);
        return;
    }
    relay->keeps = relay->keeps && !proxy_head_binds(headers, "www-authenticate");
    kept = proxy_head_response(headers, relay->target.place, http_arena(relay->ex));
    http_on_drain(relay->ex, on_exchange_drain, relay);
    http_begin_raw(relay->ex, status, reason, kept.items, kept.count, framing);
}

static void on_data(struct http_client *client, struct str raw, void *arg)
{
    struct proxy_relay *relay = arg;

    /* Reads are wide, so the queue's own limit would let it get as wide again. */
    if (http_write(relay->ex, raw.p, raw.len) > HTTP_LOW_WATER)
        http_client_pause(client);
}

/* Trailers stand for the blank line that ends the chunks: without any that may pass it is still due. */
static void end_answer(struct proxy_relay *relay, const struct http_headers *trailers)
{
    struct http_headers kept =
        proxy_head_trailers(trailers, relay->target.place, http_arena(relay->ex));

    if (trailers->count && !kept.count)
        (void)http_write(relay->ex, "\r\n", 2);
    http_end_trailers(relay->ex, kept.items, kept.count);
}

static void on_end(struct http_client *client, bool reusable, void *arg)
{
    struct proxy_relay *relay = arg;

    relay->client = NULL;
    relay->answered = true;
    end_answer(relay, http_client_trailers(client));
    relay->keep.uses++;
    if (reusable && relay->keeps && (!relay->has_body || relay->body_done))
        proxy_upstream_put(relay->upstream, &relay->target, &relay->keep, client);
    else
        http_client_free(client);
}

static void on_error(struct http_client *client, int errnum, void *arg)
{
    struct proxy_relay *relay = arg;

    (void)errnum;
    http_client_free(client);
    relay->client = NULL;
    if (relay->head_seen) {
        http_abort(relay->ex);
    } else if (relay->pooled && !relay->body_moved) {
        http_pause(relay->ex); /* it died while idle: nothing has happened yet */
        connect_upstream(relay, true);
    } else {
        refuse(relay, PROXY_ERROR_BROKEN);
    }
}

static const struct http_client_events events = {
    .on_head = on_head,
    .on_data = on_data,
    .on_end = on_end,
    .on_error = on_error,
    .on_drain = on_client_drain,
};

/* ---- connection ---- */

/* The head for the server inside. */
static void make_head(struct proxy_relay *relay, struct buf *head)
{
    bool envd = relay->target.port == PROXY_ENVD_PORT;
    struct proxy_head_origin origin = {.envd = envd,
                                       .keeps = relay->keeps,
                                       .secure = http_secure(relay->ex),
                                       .mask = relay->mask,
                                       .path = relay->path};
    char peer[HTTP_PEER_SIZE] = "";

    if (!envd)
        http_peer(relay->ex, peer);
    origin.peer = peer;
    buf_init(head, (size_t)2 * HTTP_HEAD_MAX);
    proxy_head_request(http_request(relay->ex), &origin, head);
}

static void send_request(struct proxy_relay *relay, struct http_client *client)
{
    const struct http_request *request = http_request(relay->ex);
    auto_buf struct buf head = {0};

    make_head(relay, &head);
    relay->client = client;
    http_client_start(client, &events, relay, buf_str(&head), str_is(request->method, "HEAD"));
    if (relay->has_body && !relay->body_asked) {
        relay->body_asked = true;
        http_read_stream(relay->ex, on_request_data, on_request_end, relay);
    }
    http_resume(relay->ex);
}

static void start_raw(struct proxy_relay *relay, struct stream *stream, enum proxy_raw raw)
{
    if (take_share(relay, SHARE_OF_TUNNEL)) {
        join(relay, stream, proxy_raw_head(raw));
    } else {
        stream_close(stream, true);
        refuse(relay, PROXY_ERROR_BUSY);
    }
}

static void on_grpc_head(void *arg)
{
    struct proxy_relay *relay = arg;

    relay->head_seen = true;
}

static void on_grpc_answered(void *arg)
{
    struct proxy_relay *relay = arg;

    relay->answered = true;
}

static void on_grpc_broken(void *arg)
{
    struct proxy_relay *relay = arg;

    if (relay->head_seen)
        http_abort(relay->ex);
    else
        refuse(relay, PROXY_ERROR_BROKEN);
}

static void start_grpc(struct proxy_relay *relay, struct stream *stream)
{
    static const struct proxy_grpc_events grpc_events = {on_grpc_head, on_grpc_answered,
                                                         on_grpc_broken};
    auto_buf struct buf head = {0};

    make_head(relay, &head);
    relay->grpc = proxy_grpc_start(relay->loop, stream, relay->ex, buf_str(&head), relay->https,
                                   relay->target.place, &grpc_events, relay);
    if (!relay->grpc)
        refuse(relay, PROXY_ERROR_BROKEN);
    else
        http_resume(relay->ex);
}

static void use_socket(struct proxy_relay *relay, int fd)
{
    struct stream *stream = stream_new(relay->loop, fd);
    enum proxy_raw raw = proxy_raw_of(http_request(relay->ex));
    bool grpc = relay->target.port != PROXY_ENVD_PORT && proxy_grpc_wanted(http_request(relay->ex));

    relay->pooled = false;
    if (stream && !raw && relay->https)
        stream_add_filter(stream, tls_filter_unverified(grpc ? "h2" : "http/1.1"));
    if (stream && raw)
        start_raw(relay, stream, raw);
    else if (stream && grpc)
        start_grpc(relay, stream);
    else if (stream)
        send_request(relay, http_client_new(relay->loop, stream));
    else
        refuse(relay, PROXY_ERROR_BROKEN);
}

static void refuse_connect(struct proxy_relay *relay, int errnum)
{
    bool envd = relay->target.port == PROXY_ENVD_PORT;

    refuse(relay, envd || errnum == ENOENT ? PROXY_ERROR_NOT_FOUND : PROXY_ERROR_PORT_CLOSED);
}

static void on_connected(int fd, int errnum, void *arg)
{
    struct proxy_relay *relay = arg;

    relay->connect = NULL;
    if (fd >= 0)
        use_socket(relay, fd);
    else
        refuse_connect(relay, errnum);
}

static enum engine_dial_kind kind_of(const struct proxy_relay *relay)
{
    return proxy_raw_of(http_request(relay->ex)) == PROXY_RAW_DATAGRAMS ? ENGINE_DIAL_UDP
                                                                        : ENGINE_DIAL_TCP4;
}

static void connect_upstream(struct proxy_relay *relay, bool fresh)
{
    struct http_client *client;
    int fd = -EAGAIN;

    client = fresh || !relay->keeps
                 ? NULL
                 : proxy_upstream_take(relay->upstream, &relay->target, &relay->keep);
    if (client) {
        relay->pooled = true;
        send_request(relay, client);
        return;
    }
    relay->keep.uses = 0;
    if (relay->target.port == PROXY_ENVD_PORT)
        fd = proxy_upstream_envd(relay->upstream, relay->target.id);
    if (fd >= 0)
        use_socket(relay, fd);
    else if (fd == -EAGAIN)
        relay->connect = proxy_upstream_connect(relay->upstream, &relay->target, kind_of(relay),
                                                on_connected, relay);
    else
        refuse_connect(relay, -fd);
}

/* Servers inside see another Host, envd does not. */
static const char *mask_of(const struct route *route, uint16_t port, struct arena *arena)
{
    char mask[INGRESS_MASK_SIZE];

    if (port == PROXY_ENVD_PORT || !route->ingress.mask[0])
        return "";
    ingress_mask(&route->ingress, port, mask);
    return arena_str(arena, str_of(mask)).p;
}

void proxy_relay_start(struct loop *loop, struct proxy_upstream *upstream, struct shares *shares,
                       struct list *all, struct http_exchange *ex,
                       const struct proxy_target *target, const struct route *route,
                       const struct proxy_join *join)
{
    const struct http_request *request = http_request(ex);
    struct proxy_relay *relay = xcalloc(1, sizeof(*relay));

    relay->loop = loop;
    relay->upstream = upstream;
    relay->shares = shares;
    relay->ex = ex;
    relay->target = *target;
    relay->keep.generation = route->generation;
    relay->keep.client = target->port == PROXY_ENVD_PORT ? 0 : http_connection(ex);
    relay->https =
        target->port != PROXY_ENVD_PORT && ingress_is_https(&route->ingress, target->port);
    relay->mask = mask_of(route, target->port, http_arena(ex));
    if (join) {
        relay->https = false;
        relay->mask = "localhost";
        relay->path = arena_str(http_arena(ex), join->target);
        relay->ended = join->ended;
        relay->ended_arg = join->arg;
    }
    relay->has_body = request->chunked || request->content_length > 0;
    relay->keeps = !join && (target->port == PROXY_ENVD_PORT || proxy_head_keeps(request));
    list_push_back(all, &relay->node);
    http_on_done(ex, on_done, relay);
    if (take_share(relay, SHARE_OF_SESSION))
        connect_upstream(relay, false);
    else
        refuse(relay, PROXY_ERROR_BUSY);
}

void proxy_relay_cut(struct proxy_relay *relay)
{
    bool passed_on = relay->client || relay->grpc;

    if (relay->connect)
        proxy_connect_cancel(take_ptr(&relay->connect));
    drop_server(relay);
    if (relay->tunnel || relay->datagrams) {
        stream_tunnel_free(take_ptr(&relay->tunnel), true);
        proxy_datagrams_free(take_ptr(&relay->datagrams), true);
        if (!relay->ex)
            release(relay);
    } else if (relay->answered) {
        return; /* it goes out whatever happens to the sandbox */
    } else if (relay->head_seen) {
        http_abort(relay->ex);
    } else {
        refuse(relay, passed_on ? PROXY_ERROR_CUT : PROXY_ERROR_NOT_FOUND);
    }
}

struct proxy_relay *proxy_relay_of(struct list *node)
{
    return container_of(node, struct proxy_relay, node);
}

const char *proxy_relay_id(const struct proxy_relay *relay)
{
    return relay->target.id;
}

uint64_t proxy_relay_generation(const struct proxy_relay *relay)
{
    return relay->keep.generation;
}
