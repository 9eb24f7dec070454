/* How it works
 *
 * One buffer under a lock. The worker blocks on a condition when it is full (or, reading, empty); the
 * loop never blocks: it stops taking from its socket, or from the buffer. Word to the loop is one
 * errand that is posted at most once at a time; as errands keep their order, none is under way any more
 * when the completion of the worker's own work comes. */
#include "edge/call/call_pipe.h"
#include "base/cond.h"

#include <errno.h>
#include <time.h>

#include "edge/call/call.h"
#include "protocol/http/http_server.h"

enum { BUFFER_MAX = 2 * CALL_PIPE_MAX };

void call_pipe_init(struct call_pipe *pipe, struct call *call)
{
    pipe->call = call;
    (void)pthread_mutex_init(&pipe->lock, NULL);
    cond_init(&pipe->changed);
    buf_init(&pipe->data, BUFFER_MAX);
}

void call_pipe_done(struct call_pipe *pipe)
{
    buf_done(&pipe->data);
    (void)pthread_cond_destroy(&pipe->changed);
    (void)pthread_mutex_destroy(&pipe->lock);
}

static void lock(struct call_pipe *pipe)
{
    (void)pthread_mutex_lock(&pipe->lock);
}

static void unlock(struct call_pipe *pipe)
{
    (void)pthread_mutex_unlock(&pipe->lock);
}

/* Under the lock. */
static void post(struct call_pipe *pipe, void (*fn)(struct loop_errand *errand))
{
    if (pipe->posted)
        return;
    pipe->posted = true;
    pipe->errand.fn = fn;
    loop_post(pipe->call->loop, &pipe->errand);
}

static struct call_pipe *pipe_of(struct loop_errand *errand)
{
    struct call_pipe *pipe = container_of(errand, struct call_pipe, errand);

    lock(pipe);
    pipe->posted = false;
    unlock(pipe);
    return pipe;
}

void call_pipe_close(struct call_pipe *pipe)
{
    void (*on_close)(void *arg);

    lock(pipe);
    pipe->closed = true;
    on_close = pipe->on_close;
    pipe->on_close = NULL;
    (void)pthread_cond_broadcast(&pipe->changed);
    unlock(pipe);
    if (on_close)
        on_close(pipe->on_close_arg);
}

bool call_pipe_on_close(struct call_pipe *pipe, void (*fn)(void *arg), void *arg)
{
    bool closed;

    lock(pipe);
    closed = pipe->closed;
    pipe->on_close_arg = arg;
    pipe->on_close = closed ? NULL : fn;
    unlock(pipe);
    return !closed;
}

void call_pipe_last(struct call_pipe *pipe, struct str data)
{
    lock(pipe);
    (void)buf_add_str(&pipe->data, data);
    unlock(pipe);
}

bool call_pipe_gone(struct call_pipe *pipe)
{
    bool closed;

    lock(pipe);
    closed = pipe->closed;
    unlock(pipe);
    return closed;
}

/* ---- the request's body ---- */

static void on_data(struct http_exchange *ex, struct str data, void *arg)
{
    struct call_pipe *pipe = arg;

    lock(pipe);
    (void)buf_add_str(&pipe->data, data);
    if (pipe->data.len > CALL_PIPE_MAX) {
        pipe->paused = true;
        http_pause(ex);
    }
    (void)pthread_cond_signal(&pipe->changed);
    unlock(pipe);
}

static void on_end(struct http_exchange *ex, void *arg)
{
    struct call_pipe *pipe = arg;

    (void)ex;
    lock(pipe);
    pipe->ended = true;
    (void)pthread_cond_signal(&pipe->changed);
    unlock(pipe);
}

static void want_more(struct loop_errand *errand)
{
    struct call_pipe *pipe = pipe_of(errand);

    if (!pipe->call->ex)
        return;
    if (!pipe->reading) {
        pipe->reading = true;
        http_read_stream(pipe->call->ex, on_data, on_end, pipe);
    } else if (pipe->paused) {
        pipe->paused = false;
        http_resume(pipe->call->ex);
    }
}

ssize_t call_pipe_read(struct call_pipe *pipe, void *p, size_t size)
{
    size_t n = 0;
    bool closed;

    lock(pipe);
    while (!pipe->data.len && !pipe->ended && !pipe->closed) {
        post(pipe, want_more);
        (void)pthread_cond_wait(&pipe->changed, &pipe->lock);
    }
    /* Half a body is none. */
    closed = pipe->closed && !pipe->ended;
    if (!closed) {
        n = pipe->data.len < size ? pipe->data.len : size;
        if (n)
            memcpy(p, pipe->data.p, n);
        buf_drop(&pipe->data, n);
        if (pipe->data.len < CALL_PIPE_MAX / 2 && !pipe->ended)
            post(pipe, want_more);
    }
    unlock(pipe);
    return closed ? -1 : (ssize_t)n;
}

/* ---- the answer ---- */

static void begin(struct call_pipe *pipe)
{
    struct pair headers[HTTP_ANSWER_HEADERS_MAX + 3];
    size_t n = 0;

    headers[n++] = (struct pair){STR("Content-Type"), str_of(pipe->call->content_type)};
    headers[n++] = (struct pair){STR("Access-Control-Allow-Origin"), STR("*")};
    headers[n++] = (struct pair){STR("Cache-Control"), STR("no-store")};
    for (size_t i = 0; i < pipe->call->header_count; i++)
        headers[n++] = pipe->call->headers[i];
    pipe->begun = true;
    http_begin(pipe->call->ex, pipe->call->status, headers, n, -1);
}

/* Hands what is there to the connection, unless that has enough already. */
static void flush(struct call_pipe *pipe, bool all)
{
    if (!pipe->call->ex)
        return;
    if (!pipe->begun)
        begin(pipe);
    if (!all && http_pending(pipe->call->ex) > HTTP_HIGH_WATER)
        return; /* on_drain goes on */
    lock(pipe);
    if (pipe->data.len) {
        (void)http_write(pipe->call->ex, pipe->data.p, pipe->data.len);
        buf_clear(&pipe->data);
        (void)pthread_cond_signal(&pipe->changed);
    }
    unlock(pipe);
}

static void on_drain(struct http_exchange *ex, void *arg)
{
    (void)ex;
    flush(arg, false);
}

static void on_written(struct loop_errand *errand)
{
    struct call_pipe *pipe = pipe_of(errand);

    if (pipe->call->ex)
        http_on_drain(pipe->call->ex, on_drain, pipe);
    flush(pipe, false);
}

void call_pipe_begin(struct call_pipe *pipe, int status, const char *content_type)
{
    pipe->call->status = status;
    pipe->call->content_type = content_type;
    pipe->writes = true;
    lock(pipe);
    post(pipe, on_written); /* the head goes out now */
    unlock(pipe);
}

int call_pipe_offer(struct call_pipe *pipe, struct str *data, uint32_t wait_ms)
{
    int64_t until_us = clock_mono_us() + wait_ms * INT64_C(1000);
    bool closed, late = false;

    lock(pipe);
    while (data->len && !pipe->closed && !late) {
        size_t room = pipe->data.len < CALL_PIPE_MAX ? CALL_PIPE_MAX - pipe->data.len : 0;
        size_t n = data->len < room ? data->len : room;

        if (n) {
            (void)buf_add(&pipe->data, data->p, n);
            *data = str_skip(*data, n);
            post(pipe, on_written);
        } else {
            late = !cond_wait_until(&pipe->changed, &pipe->lock, until_us);
        }
    }
    closed = pipe->closed;
    unlock(pipe);
    return closed ? -1 : data->len > 0;
}

int call_pipe_write(struct call_pipe *pipe, struct str data)
{
    enum { LONG_MS = 60 * 1000 };
    int r;

    do
        r = call_pipe_offer(pipe, &data, LONG_MS);
    while (r > 0);
    return r;
}

void call_pipe_finish(struct call_pipe *pipe, bool failed)
{
    http_on_drain(pipe->call->ex, NULL, NULL);
    flush(pipe, true);
    if (failed)
        http_abort(pipe->call->ex);
    else
        http_end(pipe->call->ex);
}
