/* A transfer that is read piece by piece: libcurl is only run while its reader waits and has nothing
 * left, so a slow reader slows the sender. What libcurl hands over beyond FETCH_PENDING_MAX it is
 * told to keep. */
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "protocol/fetch/fetch_internal.h"

struct fetch_stream {
    struct fetch *fetch;
    struct fetch_line *line;
    struct fetch_setup setup;
    atomic_bool cancelled;
    int status;
    bool head_done, ended, paused;
    CURLcode code; /* once ended */
    struct buf pending;
    size_t taken; /* of pending */
    int64_t last_ms;
};

static size_t on_header(char *p, size_t size, size_t count, void *arg)
{
    struct fetch_stream *stream = arg;

    if (!stream->head_done)
        fetch_head_tell(&stream->setup, p, size * count);
    if (fetch_head_line(&stream->status, p, size * count))
        stream->head_done = true;
    return size * count;
}

static size_t on_write(char *p, size_t size, size_t count, void *arg)
{
    struct fetch_stream *stream = arg;

    if (stream->pending.len >= FETCH_PENDING_MAX) {
        stream->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    return buf_add(&stream->pending, p, size * count) ? size * count : 0;
}

static bool has_data(const struct fetch_stream *stream)
{
    return stream->taken < stream->pending.len;
}

static int cancelled_error(const struct fetch_stream *stream, struct error *err)
{
    return error_set(err, ERROR_CONFLICT, "%s %s: cancelled", stream->setup.method,
                     stream->setup.host);
}

static void note_end(struct fetch_stream *stream)
{
    CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(stream->line->multi, &left)) != NULL) {
        if (message->msg != CURLMSG_DONE)
            continue;
        stream->ended = true;
        stream->code = message->data.result;
    }
}

/* One step; waits for at most wait_ms when there is nothing to do. */
static void turn(struct fetch_stream *stream, int wait_ms)
{
    size_t before = stream->pending.len;
    int running = 0;

    if (stream->paused) {
        stream->paused = false;
        (void)curl_easy_pause(stream->line->easy, CURLPAUSE_CONT);
    }
    if (curl_multi_perform(stream->line->multi, &running) != CURLM_OK) {
        stream->ended = true;
        stream->code = CURLE_FAILED_INIT;
        return;
    }
    if (!running)
        note_end(stream);
    if (!stream->ended && atomic_load(&stream->line->cut)) {
        stream->setup.cut = stream->ended = true;
        stream->code = CURLE_ABORTED_BY_CALLBACK;
    }
    if (stream->pending.len != before)
        stream->last_ms = clock_mono_ms();
    else if (!stream->ended && wait_ms > 0 && !atomic_load(&stream->cancelled))
        (void)curl_multi_poll(stream->line->multi, NULL, 0, wait_ms, NULL);
}

static int wait_head(struct fetch_stream *stream, struct error *err)
{
    int64_t end_ms = clock_mono_ms() + fetch_within(&stream->setup.request);

    while (!stream->head_done && !stream->ended) {
        int64_t left_ms = end_ms - clock_mono_ms();

        if (left_ms <= 0)
            return fetch_error_timeout(&stream->setup, "the answer", err);
        turn(stream, (int)(left_ms < 1000 ? left_ms : 1000));
    }
    if (!stream->head_done || stream->setup.cut)
        return fetch_error(&stream->setup, stream->line->easy,
                           stream->code ? stream->code : CURLE_GOT_NOTHING, err);
    return 0;
}

int fetch_open(struct fetch *fetch, const struct fetch_request *request, struct fetch_stream **out,
               struct error *err)
{
    struct fetch_line *line = fetch_line_take(fetch, request);
    struct fetch_stream *stream;

    *out = NULL;
    if (!line)
        return error_set(err, ERROR_INTERNAL, "no descriptors are left for a connection");
    stream = xcalloc(1, sizeof(*stream));
    *stream = (struct fetch_stream){.fetch = fetch, .line = line, .last_ms = clock_mono_ms()};
    buf_init(&stream->pending, FETCH_PENDING_MAX + CURL_MAX_READ_SIZE);
    if (fetch_setup(&stream->setup, line->easy, request, FETCH_COPY_BODY, err) < 0) {
        fetch_close(stream);
        return -1;
    }
    fetch_line_set(line);
    curl_easy_setopt(line->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(line->easy, CURLOPT_HEADERDATA, stream);
    curl_easy_setopt(line->easy, CURLOPT_WRITEFUNCTION, on_write);
    curl_easy_setopt(line->easy, CURLOPT_WRITEDATA, stream);
    if (fetch_line_open(fetch, line))
        (void)curl_multi_add_handle(line->multi, line->easy);
    else
        stream->setup.cut = stream->ended = true;
    if (wait_head(stream, err) < 0) {
        fetch_close(stream);
        return -1;
    }
    /* The request's strings are the caller's. */
    stream->setup.request = (struct fetch_request){
        .idle_ms = request->idle_ms,
        .source = stream->setup.request.source,
        .source_arg = stream->setup.request.source_arg,
    };
    stream->last_ms = clock_mono_ms();
    *out = stream;
    return 0;
}

int fetch_status(const struct fetch_stream *stream)
{
    return stream->status;
}

static ssize_t take(struct fetch_stream *stream, void *p, size_t size)
{
    size_t n = stream->pending.len - stream->taken;

    n = n < size ? n : size;
    memcpy(p, stream->pending.p + stream->taken, n);
    stream->taken += n;
    if (!has_data(stream)) {
        buf_clear(&stream->pending);
        stream->taken = 0;
    }
    return (ssize_t)n;
}

ssize_t fetch_read(struct fetch_stream *stream, void *p, size_t size, uint32_t timeout_ms,
                   struct error *err)
{
    int64_t end_ms = clock_mono_ms() + timeout_ms;
    uint32_t idle_ms = stream->setup.request.idle_ms;

    while (!atomic_load(&stream->cancelled)) {
        int64_t now_ms, left_ms;

        if (has_data(stream))
            return take(stream, p, size);
        if (stream->ended)
            return stream->code == CURLE_OK
                       ? 0
                       : fetch_error(&stream->setup, stream->line->easy, stream->code, err);
        turn(stream, 0);
        if (has_data(stream) || stream->ended)
            continue;
        now_ms = clock_mono_ms();
        left_ms = end_ms - now_ms;
        if (idle_ms && now_ms - stream->last_ms >= idle_ms) {
            stream->ended = true;
            stream->code = CURLE_OPERATION_TIMEDOUT;
            continue;
        }
        if (left_ms <= 0)
            return fetch_error_timeout(&stream->setup, "more of the answer", err);
        if (idle_ms && left_ms > stream->last_ms + idle_ms - now_ms)
            left_ms = stream->last_ms + idle_ms - now_ms;
        turn(stream, (int)(left_ms < 60000 ? left_ms : 60000));
    }
    return cancelled_error(stream, err);
}

int fetch_stream_fd(const struct fetch_stream *stream)
{
    const struct fetch_line *line = stream->line;

    return stream->ended || line->socket_count != 1 ? -1 : line->sockets[0];
}

void fetch_cancel(struct fetch_stream *stream)
{
    atomic_store(&stream->cancelled, true);
    (void)curl_multi_wakeup(stream->line->multi);
}

void fetch_close(struct fetch_stream *stream)
{
    if (!stream)
        return;
    (void)curl_multi_remove_handle(stream->line->multi, stream->line->easy);
    fetch_line_give(stream->fetch, stream->line);
    fetch_setup_done(&stream->setup);
    buf_done(&stream->pending);
    free(stream);
}
