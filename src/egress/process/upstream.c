#include "egress/process/upstream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "protocol/tls/tls_intercept.h"

enum {
    CONNECT_MS = 20000,
    OPEN_US = 30000000, /* all of it */
    SAID_MAX = 2048,    /* to a proxy */
};

struct upstream {
    struct egress *egress;
    struct box *box;
    struct list waiting; /* egress->opening */
    struct upstream_target target;
    upstream_fn *fn;
    void *arg;
    struct via *via; /* own, the policy may change; or NULL */
    struct via_dialog dialog;
    struct buf in, out; /* the dialog's */
    struct stream *stream;
    struct stream_filter *tls;
    int fd;
    int64_t until_us;
};

static void put_away(struct upstream *upstream)
{
    ask_forget_upstream(upstream->box, upstream);
    list_remove(&upstream->waiting);
    via_free(upstream->via);
    buf_done(&upstream->in);
    buf_done(&upstream->out);
    loop_free_later(upstream->egress->loop, upstream);
}

void upstream_free(struct upstream *upstream)
{
    if (!upstream)
        return;
    if (upstream->stream)
        stream_close(upstream->stream, true);
    put_away(upstream);
}

/* Says how it went; nothing may follow. */
static void finish(struct upstream *upstream, const char *fault)
{
    struct upstream_result result = {.fd = -1, .fault = fault};

    if (!fault) {
        stream_watch(upstream->stream, 0, NULL, NULL);
        result.stream = upstream->stream;
        result.fd = upstream->fd;
        result.early = buf_str(&upstream->in);
        upstream->stream = NULL;
    }
    upstream->fn(upstream->arg, &result);
    upstream_free(upstream);
}

/* ---- TLS ---- */

static void on_tls(struct stream *stream, int status, int events, void *arg)
{
    struct upstream *upstream = arg;
    int seen = status < 0 ? status : stream_peek(stream);
    char fault[192];

    (void)events;
    if (!stream_opening(stream)) {
        finish(upstream, NULL);
        return;
    }
    if (seen == -EAGAIN)
        return;
    (void)snprintf(fault, sizeof(fault), "no TLS with the server: %s",
                   tls_filter_fault(upstream->tls) ? tls_filter_fault(upstream->tls)
                                                   : "it closed the connection");
    finish(upstream, fault);
}

static void open_tls(struct upstream *upstream)
{
    if (!upstream->target.tls) {
        finish(upstream, NULL);
        return;
    }
    if (upstream->in.len) {
        finish(upstream, "the egress proxy sends what the server cannot have sent");
        return;
    }
    upstream->tls =
        tls_filter_verified(upstream->egress->config.trust, upstream->target.name->text);
    stream_add_filter(upstream->stream, upstream->tls);
    stream_watch(upstream->stream, UV_READABLE, on_tls, upstream);
    on_tls(upstream->stream, 0, 0, upstream); /* begins, and with a quick server ends it */
}

/* ---- the proxy ---- */

static void on_via(struct stream *stream, int status, int events, void *arg);

static bool flush(struct upstream *upstream)
{
    while (upstream->out.len) {
        struct iovec iov = {upstream->out.p, upstream->out.len};
        ssize_t sent = stream_write(upstream->stream, &iov, 1, false);

        if (sent < 0)
            return sent == -EAGAIN;
        buf_drop(&upstream->out, (size_t)sent);
    }
    return true;
}

static ssize_t receive(struct upstream *upstream)
{
    size_t size = VIA_ANSWER_MAX - upstream->in.len;
    char *room = buf_reserve(&upstream->in, size);
    ssize_t got = stream_read(upstream->stream, room, size);

    if (got > 0)
        buf_grew(&upstream->in, (size_t)got);
    return got;
}

static void advance_via(struct upstream *upstream)
{
    struct str rest = buf_str(&upstream->in);
    enum via_step step = via_feed(&upstream->dialog, &rest, &upstream->out);

    buf_drop(&upstream->in, upstream->in.len - rest.len);
    if (step == VIA_FAILED)
        finish(upstream, upstream->dialog.fault);
    else if (step == VIA_OPEN)
        open_tls(upstream);
    else if (!flush(upstream))
        finish(upstream, "the egress proxy closed the connection");
    else
        stream_watch(upstream->stream, UV_READABLE | (upstream->out.len ? UV_WRITABLE : 0), on_via,
                     upstream);
}

static void on_via(struct stream *stream, int status, int events, void *arg)
{
    struct upstream *upstream = arg;
    ssize_t got = -EAGAIN;

    (void)stream;
    if (status >= 0 && (events & UV_READABLE))
        got = receive(upstream);
    if (status < 0 || (got <= 0 && got != -EAGAIN))
        finish(upstream, "the egress proxy closed the connection");
    else
        advance_via(upstream);
}

static void open_via(struct upstream *upstream)
{
    const struct via_target target = {.name = upstream->target.name,
                                      .address = upstream->target.address,
                                      .port = upstream->target.port};

    buf_init(&upstream->in, VIA_ANSWER_MAX);
    buf_init(&upstream->out, SAID_MAX);
    via_begin(&upstream->dialog, upstream->via, &target, &upstream->out);
    advance_via(upstream);
}

/* ---- TCP ---- */

static void on_connected(struct stream *stream, int status, int events, void *arg)
{
    struct upstream *upstream = arg;
    socklen_t size = sizeof(int);
    char fault[128];
    int errnum = 0;

    (void)events;
    (void)getsockopt(upstream->fd, SOL_SOCKET, SO_ERROR, &errnum, &size);
    stream_watch(stream, 0, NULL, NULL);
    if (status < 0 || errnum) {
        (void)snprintf(fault, sizeof(fault), "%s cannot be reached: %s",
                       upstream->via ? "the egress proxy" : "the server",
                       strerror(errnum ? errnum : ECONNRESET));
        finish(upstream, fault);
    } else if (upstream->via) {
        open_via(upstream);
    } else {
        open_tls(upstream);
    }
}

static bool dial(struct upstream *upstream, uint32_t address, uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
    unsigned patience_ms = CONNECT_MS;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;

    if (fd < 0)
        return false;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof(patience_ms));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS) {
        (void)close(fd);
        return false;
    }
    upstream->stream = stream_new(upstream->egress->loop, fd);
    if (!upstream->stream)
        return false;
    upstream->fd = fd;
    stream_watch(upstream->stream, UV_WRITABLE, on_connected, upstream);
    return true;
}

/* ---- the proxy's address ---- */

static bool dial_via(struct upstream *upstream, uint32_t address)
{
    if (policy_address_blocked(&upstream->egress->config.opened, address))
        return false;
    return dial(upstream, address, upstream->via->port);
}

void upstream_resolved(struct upstream *upstream, const struct dns_answer *answer)
{
    for (size_t i = 0; i < answer->count; i++)
        if (dial_via(upstream, answer->addresses[i]))
            return;
    finish(upstream, answer->count
                         ? "the egress proxy's name leads to addresses that cannot be used"
                         : "the egress proxy's name is not known");
}

/* NULL, or why there is no way on. */
static const char *begin_upstream(struct upstream *upstream)
{
    struct dns_question question = {.type = DNS_A};
    bool ok;

    if (upstream->via && upstream->via->name.len) {
        question.name = upstream->via->name;
        return ask_new(upstream->egress, upstream->box, &question,
                       &(struct asker){.upstream = upstream});
    }
    ok = upstream->via ? dial_via(upstream, upstream->via->address)
                       : dial(upstream, upstream->target.address, upstream->target.port);
    return ok ? NULL : "no connection can be opened";
}

struct upstream *upstream_new(struct egress *egress, struct box *box,
                              const struct upstream_target *target, upstream_fn *fn, void *arg,
                              const char **out_fault)
{
    struct upstream *upstream = xcalloc(1, sizeof(*upstream));

    upstream->egress = egress;
    upstream->box = box;
    upstream->target = *target;
    upstream->fn = fn;
    upstream->arg = arg;
    upstream->via = via_copy(box->policy->via);
    upstream->until_us = clock_mono_us() + OPEN_US;
    list_push_back(&egress->opening, &upstream->waiting);
    *out_fault = begin_upstream(upstream);
    if (!*out_fault)
        return upstream;
    upstream_free(upstream);
    return NULL;
}

void upstream_tick(struct egress *egress, int64_t now_us)
{
    while (!list_empty(&egress->opening)) {
        struct upstream *upstream = container_of(egress->opening.next, struct upstream, waiting);

        if (upstream->until_us > now_us)
            return;
        finish(upstream,
               upstream->via ? "the egress proxy took too long" : "the server took too long");
    }
}
