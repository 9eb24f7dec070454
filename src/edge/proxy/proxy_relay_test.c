/* Proxy, envd and user server on one loop: envd behind a real Unix socket, user ports behind a
 * fake dialer. */
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/list.h"
#include "edge/proxy/proxy.h"
#include "edge/proxy/proxy_host.h"
#include "host/engine/engine.h"
#include "protocol/http/test/http_test_rig.h"
#include "protocol/stream/stream.h"

static const char box[] = "i1234567890123456789";
static struct rig rig;           /* the front: clients talk to this one */
static struct http_server *envd; /* behind both the Unix socket and the fake dialer */
static struct proxy *proxy;
static struct routes *routes;
static int passed_by, dials, v6_dials;
static bool refuse_v4, refuse_all;
static uint16_t back_port;
static char envd_path[64];

static void on_front(struct http_exchange *ex, void *arg)
{
    (void)arg;
    if (proxy_handle(proxy, ex))
        return;
    passed_by++;
    rig_reply(ex, STR("control plane"));
}

struct engine_dial {
    uv_timer_t timer;
    engine_dial_fn *fn;
    void *arg;
    bool refused;
};

static void on_dial_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_dial_timer(uv_timer_t *timer)
{
    struct engine_dial *dial = timer->data;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(back_port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (dial->refused)
        address.sin_port = htons(1);
    (void)connect(fd, (struct sockaddr *)&address, sizeof(address));
    uv_close((uv_handle_t *)timer, on_dial_closed);
    dial->fn(fd, 0, dial->arg);
}

static struct engine_dial *fake_dial(struct engine_dialer *dialer, const char id[ID_SIZE],
                                     uint16_t port, enum engine_dial_kind kind, engine_dial_fn *fn,
                                     void *arg)
{
    struct engine_dial *dial = xcalloc(1, sizeof(*dial));

    (void)dialer;
    CHECK_STR(str_of(id), box);
    CHECK_INT(port, 3000);
    dials++;
    v6_dials += kind == ENGINE_DIAL_TCP6;
    dial->fn = fn;
    dial->arg = arg;
    dial->refused = refuse_all || (refuse_v4 && kind == ENGINE_DIAL_TCP4);
    (void)uv_timer_init(loop_uv(rig.loop), &dial->timer);
    dial->timer.data = dial;
    (void)uv_timer_start(&dial->timer, on_dial_timer, 1, 0);
    return dial;
}

static void fake_cancel(struct engine_dial *dial)
{
    uv_close((uv_handle_t *)&dial->timer, on_dial_closed);
}

static int connect_envd(struct engine *engine, const char *id)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    (void)engine;
    CHECK_STR(str_of(id), box);
    CHECK(str_copy(str_of(envd_path), un.sun_path, sizeof(un.sun_path)));
    if (connect(fd, (struct sockaddr *)&un, sizeof(un)) < 0) {
        int errnum = errno;

        (void)close(fd);
        return -errnum;
    }
    return fd;
}

static struct engine fake_engine = {.ops =
                                        &(const struct engine_ops){.connect_envd = connect_envd}};

static void listen_envd(void)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET};
    socklen_t size = sizeof(in);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    CHECK(str_copy(str_of(envd_path), un.sun_path, sizeof(un.sun_path)));
    (void)unlink(un.sun_path);
    CHECK_INT(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    CHECK_INT(listen(fd, 64), 0);
    CHECK_INT(http_server_listen(envd, fd), 0);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_INT(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    CHECK_INT(getsockname(fd, (struct sockaddr *)&in, &size), 0);
    back_port = ntohs(in.sin_port);
    CHECK_INT(listen(fd, 64), 0);
    CHECK_INT(http_server_listen(envd, fd), 0);
}

static void set_route(uint64_t generation, const char *traffic_token)
{
    struct route route = {.state = ROUTE_RUNNING, .generation = generation};

    CHECK(str_copy(str_of(box), route.id, sizeof(route.id)));
    CHECK(str_copy(str_of(traffic_token), route.traffic_token, sizeof(route.traffic_token)));
    routes_set(routes, &route);
}

static void start(void)
{
    struct http_server_config front = {
        .on_request = on_front, .connects = true, .max_connections = 100};
    struct proxy_config config = {
        .engine = &fake_engine, .dial = fake_dial, .dial_cancel = fake_cancel};

    (void)snprintf(envd_path, sizeof(envd_path), "/tmp/proxy_test.%d", getpid());
    rig_start(&rig, &front);
    config.routes = routes = routes_new();
    proxy = proxy_new(rig.loop, &config);
    envd = http_server_new(rig.loop, &rig_config);
    listen_envd();
    set_route(1, "");
}

static void stop(void)
{
    (void)unlink(envd_path);
    http_server_free(envd);
    http_server_free(rig.server);
    rig.server = NULL;
    proxy_free(proxy);
    rig_stop(&rig);
    routes_free(routes);
}

/* A request with the routing headers, rest of the head and body given. */
static struct str request(const char *line, int port, const char *more)
{
    static char text[4096];
    int len = snprintf(text, sizeof(text),
                       "%s HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: %s\r\n"
                       "E2b-Sandbox-Port: %d\r\n%s",
                       line, box, port, more);

    return str_n(text, (size_t)len);
}

#define CLOSE "Connection: close\r\n\r\n"

/* Lets the loop run until it is so; a busy machine may need a while. */
#define TURN_UNTIL(cond)                             \
    do {                                             \
        for (int i_ = 0; i_ < 1000 && !(cond); i_++) \
            rig_wait_ms(&rig, 5);                    \
        CHECK(cond);                                 \
    } while (0)

TEST(proxy_passes_requests)
{
    start();
    for (int round = 0; round < 3; round++) {
        rig_expect(&rig, request("GET /hello", 49983, CLOSE).p, "\r\n\r\nhello");
        rig_expect(&rig, request("GET /chunks", 49983, CLOSE).p,
                   "\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
        rig_expect(&rig, request("POST /echo", 49983, "Content-Length: 4\r\n" CLOSE "body").p,
                   "\r\n\r\nbody");
        rig_expect(&rig,
                   request("POST /echo", 49983,
                           "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n" CLOSE
                           "3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: v\r\n\r\n")
                       .p,
                   "\r\n\r\nabcde");
        rig_expect(&rig, request("HEAD /hello", 49983, CLOSE).p, "Content-Length: 5\r\n");
        rig_expect(&rig, request("GET /none", 49983, CLOSE).p, "HTTP/1.1 204 No Content\r\n");
    }
    CHECK_INT(http_server_connections(envd), 1); /* all over one connection */
    CHECK_INT(seen.requests, 18);
    CHECK_INT(passed_by, 0);
    rig_expect(&rig, "GET / HTTP/1.0\r\n\r\n", "control plane");
    rig_expect(&rig, "GET / HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: a\r\n" CLOSE,
               "{\"code\":400,\"message\":\"missing header\"}");
    stop();
}

TEST(proxy_keeps_client_connections)
{
    int fd, errnum;
    struct buf out;

    start();
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    for (int i = 0; i < 5; i++) {
        buf_clear(&out);
        rig_send(&rig, fd, request("GET /chunks", i % 2 ? 3000 : 49983, "\r\n"));
        rig_read(&rig, fd, "\r\n0\r\n\r\n", &out, &errnum);
        CHECK_INT(errnum, 0);
        CHECK(str_starts(buf_str(&out), STR("HTTP/1.1 200 OK\r\n")));
    }
    CHECK(dials == 1 || dials == 2);
    buf_done(&out);
    (void)close(fd);
    stop();
}

TEST(proxy_user_ports)
{
    start();
    rig_expect(&rig, "GET /hello HTTP/1.1\r\nHost: 3000-i1234567890123456789.x.y\r\n" CLOSE,
               "hello");
    CHECK_INT(dials, 1);
    refuse_v4 = true;
    rig_expect(&rig, request("POST /echo", 3000, "Content-Length: 3\r\n" CLOSE "abc").p, "abc");
    CHECK_INT(dials, 3);
    CHECK_INT(v6_dials, 1);
    refuse_all = true;
    TURN_UNTIL(http_server_connections(envd) == 0); /* none is kept any more */
    rig_expect(&rig, request("GET /hello", 3000, CLOSE).p,
               "{\"sandboxId\":\"i1234567890123456789\",\"message\":\"The sandbox is running but "
               "port is not open\",\"port\":3000,\"code\":502}");
    rig_expect(&rig, request("GET /hello", 3000, "User-Agent: Mozilla/5.0\r\n" CLOSE).p,
               "no service running on port 3000");
    TURN_UNTIL(http_server_connections(envd) == 0);
    stop();
}

/* How many connections as many requests of one client took. */
static int dials_of(const char *line, const char *more, int count)
{
    int before = dials, fd = rig_connect(&rig), errnum;
    struct buf out;

    buf_init(&out, 10000);
    for (int i = 0; i < count; i++) {
        buf_clear(&out);
        rig_send(&rig, fd, request(line, 3000, more));
        rig_read(&rig, fd, "\r\n\r\nhello", &out, &errnum);
        CHECK_INT(errnum, 0);
    }
    buf_done(&out);
    (void)close(fd);
    return dials - before;
}

TEST(proxy_keeps_connections_to_user_ports)
{
    int again = 0;

    start();
    for (int i = 0; i < 50 && !again;
         i++) /* it is kept for a moment only, and this machine may be busy */
        again = dials_of("GET /hello", "\r\n", 2) < 2;
    CHECK(again);
    CHECK(dials_of("GET /hello", "\r\n", 130) >= 2); /* others get their turn */
    CHECK_INT(dials_of("POST /hello", "\r\n", 3), 3);
    CHECK_INT(dials_of("GET /hello", "Authorization: NTLM x\r\n\r\n", 3), 3);
    CHECK_INT(dials_of("GET /hello", "Content-Length: 1\r\n\r\nx", 3), 3);
    TURN_UNTIL(http_server_connections(envd) == 0);
    stop();
}

TEST(proxy_keeps_connections_to_user_ports_apart)
{
    int before, again = 0, fd, errnum;
    struct buf out;

    start();
    for (int i = 0; i < 200; i++)
        CHECK_INT(dials_of("GET /hello", "\r\n", 1), 1); /* never that of another client */
    fd = rig_connect(&rig);
    buf_init(&out, 10000);
    for (int i = 0; i < 20; i++) { /* nor of another life: each request is one's first in it */
        before = dials;
        set_route((uint64_t)i + 2, "");
        buf_clear(&out);
        rig_send(&rig, fd, request("GET /hello", 3000, "\r\n"));
        rig_read(&rig, fd, "\r\n\r\nhello", &out, &errnum);
        CHECK_INT(errnum, 0);
        again += dials == before;
    }
    CHECK_INT(again, 0);
    buf_done(&out);
    (void)close(fd);
    TURN_UNTIL(http_server_connections(envd) == 0);
    stop();
}

TEST(proxy_errors)
{
    start();
    rig_expect(&rig, "GET /health HTTP/1.1\r\nHost: 49983-nosuch.x\r\n" CLOSE,
               "application/json; charset=utf-8\r\nContent-Length: 71\r\nConnection: close\r\n\r\n"
               "{\"sandboxId\":\"nosuch\",\"message\":\"The sandbox was not found\",\"code\":502}");
    rig_expect(&rig, "GET / HTTP/1.1\r\nHost: 80-nosuch.x\r\nUser-Agent: Mozilla\r\n" CLOSE,
               "Sandbox Not Found");
    rig_expect(&rig, request("POST /init", 49983, "Content-Length: 2\r\n" CLOSE "{}").p,
               "reserved for the E2B control plane");
    rig_expect(&rig, request("POST //%69nit/", 49983, CLOSE).p, "HTTP/1.1 404 ");
    CHECK_INT(seen.requests, 0);
    set_route(1, "secret");
    rig_expect(&rig, request("GET /hello", 3000, CLOSE).p, "is missing\",\"code\":403}");
    rig_expect(&rig, request("GET /hello", 3000, "E2B-Traffic-Access-Token: x\r\n" CLOSE).p,
               "is invalid\",\"code\":403}");
    rig_expect(&rig, request("GET /hello", 3000, "E2B-Traffic-Access-Token: secret\r\n" CLOSE).p,
               "hello");
    rig_expect(&rig, request("GET /hello", 49983, CLOSE).p, "hello");
    stop();
}

TEST(proxy_dead_pooled_connection_is_replaced)
{
    start();
    rig_expect(&rig, request("GET /hello", 49983, CLOSE).p, "hello");
    CHECK_INT(http_server_connections(envd), 1);
    http_server_free(envd); /* envd starts again */
    envd = http_server_new(rig.loop, &rig_config);
    listen_envd();
    rig_expect(&rig, request("POST /echo", 49983, "Content-Length: 3\r\n" CLOSE "abc").p, "abc");
    http_server_free(envd);
    envd = http_server_new(rig.loop, &rig_config);
    rig_expect(&rig, request("GET /hello", 49983, CLOSE).p, "The sandbox was not found");
    stop();
}

static void transfer(int port)
{
    enum { LEN = 8 * 1024 * 1024 };
    char *body = xcalloc(1, LEN);
    int fd = rig_connect(&rig), errnum;
    struct buf out;

    memset(body, 'u', LEN);
    buf_init(&out, RIG_BIG + 1000);
    seen.data_bytes = 0;
    rig_send(&rig, fd, request("POST /count", port, "Content-Length: 8388608\r\n\r\n"));
    rig_send(&rig, fd, str_n(body, LEN));
    rig_read(&rig, fd, "got 8388608", &out, &errnum);
    CHECK_INT(errnum, 0);
    buf_clear(&out);
    rig_send(&rig, fd, request("GET /big", port, CLOSE));
    rig_wait_ms(&rig, 50);                    /* nobody reads: everything has to stop somewhere */
    CHECK(seen.big_left > 0 || rig_filtered); /* whose relay takes a lot */
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    CHECK(out.len > RIG_BIG && out.len < RIG_BIG + 400);
    CHECK(str_ends(buf_str(&out), STR("xxxx")));
    buf_done(&out);
    (void)close(fd);
    free(body);
}

TEST(proxy_moves_large_bodies)
{
    start();
    transfer(49983);
    transfer(3000);
    stop();
}

TEST(proxy_cuts_when_the_route_goes)
{
    int fds[3], errnum;
    struct buf out;

    start();
    buf_init(&out, 10000);
    for (int i = 0; i < 3; i++)
        fds[i] = rig_connect(&rig);
    rig_send(&rig, fds[0], request("GET /later", 49983, "\r\n"));
    TURN_UNTIL(seen.kept);
    http_begin(seen.kept, 200, NULL, 0, -1);
    (void)http_write(seen.kept, "part", 4);
    rig_read(&rig, fds[0], "part", &out, &errnum);
    rig_send(&rig, fds[1], request("GET /later", 3000, "\r\n"));
    TURN_UNTIL(proxy_relays(proxy) == 2);
    routes_remove(routes, "iother");
    rig_wait_ms(&rig, 5);
    CHECK_INT(proxy_relays(proxy), 2);
    set_route(2, ""); /* a new life: what belongs to the old one goes */
    rig_send(&rig, fds[2], request("GET /later", 49983, "\r\n"));
    rig_read(&rig, fds[0], NULL, &out, &errnum);
    CHECK_INT(errnum, ECONNRESET);
    buf_clear(&out);
    rig_read(&rig, fds[1], "\"code\":502}", &out, &errnum);
    CHECK(str_find_str(buf_str(&out), STR("paused or ended before it answered")) >= 0);
    TURN_UNTIL(proxy_relays(proxy) == 1);
    routes_remove(routes, box);
    rig_read(&rig, fds[2], "\"code\":502}", &out, &errnum);
    TURN_UNTIL(proxy_relays(proxy) == 0);
    for (int i = 0; i < 3; i++)
        (void)close(fds[i]);
    buf_done(&out);
    stop();
}

TEST(proxy_client_gone_ends_the_upstream)
{
    int fd;

    start();
    fd = rig_connect(&rig);
    rig_send(&rig, fd, request("POST /pause", 49983, "Content-Length: 10\r\n\r\nab"));
    TURN_UNTIL(seen.kept);
    (void)close(fd);
    TURN_UNTIL(!seen.kept);
    CHECK_INT(proxy_relays(proxy), 0);
    stop();
}

/* Takes over the kept exchange as a server would and answers 101. */
static int switch_protocols(void)
{
    const char *head = "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nearly";
    struct stream *stream;
    struct buf rest;
    int fd;

    buf_init(&rest, 1000);
    CHECK(seen.kept);
    CHECK(http_request(seen.kept)->upgrade);
    stream = http_detach(seen.kept, &rest);
    CHECK(stream);
    fd = dup(stream_sink_fd(stream));
    stream_close(stream, false);
    CHECK_STR(buf_str(&rest), "");
    buf_done(&rest);
    CHECK(write(fd, head, strlen(head)) == (ssize_t)strlen(head));
    return fd;
}

static void tunnel(void)
{
    int fd, back, errnum;
    struct buf out;
    char *big = xcalloc(1, 1 << 20);

    start();
    buf_init(&out, 4 << 20);
    fd = rig_connect(&rig);
    rig_send(&rig, fd, request("GET /later", 3000, "Connection: upgrade\r\nUpgrade: x\r\n\r\n"));
    TURN_UNTIL(seen.kept);
    back = switch_protocols();
    rig_read(&rig, fd, "early", &out, &errnum);
    CHECK(str_starts(buf_str(&out), STR("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n")));
    buf_clear(&out);
    rig_send(&rig, fd, STR("ping"));
    rig_read(&rig, back, "ping", &out, &errnum);
    buf_clear(&out);
    /* The client says that it has sent all; the other direction stays. */
    (void)shutdown(fd, SHUT_WR);
    rig_read(&rig, back, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    rig_send(&rig, back, str_n(big, 1 << 20));
    (void)close(back);
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, 0);
    CHECK_INT(out.len, 1 << 20);
    TURN_UNTIL(proxy_relays(proxy) == 0);
    (void)close(fd);
    buf_done(&out);
    free(big);
    stop();
}

TEST(proxy_tunnels)
{
    tunnel();
}

static void cut_tunnel(void)
{
    int fd, back, errnum;
    struct buf out;

    start();
    buf_init(&out, 10000);
    fd = rig_connect(&rig);
    rig_send(&rig, fd, request("GET /later", 49983, "Connection: upgrade\r\nUpgrade: x\r\n\r\n"));
    TURN_UNTIL(seen.kept);
    back = switch_protocols();
    rig_read(&rig, fd, "early", &out, &errnum);
    routes_remove(routes, box);
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK_INT(errnum, ECONNRESET);
    CHECK_INT(proxy_relays(proxy), 0);
    (void)close(fd);
    (void)close(back);
    buf_done(&out);
    stop();
}

TEST(proxy_cuts_tunnels)
{
    cut_tunnel();
}

static void secure_route(const char *traffic_token)
{
    struct route route = {.state = ROUTE_RUNNING, .generation = 1, .access_token = "ea_1"};

    CHECK(str_copy(str_of(box), route.id, sizeof(route.id)));
    CHECK(str_copy(str_of(traffic_token), route.traffic_token, sizeof(route.traffic_token)));
    routes_set(routes, &route);
}

/* Asks for the bare connection, then speaks HTTP over it. */
static void through_raw(const char *head, const char *granted)
{
    int fd = rig_connect(&rig), errnum;
    struct buf out;

    buf_init(&out, 10000);
    rig_send(&rig, fd, str_of(head));
    rig_read(&rig, fd, "\r\n\r\n", &out, &errnum);
    CHECK(str_starts(buf_str(&out), str_of(granted)));
    buf_clear(&out);
    rig_send(&rig, fd, STR("POST /echo HTTP/1.1\r\nHost: inside\r\nContent-Length: 3\r\n\r\nraw"));
    rig_read(&rig, fd, "raw", &out, &errnum);
    CHECK(str_starts(buf_str(&out), STR("HTTP/1.1 200 ")));
    (void)close(fd);
    buf_done(&out);
    TURN_UNTIL(proxy_relays(proxy) == 0);
}

#define CONNECT_LINE "CONNECT 3000-i1234567890123456789.x.y:3000 HTTP/1.1\r\nHost: whatever\r\n"
#define YES          "HTTP/1.1 200 Connection established\r\n\r\n"

TEST(proxy_gives_raw_connections)
{
    start();
    through_raw(CONNECT_LINE "\r\n", YES); /* not secured: anybody may run anything inside */
    secure_route("");
    through_raw(CONNECT_LINE "X-Access-Token: ea_1\r\n\r\n", YES);
    /* any:ea_1 */
    through_raw(CONNECT_LINE "Proxy-Authorization: basic YW55OmVhXzE=\r\n\r\n", YES);
    through_raw("CONNECT 3000-i1234567890123456789.x:1 HTTP/1.0\r\nX-Access-Token: ea_1\r\n\r\n",
                YES);
    through_raw(request("GET /", 3000,
                        "Connection: Upgrade\r\nUpgrade: quicksand-tcp\r\n"
                        "X-Access-Token: ea_1\r\n\r\n")
                    .p,
                "HTTP/1.1 101 Switching Protocols\r\n");
    secure_route("secret");
    through_raw(CONNECT_LINE "E2b-Traffic-Access-Token: secret\r\n\r\n", YES);
    through_raw(CONNECT_LINE "X-Access-Token: ea_1\r\n\r\n", YES);
    stop();
}

TEST(proxy_refuses_raw_connections)
{
    start();
    secure_route("");
    rig_expect(&rig, CONNECT_LINE CLOSE, "HTTP/1.1 401 ");
    rig_expect(&rig, CONNECT_LINE "X-Access-Token: ea_2\r\n" CLOSE, "A raw connection needs");
    rig_expect(&rig, CONNECT_LINE "Proxy-Authorization: Basic ZWFfMQ==\r\n" CLOSE, " 401 ");
    rig_expect(&rig, CONNECT_LINE "Proxy-Authorization: Basic %%%\r\n" CLOSE, " 401 ");
    /* envd's control routes must not be reached that way. */
    rig_expect(&rig,
               "CONNECT 49983-i1234567890123456789.x:1 HTTP/1.1\r\nHost: x\r\n"
               "X-Access-Token: ea_1\r\n" CLOSE,
               "HTTP/1.1 404 ");
    rig_expect(&rig, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n" CLOSE,
               "HTTP/1.1 400 ");
    rig_expect(&rig, CONNECT_LINE "X-Access-Token: ea_1\r\nContent-Length: 1\r\n" CLOSE "x",
               "CONNECT has no body");
    secure_route("secret");
    rig_expect(&rig, CONNECT_LINE CLOSE, "is missing\",\"code\":403}");
    rig_expect(&rig, CONNECT_LINE "E2b-Traffic-Access-Token: ea_1\r\n" CLOSE,
               "is invalid\",\"code\":403}");
    CHECK_INT(dials, 0);
    refuse_all = true;
    rig_expect(&rig, CONNECT_LINE "X-Access-Token: ea_1\r\n" CLOSE, "port is not open");
    stop();
}

/* Clients behind a filter, as they will be with TLS; what is behind the proxy stays plain. */
TEST(proxy_through_a_filter)
{
    rig_filtered = true;
    start();
    transfer(49983);
    transfer(3000);
    stop();
}

TEST(proxy_tunnels_through_a_filter)
{
    rig_filtered = true;
    tunnel();
}

TEST(proxy_cuts_tunnels_through_a_filter)
{
    rig_filtered = true;
    cut_tunnel();
}

TEST(proxy_broken_upstream_breaks_the_answer)
{
    int fd, errnum;
    struct buf out;

    start();
    buf_init(&out, 10000);
    for (int i = 0; i < 2; i++) {
        fd = rig_connect(&rig);
        rig_send(&rig, fd, request("GET /short", i ? 3000 : 49983, "\r\n"));
        rig_read(&rig, fd, NULL, &out, &errnum);
        CHECK_INT(errnum, ECONNRESET);
        (void)close(fd);
    }
    fd = rig_connect(&rig);
    rig_send(&rig, fd, request("GET /later", 49983, "\r\n"));
    TURN_UNTIL(seen.kept);
    http_abort(seen.kept); /* before any answer */
    rig_read(&rig, fd, "\"port\":49983,\"code\":502}", &out, &errnum);
    CHECK_INT(errnum, 0);
    (void)close(fd);
    buf_done(&out);
    stop();
}

TEST(proxy_early_answer)
{
    char *body = xcalloc(1, 1 << 20);
    int fd, errnum;
    struct buf out;

    start();
    buf_init(&out, 10000);
    fd = rig_connect(&rig);
    rig_send(&rig, fd, request("POST /echo", 3000, "Content-Length: 4194304\r\n\r\n"));
    for (int i = 0; i < 4; i++)
        rig_send(&rig, fd, str_n(body, 1 << 20));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK(str_starts(buf_str(&out), STR("HTTP/1.1 413 ")));
    (void)close(fd);
    buf_done(&out);
    free(body);
    stop();
}
