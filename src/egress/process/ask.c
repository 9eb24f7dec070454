/* A question on its way to a configured resolver: by datagram from a port of its own under a random id, by TCP when
 * the answer was cut; another resolver when there is none in time. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/id.h"
#include "egress/process/egress_internal.h"

enum {
    WAIT_US = 2000000, /* for one resolver */
    TRIES_MAX = 2,     /* after the first */
    LENGTH_SIZE = 2,   /* before a message, by TCP */
};

struct ask {
    struct egress *egress;
    struct box *box;
    struct list of_box, waiting;
    struct dns_question question;
    struct asker asker;
    struct stream *stream;
    struct buf in, out; /* by TCP */
    size_t held;        /* of in, as egress_hold() counts */
    int64_t until_us;
    size_t resolver;
    uint16_t id;
    int tries;
    bool tcp;
};

static void on_stream(struct stream *stream, int status, int events, void *arg);

static void hang_up(struct ask *ask)
{
    if (ask->stream)
        stream_close(ask->stream, false);
    ask->stream = NULL;
    buf_done(&ask->in);
    buf_done(&ask->out);
    (void)egress_hold(ask->box, &ask->held, 0);
}

static void end(struct ask *ask)
{
    hang_up(ask);
    list_remove(&ask->of_box);
    list_remove(&ask->waiting);
    egress_give(ask->box, SHARE_QUESTIONS, 1);
    loop_free_later(ask->egress->loop, ask);
}

static void finish(struct ask *ask, struct str message, const struct dns_answer *answer)
{
    struct ask done = *ask;

    end(ask);
    resolver_answered(done.egress, done.box, &done.question, &done.asker, message, answer);
}

static void fail(struct ask *ask)
{
    finish(ask, STR_NONE, &(struct dns_answer){.code = DNS_SERVER_FAILURE});
}

static int connected_socket(const struct ask *ask)
{
    const struct egress_config *config = &ask->egress->config;
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(config->resolver_port),
        .sin_addr.s_addr = htonl(config->resolvers[ask->resolver % config->resolver_count])};
    int fd =
        socket(AF_INET, (ask->tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 &&
        errno != EINPROGRESS) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static bool write_out(struct ask *ask)
{
    while (ask->out.len) {
        struct iovec iov = {ask->out.p, ask->out.len};
        ssize_t sent = stream_write(ask->stream, &iov, 1, false);

        if (sent < 0)
            return sent == -EAGAIN;
        buf_drop(&ask->out, (size_t)sent);
    }
    return true;
}

static bool compose(struct ask *ask)
{
    auto_buf struct buf message = {0};
    char length[LENGTH_SIZE];

    buf_init(&message, DNS_MESSAGE_MAX);
    buf_init(&ask->out, DNS_MESSAGE_MAX);
    buf_init(&ask->in, DNS_MESSAGE_MAX + LENGTH_SIZE);
    random_bytes(&ask->id, sizeof(ask->id));
    if (!dns_write_question(&message, ask->id, &ask->question))
        return false;
    length[0] = (char)(message.len >> 8);
    length[1] = (char)message.len;
    return (!ask->tcp || buf_add(&ask->out, length, sizeof(length))) &&
           buf_add_str(&ask->out, buf_str(&message));
}

/* One try. */
static bool dial(struct ask *ask)
{
    int fd;

    hang_up(ask);
    ask->until_us = clock_mono_us() + WAIT_US;
    list_remove(&ask->waiting);
    list_push_back(&ask->egress->asking, &ask->waiting);
    fd = connected_socket(ask);
    if (fd < 0)
        return false;
    ask->stream = stream_new(ask->egress->loop, fd);
    if (!ask->stream || !compose(ask) || (!ask->tcp && !write_out(ask)))
        return false;
    stream_watch(ask->stream, UV_READABLE | (ask->out.len ? UV_WRITABLE : 0), on_stream, ask);
    return true;
}

static void dial_next(struct ask *ask)
{
    while (++ask->tries <= TRIES_MAX) {
        ask->resolver++;
        if (dial(ask))
            return;
    }
    fail(ask);
}

static void take(struct ask *ask, struct str message)
{
    struct dns_answer answer;

    if (!dns_read_answer(message, ask->id, &ask->question, &answer)) {
        /* By datagram anybody may have sent it: the right one may still come. */
        if (ask->tcp)
            dial_next(ask);
        return;
    }
    if (answer.truncated && !ask->tcp) {
        ask->tcp = true;
        if (!dial(ask))
            dial_next(ask);
        return;
    }
    if (answer.code == DNS_SERVER_FAILURE || answer.code == DNS_REFUSED ||
        answer.code == DNS_NOT_IMPLEMENTED) {
        dial_next(ask);
        return;
    }
    finish(ask, message, &answer);
}

/* The message when it is whole. */
static bool framed(const struct buf *in, struct str *out)
{
    size_t len =
        in->len < LENGTH_SIZE ? 0 : (size_t)(unsigned char)in->p[0] << 8 | (unsigned char)in->p[1];

    *out = str_n(in->p + LENGTH_SIZE, len);
    return in->len >= LENGTH_SIZE && in->len - LENGTH_SIZE >= len;
}

static void receive(struct ask *ask)
{
    char *buffer = loop_read_buffer(ask->egress->loop);
    ssize_t got = stream_read(ask->stream, buffer, LOOP_READ_SIZE);
    struct str message;

    if (got == -EAGAIN)
        return;
    if (got <= 0) {
        dial_next(ask);
        return;
    }
    if (!ask->tcp) {
        take(ask, str_n(buffer, (size_t)got));
        return;
    }
    if (!buf_add(&ask->in, buffer, (size_t)got) || egress_hold(ask->box, &ask->held, ask->in.cap)) {
        dial_next(ask);
        return;
    }
    if (framed(&ask->in, &message)) {
        memcpy(buffer, message.p, message.len); /* what it stands in goes with the connection */
        take(ask, str_n(buffer, message.len));
    }
}

static void on_stream(struct stream *stream, int status, int events, void *arg)
{
    struct ask *ask = arg;

    if (status < 0 || ((events & UV_WRITABLE) && !write_out(ask))) {
        dial_next(ask);
        return;
    }
    if (events & UV_READABLE)
        receive(ask);
    else
        stream_watch(stream, UV_READABLE | (ask->out.len ? UV_WRITABLE : 0), on_stream, ask);
}

const char *ask_new(struct egress *egress, struct box *box, const struct dns_question *question,
                    const struct asker *asker)
{
    const char *reason;
    struct ask *ask;

    if (egress->config.resolver_count == 0)
        return "no DNS server is configured";
    reason = egress_take(box, SHARE_QUESTIONS, 1);
    if (reason)
        return reason;
    ask = xcalloc(1, sizeof(*ask));
    ask->egress = egress;
    ask->box = box;
    ask->question = *question;
    ask->asker = *asker;
    list_push_back(&box->asks, &ask->of_box);
    if (!dial(ask)) {
        end(ask);
        return "no DNS server can be reached";
    }
    return NULL;
}

void ask_tick(struct egress *egress, int64_t now_us)
{
    while (!list_empty(&egress->asking)) {
        struct ask *ask = container_of(egress->asking.next, struct ask, waiting);

        if (ask->until_us > now_us)
            return;
        dial_next(ask);
    }
}

void ask_end_all(struct box *box)
{
    while (!list_empty(&box->asks))
        end(container_of(box->asks.next, struct ask, of_box));
}

void ask_forget_upstream(struct box *box, const struct upstream *upstream)
{
    struct list *at, *next;

    list_for_each_safe (at, next, &box->asks) {
        struct ask *ask = container_of(at, struct ask, of_box);

        if (ask->asker.upstream == upstream)
            end(ask);
    }
}

void ask_forget_client(struct box *box, const struct client *client)
{
    struct list *at;

    list_for_each (at, &box->asks) {
        struct ask *ask = container_of(at, struct ask, of_box);

        if (ask->asker.client == client)
            ask->asker = (struct asker){0};
    }
}
