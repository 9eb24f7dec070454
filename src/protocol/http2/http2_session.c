/* How it works
 *
 * nghttp2 has the protocol: it is given what came and asked for what is to be sent, and tells by callbacks.
 * Input goes through it at once; frames to be sent are made only while nothing waits at the connection, up to
 * a batch at a time, so that what is queued for a slow peer is one batch, and each stream's own queue. Body
 * bytes go from that queue straight into the batch.
 *
 * The connection's window is opened again as soon as bytes have come, a stream's when its handler has taken
 * them: a stream that waits holds up no other.
 *
 * Floods: each frame that gives nobody anything costs, a stream that breaks costs more, data that we send earns
 * what is needed to acknowledge it. nghttp2 has limits of its own beside (CONTINUATION, entries of SETTINGS,
 * acknowledgements that wait, resets). */
#include "protocol/http2/http2_session.h"

#include "base/alloc.h"

enum {
    BATCH_FULL = 64 * 1024, /* then it is sent */
    SEND_MAX = 1024 * 1024, /* per turn, then other connections get theirs */
    ACKS_MAX = 100,         /* that wait to be sent */
    RESETS_BURST = 1000,
    RESETS_PER_S = 100,
};

void http2_session_charge(struct http2_session *session, int cost)
{
    uint64_t now = uv_now(loop_uv(session->conn->server->loop));
    uint64_t earned = (now - session->credit_ms) * HTTP2_CREDIT_PER_S / 1000;

    if (earned) {
        session->credit_ms = now;
        session->credit = earned > HTTP2_CREDIT ? HTTP2_CREDIT : session->credit + (int)earned;
    }
    session->credit -= cost;
    if (session->credit > HTTP2_CREDIT)
        session->credit = HTTP2_CREDIT;
    if (session->credit < 0)
        (void)nghttp2_session_terminate_session(session->ng, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* ---- what nghttp2 tells ---- */

static struct http2_stream *stream_of(struct http2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session->ng, id);
}

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct http2_session *session = arg;
    bool trailers = frame->headers.cat != NGHTTP2_HCAT_REQUEST;
    struct http2_stream *stream;

    if (session->closed)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (trailers) {
        http2_head_begin(session, stream_of(session, frame->hd.stream_id), true);
        return 0;
    }
    stream = http2_stream_open(session, frame->hd.stream_id);
    http2_head_begin(session, stream, false);
    if (stream)
        (void)nghttp2_session_set_stream_user_data(ng, frame->hd.stream_id, stream);
    else
        (void)nghttp2_submit_rst_stream(ng, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                        NGHTTP2_REFUSED_STREAM);
    return 0;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    (void)ng;
    (void)frame;
    (void)flags;
    return http2_head_field(arg, str_n(name, name_len), str_n(value, value_len));
}

/* What is no header must not be passed over in silence: somebody behind us may see one. */
static int on_invalid_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                             size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                             void *arg)
{
    (void)ng;
    (void)frame;
    (void)name;
    (void)name_len;
    (void)value;
    (void)value_len;
    (void)flags;
    (void)arg;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static void head_came(struct http2_session *session, const nghttp2_frame *frame)
{
    struct http2_stream *stream = session->head.stream;
    bool last = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;

    session->in_head = false;
    if (stream && !stream->over) {
        if (session->head.trailers)
            http2_head_trailers(session);
        else
            http2_stream_start(stream, !last);
        if (last)
            http2_stream_end(stream);
    }
    session->head.stream = NULL;
}

static void data_came(struct http2_session *session, const nghttp2_frame *frame)
{
    struct http2_stream *stream = stream_of(session, frame->hd.stream_id);
    bool last = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;

    if (frame->hd.length <= frame->data.padlen && !last)
        http2_session_charge(session, HTTP2_COST_OF_FRAME);
    if (stream && last)
        http2_stream_end(stream);
}

/* Frames of types that are none of HTTP/2's are skipped, as they must be; that they are told of at all is for what they
 * cost. */
static int skip_piece(nghttp2_session *ng, const nghttp2_frame_hd *head, const uint8_t *data,
                      size_t len, void *arg)
{
    (void)ng;
    (void)head;
    (void)data;
    (void)len;
    (void)arg;
    return NGHTTP2_ERR_CANCEL;
}

static int skip_frame(nghttp2_session *ng, void **payload, const nghttp2_frame_hd *head, void *arg)
{
    (void)ng;
    (void)payload;
    (void)head;
    (void)arg;
    return NGHTTP2_ERR_CANCEL;
}

static void know_all_types(nghttp2_session_callbacks *callbacks, nghttp2_option *option)
{
    nghttp2_session_callbacks_set_on_extension_chunk_recv_callback(callbacks, skip_piece);
    nghttp2_session_callbacks_set_unpack_extension_callback(callbacks, skip_frame);
    for (int type = NGHTTP2_CONTINUATION + 1; type <= UINT8_MAX; type++)
        nghttp2_option_set_user_recv_extension_type(option, (uint8_t)type);
}

/* Of these nothing more is told. */
static int on_begin_frame(nghttp2_session *ng, const nghttp2_frame_hd *head, void *arg)
{
    (void)ng;
    if (head->type == NGHTTP2_PRIORITY || head->type > NGHTTP2_CONTINUATION)
        http2_session_charge(arg, HTTP2_COST_OF_FRAME);
    return 0;
}

static int on_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct http2_session *session = arg;

    (void)ng;
    if (session->closed)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (frame->hd.type == NGHTTP2_HEADERS)
        head_came(session, frame);
    else if (frame->hd.type == NGHTTP2_DATA)
        data_came(session, frame);
    else
        http2_session_charge(session, HTTP2_COST_OF_FRAME);
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) && session->noticed)
        session->knows = true;
    return session->closed ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_invalid_frame(nghttp2_session *ng, const nghttp2_frame *frame, int error, void *arg)
{
    (void)ng;
    (void)frame;
    (void)error;
    http2_session_charge(arg, HTTP2_COST_OF_RESET);
    return 0;
}

static int on_data_chunk(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *data,
                         size_t len, void *arg)
{
    struct http2_session *session = arg;
    struct http2_stream *stream = stream_of(session, id);

    (void)flags;
    if (stream)
        http2_stream_data(stream, str_n(data, len));
    else
        (void)nghttp2_session_consume(ng, id, len);
    return session->closed ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t error, void *arg)
{
    struct http2_session *session = arg;
    struct http2_stream *stream = stream_of(session, id);

    (void)ng;
    if (error != NGHTTP2_NO_ERROR && !(stream && stream->aborted))
        http2_session_charge(session, HTTP2_COST_OF_RESET);
    if (!stream)
        return 0;
    if (session->head.stream == stream)
        session->head.stream = NULL;
    (void)nghttp2_session_set_stream_user_data(ng, id, NULL);
    http2_stream_closed(stream);
    return 0;
}

static int on_frame_sent(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct http2_session *session = arg;
    struct http2_stream *stream;

    (void)ng;
    if ((frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS) ||
        !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    stream = stream_of(session, frame->hd.stream_id);
    if (stream)
        http2_stream_end_made(stream);
    return 0;
}

/* A frame of body bytes: its head, and as many bytes of the stream's queue as were promised. */
static int send_data(nghttp2_session *ng, nghttp2_frame *frame, const uint8_t *head, size_t len,
                     nghttp2_data_source *source, void *arg)
{
    enum { HEAD_SIZE = 9 };
    struct http2_session *session = arg;
    struct http2_stream *stream = source->ptr;
    struct buf *batch = &session->conn->server->batch;
    ssize_t got;
    char *to;

    (void)ng;
    (void)frame;
    if (batch->len >= BATCH_FULL) {
        session->full = true;
        return NGHTTP2_ERR_WOULDBLOCK;
    }
    to = buf_reserve(batch, HEAD_SIZE + len);
    if (!to)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    memcpy(to, head, HEAD_SIZE);
    got = http_outq_take(&stream->out, to + HEAD_SIZE, len);
    if (got != (ssize_t)len) {
        stream->aborted = true; /* a file is shorter than was said */
        http2_stream_touch(stream);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    buf_grew(batch, HEAD_SIZE + len);
    stream->progress = true;
    if (stream->hold.bytes)
        http2_stream_unsettle(stream);
    if (len)
        http2_session_charge(session, -HTTP2_CREDIT_OF_DATA);
    http2_stream_touch(stream);
    return 0;
}

/* ---- sending ---- */

/* Makes frames until the batch is full or there are none. */
static void fill_batch(struct http2_session *session)
{
    struct buf *batch = &session->conn->server->batch;

    buf_clear(batch);
    session->full = false;
    while (batch->len < BATCH_FULL && !session->full) {
        const uint8_t *bytes;
        ssize_t len = nghttp2_session_mem_send(session->ng, &bytes);

        if (len < 0)
            session->conn->broken = true;
        if (len <= 0)
            return;
        (void)buf_add(batch, bytes, (size_t)len);
    }
}

/* What was made before is with the kernel. */
static bool tell_sent(struct http2_session *session)
{
    struct list *node;
    bool any = false;

    while (!session->closed && (node = list_pop_front(&session->sent))) {
        http2_stream_end_sent(container_of(node, struct http2_stream, sent));
        any = true;
    }
    return any;
}

static bool send_frames(struct http2_session *session)
{
    struct http_conn *conn = session->conn;
    struct buf *batch = &conn->server->batch;
    size_t sent = 0;

    while (!conn->out.pending && !conn->broken && sent < SEND_MAX) {
        struct iovec iov;

        fill_batch(session);
        if (!batch->len)
            break;
        iov = http_iov(batch->p, batch->len);
        sent += batch->len;
        http_conn_send(conn, &iov, 1);
    }
    conn->more = sent >= SEND_MAX;
    return sent > 0 && !conn->more;
}

/* ---- the connection ---- */

static void input(void *arg, struct str in)
{
    struct http2_session *session = arg;
    ssize_t used = nghttp2_session_mem_recv(session->ng, (const uint8_t *)in.p, in.len);

    if (used >= 0 || session->closed)
        return;
    session->conn->broken = true;
    session->conn->reset = used == NGHTTP2_ERR_FLOODED;
}

/* The peer is told to begin nothing more; what it began before it knew is still done. */
static void leave(struct http2_session *session)
{
    nghttp2_session *ng = session->ng;

    if (!session->noticed) {
        session->noticed = true;
        (void)nghttp2_submit_shutdown_notice(ng);
        (void)nghttp2_submit_ping(ng, NGHTTP2_FLAG_NONE, NULL);
    }
    if (session->left || (session->count && !session->knows))
        return;
    session->left = true;
    if (session->count)
        (void)nghttp2_submit_goaway(ng, NGHTTP2_FLAG_NONE,
                                    nghttp2_session_get_last_proc_stream_id(ng), NGHTTP2_NO_ERROR,
                                    NULL, 0);
    else
        (void)nghttp2_session_terminate_session(ng, NGHTTP2_NO_ERROR);
}

static bool advance_streams(struct http2_session *session)
{
    struct list *node;
    bool any = false;

    while (!session->closed && (node = list_pop_front(&session->todo))) {
        http2_stream_advance(container_of(node, struct http2_stream, todo));
        any = true;
    }
    return any;
}

static void close_session(void *arg)
{
    struct http2_session *session = arg;
    struct list *node, *next;

    if (session->closed)
        return;
    session->closed = true;
    list_for_each_safe (node, next, &session->streams)
        http2_stream_drop(container_of(node, struct http2_stream, all));
}

static bool all_said(const struct http2_session *session)
{
    const struct http_conn *conn = session->conn;

    return !conn->out.pending && !conn->broken && list_empty(&session->sent) &&
           !nghttp2_session_want_read(session->ng) && !nghttp2_session_want_write(session->ng);
}

static bool advance(void *arg)
{
    struct http2_session *session = arg;
    struct http_conn *conn = session->conn;
    bool any = advance_streams(session);

    if (!session->closed && !conn->out.pending)
        any = tell_sent(session) || any;
    if (session->closed)
        return false;
    if (conn->server->draining)
        leave(session);
    any = send_frames(session) || any;
    if (!all_said(session))
        return any && !conn->more;
    close_session(session);
    if (conn->state == CONN_STREAMS)
        http_conn_linger(conn);
    return false;
}

static enum conn_timer timer(const void *arg)
{
    const struct http2_session *session = arg;

    if (session->in_head)
        return CONN_TIMER_HEAD;
    return session->count ? CONN_TIMER_NONE : CONN_TIMER_IDLE;
}

static void timed_out(void *arg)
{
    struct http2_session *session = arg;

    session->in_head = false;
    (void)nghttp2_session_terminate_session(session->ng, NGHTTP2_NO_ERROR);
}

static void settle(void *arg)
{
    struct http2_session *session = arg;
    struct list *node;

    while (!session->closed && (node = list_pop_front(&session->unsettled)))
        http2_stream_settle(container_of(node, struct http2_stream, unsettled));
}

static void free_session(void *arg)
{
    struct http2_session *session = arg;
    struct list *node;

    nghttp2_session_del(session->ng);
    while ((node = list_pop_front(&session->streams)))
        http2_stream_free(container_of(node, struct http2_stream, all));
    free(session);
}

static int make_session(struct http2_session *session, nghttp2_session_callbacks *callbacks,
                        nghttp2_option *option)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, on_invalid_header);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, send_data);
    know_all_types(callbacks, option);
    nghttp2_option_set_no_recv_client_magic(option, 1); /* the connection has read it */
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_max_outbound_ack(option, ACKS_MAX);
    nghttp2_option_set_stream_reset_rate_limit(option, RESETS_BURST, RESETS_PER_S);
    return nghttp2_session_server_new2(&session->ng, callbacks, session, option);
}

static int start_session(struct http2_session *session)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, HTTP2_STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, HTTP2_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HTTP_HEAD_MAX},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    int r = -1;

    if (nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0)
        r = make_session(session, callbacks, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    if (r == 0)
        r = nghttp2_submit_settings(session->ng, NGHTTP2_FLAG_NONE, settings,
                                    sizeof(settings) / sizeof(settings[0]));
    if (r == 0)
        r = nghttp2_session_set_local_window_size(session->ng, NGHTTP2_FLAG_NONE, 0,
                                                  HTTP2_CONNECTION_WINDOW);
    return r;
}

static void *open_session(struct http_conn *conn)
{
    struct http2_session *session = xcalloc(1, sizeof(*session));

    session->conn = conn;
    session->credit = HTTP2_CREDIT;
    session->credit_ms = uv_now(loop_uv(conn->server->loop));
    list_init(&session->streams);
    list_init(&session->todo);
    list_init(&session->sent);
    list_init(&session->unsettled);
    if (start_session(session) == 0)
        return session;
    nghttp2_session_del(session->ng);
    free(session);
    return NULL;
}

const struct http_protocol http2_protocol = {
    .preface = STR_INIT(NGHTTP2_CLIENT_MAGIC),
    .open = open_session,
    .input = input,
    .advance = advance,
    .timer = timer,
    .timed_out = timed_out,
    .settle = settle,
    .close = close_session,
    .free = free_session,
};
