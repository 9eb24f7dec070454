/* How it works
 *
 * Timers: each kind of timeout has one length for all connections, so a list per kind, appended at
 * the end whenever a clock starts, is sorted by itself. One libuv timer, running only while a list
 * has entries, looks at the heads of the lists a few times per timeout.
 *
 * The prepare handle advances the connections that handlers touched from outside their own
 * callbacks (see http_conn.c).
 *
 * When there are as many connections as there may be, a new one takes the place of the first of these that there is: one
 * that was answered and that its client does not close; the one that has waited longest for a request; the one that has
 * waited longest for the rest of a head; the answer (a stream, or a connection) that its client has not taken for longest.
 * A connection that works is never cut for a new one. An address with many places loses its unread answers before others
 * lose connections that wait for a request, and takes no place of an address with fewer.
 *
 * The server's memory is given back with its last libuv handle and its last connection. */
#include "protocol/http/http_server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/http/http_address.h"
#include "protocol/http/http_conn.h"
#include "protocol/http/http_dial.h"
#include "protocol/loop/share.h"

enum {
    ACCEPTS_PER_EVENT = 32,
    REFUSED_MAX = 64,            /* connections above the maximum that still get a 503 */
    HANDSHAKES_MAX = 256,        /* under way at once: each holds tens of kilobytes */
    HANDSHAKES_ADDRESS_MAX = 64, /* of those, of one address */
    UNSENT_MAX = 512 * 1024,     /* bytes that the kernel takes before it may send them */
    TICK_MIN_MS = 10,
    TICK_MAX_MS = 1000,
    EVICT_WAITING_MS = 1000, /* an answer that is not taken for so long may be ended for others */
    EVICT_LOOKS = 16,        /* at those that wait longest, for one that may go */
    EVICT_MANY = 16,         /* places of an address that is not greedy yet */
    EVICT_UNREAD_LOOKS =
        256, /* at answers that nobody takes: the oldest may be of addresses that are not greedy */
};

void http_server_unref(struct http_server *server)
{
    if (--server->handles)
        return;
    close_fd(&server->spare_fd);
    buf_done(&server->head);
    buf_done(&server->batch);
    free(server);
}

static void check_idle(struct http_server *server)
{
    void (*on_idle)(void *arg) = server->on_idle;

    if (!server->draining || server->conn_count || !on_idle)
        return;
    server->on_idle = NULL;
    on_idle(server->idle_arg);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct http_server *server = prepare->data;
    struct list *node;

    while ((node = list_pop_front(&server->todo)))
        http_conn_advance(container_of(node, struct http_conn, todo));
    check_idle(server);
}

static void on_tick(uv_timer_t *timer)
{
    struct http_server *server = timer->data;
    uint64_t now = uv_now(loop_uv(server->loop));
    bool any = false;

    for (int kind = CONN_TIMER_IDLE; kind < CONN_TIMER_COUNT; kind++) {
        struct list *head = &server->timers[kind];

        while (!list_empty(head)) {
            struct conn_timer_link *link = container_of(head->next, struct conn_timer_link, link);

            if (now - link->since < server->timeouts[kind])
                break;
            list_remove(&link->link);
            link->kind = CONN_TIMER_NONE;
            link->expired(link, (enum conn_timer)kind);
            if (server->freed)
                return;
        }
        any = any || !list_empty(head);
    }
    if (!http_budget_tick(server) && !any)
        (void)uv_timer_stop(timer);
}

static void start_ticking(struct http_server *server)
{
    uint64_t tick = TICK_MAX_MS;

    for (int kind = CONN_TIMER_IDLE; kind < CONN_TIMER_COUNT; kind++) {
        if (server->timeouts[kind] && server->timeouts[kind] / 8 < tick)
            tick = server->timeouts[kind] / 8;
    }
    if (tick < TICK_MIN_MS)
        tick = TICK_MIN_MS;
    (void)uv_timer_start(&server->timer, on_tick, tick, tick);
}

void http_server_set_timer(struct http_server *server, struct conn_timer_link *link,
                           enum conn_timer kind, bool restart)
{
    if (kind == link->kind && (!restart || kind == CONN_TIMER_NONE))
        return;
    list_remove(&link->link);
    link->kind = kind;
    if (kind == CONN_TIMER_NONE || !server->timeouts[kind])
        return;
    link->since = uv_now(loop_uv(server->loop));
    list_push_back(&server->timers[kind], &link->link);
    if (!uv_is_active((uv_handle_t *)&server->timer))
        start_ticking(server);
}

void http_server_end_waiting(struct conn_timer_link *link)
{
    list_remove(&link->link);
    link->kind = CONN_TIMER_NONE;
    http_hold_release(link->hold);
    link->expired(link, CONN_TIMER_WRITE);
}

void http_server_conn_closed(struct http_conn *conn)
{
    list_remove(&conn->read_timer.link);
    list_remove(&conn->write_timer.link);
    list_remove(&conn->all);
    if (!list_empty(&conn->opening))
        http_server_opened(conn);
    conn->server->conn_count--;
    conn->server->refused -= conn->refused;
    http_server_forget(conn->server, &conn->address);
}

struct str http_server_date(struct http_server *server)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (now.tv_sec != server->date_second) {
        struct tm tm;

        server->date_second = now.tv_sec;
        (void)gmtime_r(&now.tv_sec, &tm);
        (void)strftime(server->date, sizeof(server->date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
    }
    return str_of(server->date);
}

struct http_server *http_server_new(struct loop *loop, const struct http_server_config *config)
{
    struct http_server *server = xcalloc(1, sizeof(*server));

    server->config = *config;
    server->loop = loop;
    server->timeouts[CONN_TIMER_IDLE] = config->idle_timeout_ms;
    server->timeouts[CONN_TIMER_HEAD] = config->head_timeout_ms;
    server->timeouts[CONN_TIMER_BODY] = config->body_timeout_ms;
    server->timeouts[CONN_TIMER_WHOLE] = config->whole_timeout_ms;
    server->timeouts[CONN_TIMER_WRITE] = config->write_timeout_ms;
    server->timeouts[CONN_TIMER_LINGER] = CONN_LINGER_MS;
    list_init(&server->conns);
    list_init(&server->openings);
    list_init(&server->listeners);
    list_init(&server->todo);
    for (int kind = 0; kind < CONN_TIMER_COUNT; kind++)
        list_init(&server->timers[kind]);
    buf_init(&server->head, (size_t)2 * HTTP_HEAD_MAX);
    buf_init(&server->batch, CONN_BATCH_MAX);
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    server->handles = 2;
    (void)uv_timer_init(loop_uv(loop), &server->timer);
    (void)uv_prepare_init(loop_uv(loop), &server->prepare);
    server->timer.data = server->prepare.data = server;
    (void)uv_prepare_start(&server->prepare, on_prepare);
    http_budget_add_server(server);
    return server;
}

/* ---- whose connections ---- */

static struct http_address address_of(const struct sockaddr_storage *peer)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)peer;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)peer;
    struct http_address out = {0};

    if (http_address_loopback((const struct sockaddr *)peer))
        return out;
    if (peer->ss_family == AF_INET) {
        out.len = 4;
        memcpy(out.bytes, &v4->sin_addr, 4);
    } else if (peer->ss_family == AF_INET6) {
        /* Who has one address has its network. */
        bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);

        out.len = mapped ? 4 : 8;
        memcpy(out.bytes, v6->sin6_addr.s6_addr + (mapped ? 12 : 0), out.len);
    }
    return out;
}

static bool count(struct http_server *server, struct http_address *address)
{
    if (!server->config.addresses ||
        (address->len && shares_take(server->config.addresses, str_n(address->bytes, address->len),
                                     1) == SHARE_TAKEN))
        return true;
    if (!address->len)
        return true;
    address->len = 0;
    return false;
}

void http_server_forget(struct http_server *server, struct http_address *address)
{
    if (server->config.addresses && address->len)
        shares_give(server->config.addresses, str_n(address->bytes, address->len), 1);
    address->len = 0;
}

/* ---- places ---- */

static bool is_full(const struct http_server *server)
{
    return server->conn_count - server->refused + server->carried >= server->config.max_connections;
}

/* A request that has come, but was not read yet, is none of a connection that waits. */
static bool has_input(const struct http_conn *conn)
{
    return stream_peek(conn->stream) > 0;
}

/* Has it no exchange, and no request on its way? A session whose timer is not the idle one may have exchanges. */
static bool is_waiting(const struct http_conn *conn, enum conn_timer kind)
{
    if (kind == CONN_TIMER_LINGER)
        return conn->state == CONN_LINGER;
    return (conn->state == CONN_HEAD || kind == CONN_TIMER_IDLE) && !has_input(conn);
}

/* Connections and streams of an address, on all loops; loopback is not counted. */
static size_t places_of(struct http_server *server, struct http_address address)
{
    return server->config.addresses && address.len
               ? shares_held_by(server->config.addresses, str_n(address.bytes, address.len))
               : 0;
}

static bool same_address(const struct http_conn *a, const struct http_conn *b)
{
    return a->address.len && a->address.len == b->address.len &&
           memcmp(a->address.bytes, b->address.bytes, a->address.len) == 0;
}

/* An address with many places takes none of an address with fewer. */
static bool is_greedy(size_t who, size_t other)
{
    return who > EVICT_MANY && who > other;
}

/* newcomer: how many places the address has that wants one. */
static struct http_conn *find_waiting(struct http_server *server, enum conn_timer kind,
                                      size_t newcomer)
{
    struct list *node = server->timers[kind].next;

    for (int i = 0; i < EVICT_LOOKS && node != &server->timers[kind]; i++, node = node->next) {
        struct conn_timer_link *link = container_of(node, struct conn_timer_link, link);
        struct http_conn *conn = link->conn;

        if (conn && !conn->busy && is_waiting(conn, kind) &&
            !is_greedy(newcomer, places_of(server, conn->address)))
            return conn;
    }
    return NULL;
}

static bool evict_of(struct http_server *server, enum conn_timer kind, size_t newcomer)
{
    struct http_conn *conn = find_waiting(server, kind, newcomer);

    if (conn)
        http_conn_close(conn);
    return conn != NULL;
}

/* The answer that its client has not taken for longest: a stream, or a whole connection. What it holds is free once
 * this turn of the loop is over. idle: NULL, or the connection that would go otherwise: then only an answer of an
 * address that is greedy beside it. */
static bool evict_unread(struct http_server *server, const struct http_conn *idle, size_t newcomer)
{
    uint64_t now = uv_now(loop_uv(server->loop));
    size_t places = 0, idle_places = idle ? places_of(server, idle->address) : 0;
    const struct http_conn *last = NULL;
    struct list *node = server->timers[CONN_TIMER_WRITE].next;

    for (int i = 0; i < EVICT_UNREAD_LOOKS && node != &server->timers[CONN_TIMER_WRITE];
         i++, node = node->next) {
        struct conn_timer_link *link = container_of(node, struct conn_timer_link, link);
        const struct http_conn *conn = link->hold->conn;

        if (now - link->since < EVICT_WAITING_MS)
            return false;
        if (!last || (conn != last && !same_address(conn, last)))
            places = places_of(server, conn->address);
        last = conn;
        if (idle ? !is_greedy(places, idle_places) : is_greedy(newcomer, places))
            continue;
        http_server_end_waiting(link);
        return true;
    }
    return false;
}

/* Instead of a connection that waits for a request. */
static bool evict_greedy(struct http_server *server)
{
    const struct http_conn *idle = find_waiting(server, CONN_TIMER_IDLE, 0);

    if (!idle)
        idle = find_waiting(server, CONN_TIMER_HEAD, 0);
    return idle && evict_unread(server, idle, 0);
}

static bool evict(struct http_server *server, struct http_address address)
{
    size_t newcomer = places_of(server, address);

    return evict_of(server, CONN_TIMER_LINGER, 0) || evict_greedy(server) ||
           evict_of(server, CONN_TIMER_IDLE, newcomer) ||
           evict_of(server, CONN_TIMER_HEAD, newcomer) || evict_unread(server, NULL, newcomer);
}

bool http_server_carry(struct http_server *server, struct http_address address)
{
    if (!count(server, &address))
        return false;
    if (is_full(server) && !evict(server, address)) {
        http_server_forget(server, &address);
        return false;
    }
    server->carried++;
    return true;
}

void http_server_carried(struct http_server *server, struct http_address address)
{
    server->carried--;
    http_server_forget(server, &address);
}

void http_server_opening(struct http_conn *conn)
{
    struct http_server *server = conn->server;
    struct http_conn *oldest = NULL;
    struct list *node;
    size_t own = 0;

    list_for_each (node, &server->openings) {
        struct http_conn *other = container_of(node, struct http_conn, opening);

        if (!same_address(conn, other))
            continue;
        oldest = oldest ? oldest : other;
        own++;
    }
    if (own < HANDSHAKES_ADDRESS_MAX)
        oldest = NULL;
    if (!oldest && server->opening_count >= HANDSHAKES_MAX)
        oldest = container_of(server->openings.next, struct http_conn, opening);
    list_push_back(&server->openings, &conn->opening);
    server->opening_count++;
    if (!oldest)
        return;
    http_budget_flooded(server);
    http_conn_close(oldest);
}

void http_server_opened(struct http_conn *conn)
{
    list_remove(&conn->opening);
    conn->server->opening_count--;
}

/* ---- accepting ---- */

/* Out of descriptors and nobody to evict: the waiting peers would be reported again and again, so they
 * are refused. */
static void refuse_waiting(struct http_listener *listener)
{
    struct http_server *server = listener->server;
    int fd;

    if (server->spare_fd < 0)
        return;
    close_fd(&server->spare_fd);
    fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
    close_fd(&fd);
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void take_connection(struct http_server *server, int fd, const struct sockaddr_storage *peer)
{
    struct http_address address = address_of(peer);
    const char *refusal = NULL;

    if (!count(server, &address))
        refusal = "too many connections from your address";
    else if (is_full(server) && !evict(server, address))
        refusal = "too many connections";
    if (!refusal || server->refused < REFUSED_MAX) {
        http_conn_open(server, fd, &address, refusal);
        return;
    }
    close_fd(&fd);
    http_server_forget(server, &address);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct http_listener *listener = poll->data;
    struct http_server *server = listener->server;

    (void)events;
    if (status < 0)
        return;
    for (int i = 0; i < ACCEPTS_PER_EVENT && listener->fd >= 0; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t size = sizeof(peer);
        int fd =
            accept4(listener->fd, (struct sockaddr *)&peer, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
            if (evict(server, (struct http_address){0}))
                continue;
            refuse_waiting(listener);
            return;
        }
        if (fd < 0 && errno == ECONNABORTED)
            continue;
        if (fd < 0)
            return;
        if (http_address_loopback((const struct sockaddr *)&peer))
            http_dial_unpaced(fd);
        take_connection(server, fd, &peer);
    }
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct http_listener *listener = handle->data;
    struct http_server *server = listener->server;

    free(listener);
    http_server_unref(server);
}

/* Accepted sockets inherit these. Keep-alive probes find peers that vanished without a word. */
static void set_tcp_options(const struct http_server *server, int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},   {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 60}, {IPPROTO_TCP, TCP_KEEPINTVL, 15},
        {IPPROTO_TCP, TCP_KEEPCNT, 4},
    };
    const int unsent = UNSENT_MAX;

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
    /* What a peer does not read waits here, where it is counted; the kernel would take megabytes of it. */
    if (server->config.budget)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
}

int http_server_listen(struct http_server *server, int listen_fd_consume)
{
    struct http_listener *listener = xcalloc(1, sizeof(*listener));
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof(address);
    int result;

    listener->server = server;
    listener->fd = listen_fd_consume;
    if (getsockname(listener->fd, (struct sockaddr *)&address, &size) == 0 &&
        (address.ss_family == AF_INET || address.ss_family == AF_INET6))
        set_tcp_options(server, listener->fd);
    result = uv_poll_init(loop_uv(server->loop), &listener->poll, listener->fd);
    if (result != 0) {
        close_fd(&listener->fd);
        free(listener);
        return result; /* libuv's codes are negative errno values on Linux */
    }
    listener->poll.data = listener;
    server->handles++;
    list_push_back(&server->listeners, &listener->all);
    (void)uv_poll_start(&listener->poll, UV_READABLE, on_connection);
    return 0;
}

static void close_listeners(struct http_server *server)
{
    struct list *node;

    while ((node = list_pop_front(&server->listeners))) {
        struct http_listener *listener = container_of(node, struct http_listener, all);

        (void)uv_poll_stop(&listener->poll);
        close_fd(&listener->fd);
        uv_close((uv_handle_t *)&listener->poll, on_listener_closed);
    }
}

void http_server_drain(struct http_server *server, void (*on_idle)(void *arg), void *arg)
{
    struct list *node;

    server->draining = true;
    server->on_idle = on_idle;
    server->idle_arg = arg;
    close_listeners(server);
    list_for_each (node, &server->conns)
        http_conn_touch(container_of(node, struct http_conn, all));
}

static void on_own_handle_closed(uv_handle_t *handle)
{
    http_server_unref(handle->data);
}

void http_server_free(struct http_server *server)
{
    if (!server)
        return;
    server->freed = true;
    server->on_idle = NULL;
    http_budget_remove_server(server);
    close_listeners(server);
    while (!list_empty(&server->conns))
        http_conn_close(container_of(server->conns.next, struct http_conn, all));
    uv_close((uv_handle_t *)&server->timer, on_own_handle_closed);
    uv_close((uv_handle_t *)&server->prepare, on_own_handle_closed);
}

size_t http_server_connections(const struct http_server *server)
{
    return server->conn_count;
}
