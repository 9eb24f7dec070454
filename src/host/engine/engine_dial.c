/* Dialer: requests go out on a warden channel, sockets come back. Replies carry the serial of their
 * request; a cancelled dial stays in the list until its reply came, so that the socket is closed. */
#include "host/engine/engine_dial.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/list.h"
#include "host/engine/engine_wire.h"

struct engine_dial {
    struct list node;
    uint64_t serial;
    engine_dial_fn *fn; /* NULL when cancelled */
    void *arg;
};

struct engine_dialer {
    uv_poll_t poll;
    int fd;
    bool closed;
    uint64_t next_serial;
    struct list waiting;
};

static void answer(struct engine_dial *dial, int fd, int errnum)
{
    list_remove(&dial->node);
    if (dial->fn)
        dial->fn(fd, errnum, dial->arg);
    else if (fd >= 0)
        (void)close(fd);
    free(dial);
}

/* The warden is gone: nothing can be dialled any more. */
static void fail_all(struct engine_dialer *dialer)
{
    struct list *node;

    dialer->closed = true;
    (void)uv_poll_stop(&dialer->poll);
    while ((node = list_pop_front(&dialer->waiting)))
        answer(container_of(node, struct engine_dial, node), -1, EPIPE);
}

static struct engine_dial *find_dial(struct engine_dialer *dialer, uint64_t serial)
{
    struct list *node;

    list_for_each (node, &dialer->waiting) {
        struct engine_dial *dial = container_of(node, struct engine_dial, node);

        if (dial->serial == serial)
            return dial;
    }
    return NULL;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct engine_dialer *dialer = container_of(poll, struct engine_dialer, poll);

    (void)status;
    (void)events;
    while (!dialer->closed) {
        struct engine_dial_reply reply;
        int fds[1] = {-1};
        size_t nfds = 1;
        ssize_t n = fd_recv(dialer->fd, &reply, sizeof(reply), fds, &nfds, MSG_DONTWAIT);
        struct engine_dial *dial;

        if (n == -EAGAIN)
            return;
        if (n != (ssize_t)sizeof(reply)) {
            fail_all(dialer);
            return;
        }
        dial = find_dial(dialer, reply.serial);
        if (dial)
            answer(dial, nfds ? fds[0] : -1, nfds ? 0 : reply.errnum ? reply.errnum : EIO);
        else if (nfds)
            (void)close(fds[0]);
    }
}

struct engine_dialer *engine_dialer_new(struct loop *loop, int channel_fd_consume)
{
    struct engine_dialer *dialer = xcalloc(1, sizeof(*dialer));

    dialer->fd = channel_fd_consume;
    list_init(&dialer->waiting);
    if (uv_poll_init(loop_uv(loop), &dialer->poll, dialer->fd) != 0 ||
        uv_poll_start(&dialer->poll, UV_READABLE, on_readable) != 0)
        abort();
    return dialer;
}

struct late_failure {
    uv_idle_t idle;
    struct engine_dial *dial;
    int errnum;
};

static void on_late_closed(uv_handle_t *handle)
{
    free(container_of((uv_idle_t *)handle, struct late_failure, idle));
}

static void on_late(uv_idle_t *idle)
{
    struct late_failure *late = container_of(idle, struct late_failure, idle);

    answer(late->dial, -1, late->errnum);
    uv_close((uv_handle_t *)idle, on_late_closed);
}

/* A failure inside engine_dial() must not call back from inside it. */
static void fail_later(struct engine_dialer *dialer, struct engine_dial *dial, int errnum)
{
    struct late_failure *late = xcalloc(1, sizeof(*late));

    late->dial = dial;
    late->errnum = errnum;
    (void)uv_idle_init(dialer->poll.loop, &late->idle);
    (void)uv_idle_start(&late->idle, on_late);
}

struct engine_dial *engine_dial(struct engine_dialer *dialer, const char id[ID_SIZE], uint16_t port,
                                enum engine_dial_kind kind, engine_dial_fn *fn, void *arg)
{
    struct engine_dial *dial = xcalloc(1, sizeof(*dial));
    struct engine_dial_request request = {.port = port, .kind = (uint8_t)kind};
    int r;

    dial->fn = fn;
    dial->arg = arg;
    dial->serial = request.serial = ++dialer->next_serial;
    memcpy(request.id, id, ID_SIZE);
    r = dialer->closed ? -EPIPE : fd_send(dialer->fd, &request, sizeof(request), NULL, 0);
    if (r < 0)
        fail_later(dialer, dial, -r);
    else
        list_push_back(&dialer->waiting, &dial->node);
    return dial;
}

void engine_dial_cancel(struct engine_dial *dial)
{
    dial->fn = NULL;
}
