/* How it works
 *
 * A session begins with a connection: a pooled or new one to the agent, which is there at once, or
 * a dialled one. Then the head goes out, the client's body is asked for and passed on, and the
 * answer comes back; both bodies at the same time if the two sides like. Each side is paused while
 * the other one's queue is full.
 *
 * Ends: the exchange's on_done is the one place where a session is released; when the upstream is
 * done first the answer is ended, when it breaks the answer is aborted, and on_done follows. After
 * a 101 the exchange is over and the tunnel's end releases the session instead. */
#include "proxy/proxy_session.h"

#include <errno.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "proxy/proxy_errors.h"
#include "proxy/proxy_head.h"
#include "proxy/proxy_tunnel.h"

struct proxy_session {
    struct list node;
    struct loop *loop;
    struct proxy_upstream *upstream;
    struct shares *shares;
    size_t share;             /* of the sandbox's connections, held */
    struct http_exchange *ex; /* NULL from its end on */
    struct proxy_target target;
    uint64_t generation;
    struct proxy_connect *connect;
    struct http_client *client;
    struct proxy_tunnel *tunnel;
    bool pooled;   /* the connection was used before and may have died meanwhile */
    bool has_body; /* the request has one */
    bool body_asked;
    bool body_moved; /* some of it was passed on */
    bool body_done;  /* all of it was */
    bool head_seen;  /* the answer has begun */
    bool answered;   /* all of it is there, if not at the client yet */
};

static void send_request(struct proxy_session *session, struct http_client *client);
static void connect_upstream(struct proxy_session *session, bool fresh);

/* A tunnel has its pipes besides the two sockets: three times the descriptors. */
enum { SHARE_OF_SESSION = 1, SHARE_OF_TUNNEL = 2 };

static bool take_share(struct proxy_session *session, size_t amount)
{
    if (!session->shares)
        return true;
    if (shares_take(session->shares, str_of(session->target.id), amount) != SHARE_TAKEN)
        return false;
    session->share += amount;
    return true;
}

static void release(struct proxy_session *session)
{
    if (session->share)
        shares_give(session->shares, str_of(session->target.id), session->share);
    list_remove(&session->node);
    if (session->connect)
        proxy_connect_cancel(take_ptr(&session->connect));
    if (session->client)
        http_client_free(take_ptr(&session->client));
    loop_free_later(session->loop, session);
}

static void on_done(struct http_exchange *ex, void *arg)
{
    struct proxy_session *session = arg;

    (void)ex;
    session->ex = NULL;
    if (!session->tunnel)
        release(session);
}

static void refuse(struct proxy_session *session, enum proxy_error error)
{
    if (session->client)
        http_client_free(take_ptr(&session->client));
    if (session->ex)
        proxy_errors_reply(session->ex, error, &session->target);
}

/* ---- request body: client to server ---- */

static void on_request_data(struct http_exchange *ex, struct str data, void *arg)
{
    struct proxy_session *session = arg;
    size_t waiting;

    if (!session->client)
        return; /* answered already; the rest is dropped */
    session->body_moved = true;
    waiting = http_request(ex)->chunked ? http_client_write_chunk(session->client, data.p, data.len)
                                        : http_client_write(session->client, data.p, data.len);
    if (waiting > HTTP_HIGH_WATER)
        http_pause(ex);
}

static void on_request_end(struct http_exchange *ex, void *arg)
{
    struct proxy_session *session = arg;

    session->body_moved = session->body_done = true;
    if (session->client && http_request(ex)->chunked)
        (void)http_client_write(session->client, "0\r\n\r\n", 5);
}

static void on_client_drain(struct http_client *client, void *arg)
{
    struct proxy_session *session = arg;

    (void)client;
    if (session->ex)
        http_resume(session->ex);
}

/* ---- answer: server to client ---- */

static void on_exchange_drain(struct http_exchange *ex, void *arg)
{
    struct proxy_session *session = arg;

    (void)ex;
    if (session->client)
        http_client_resume(session->client);
}

static void on_tunnel_end(void *arg)
{
    struct proxy_session *session = arg;

    proxy_tunnel_free(take_ptr(&session->tunnel), false);
    if (!session->ex)
        release(session);
}

static void start_tunnel(struct proxy_session *session, struct str reason,
                         const struct http_headers *headers)
{
    auto_buf struct buf to_client = {0}, to_server = {0};
    int client_fd, server_fd;

    buf_init(&to_client, (size_t)2 * HTTP_HEAD_MAX + LOOP_READ_SIZE);
    buf_init(&to_server, LOOP_READ_SIZE);
    proxy_head_switching(reason, headers, session->target.place, &to_client);
    client_fd = http_detach(session->ex, &to_server);
    if (client_fd < 0) {
        http_abort(session->ex);
        return;
    }
    server_fd = http_client_detach(take_ptr(&session->client), &to_client);
    session->tunnel = proxy_tunnel_new(session->loop, client_fd, server_fd, buf_str(&to_client),
                                       buf_str(&to_server), on_tunnel_end, session);
}

static void on_head(struct http_client *client, int status, struct str reason,
                    const struct http_headers *headers, const struct http_framing *framing,
                    void *arg)
{
    struct proxy_session *session = arg;
    struct http_headers kept;

    (void)client;
    session->head_seen = true;
    if (status == 101) {
        if (!proxy_head_switches(http_request(session->ex), headers))
            refuse(session, PROXY_ERROR_BROKEN);
        else if (!take_share(session, SHARE_OF_TUNNEL))
            refuse(session, PROXY_ERROR_BUSY);
        else
            start_tunnel(session, reason, headers);
        return;
    }
    kept = proxy_head_response(headers, session->target.place, http_arena(session->ex));
    http_on_drain(session->ex, on_exchange_drain, session);
    http_begin_raw(session->ex, status, reason, kept.items, kept.count, framing);
}

static void on_data(struct http_client *client, struct str raw, void *arg)
{
    struct proxy_session *session = arg;

    if (http_write(session->ex, raw.p, raw.len) > HTTP_HIGH_WATER)
        http_client_pause(client);
}

static void on_end(struct http_client *client, bool reusable, void *arg)
{
    struct proxy_session *session = arg;

    session->client = NULL;
    if (reusable && session->target.port == PROXY_AGENT_PORT &&
        (!session->has_body || session->body_done))
        proxy_upstream_put(session->upstream, session->target.id, session->generation, client);
    else
        http_client_free(client);
    session->answered = true;
    http_end(session->ex);
}

static void on_error(struct http_client *client, int errnum, void *arg)
{
    struct proxy_session *session = arg;

    (void)errnum;
    http_client_free(client);
    session->client = NULL;
    if (session->head_seen) {
        http_abort(session->ex);
    } else if (session->pooled && !session->body_moved) {
        http_pause(session->ex); /* it died while idle: nothing has happened yet */
        connect_upstream(session, true);
    } else {
        refuse(session, PROXY_ERROR_BROKEN);
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

static void send_request(struct proxy_session *session, struct http_client *client)
{
    const struct http_request *request = http_request(session->ex);
    bool agent = session->target.port == PROXY_AGENT_PORT;
    struct proxy_head_origin origin = {.agent = agent};
    char peer[HTTP_PEER_SIZE] = "";
    auto_buf struct buf head = {0};

    if (!agent)
        http_peer(session->ex, peer);
    origin.peer = peer;
    buf_init(&head, (size_t)2 * HTTP_HEAD_MAX);
    proxy_head_request(request, &origin, &head);
    session->client = client;
    http_client_start(client, &events, session, buf_str(&head), str_is(request->method, "HEAD"));
    if (session->has_body && !session->body_asked) {
        session->body_asked = true;
        http_read_stream(session->ex, on_request_data, on_request_end, session);
    }
    http_resume(session->ex);
}

static void use_socket(struct proxy_session *session, int fd)
{
    struct http_client *client = http_client_new(session->loop, fd);

    session->pooled = false;
    if (client)
        send_request(session, client);
    else
        refuse(session, PROXY_ERROR_BROKEN);
}

static void refuse_connect(struct proxy_session *session, int errnum)
{
    bool agent = session->target.port == PROXY_AGENT_PORT;

    refuse(session, agent || errnum == ENOENT ? PROXY_ERROR_NOT_FOUND : PROXY_ERROR_PORT_CLOSED);
}

static void on_connected(int fd, int errnum, void *arg)
{
    struct proxy_session *session = arg;

    session->connect = NULL;
    if (fd >= 0)
        use_socket(session, fd);
    else
        refuse_connect(session, errnum);
}

static void connect_upstream(struct proxy_session *session, bool fresh)
{
    struct http_client *client;
    int fd = -EAGAIN;

    if (session->target.port == PROXY_AGENT_PORT) {
        client =
            fresh ? NULL
                  : proxy_upstream_take(session->upstream, session->target.id, session->generation);
        if (client) {
            session->pooled = true;
            send_request(session, client);
            return;
        }
        fd = proxy_upstream_agent(session->upstream, session->target.id);
    }
    if (fd >= 0)
        use_socket(session, fd);
    else if (fd == -EAGAIN)
        session->connect =
            proxy_upstream_connect(session->upstream, &session->target, on_connected, session);
    else
        refuse_connect(session, -fd);
}

void proxy_session_start(struct loop *loop, struct proxy_upstream *upstream, struct shares *shares,
                         struct list *all, struct http_exchange *ex,
                         const struct proxy_target *target, uint64_t generation)
{
    const struct http_request *request = http_request(ex);
    struct proxy_session *session = xcalloc(1, sizeof(*session));

    session->loop = loop;
    session->upstream = upstream;
    session->shares = shares;
    session->ex = ex;
    session->target = *target;
    session->generation = generation;
    session->has_body = request->chunked || request->content_length > 0;
    list_push_back(all, &session->node);
    http_on_done(ex, on_done, session);
    if (take_share(session, SHARE_OF_SESSION))
        connect_upstream(session, false);
    else
        refuse(session, PROXY_ERROR_BUSY);
}

void proxy_session_cut(struct proxy_session *session)
{
    bool passed_on = session->client != NULL;

    if (session->connect)
        proxy_connect_cancel(take_ptr(&session->connect));
    if (session->client)
        http_client_free(take_ptr(&session->client));
    if (session->tunnel) {
        proxy_tunnel_free(take_ptr(&session->tunnel), true);
        if (!session->ex)
            release(session);
    } else if (session->answered) {
        return; /* it goes out whatever happens to the sandbox */
    } else if (session->head_seen) {
        http_abort(session->ex);
    } else {
        refuse(session, passed_on ? PROXY_ERROR_CUT : PROXY_ERROR_NOT_FOUND);
    }
}

struct proxy_session *proxy_session_of(struct list *node)
{
    return container_of(node, struct proxy_session, node);
}

const char *proxy_session_id(const struct proxy_session *session)
{
    return session->target.id;
}

uint64_t proxy_session_generation(const struct proxy_session *session)
{
    return session->generation;
}
