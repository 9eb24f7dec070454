/* Client of the warden. A call takes a free channel, sends its request, waits for the reply and
 * gives the channel back; with all channels busy it waits for one. The warden runs one thread per
 * channel, so as many operations go on at once as there are channels. */
#include "engine/engine.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "engine/engine_wire.h"

enum { CHANNELS_MAX = 32, REPLY_TIMEOUT_MS = 60000 };

struct warden_engine {
    struct engine base;
    pthread_mutex_t lock; /* guards free_fds and free_count */
    pthread_cond_t freed;
    int free_fds[CHANNELS_MAX];
    size_t free_count;
    int event_fd;
};

static struct warden_engine *warden_of(struct engine *engine)
{
    return (struct warden_engine *)engine;
}

static int take_channel(struct warden_engine *warden)
{
    int fd;

    (void)pthread_mutex_lock(&warden->lock);
    while (warden->free_count == 0)
        (void)pthread_cond_wait(&warden->freed, &warden->lock);
    fd = warden->free_fds[--warden->free_count];
    (void)pthread_mutex_unlock(&warden->lock);
    return fd;
}

static void give_channel(struct warden_engine *warden, int fd)
{
    (void)pthread_mutex_lock(&warden->lock);
    warden->free_fds[warden->free_count++] = fd;
    (void)pthread_cond_signal(&warden->freed);
    (void)pthread_mutex_unlock(&warden->lock);
}

static int exchange(int fd, const struct engine_request *request, struct engine_reply *reply,
                    struct error *err)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    ssize_t n;
    int r;

    r = fd_send(fd, request, sizeof(*request), NULL, 0);
    if (r < 0)
        return error_set(err, ERROR_UNAVAILABLE, "the engine is gone: %s", strerror(-r));
    do
        r = poll(&poll_fd, 1, REPLY_TIMEOUT_MS);
    while (r < 0 && errno == EINTR);
    if (r == 0)
        return error_set(err, ERROR_TIMEOUT, "the engine did not answer in %d s",
                         REPLY_TIMEOUT_MS / 1000);
    n = fd_recv(fd, reply, sizeof(*reply), NULL, NULL, 0);
    if (n != (ssize_t)sizeof(*reply))
        return error_set(err, ERROR_UNAVAILABLE, "the engine is gone");
    reply->err.message[sizeof(reply->err.message) - 1] = '\0';
    if (reply->status < 0) {
        *err = reply->err;
        return -1;
    }
    return 0;
}

static int call(struct engine *engine, const struct engine_request *request,
                struct engine_reply *reply, struct error *err)
{
    struct warden_engine *warden = warden_of(engine);
    int fd = take_channel(warden);
    int r;

    reply->status = 0;
    r = exchange(fd, request, reply, err);
    /* After a missed reply the next one on this channel would be a stranger's: every later call on
     * it must fail instead. */
    if (r < 0 && reply->status == 0 && err->code == ERROR_TIMEOUT)
        (void)shutdown(fd, SHUT_RDWR);
    give_channel(warden, fd);
    return r;
}

static int copy_id(char out[ID_SIZE], const char *id, struct error *err)
{
    if (!id_valid(str_of(id)))
        return error_set(err, ERROR_INVALID, "'%.64s' is not a sandbox id", id);
    memcpy(out, id, ID_SIZE);
    return 0;
}

static int warden_start(struct engine *engine, const struct box_spec *spec, struct box_info *out,
                        struct error *err)
{
    struct engine_request request = {.op = ENGINE_OP_START, .spec = *spec};
    struct engine_reply reply;

    if (call(engine, &request, &reply, err) < 0)
        return -1;
    *out = reply.boxes[0];
    return 0;
}

static int warden_kill(struct engine *engine, const char *id, struct error *err)
{
    struct engine_request request = {.op = ENGINE_OP_KILL};
    struct engine_reply reply;

    if (copy_id(request.spec.id, id, err) < 0)
        return -1;
    return call(engine, &request, &reply, err);
}

static int warden_limit(struct engine *engine, const char *id, const struct box_limits *limits,
                        bool internet, struct error *err)
{
    struct engine_request request = {.op = ENGINE_OP_LIMIT};
    struct engine_reply reply;

    if (copy_id(request.spec.id, id, err) < 0)
        return -1;
    request.spec.limits = *limits;
    request.spec.internet = internet;
    return call(engine, &request, &reply, err);
}

static int warden_freeze(struct engine *engine, const char *id, bool frozen, struct error *err)
{
    struct engine_request request = {.op = ENGINE_OP_FREEZE, .frozen = frozen};
    struct engine_reply reply;

    if (copy_id(request.spec.id, id, err) < 0)
        return -1;
    return call(engine, &request, &reply, err);
}

static int warden_list(struct engine *engine, struct box_info **out, size_t *out_count,
                       struct error *err)
{
    auto_free struct box_info *boxes = NULL;
    size_t count = 0;
    struct engine_reply reply = {0};

    do {
        struct engine_request request = {.op = ENGINE_OP_LIST, .offset = (uint32_t)count};

        if (call(engine, &request, &reply, err) < 0)
            return -1;
        if (reply.count > ENGINE_LIST_PAGE)
            return error_set(err, ERROR_INTERNAL, "the engine's list is broken");
        boxes = xrealloc(boxes, (count + reply.count) * sizeof(*boxes));
        memcpy(boxes + count, reply.boxes, reply.count * sizeof(*boxes));
        count += reply.count;
    } while (reply.count == ENGINE_LIST_PAGE);
    *out = take_ptr(&boxes);
    *out_count = count;
    return 0;
}

static int warden_next_event(struct engine *engine, uint32_t timeout_ms, struct engine_event *out,
                             struct error *err)
{
    int fd = warden_of(engine)->event_fd;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    int r;

    r = poll(&poll_fd, 1, (int)timeout_ms);
    if (r == 0 || (r < 0 && errno == EINTR))
        return error_set(err, ERROR_TIMEOUT, "no event");
    if (fd_recv(fd, out, sizeof(*out), NULL, NULL, 0) != (ssize_t)sizeof(*out))
        return error_set(err, ERROR_UNAVAILABLE, "the engine is gone");
    out->id[ID_SIZE - 1] = '\0';
    return 0;
}

static void warden_close(struct engine *engine)
{
    struct warden_engine *warden = warden_of(engine);

    for (size_t i = 0; i < warden->free_count; i++)
        (void)close(warden->free_fds[i]);
    (void)close(warden->event_fd);
    (void)pthread_mutex_destroy(&warden->lock);
    (void)pthread_cond_destroy(&warden->freed);
    free(warden);
}

static const struct engine_ops warden_ops = {
    .start = warden_start,
    .kill = warden_kill,
    .limit = warden_limit,
    .list = warden_list,
    .freeze = warden_freeze,
    .next_event = warden_next_event,
    .close = warden_close,
};

struct engine *engine_warden_new(const int *control_fds, size_t count, int event_fd)
{
    struct warden_engine *warden = xcalloc(1, sizeof(*warden));

    if (count == 0 || count > CHANNELS_MAX)
        abort();
    warden->base.ops = &warden_ops;
    warden->event_fd = event_fd;
    warden->free_count = count;
    memcpy(warden->free_fds, control_fds, count * sizeof(*control_fds));
    (void)pthread_mutex_init(&warden->lock, NULL);
    (void)pthread_cond_init(&warden->freed, NULL);
    return &warden->base;
}
