/* Sandboxes that ask the resolver by TCP: messages behind their length, as many as they like, some at a time. */
#include <arpa/inet.h>
#include <errno.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "egress/process/egress_internal.h"

enum {
    IDLE_US = 10000000,
    LENGTH_SIZE = 2,
    ACCEPTS_PER_TURN = 16,
    UNSENT_MAX = 256 * 1024, /* who does not read what he asked for is cut off */
};

struct client {
    struct egress *egress;
    struct box *box;
    struct list of_box, idle;
    struct stream *stream;
    struct buf in, out;
    size_t held; /* of both, as egress_hold() counts */
    int64_t until_us;
    bool closed;
};

static void on_stream(struct stream *stream, int status, int events, void *arg);

static void end(struct client *client)
{
    if (client->closed)
        return;
    client->closed = true;
    ask_forget_client(client->box, client);
    stream_close(client->stream, false);
    list_remove(&client->of_box);
    list_remove(&client->idle);
    buf_done(&client->in);
    buf_done(&client->out);
    (void)egress_hold(client->box, &client->held, 0);
    egress_give(client->box, SHARE_CLIENTS, 1);
    loop_free_later(client->egress->loop, client);
}

static void note_refusal(struct box *box, const char *reason)
{
    journal_add(box->egress, box, &(struct journal_entry){.protocol = "dns"},
                &(struct verdict){.rule = "", .reason = reason});
}

/* Counts the memory of both buffers. False when it is too much. */
static bool hold(struct client *client)
{
    const char *reason = egress_hold(client->box, &client->held, client->in.cap + client->out.cap);

    if (reason)
        note_refusal(client->box, reason);
    return !reason;
}

/* It did something: its time begins anew. */
static void touch(struct client *client)
{
    client->until_us = clock_mono_us() + IDLE_US;
    list_remove(&client->idle);
    list_push_back(&client->egress->idle_clients, &client->idle);
}

static void update(struct client *client)
{
    stream_watch(client->stream, UV_READABLE | (client->out.len ? UV_WRITABLE : 0), on_stream,
                 client);
}

static bool flush(struct client *client)
{
    while (client->out.len) {
        struct iovec iov = {client->out.p, client->out.len};
        ssize_t sent = stream_write(client->stream, &iov, 1, false);

        if (sent < 0)
            return sent == -EAGAIN;
        buf_drop(&client->out, (size_t)sent);
    }
    return true;
}

void client_send(struct client *client, struct str message)
{
    const char length[] = {(char)(message.len >> 8), (char)message.len};

    if (client->closed)
        return;
    (void)buf_add(&client->out, length, sizeof(length));
    (void)buf_add_str(&client->out, message);
    if (client->out.overflowed || !flush(client) || !hold(client)) {
        end(client);
        return;
    }
    touch(client);
    update(client);
}

static void take_messages(struct client *client)
{
    struct asker asker = {.client = client};

    while (!client->closed && client->in.len >= LENGTH_SIZE) {
        size_t len = (size_t)(unsigned char)client->in.p[0] << 8 | (unsigned char)client->in.p[1];

        if (client->in.len - LENGTH_SIZE < len)
            return;
        resolver_question(client->egress, client->box, str_n(client->in.p + LENGTH_SIZE, len),
                          &asker);
        if (!client->closed)
            buf_drop(&client->in, LENGTH_SIZE + len);
    }
}

static bool receive(struct client *client)
{
    char *buffer = loop_read_buffer(client->egress->loop);
    ssize_t got = stream_read(client->stream, buffer, LOOP_READ_SIZE);

    if (got == -EAGAIN)
        return true;
    if (got <= 0 || !buf_add(&client->in, buffer, (size_t)got) || !hold(client))
        return false;
    touch(client);
    take_messages(client);
    return true;
}

static void on_stream(struct stream *stream, int status, int events, void *arg)
{
    struct client *client = arg;

    (void)stream;
    if (status < 0 || ((events & UV_WRITABLE) && !flush(client)) ||
        ((events & UV_READABLE) && !receive(client))) {
        end(client);
        return;
    }
    if (!client->closed)
        update(client);
}

static void welcome(struct egress *egress, struct box *box, int fd_consume)
{
    struct stream *stream = stream_new(egress->loop, fd_consume);
    struct client *client;

    if (!stream) {
        egress_give(box, SHARE_CLIENTS, 1);
        return;
    }
    client = xcalloc(1, sizeof(*client));
    client->egress = egress;
    client->box = box;
    client->stream = stream;
    buf_init(&client->in, DNS_MESSAGE_MAX + LENGTH_SIZE + LOOP_READ_SIZE);
    buf_init(&client->out, UNSENT_MAX);
    list_push_back(&box->clients, &client->of_box);
    touch(client);
    update(client);
}

void client_accept(struct egress *egress, int fd)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_in peer;
        int got = egress_accept(fd, &peer);
        const char *reason;
        struct box *box;

        if (got < 0)
            return;
        box = egress_box(egress, ntohl(peer.sin_addr.s_addr));
        reason = box ? egress_take(box, SHARE_CLIENTS, 1) : NULL;
        if (reason)
            note_refusal(box, reason);
        if (box && !reason)
            welcome(egress, box, got);
        else
            egress_reset(got);
    }
}

void client_tick(struct egress *egress, int64_t now_us)
{
    while (!list_empty(&egress->idle_clients)) {
        struct client *client = container_of(egress->idle_clients.next, struct client, idle);

        if (client->until_us > now_us)
            return;
        end(client);
    }
}

void client_end_all(struct box *box)
{
    while (!list_empty(&box->clients))
        end(container_of(box->clients.next, struct client, of_box));
}
