/* How it works
 *
 * Pool: idle connections hang in one list, oldest first, which is short (IDLE_MAX), so looking for
 * one is a walk. They are closed after IDLE_MS by a timer that runs only while there are some: well
 * before envd would do it, so a request rarely meets a connection that is just being closed.
 *
 * Connect: dial, wait until the socket is writable, look at its error. A refused 127.0.0.1 is
 * followed by [::1], because servers inside may listen on either. An envd whose accept queue is
 * full is tried again every RETRY_MS. One timer bounds it all. */
#include "edge/proxy/proxy_upstream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "host/engine/engine.h"

enum {
    IDLE_MAX = 256,
    IDLE_PER_BOX_MAX = 8,
    IDLE_MS = 10000,
    SWEEP_MS = 1000,
    CONNECT_MS = 10000,
    RETRY_MS = 5,
};

struct idle_conn {
    struct list node;
    struct proxy_upstream *upstream;
    struct http_client *client;
    uint64_t generation, since;
    char id[ID_SIZE];
};

struct proxy_upstream {
    struct loop *loop;
    struct proxy_config config;
    uv_timer_t timer;
    struct list idle;
    size_t idle_count;
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
    bool polling, v6, done;
    int open_handles;
};

/* ---- pool ---- */

static void remove_idle(struct idle_conn *idle)
{
    list_remove(&idle->node);
    idle->upstream->idle_count--;
    loop_free_later(idle->upstream->loop, idle);
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
    struct proxy_upstream *upstream = timer->data;
    uint64_t now = uv_now(loop_uv(upstream->loop));

    while (!list_empty(&upstream->idle)) {
        struct idle_conn *idle = container_of(upstream->idle.next, struct idle_conn, node);

        if (now - idle->since < IDLE_MS)
            return;
        close_idle(idle);
    }
    (void)uv_timer_stop(timer);
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
    list_init(&upstream->idle);
    (void)uv_timer_init(loop_uv(loop), &upstream->timer);
    upstream->timer.data = upstream;
    return upstream;
}

static void on_upstream_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void proxy_upstream_free(struct proxy_upstream *upstream)
{
    while (!list_empty(&upstream->idle))
        close_idle(container_of(upstream->idle.next, struct idle_conn, node));
    uv_close((uv_handle_t *)&upstream->timer, on_upstream_closed);
}

struct http_client *proxy_upstream_take(struct proxy_upstream *upstream, const char *id,
                                        uint64_t generation)
{
    struct list *node, *before;

    /* The newest first, so that what is not needed grows old. */
    for (node = upstream->idle.prev; node != &upstream->idle; node = before) {
        struct idle_conn *idle = container_of(node, struct idle_conn, node);
        struct http_client *client = idle->client;

        before = node->prev;
        if (idle->generation != generation || strcmp(idle->id, id) != 0)
            continue;
        if (http_client_alive(client)) {
            remove_idle(idle);
            return client;
        }
        close_idle(idle);
    }
    return NULL;
}

static size_t count_idle(const struct proxy_upstream *upstream, const char *id)
{
    struct list *node;
    size_t count = 0;

    list_for_each (node, &upstream->idle)
        count += strcmp(container_of(node, struct idle_conn, node)->id, id) == 0;
    return count;
}

void proxy_upstream_put(struct proxy_upstream *upstream, const char *id, uint64_t generation,
                        struct http_client *client)
{
    struct idle_conn *idle;

    if (count_idle(upstream, id) >= IDLE_PER_BOX_MAX) {
        http_client_free(client);
        return;
    }
    if (upstream->idle_count >= IDLE_MAX)
        close_idle(container_of(upstream->idle.next, struct idle_conn, node));
    idle = xcalloc(1, sizeof(*idle));
    idle->upstream = upstream;
    idle->client = client;
    idle->generation = generation;
    idle->since = uv_now(loop_uv(upstream->loop));
    (void)str_copy(str_of(id), idle->id, sizeof(idle->id));
    list_push_back(&upstream->idle, &idle->node);
    upstream->idle_count++;
    http_client_resume(client);
    http_client_watch(client, &idle_events, idle);
    if (!uv_is_active((uv_handle_t *)&upstream->timer))
        (void)uv_timer_start(&upstream->timer, on_sweep, SWEEP_MS, SWEEP_MS);
}

void proxy_upstream_drop(struct proxy_upstream *upstream, const char *id)
{
    struct list *node, *next;

    list_for_each_safe (node, next, &upstream->idle) {
        struct idle_conn *idle = container_of(node, struct idle_conn, node);

        if (strcmp(idle->id, id) == 0)
            close_idle(idle);
    }
}

/* ---- connect ---- */

int proxy_upstream_envd(struct proxy_upstream *upstream, const char *id)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[ENGINE_SOCKET_PATH_SIZE];
    auto_close int fd = -1;

    if (engine_socket_path(upstream->config.run_dir, id, path) < 0 ||
        !str_copy(str_of(path), address.sun_path, sizeof(address.sun_path)))
        return -ENAMETOOLONG;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    return take_fd(&fd);
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
    if (errnum == ECONNREFUSED && !connect->v6) {
        connect->v6 = true;
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
    if (errnum == ECONNREFUSED && !connect->v6) {
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
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
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
                                          connect->target.port, connect->v6, on_dialled, connect);
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
                                             proxy_connect_fn *fn, void *arg)
{
    struct proxy_connect *connect = xcalloc(1, sizeof(*connect));
    bool envd = target->port == PROXY_ENVD_PORT;

    connect->upstream = upstream;
    connect->target = *target;
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
