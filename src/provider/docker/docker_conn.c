/* A connection of our own to the daemon: one request, and then the socket is the caller's. Attached
 * processes need it (the daemon takes the connection over for raw bytes), and so does the one answer
 * that is told in a header. */
#include "provider/docker/docker.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "protocol/json/json_shape.h"

enum { CONNECT_MS = 10000, HEAD_MS = 60000, REFUSAL_MAX = 64 * 1024, REFUSAL_MS = 2000 };

static int wait_for(int fd, short events, int64_t deadline_ms)
{
    for (;;) {
        struct pollfd pfd = {.fd = fd, .events = events};
        int64_t left = deadline_ms - clock_mono_ms();
        int got = left > 0 ? poll(&pfd, 1, (int)left) : 0;

        if (got > 0)
            return 0;
        if (got == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

static int connect_to(const struct sockaddr *addr, socklen_t len)
{
    auto_close int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int result, problem = 0;
    socklen_t size = sizeof(problem);

    if (fd < 0)
        return -errno;
    if (connect(fd, addr, len) == 0)
        return take_fd(&fd);
    /* EAGAIN: a Unix socket whose queue is full. */
    if (errno != EINPROGRESS)
        return -errno;
    result = wait_for(fd, POLLOUT, clock_mono_ms() + CONNECT_MS);
    if (result < 0)
        return result;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) < 0)
        return -errno;
    return problem ? -problem : take_fd(&fd);
}

static int connect_tcp(const struct docker *docker)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int fd = -EHOSTUNREACH;

    if (getaddrinfo(docker->host, docker->port, &hints, &list) != 0)
        return -EHOSTUNREACH;
    for (const struct addrinfo *one = list; one && fd < 0; one = one->ai_next)
        fd = connect_to(one->ai_addr, one->ai_addrlen);
    freeaddrinfo(list);
    return fd;
}

static int conn_open(struct docker *docker, struct error *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd;

    if (docker->unix_path) {
        (void)str_copy(str_of(docker->unix_path), addr.sun_path, sizeof(addr.sun_path));
        fd = connect_to((const struct sockaddr *)&addr, sizeof(addr));
    } else {
        fd = connect_tcp(docker);
    }
    if (fd < 0)
        return error_set(err, ERROR_UNAVAILABLE, "%s: no connection to %s: %s", docker->who,
                         docker->unix_path ? docker->unix_path : docker->host, strerror(-fd));
    return fd;
}

static int send_all(int fd, struct str bytes, int64_t deadline_ms)
{
    while (bytes.len > 0) {
        ssize_t n = send(fd, bytes.p, bytes.len, MSG_NOSIGNAL);

        if (n >= 0) {
            bytes = str_skip(bytes, (size_t)n);
        } else if (errno == EAGAIN) {
            int result = wait_for(fd, POLLOUT, deadline_ms);

            if (result < 0)
                return result;
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

/* Bytes, 0 at the end of the stream, negative errno. */
static ssize_t receive(int fd, struct buf *in, int64_t deadline_ms)
{
    char *p = buf_reserve(in, 4096);

    if (!p)
        return -EFBIG;
    for (;;) {
        ssize_t n = recv(fd, p, 4096, 0);
        int result;

        if (n >= 0) {
            buf_grew(in, (size_t)n);
            return n;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return -errno;
        result = wait_for(fd, POLLIN, deadline_ms);
        if (result < 0)
            return result;
    }
}

static bool parse_head(struct str head, struct docker_head *out)
{
    struct str rest = head, line = str_trim(str_split(&rest, '\n'));
    struct str version = str_split(&line, ' '), status = str_split(&line, ' ');
    uint64_t number;

    if (!str_starts(version, STR("HTTP/1.")) || !str_to_u64(status, &number) || number < 100 ||
        number > 599)
        return false;
    out->status = (int)number;
    while (rest.len > 0) {
        struct str value = str_trim(str_split(&rest, '\n'));
        struct str name = str_split(&value, ':');

        value = str_trim(value);
        if (!out->stat && str_eq_nocase(str_trim(name), STR("X-Docker-Container-Path-Stat")) &&
            value.len <= DOCKER_STAT_MAX)
            out->stat = str_dup(value);
    }
    return true;
}

static int read_head(struct docker *docker, int fd, struct docker_head *out, struct error *err)
{
    int64_t deadline = clock_mono_ms() + HEAD_MS;
    ptrdiff_t end;

    while ((end = str_find_str(buf_str(&out->rest), STR("\r\n\r\n"))) < 0) {
        ssize_t n = receive(fd, &out->rest, deadline);

        if (n == -ETIMEDOUT)
            return error_set(err, ERROR_TIMEOUT, "%s: no answer within %d s", docker->who,
                             HEAD_MS / 1000);
        if (n <= 0)
            return error_set(err, ERROR_UNAVAILABLE, "%s: the connection broke: %s", docker->who,
                             n == 0        ? "closed by the daemon"
                             : n == -EFBIG ? "the answer's head is too long"
                                           : strerror((int)-n));
    }
    if (!parse_head(str_n(out->rest.p, (size_t)end), out))
        return error_set(err, ERROR_UNAVAILABLE, "%s: the answer is no HTTP", docker->who);
    buf_drop(&out->rest, (size_t)end + 4);
    return 0;
}

int docker_conn_request(struct docker *docker, const char *method, const char *path,
                        const json_t *body, int *out_fd, struct docker_head *out, struct error *err)
{
    char version[16];
    auto_free char *text = body ? json_text(body) : xstrdup("");
    auto_buf struct buf request;
    auto_close int fd = -1;
    int result;

    *out_fd = -1;
    *out = (struct docker_head){0};
    buf_init(&out->rest, DOCKER_HEAD_MAX + 4096);
    buf_init(&request, HTTP_URL_MAX + 4096 + strlen(text));
    if (docker_version(docker, version, err) < 0)
        return -1;
    (void)buf_printf(&request, "%s /%s%s HTTP/1.1\r\nHost: docker\r\n", method, version, path);
    if (body)
        (void)buf_printf(&request,
                         "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Type: application/json\r\n"
                         "Content-Length: %zu\r\n\r\n%s",
                         strlen(text), text);
    else
        (void)buf_printf(&request, "Connection: close\r\n\r\n");
    if (request.overflowed)
        return error_set(err, ERROR_LIMIT, "%s: the request is too long", docker->who);

    fd = conn_open(docker, err);
    if (fd < 0)
        return -1;
    result = send_all(fd, buf_str(&request), clock_mono_ms() + HEAD_MS);
    if (result < 0)
        return error_set(err, ERROR_UNAVAILABLE, "%s: the connection broke: %s", docker->who,
                         strerror(-result));
    if (read_head(docker, fd, out, err) < 0)
        return -1;
    *out_fd = take_fd(&fd);
    return 0;
}

void docker_head_done(struct docker_head *head)
{
    free(head->stat);
    head->stat = NULL;
    buf_done(&head->rest);
}

/* The body may be chunked or end with the connection: the message is looked for between the first
 * and the last brace, which serves both. */
int docker_conn_refused(struct docker *docker, const char *method, int fd, struct docker_head *head,
                        struct error *err)
{
    int64_t deadline = clock_mono_ms() + REFUSAL_MS;
    struct str body;
    ptrdiff_t begin;

    head->rest.max = REFUSAL_MAX;
    while ((head->rest.len == 0 || head->rest.p[head->rest.len - 1] != '\n') &&
           receive(fd, &head->rest, deadline) > 0)
        ;
    body = buf_str(&head->rest);
    begin = str_find(body, '{');
    if (begin >= 0) {
        body = str_skip(body, (size_t)begin);
        while (body.len > 0 && body.p[body.len - 1] != '}')
            body.len--;
    }
    return rest_refused(docker->who, method, head->status, -1, body, err);
}
