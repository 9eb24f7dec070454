/* One connection is two directions, each with a buffer: who cannot take more stops who sends it, and nobody else.
 * An end is passed on as an end. TLS knows no half of it, so there the server is only told at the end of all. */
#include "cli/core/cli_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"

enum { OPEN_MS = 60 * 1000, CHUNK = 64 * 1024, PENDING_MAX = 4 * CHUNK };

struct pump {
    struct http_call *stream;
    int in, out;
    char *bytes;    /* from in, on their way */
    size_t len, at; /* how many there are, and how many went */
    bool in_ended;  /* nothing more comes from in */
    bool told;      /* ... and the server knows */
    bool more;      /* the server may have sent more than was taken, whatever the socket says */
    bool out_ended; /* nothing more comes from the server, or out takes no more */
};

int cli_raw_open(const struct cli_server *server, const struct cli_sandbox *sandbox, uint16_t port,
                 bool udp, struct http_call *stream, struct error *err)
{
    char port_text[8] = "";
    struct pair headers[4] = {{STR("Upgrade"), udp ? STR("quicksand-udp") : STR("quicksand-tcp")},
                              {STR("E2b-Sandbox-Id"), str_of(sandbox->id)},
                              {STR("E2b-Sandbox-Port"), STR_NONE}};
    struct http_call_request request = {.method = "GET",
                                        .target = "/",
                                        .headers = headers,
                                        .header_count = 3,
                                        .after = HTTP_AFTER_UPGRADE};

    (void)snprintf(port_text, sizeof(port_text), "%u", port);
    headers[2].value = str_of(port_text);
    if (sandbox->token)
        headers[request.header_count++] =
            (struct pair){STR("X-Access-Token"), str_of(sandbox->token)};
    return cli_upgrade(stream, &server->sandboxes, &request, OPEN_MS, PENDING_MAX, "raw connection",
                       err);
}

static ssize_t send_some(struct http_call *stream, const char *p, size_t len)
{
    return stream->carrier ? stream->carrier->send(stream->carrier, p, len)
                           : send(stream->fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static bool is_later(void)
{
    return errno == EAGAIN || errno == EINTR;
}

static void read_in(struct pump *pump)
{
    ssize_t n;

    if (pump->in_ended || pump->at < pump->len)
        return;
    n = read(pump->in, pump->bytes, CHUNK);
    pump->in_ended = n == 0 || (n < 0 && !is_later());
    pump->at = 0;
    pump->len = n > 0 ? (size_t)n : 0;
}

static int send_in(struct pump *pump, struct error *err)
{
    while (pump->at < pump->len) {
        ssize_t n = send_some(pump->stream, pump->bytes + pump->at, pump->len - pump->at);

        if (n < 0 && is_later())
            return 0;
        if (n < 0)
            return error_set_errno(err, errno, "sending to the sandbox");
        pump->at += (size_t)n;
    }
    if (pump->in_ended && !pump->told) {
        pump->told = true;
        if (!pump->stream->carrier)
            (void)shutdown(pump->stream->fd, SHUT_WR);
    }
    return 0;
}

static int take_out(struct pump *pump, struct error *err)
{
    struct buf *body = &pump->stream->body;
    int got = body->len < CHUNK ? http_call_take(pump->stream, err) : HTTP_CALL_LATER;

    if (got < 0)
        return -1;
    pump->more = got == 1;
    while (body->len) {
        ssize_t n = write(pump->out, body->p, body->len);

        if (n < 0 && is_later())
            return 0;
        if (n < 0)
            break;
        buf_drop(body, (size_t)n);
    }
    if (got == 0 || body->len) { /* the end, or nobody there to take it */
        pump->out_ended = true;
        (void)shutdown(pump->out, SHUT_WR);
    }
    return 0;
}

static int wait_for(const struct pump *pump, struct error *err)
{
    bool sends = pump->at<pump->len, writes = pump->stream->body.len> 0;
    struct pollfd items[] = {
        {.fd = sends || !writes ? pump->stream->fd : -1,
         .events = (short)((sends ? POLLOUT : 0) | (writes ? 0 : POLLIN))},
        {.fd = pump->in_ended || sends ? -1 : pump->in, .events = POLLIN},
        {.fd = writes ? pump->out : -1, .events = POLLOUT},
    };

    if (poll(items, 3, pump->more && !writes ? 0 : -1) < 0 && errno != EINTR)
        return error_set_errno(err, errno, "poll");
    return 0;
}

static void make_nonblocking(int fd)
{
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

int cli_raw_pump(struct http_call *stream, int in, int out, struct error *err)
{
    auto_free char *bytes = xmalloc(CHUNK);
    struct pump pump = {.stream = stream, .in = in, .out = out, .bytes = bytes};

    make_nonblocking(in);
    make_nonblocking(out);
    for (;;) {
        read_in(&pump);
        if (send_in(&pump, err) < 0 || take_out(&pump, err) < 0)
            return -1;
        if (pump.out_ended)
            return 0;
        if (wait_for(&pump, err) < 0)
            return -1;
    }
}
