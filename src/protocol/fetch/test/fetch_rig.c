#include "protocol/fetch/test/fetch_rig.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"

enum { CONNECTIONS_MAX = 4096, HEAD_MAX = 64 * 1024, BODY_MAX = 64 * 1024 * 1024 };

struct fetch_rig {
    int listener;
    char url[64], unix_path[108];
    fetch_rig_fn *handler;
    void *arg;
    pthread_t thread;
    pthread_mutex_t mutex;
    atomic_int requests;
    atomic_bool stopping;
    int count;
    struct connection {
        pthread_t thread;
        int fd;
        struct fetch_rig *rig;
        int number;
    } * connections;
};

/* Reads until the blank line; what follows it is left in rest. */
static bool read_head(int fd, struct buf *head, struct buf *rest)
{
    for (;;) {
        ptrdiff_t end = str_find_str(buf_str(rest), STR("\r\n\r\n"));
        char chunk[16384];
        ssize_t n;

        if (end >= 0) {
            (void)buf_add(head, rest->p, (size_t)end + 2);
            buf_drop(rest, (size_t)end + 4);
            return true;
        }
        n = recv(fd, chunk, sizeof(chunk), 0);
        if (n <= 0 || !buf_add(rest, chunk, (size_t)n))
            return false;
    }
}

static bool need(int fd, struct buf *rest, size_t len)
{
    while (rest->len < len) {
        char chunk[65536];
        ssize_t n = recv(fd, chunk, sizeof(chunk), 0);

        if (n <= 0 || !buf_add(rest, chunk, (size_t)n))
            return false;
    }
    return true;
}

static bool read_chunks(int fd, struct buf *rest, struct buf *body)
{
    for (;;) {
        ptrdiff_t end = str_find_str(buf_str(rest), STR("\r\n"));
        size_t len;

        if (end < 0) {
            if (!need(fd, rest, rest->len + 1))
                return false;
            continue;
        }
        len = strtoul(rest->p, NULL, 16);
        if (!need(fd, rest, (size_t)end + 2 + len + 2))
            return false;
        (void)buf_add(body, rest->p + end + 2, len);
        buf_drop(rest, (size_t)end + 2 + len + 2);
        if (len == 0)
            return true;
    }
}

struct str fetch_rig_header(const struct fetch_rig_exchange *exchange, const char *name)
{
    struct str lines = buf_str(&exchange->head);

    while (lines.len) {
        struct str line = str_trim(str_split(&lines, '\n')), key = str_split(&line, ':');

        if (line.p && str_eq_nocase(key, str_of(name)))
            return str_trim(line);
    }
    return STR_NONE;
}

static bool read_request(struct fetch_rig_exchange *ex, struct buf *rest)
{
    struct str line, length;
    uint64_t len = 0;

    buf_clear(&ex->head);
    buf_clear(&ex->body);
    if (!read_head(ex->fd, &ex->head, rest))
        return false;
    line = buf_str(&ex->head);
    if (!str_copy(str_split(&line, ' '), ex->method, sizeof(ex->method)) ||
        !str_copy(str_split(&line, ' '), ex->target, sizeof(ex->target)))
        return false;
    if (str_eq_nocase(fetch_rig_header(ex, "transfer-encoding"), STR("chunked")))
        return read_chunks(ex->fd, rest, &ex->body);
    length = fetch_rig_header(ex, "content-length");
    if (length.p && (!str_to_u64(length, &len) || !need(ex->fd, rest, len)))
        return false;
    (void)buf_add(&ex->body, rest->p, len);
    buf_drop(rest, len);
    return true;
}

static void *connection_thread(void *arg)
{
    struct connection *connection = arg;
    struct fetch_rig *rig = connection->rig;
    struct fetch_rig_exchange ex = {.rig = rig, .fd = connection->fd};
    struct buf rest;

    ex.connection = connection->number;
    buf_init(&rest, BODY_MAX);
    buf_init(&ex.head, HEAD_MAX);
    buf_init(&ex.body, BODY_MAX);
    while (!ex.close && read_request(&ex, &rest)) {
        ex.number = atomic_fetch_add(&rig->requests, 1) + 1;
        rig->handler(&ex, rig->arg);
    }
    buf_done(&rest);
    buf_done(&ex.head);
    buf_done(&ex.body);
    (void)shutdown(connection->fd, SHUT_RDWR);
    return NULL;
}

static void *accept_thread(void *arg)
{
    struct fetch_rig *rig = arg;

    for (;;) {
        int fd = accept4(rig->listener, NULL, NULL, SOCK_CLOEXEC);
        struct connection *connection;

        if (fd < 0)
            return NULL;
        (void)pthread_mutex_lock(&rig->mutex);
        if (atomic_load(&rig->stopping) || rig->count == CONNECTIONS_MAX) {
            (void)close(fd);
        } else {
            connection = &rig->connections[rig->count++];
            *connection = (struct connection){.fd = fd, .rig = rig, .number = rig->count};
            CHECK(pthread_create(&connection->thread, NULL, connection_thread, connection) == 0);
        }
        (void)pthread_mutex_unlock(&rig->mutex);
    }
}

static int listen_unix(struct fetch_rig *rig, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(str_copy(str_of(path), address.sun_path, sizeof(address.sun_path)));
    CHECK(str_copy(str_of(path), rig->unix_path, sizeof(rig->unix_path)));
    (void)unlink(path);
    CHECK(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    (void)str_copy(STR("http://localhost"), rig->url, sizeof(rig->url));
    return fd;
}

static int listen_tcp(struct fetch_rig *rig)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    (void)snprintf(rig->url, sizeof(rig->url), "http://127.0.0.1:%d", ntohs(address.sin_port));
    return fd;
}

struct fetch_rig *fetch_rig_new(const char *unix_path, fetch_rig_fn *handler, void *arg)
{
    struct fetch_rig *rig = xcalloc(1, sizeof(*rig));

    rig->handler = handler;
    rig->arg = arg;
    rig->connections = xcalloc(CONNECTIONS_MAX, sizeof(*rig->connections));
    (void)pthread_mutex_init(&rig->mutex, NULL);
    rig->listener = unix_path ? listen_unix(rig, unix_path) : listen_tcp(rig);
    CHECK(listen(rig->listener, 1024) == 0);
    CHECK(pthread_create(&rig->thread, NULL, accept_thread, rig) == 0);
    return rig;
}

void fetch_rig_free(struct fetch_rig *rig)
{
    atomic_store(&rig->stopping, true);
    (void)shutdown(rig->listener, SHUT_RDWR);
    (void)pthread_join(rig->thread, NULL);
    (void)close(rig->listener);
    for (int i = 0; i < rig->count; i++)
        (void)shutdown(rig->connections[i].fd, SHUT_RDWR);
    for (int i = 0; i < rig->count; i++) {
        (void)pthread_join(rig->connections[i].thread, NULL);
        (void)close(rig->connections[i].fd);
    }
    if (rig->unix_path[0])
        (void)unlink(rig->unix_path);
    (void)pthread_mutex_destroy(&rig->mutex);
    free(rig->connections);
    free(rig);
}

const char *fetch_rig_url(const struct fetch_rig *rig)
{
    return rig->url;
}

int fetch_rig_requests(struct fetch_rig *rig)
{
    return atomic_load(&rig->requests);
}

bool fetch_rig_stopping(struct fetch_rig *rig)
{
    return atomic_load(&rig->stopping);
}

void fetch_rig_send(struct fetch_rig_exchange *exchange, struct str bytes)
{
    while (bytes.len) {
        ssize_t n = send(exchange->fd, bytes.p, bytes.len, MSG_NOSIGNAL);

        if (n <= 0)
            return;
        bytes = str_skip(bytes, (size_t)n);
    }
}

void fetch_rig_answer(struct fetch_rig_exchange *exchange, int status, const char *headers,
                      struct str body)
{
    auto_free char *head = xasprintf("HTTP/1.1 %d X\r\nContent-Length: %zu\r\n%s\r\n", status,
                                     body.len, headers ? headers : "");

    fetch_rig_send(exchange, str_of(head));
    fetch_rig_send(exchange, body);
}

void fetch_rig_chunk(struct fetch_rig_exchange *exchange, struct str bytes)
{
    char size[32];

    (void)snprintf(size, sizeof(size), "%zx\r\n", bytes.len);
    fetch_rig_send(exchange, str_of(size));
    fetch_rig_send(exchange, bytes);
    fetch_rig_send(exchange, STR("\r\n"));
}
