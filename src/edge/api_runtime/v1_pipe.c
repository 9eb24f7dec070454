/* How it works
 *
 * One buffer under a lock. The worker blocks on a condition when it is full (or, reading, empty); the
 * loop never blocks: it stops taking from its socket, or from the buffer. Word to the loop is one
 * errand that is posted at most once at a time; as errands keep their order, none is under way any more
 * when the completion of the worker's own work comes. */
#include "edge/api_runtime/v1_pipe.h"
#include "base/cond.h"

#include <errno.h>
#include <time.h>

#include "edge/api_runtime/v1_internal.h"
#include "protocol/http/http_server.h"

enum { BUFFER_MAX = 2 * V1_PIPE_MAX };

void v1_pipe_init(struct v1_pipe *pipe)
{
    (void)pthread_mutex_init(&pipe->lock, NULL);
    cond_init(&pipe->changed);
    buf_init(&pipe->data, BUFFER_MAX);
}

void v1_pipe_done(struct v1_pipe *pipe)
{
    buf_done(&pipe->data);
    (void)pthread_cond_destroy(&pipe->changed);
    (void)pthread_mutex_destroy(&pipe->lock);
}

static void lock(struct v1_pipe *pipe)
{
    (void)pthread_mutex_lock(&pipe->lock);
}

static void unlock(struct v1_pipe *pipe)
{
    (void)pthread_mutex_unlock(&pipe->lock);
}

/* Under the lock. */
static void post(struct v1_call *call, void (*fn)(struct loop_errand *errand))
{
    if (call->pipe.posted)
        return;
    call->pipe.posted = true;
    call->pipe.errand.fn = fn;
    loop_post(call->loop, &call->pipe.errand);
}

static struct v1_call *call_of(struct loop_errand *errand)
{
    struct v1_call *call = container_of(errand, struct v1_call, pipe.errand);

    lock(&call->pipe);
    call->pipe.posted = false;
    unlock(&call->pipe);
    return call;
}

void v1_pipe_close(struct v1_pipe *pipe)
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

bool v1_pipe_on_close(struct v1_call *call, void (*fn)(void *arg), void *arg)
{
    struct v1_pipe *pipe = &call->pipe;
    bool closed;

    lock(pipe);
    closed = pipe->closed;
    pipe->on_close_arg = arg;
    pipe->on_close = closed ? NULL : fn;
    unlock(pipe);
    return !closed;
}

void v1_pipe_last(struct v1_call *call, struct str data)
{
    lock(&call->pipe);
    (void)buf_add_str(&call->pipe.data, data);
    unlock(&call->pipe);
}

bool v1_pipe_gone(struct v1_call *call)
{
    bool closed;

    lock(&call->pipe);
    closed = call->pipe.closed;
    unlock(&call->pipe);
    return closed;
}

/* ---- the request's body ---- */

static void on_data(struct http_exchange *ex, struct str data, void *arg)
{
    struct v1_call *call = arg;
    struct v1_pipe *pipe = &call->pipe;

    lock(pipe);
    (void)buf_add_str(&pipe->data, data);
    if (pipe->data.len > V1_PIPE_MAX) {
        pipe->paused = true;
        http_pause(ex);
    }
    (void)pthread_cond_signal(&pipe->changed);
    unlock(pipe);
}

static void on_end(struct http_exchange *ex, void *arg)
{
    struct v1_call *call = arg;

    (void)ex;
    lock(&call->pipe);
    call->pipe.ended = true;
    (void)pthread_cond_signal(&call->pipe.changed);
    unlock(&call->pipe);
}

static void want_more(struct loop_errand *errand)
{
    struct v1_call *call = call_of(errand);
    struct v1_pipe *pipe = &call->pipe;

    if (!call->ex)
        return;
    if (!pipe->reading) {
        pipe->reading = true;
        http_read_stream(call->ex, on_data, on_end, call);
    } else if (pipe->paused) {
        pipe->paused = false;
        http_resume(call->ex);
    }
}

ssize_t v1_pipe_read(struct v1_call *call, void *p, size_t size)
{
    struct v1_pipe *pipe = &call->pipe;
    size_t n = 0;
    bool closed;

    lock(pipe);
    while (!pipe->data.len && !pipe->ended && !pipe->closed) {
        post(call, want_more);
        (void)pthread_cond_wait(&pipe->changed, &pipe->lock);
    }
    /* Half a body is none. */
    closed = pipe->closed && !pipe->ended;
    if (!closed) {
        n = pipe->data.len < size ? pipe->data.len : size;
        if (n)
            memcpy(p, pipe->data.p, n);
        buf_drop(&pipe->data, n);
        if (pipe->data.len < V1_PIPE_MAX / 2 && !pipe->ended)
            post(call, want_more);
    }
    unlock(pipe);
    return closed ? -1 : (ssize_t)n;
}

/* ---- the answer ---- */

static void begin(struct v1_call *call)
{
    struct http_header headers[HTTP_ANSWER_HEADERS_MAX + 3];
    size_t n = 0;

    headers[n++] = (struct http_header){STR("Content-Type"), str_of(call->content_type)};
    headers[n++] = (struct http_header){STR("Access-Control-Allow-Origin"), STR("*")};
    headers[n++] = (struct http_header){STR("Cache-Control"), STR("no-store")};
    for (size_t i = 0; i < call->header_count; i++)
        headers[n++] = call->headers[i];
    call->pipe.begun = true;
    http_begin(call->ex, call->status, headers, n, -1);
}

/* Hands what is there to the connection, unless that has enough already. */
static void flush(struct v1_call *call, bool all)
{
    struct v1_pipe *pipe = &call->pipe;

    if (!call->ex)
        return;
    if (!pipe->begun)
        begin(call);
    if (!all && http_pending(call->ex) > HTTP_HIGH_WATER)
        return; /* on_drain goes on */
    lock(pipe);
    if (pipe->data.len) {
        (void)http_write(call->ex, pipe->data.p, pipe->data.len);
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
    struct v1_call *call = call_of(errand);

    if (call->ex)
        http_on_drain(call->ex, on_drain, call);
    flush(call, false);
}

void v1_pipe_begin(struct v1_call *call, int status, const char *content_type)
{
    call->status = status;
    call->content_type = content_type;
    call->pipe.writes = true;
    lock(&call->pipe);
    post(call, on_written); /* the head goes out now */
    unlock(&call->pipe);
}

int v1_pipe_offer(struct v1_call *call, struct str *data, uint32_t wait_ms)
{
    struct v1_pipe *pipe = &call->pipe;
    int64_t until_us = clock_mono_us() + wait_ms * INT64_C(1000);
    bool closed, late = false;

    lock(pipe);
    while (data->len && !pipe->closed && !late) {
        size_t room = pipe->data.len < V1_PIPE_MAX ? V1_PIPE_MAX - pipe->data.len : 0;
        size_t n = data->len < room ? data->len : room;

        if (n) {
            (void)buf_add(&pipe->data, data->p, n);
            *data = str_skip(*data, n);
            post(call, on_written);
        } else {
            late = !cond_wait_until(&pipe->changed, &pipe->lock, until_us);
        }
    }
    closed = pipe->closed;
    unlock(pipe);
    return closed ? -1 : data->len > 0;
}

int v1_pipe_write(struct v1_call *call, struct str data)
{
    enum { LONG_MS = 60 * 1000 };
    int r;

    do
        r = v1_pipe_offer(call, &data, LONG_MS);
    while (r > 0);
    return r;
}

void v1_pipe_finish(struct v1_call *call, bool failed)
{
    http_on_drain(call->ex, NULL, NULL);
    flush(call, true);
    if (failed)
        http_abort(call->ex);
    else
        http_end(call->ex);
}
