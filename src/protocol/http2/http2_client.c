/* How it works
 *
 * Calls only queue and ask for writability; frames are made and callbacks called when the stream is ready. What
 * nghttp2 tells of the stream's end is noted, and told behind the input that it came with. The peer's window is
 * opened again as bytes come, except while paused. */
#include "protocol/http2/http2_client.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"
#include "protocol/http/http_outq.h"
#include "protocol/http/http_server.h"

enum {
    READS_PER_EVENT = 4,
    BATCH_FULL = 64 * 1024,
    BATCH_MAX = 128 * 1024,
    SEND_MAX = 1024 * 1024, /* per turn */
    WINDOW = 256 * 1024,
    FRAME_HEAD = 9,
};

struct http2_client {
    struct loop *loop;
    struct stream *stream;
    nghttp2_session *ng;
    int32_t id;
    const struct http2_client_events *events;
    void *arg;
    struct http_outq out;  /* frames */
    struct http_outq body; /* bytes that are in no frame yet */
    struct buf batch;
    bool full;
    struct arena arena;
    struct pair items[HTTP_HEADER_COUNT_MAX];
    size_t count, bytes; /* of the head or trailers that come */
    int status;
    struct http_headers trailers, own_trailers;
    size_t unconsumed; /* came while paused */
    bool head_seen, answered, broken;
    bool ended; /* our body has */
    bool paused, drain_due;
    bool told, closed; /* the end was told; freed */
};

static void on_ready(struct stream *stream, int status, int events, void *arg);

static void update(struct http2_client *client)
{
    int mask = UV_READABLE;

    if (client->closed)
        return;
    if (client->told)
        mask = 0;
    else if (client->out.pending || nghttp2_session_want_write(client->ng))
        mask |= UV_WRITABLE;
    stream_watch(client->stream, mask, on_ready, client);
}

/* ---- what comes ---- */

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct http2_client *client = arg;

    (void)ng;
    (void)frame;
    client->count = client->bytes = 0;
    return 0;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    struct http2_client *client = arg;
    struct str key = str_n(name, name_len), text = str_n(value, value_len);
    int64_t status;

    (void)ng;
    (void)frame;
    (void)flags;
    client->bytes += name_len + value_len;
    if (client->bytes > HTTP_HEAD_MAX || client->count == HTTP_HEADER_COUNT_MAX)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (str_is(key, ":status") && str_to_i64(text, &status))
        client->status = (int)status;
    if (key.len && key.p[0] != ':')
        client->items[client->count++] =
            (struct pair){arena_str(&client->arena, key), arena_str(&client->arena, text)};
    return 0;
}

static void head_came(struct http2_client *client, bool last)
{
    struct http_headers headers = {client->items, client->count};

    if (client->head_seen) {
        client->trailers.items =
            arena_alloc(&client->arena, (client->count + 1) * sizeof(*client->items));
        memcpy(client->trailers.items, client->items, client->count * sizeof(*client->items));
        client->trailers.count = client->count;
        return;
    }
    if (client->status < 200)
        return;
    client->head_seen = true;
    client->events->on_head(client, client->status, &headers, last, client->arg);
}

static int on_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct http2_client *client = arg;
    bool last = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;

    (void)ng;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS)
        head_came(client, last);
    client->answered = client->answered || (last && client->head_seen);
    return client->closed ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_data_chunk(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *data,
                         size_t len, void *arg)
{
    struct http2_client *client = arg;

    (void)flags;
    (void)nghttp2_session_consume_connection(ng, len);
    client->events->on_data(client, str_n(data, len), client->arg);
    if (client->closed)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (client->paused)
        client->unconsumed += len;
    else
        (void)nghttp2_session_consume_stream(ng, id, len);
    return 0;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t error, void *arg)
{
    struct http2_client *client = arg;

    (void)ng;
    (void)id;
    (void)error;
    client->broken = !client->answered;
    return 0;
}

/* ---- what goes ---- */

static nghttp2_nv field(const struct pair *header)
{
    nghttp2_nv nv = {.namelen = header->name.len, .valuelen = header->value.len};

    memcpy(&nv.name, &header->name.p, sizeof(nv.name)); /* not const, although it is only copied */
    memcpy(&nv.value, &header->value.p, sizeof(nv.value));
    return nv;
}

static nghttp2_nv *fields(struct arena *arena, const struct http_headers *headers)
{
    nghttp2_nv *out = arena_alloc(arena, (headers->count + 1) * sizeof(*out));

    for (size_t i = 0; i < headers->count; i++)
        out[i] = field(&headers->items[i]);
    return out;
}

static ssize_t read_body(nghttp2_session *ng, int32_t id, uint8_t *p, size_t size,
                         uint32_t *out_flags, nghttp2_data_source *source, void *arg)
{
    struct http2_client *client = source->ptr;
    size_t pending = client->body.pending, len = pending < size ? pending : size;

    (void)p;
    (void)arg;
    if (!pending && !client->ended)
        return NGHTTP2_ERR_DEFERRED;
    *out_flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (client->ended && len == pending) {
        *out_flags |= NGHTTP2_DATA_FLAG_EOF;
        if (client->own_trailers.count) {
            *out_flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            (void)nghttp2_submit_trailer(ng, id, fields(&client->arena, &client->own_trailers),
                                         client->own_trailers.count);
        }
    }
    return (ssize_t)len;
}

static int send_data(nghttp2_session *ng, nghttp2_frame *frame, const uint8_t *head, size_t len,
                     nghttp2_data_source *source, void *arg)
{
    struct http2_client *client = arg;
    char *to;

    (void)ng;
    (void)frame;
    (void)source;
    if (client->batch.len >= BATCH_FULL) {
        client->full = true;
        return NGHTTP2_ERR_WOULDBLOCK;
    }
    to = buf_reserve(&client->batch, FRAME_HEAD + len);
    if (!to)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    memcpy(to, head, FRAME_HEAD);
    if (http_outq_take(&client->body, to + FRAME_HEAD, len) != (ssize_t)len)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    buf_grew(&client->batch, FRAME_HEAD + len);
    return 0;
}

static void fill_batch(struct http2_client *client)
{
    buf_clear(&client->batch);
    client->full = false;
    while (client->batch.len < BATCH_FULL && !client->full) {
        const uint8_t *bytes;
        ssize_t len = nghttp2_session_mem_send(client->ng, &bytes);

        client->broken = client->broken || len < 0;
        if (len <= 0)
            return;
        (void)buf_add(&client->batch, bytes, (size_t)len);
    }
}

static int flush(struct http2_client *client)
{
    int result = client->out.pending ? http_outq_flush(&client->out, client->stream) : 0;
    size_t sent = 0;

    while (result == 0 && !client->out.pending && sent < SEND_MAX) {
        struct iovec iov;

        fill_batch(client);
        if (!client->batch.len)
            break;
        iov = http_iov(client->batch.p, client->batch.len);
        sent += client->batch.len;
        result = http_outq_send(&client->out, client->stream, &iov, 1);
    }
    return result;
}

/* ---- the connection ---- */

static void fail(struct http2_client *client, int errnum)
{
    if (client->told || client->closed)
        return;
    client->told = true;
    client->events->on_error(client, errnum, client->arg);
}

/* A peer that broke the rules has been told so; what it says after that is not read any more. */
static bool is_broken(const struct http2_client *client)
{
    return client->broken ||
           (!nghttp2_session_want_read(client->ng) && !nghttp2_session_want_write(client->ng));
}

/* Tells the end when there is one. */
static void settle(struct http2_client *client)
{
    if (client->told || client->closed)
        return;
    if (client->answered) {
        client->told = true;
        client->events->on_end(client, &client->trailers, client->arg);
    } else if (is_broken(client)) {
        fail(client, EPROTO);
    } else if (client->drain_due && client->body.pending < HTTP_LOW_WATER) {
        client->drain_due = false;
        client->events->on_drain(client, client->arg);
    }
}

static void read_input(struct http2_client *client)
{
    char *buffer = loop_read_buffer(client->loop);

    for (int i = 0; i < READS_PER_EVENT && !client->closed && !client->told; i++) {
        ssize_t got = stream_read(client->stream, buffer, LOOP_READ_SIZE);

        if (got == -EAGAIN)
            return;
        if (got <= 0) {
            fail(client, got ? (int)-got : ECONNRESET);
            return;
        }
        if (nghttp2_session_mem_recv(client->ng, (const uint8_t *)buffer, (size_t)got) < 0)
            client->broken = true;
        settle(client);
        if (got < LOOP_READ_SIZE)
            return;
    }
}

static void on_ready(struct stream *stream, int status, int events, void *arg)
{
    struct http2_client *client = arg;
    int result;

    (void)stream;
    if (status < 0 || (events & UV_READABLE))
        read_input(client);
    if (!client->closed && !client->told && status < 0)
        fail(client, EIO);
    if (!client->closed && !client->told) {
        result = flush(client);
        if (result < 0)
            fail(client, -result);
        settle(client);
    }
    update(client);
}

static int make_session(struct http2_client *client)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    int r = -1;

    if (nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0) {
        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
        nghttp2_session_callbacks_set_send_data_callback(callbacks, send_data);
        nghttp2_option_set_no_auto_window_update(option, 1);
        r = nghttp2_session_client_new2(&client->ng, callbacks, client, option);
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return r;
}

static int start(struct http2_client *client, const struct http_headers *headers, bool has_body)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP_HEAD_MAX},
    };
    nghttp2_data_provider provider = {.source.ptr = client, .read_callback = read_body};

    if (make_session(client) != 0 ||
        nghttp2_submit_settings(client->ng, NGHTTP2_FLAG_NONE, settings,
                                sizeof(settings) / sizeof(settings[0])) != 0)
        return -1;
    client->id = nghttp2_submit_request(client->ng, NULL, fields(&client->arena, headers),
                                        headers->count, has_body ? &provider : NULL, NULL);
    return client->id < 0 ? -1 : 0;
}

static void client_free(void *arg)
{
    struct http2_client *client = arg;

    nghttp2_session_del(client->ng);
    http_outq_done(&client->out);
    http_outq_done(&client->body);
    buf_done(&client->batch);
    arena_done(&client->arena);
    free(client);
}

struct http2_client *http2_client_new(struct loop *loop, struct stream *stream_consume,
                                      const struct http_headers *headers, bool has_body,
                                      const struct http2_client_events *events, void *arg)
{
    struct http2_client *client = xcalloc(1, sizeof(*client));

    client->loop = loop;
    client->stream = stream_consume;
    client->events = events;
    client->arg = arg;
    client->ended = !has_body;
    buf_init(&client->batch, BATCH_MAX);
    if (start(client, headers, has_body) < 0) {
        http2_client_free(client);
        return NULL;
    }
    update(client);
    return client;
}

size_t http2_client_write(struct http2_client *client, const void *p, size_t len)
{
    struct iovec iov = http_iov(p, len);

    if (client->told || client->ended)
        return 0;
    http_outq_add(&client->body, &iov, 1);
    (void)nghttp2_session_resume_data(client->ng, client->id);
    if (client->body.pending > HTTP_LOW_WATER)
        client->drain_due = true;
    update(client);
    return client->body.pending;
}

void http2_client_end(struct http2_client *client, const struct http_headers *trailers)
{
    if (client->ended)
        return;
    client->own_trailers = (struct http_headers){
        arena_pairs(&client->arena, trailers->items, trailers->count), trailers->count};
    client->ended = true;
    (void)nghttp2_session_resume_data(client->ng, client->id);
    update(client);
}

void http2_client_pause(struct http2_client *client)
{
    client->paused = true;
}

void http2_client_resume(struct http2_client *client)
{
    client->paused = false;
    if (client->unconsumed)
        (void)nghttp2_session_consume_stream(client->ng, client->id, client->unconsumed);
    client->unconsumed = 0;
    update(client);
}

void http2_client_free(struct http2_client *client)
{
    if (!client || client->closed)
        return;
    client->closed = true;
    stream_close(client->stream, false);
    loop_later(client->loop, client_free, client);
}
