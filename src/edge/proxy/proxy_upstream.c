/* How it works
 *
 * Pools: idle connections hang in two lists, envds' and other ports', oldest first, which are short (IDLE_MAX), so looking
 * for one is a walk. They are closed by a timer that runs only while there are some: envd's well before envd would do
 * it, so a request rarely meets a connection that is just being closed. A server of a user's may be one that serves
 * connection after connection: those to it wait a moment only and serve few requests, so that others get their turn.
 * Such a server may also say more than it was asked, and late: what it says then is taken for the answer to the next
 * request, so that one is always of the same client, who was answered by nobody else anyway.
 *
 * Connect: dial, wait until the socket is writable, look at its error. A refused 127.0.0.1 is
 * followed by [::1], because servers inside may listen on either. An envd whose accept queue is
 * full is tried again every RETRY_MS. One timer bounds it all. */
#include "edge/proxy/proxy_upstream.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "host/engine/engine.h"
#include "protocol/http/http_dial.h"

enum {
    IDLE_MAX = 256,
    IDLE_ALIKE_MAX = 8, /* that the same requests may take */
    ENVD_IDLE_MS = 10000,
    PORT_IDLE_MS = 20,
    PORT_USES_MAX = 64,
    SWEEPS = 10, /* in that time */
    CONNECT_MS = 10000,
    RETRY_MS = 5,
};

struct idle_pool {
    struct proxy_upstream *upstream;
    struct list conns;
    size_t count;
    uint64_t idle_ms;
    unsigned uses_max;
    uv_timer_t timer;
};

struct idle_conn {
    struct list node;
    struct idle_pool *pool;
    struct http_client *client;
    struct proxy_keep keep;
    uint64_t since;
    uint16_t port;
    char id[ID_SIZE];
};

enum { POOL_ENVDS, POOL_PORTS, POOL_COUNT };

struct proxy_upstream {
    struct loop *loop;
    struct proxy_config config;
    struct idle_pool pools[POOL_COUNT];
    int open_timers;
};

struct proxy_connect {
    struct proxy_upstream *upstream;
    struct proxy_target target;
    proxy_connect_fn *fn;
    void *arg;
    struct engine_dial *dial;
    uv_poll_t poll;
    uv_timer_t timer;
    uint64_t deadline;
    int fd;
    enum engine_dial_kind kind;
    bool polling, done;
    int open_handles;
};

/* ---- pools ---- */

static struct idle_conn *idle_of(struct list *node)
{
    return container_of(node, struct idle_conn, node);
}

static void remove_idle(struct idle_conn *idle)
{
    list_remove(&idle->node);
    idle->pool->count--;
    loop_free_later(idle->pool->upstream->loop, idle);
}

static void close_idle(struct idle_conn *idle)
{
    http_client_free(idle->client);
    remove_idle(idle);
}

static void on_idle_error(struct http_client *client, int errnum, void *arg)
{
    (void)client;
    (void)errnum;
    close_idle(arg);
}

static const struct http_client_events idle_events = {.on_error = on_idle_error};

static void on_sweep(uv_timer_t *timer)
{
    struct idle_pool *pool = timer->data;
    uint64_t now = uv_now(loop_uv(pool->upstream->loop));

    while (!list_empty(&pool->conns)) {
        struct idle_conn *idle = idle_of(pool->conns.next);

        if (now - idle->since < pool->idle_ms)
            return;
        close_idle(idle);
    }
    (void)uv_timer_stop(timer);
}

static void start_pool(struct proxy_upstream *upstream, int which, uint64_t idle_ms,
                       unsigned uses_max)
{
    struct idle_pool *pool = &upstream->pools[which];

    pool->upstream = upstream;
    pool->idle_ms = idle_ms;
    pool->uses_max = uses_max;
    list_init(&pool->conns);
    (void)uv_timer_init(loop_uv(upstream->loop), &pool->timer);
    pool->timer.data = pool;
    upstream->open_timers++;
}

struct proxy_upstream *proxy_upstream_new(struct loop *loop, const struct proxy_config *config)
{
    struct proxy_upstream *upstream = xcalloc(1, sizeof(*upstream));

    upstream->loop = loop;
    upstream->config = *config;
    if (!upstream->config.dial)
        upstream->config.dial = engine_dial;
    if (!upstream->config.dial_cancel)
        upstream->config.dial_cancel = engine_dial_cancel;
    start_pool(upstream, POOL_ENVDS, ENVD_IDLE_MS, UINT_MAX);
    start_pool(upstream, POOL_PORTS, PORT_IDLE_MS, PORT_USES_MAX);
    return upstream;
}

static void on_pool_closed(uv_handle_t *handle)
{
    struct proxy_upstream *upstream = ((struct idle_pool *)handle->data)->upstream;

    if (--upstream->open_timers == 0)
        free(upstream);
}

void proxy_upstream_free(struct proxy_upstream *upstream)
{
    for (int i = 0; i < POOL_COUNT; i++) {
        while (!list_empty(&upstream->pools[i].conns))
            close_idle(idle_of(upstream->pools[i].conns.next));
        uv_close((uv_handle_t *)&upstream->pools[i].timer, on_pool_closed);
    }
}

static struct idle_pool *pool_of(struct proxy_upstream *upstream, uint16_t port)
{
    return &upstream->pools[port == PROXY_ENVD_PORT ? POOL_ENVDS : POOL_PORTS];
}

static bool serves(const struct idle_conn *idle, const struct proxy_target *target,
                   const struct proxy_keep *keep)
{
    return idle->keep.client == keep->client && idle->keep.generation == keep->generation &&
           idle->port == target->port && strcmp(idle->id, target->id) == 0;
}

struct http_client *proxy_upstream_take(struct proxy_upstream *upstream,
                                        const struct proxy_target *target, struct proxy_keep *keep)
{
    struct idle_pool *pool = pool_of(upstream, target->port);
    struct list *node, *before;

    /* The newest first, so that what is not needed grows old. */
    for (node = pool->conns.prev; node != &pool->conns; node = before) {
        struct idle_conn *idle = idle_of(node);
        struct http_client *client = idle->client;

        before = node->prev;
        if (!serves(idle, target, keep))
            continue;
        if (http_client_alive(client)) {
            keep->uses = idle->keep.uses;
            remove_idle(idle);
            return client;
        }
        close_idle(idle);
    }
    return NULL;
}

static size_t count_idle(const struct idle_pool *pool, const struct proxy_target *target,
                         const struct proxy_keep *keep)
{
    struct list *node;
    size_t count = 0;

    list_for_each (node, &pool->conns)
        count += serves(idle_of(node), target, keep);
    return count;
}

void proxy_upstream_put(struct proxy_upstream *upstream, const struct proxy_target *target,
                        const struct proxy_keep *keep, struct http_client *client)
{
    struct idle_pool *pool = pool_of(upstream, target->port);
    struct idle_conn *idle;

    if (keep->uses >= pool->uses_max || count_idle(pool, target, keep) >= IDLE_ALIKE_MAX) {
        http_client_free(client);
        return;
    }
    if (pool->count >= IDLE_MAX)
        close_idle(idle_of(pool->conns.next));
    idle = xcalloc(1, sizeof(*idle));
    idle->pool = pool;
    idle->client = client;
    idle->keep = *keep;
    idle->port = target->port;
    idle->since = uv_now(loop_uv(upstream->loop));
    (void)str_copy(str_of(target->id), idle->id, sizeof(idle->id));
    list_push_back(&pool->conns, &idle->node);
    pool->count++;
    http_client_resume(client);
    http_client_watch(client, &idle_events, idle);
    if (!uv_is_active((uv_handle_t *)&pool->timer))
        (void)uv_timer_start(&pool->timer, on_sweep, pool->idle_ms / SWEEPS,
                             pool->idle_ms / SWEEPS);
}

void proxy_upstream_drop(struct proxy_upstream *upstream, const char *id)
{
    struct list *node, *next;

    for (int i = 0; i < POOL_COUNT; i++) {
        list_for_each_safe (node, next, &upstream->pools[i].conns) {
            struct idle_conn *idle = idle_of(node);

            if (strcmp(idle->id, id) == 0)
                close_idle(idle);
        }
    }
}

/* ---- connect ---- */

int proxy_upstream_envd(struct proxy_upstream *upstream, const char *id)
{
    return upstream->config.engine->ops->connect_envd(upstream->config.engine, id);
}

static void on_connect_handle_closed(uv_handle_t *handle)
{
    struct proxy_connect *connect = handle->data;

    if (--connect->open_handles == 0)
        free(connect);
}

static void end_connect(struct proxy_connect *connect)
{
    connect->done = true;
    if (connect->dial)
        connect->upstream->config.dial_cancel(take_ptr(&connect->dial));
    if (connect->polling)
        uv_close((uv_handle_t *)&connect->poll, on_connect_handle_closed);
    connect->polling = false;
    uv_close((uv_handle_t *)&connect->timer, on_connect_handle_closed);
}

void proxy_connect_cancel(struct proxy_connect *connect)
{
    end_connect(connect);
    close_fd(&connect->fd);
}

static void finish(struct proxy_connect *connect, int errnum)
{
    int fd = take_fd(&connect->fd);

    end_connect(connect); /* before the descriptor has a new owner: libuv forgets it here */
    if (errnum)
        close_fd(&fd);
    connect->fn(fd, errnum, connect->arg);
}

static void start_dial(struct proxy_connect *connect);

static void failed(struct proxy_connect *connect, int errnum)
{
    if (errnum == ECONNREFUSED && connect->kind == ENGINE_DIAL_TCP4) {
        connect->kind = ENGINE_DIAL_TCP6;
        start_dial(connect);
        return;
    }
    finish(connect, errnum);
}

static void on_poll_closed_then_next(uv_handle_t *handle)
{
    struct proxy_connect *connect = handle->data;

    if (--connect->open_handles == 0)
        free(connect);
    else if (!connect->done)
        failed(connect, ECONNREFUSED);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    struct proxy_connect *connect = poll->data;
    int errnum = 0;
    socklen_t size = sizeof(errnum);

    (void)events;
    (void)getsockopt(connect->fd, SOL_SOCKET, SO_ERROR, &errnum, &size);
    if (!errnum && status < 0)
        errnum = ECONNREFUSED;
    if (errnum == ECONNREFUSED && connect->kind == ENGINE_DIAL_TCP4) {
        /* The handle is used again for the other address: only after libuv has let it go. */
        connect->polling = false;
        uv_close((uv_handle_t *)&connect->poll, on_poll_closed_then_next);
        close_fd(&connect->fd);
        return;
    }
    finish(connect, errnum);
}

static void on_dialled(int fd, int errnum, void *arg)
{
    struct proxy_connect *connect = arg;
    int one = 1;

    connect->dial = NULL;
    if (fd < 0) {
        failed(connect, errnum ? errnum : EIO);
        return;
    }
    connect->fd = fd;
    if (connect->kind != ENGINE_DIAL_UDP) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        http_dial_unpaced(fd);
    }
    if (uv_poll_init(loop_uv(connect->upstream->loop), &connect->poll, fd) != 0) {
        finish(connect, EIO);
        return;
    }
    connect->poll.data = connect;
    connect->polling = true;
    connect->open_handles++;
    (void)uv_poll_start(&connect->poll, UV_WRITABLE, on_writable);
}

static void start_dial(struct proxy_connect *connect)
{
    struct proxy_upstream *upstream = connect->upstream;

    connect->dial = upstream->config.dial(upstream->config.dialer, connect->target.id,
                                          connect->target.port, connect->kind, on_dialled, connect);
}

static void on_timer(uv_timer_t *timer)
{
    struct proxy_connect *connect = timer->data;
    int fd;

    if (connect->target.port != PROXY_ENVD_PORT ||
        uv_now(loop_uv(connect->upstream->loop)) >= connect->deadline) {
        finish(connect, ETIMEDOUT);
        return;
    }
    fd = proxy_upstream_envd(connect->upstream, connect->target.id);
    if (fd >= 0)
        connect->fd = fd;
    if (fd != -EAGAIN)
        finish(connect, fd < 0 ? -fd : 0);
}

struct proxy_connect *proxy_upstream_connect(struct proxy_upstream *upstream,
                                             const struct proxy_target *target,
                                             enum engine_dial_kind kind, proxy_connect_fn *fn,
                                             void *arg)
{
    struct proxy_connect *connect = xcalloc(1, sizeof(*connect));
    bool envd = target->port == PROXY_ENVD_PORT;

    connect->upstream = upstream;
    connect->target = *target;
    connect->kind = kind;
    connect->fn = fn;
    connect->arg = arg;
    connect->fd = -1;
    connect->open_handles = 1;
    connect->deadline = uv_now(loop_uv(upstream->loop)) + CONNECT_MS;
    (void)uv_timer_init(loop_uv(upstream->loop), &connect->timer);
    connect->timer.data = connect;
    (void)uv_timer_start(&connect->timer, on_timer, envd ? RETRY_MS : CONNECT_MS,
                         envd ? RETRY_MS : 0);
    if (!envd)
        start_dial(connect);
    return connect;
}
