/* How it works
 *
 * A stream has its exchange until the answer is with the kernel, the peer has reset it or the connection is
 * gone; after that it is `over` and only waits for nghttp2 to close it. Handlers record what they want, and
 * http2_stream_advance() does what is possible, as http_conn.c does for HTTP/1; besides it only the arrival of
 * a head and of wanted body bytes calls a handler, straight from where they were read.
 *
 * The rest of a body that nobody wants is dropped up to a limit; past it the stream is reset with NO_ERROR,
 * which tells the peer that the answer is complete and the rest is not needed. */
#include "protocol/http2/http2_session.h"

#include "base/alloc.h"
#include "base/cleanup.h"

enum { OWN_FIELDS = 4 }; /* :status, date, content-length, the server's extra one */

static struct http2_stream *stream_of(const struct http_exchange *ex)
{
    return (struct http2_stream *)(uintptr_t)(const void *)ex; /* first member */
}

void http2_stream_touch(struct http2_stream *stream)
{
    if (list_empty(&stream->todo))
        list_push_back(&stream->session->todo, &stream->todo);
    http_conn_touch(stream->session->conn);
}

void http2_stream_unsettle(struct http2_stream *stream)
{
    if (list_empty(&stream->unsettled))
        list_push_back(&stream->session->unsettled, &stream->unsettled);
}

/* An answer that is whole waits also when it has no bytes left: its frames do, and so does the stream. */
static bool waits(const struct http2_stream *stream)
{
    return stream->out.pending || (stream->ex.answer == ANSWER_ENDED && !stream->end_sent);
}

void http2_stream_settle(struct http2_stream *stream)
{
    if (stream->over || stream->aborted)
        http_hold_release(&stream->hold);
    else
        http_hold_set(&stream->hold, stream->out.memory + waits(stream));
}

static void reset(struct http2_stream *stream, uint32_t error)
{
    stream->aborted = true;
    if (!stream->closed)
        (void)nghttp2_submit_rst_stream(stream->session->ng, NGHTTP2_FLAG_NONE, stream->id, error);
}

/* ---- what handlers ask for ---- */

static struct stream *connection(const struct http_exchange *ex)
{
    return stream_of(ex)->session->conn->stream;
}

static struct http_conn *conn_below(struct http_exchange *ex)
{
    return stream_of(ex)->session->conn;
}

static bool client_left(struct http_exchange *ex)
{
    const struct http2_stream *stream = stream_of(ex);
    const struct http_conn *conn = stream->session->conn;

    if ((stream->closed && !stream->end_made) || conn->broken || conn->eof)
        return true;
    return !conn->in.len && stream_peek(conn->stream) == 0;
}

static void touch(struct http_exchange *ex, bool restart)
{
    struct http2_stream *stream = stream_of(ex);

    stream->restart = stream->restart || restart;
    http2_stream_touch(stream);
}

static void send_continue(struct http_exchange *ex)
{
    struct http2_stream *stream = stream_of(ex);
    uint8_t name[] = ":status", value[] = "100";
    nghttp2_nv nv = {name, value, sizeof(name) - 1, sizeof(value) - 1, NGHTTP2_NV_FLAG_NONE};

    (void)nghttp2_submit_headers(stream->session->ng, NGHTTP2_FLAG_NONE, stream->id, NULL, &nv, 1,
                                 NULL);
}

/* ---- answer ---- */

static nghttp2_nv field(struct str name, struct str value)
{
    nghttp2_nv nv = {.namelen = name.len, .valuelen = value.len};

    memcpy(&nv.name, &name.p, sizeof(nv.name)); /* not const, although nghttp2 only copies it */
    memcpy(&nv.value, &value.p, sizeof(nv.value));
    return nv;
}

/* RFC 9113, 8.2.2; how long a body is follows from its framing. */
static bool belongs_to_connection(struct str name)
{
    static const char *const names[] = {"connection",        "keep-alive", "proxy-connection",
                                        "transfer-encoding", "upgrade",    "content-length"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (str_eq_nocase(name, str_of(names[i])))
            return true;
    }
    return false;
}

static struct str clean(struct arena *arena, struct str s)
{
    auto_buf struct buf copy = {0};

    s = str_trim(s);
    if (!s.len ||
        (!memchr(s.p, '\r', s.len) && !memchr(s.p, '\n', s.len) && !memchr(s.p, '\0', s.len)))
        return s;
    buf_init(&copy, s.len);
    http_add_clean(&copy, s);
    return arena_str(arena, buf_str(&copy));
}

/* All but those of a connection and `without`. */
static size_t add_fields(struct arena *arena, const struct pair *headers, size_t count,
                         struct str without, nghttp2_nv *out)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++) {
        if (headers[i].name.len && !belongs_to_connection(headers[i].name) &&
            !str_eq_nocase(headers[i].name, without))
            out[n++] = field(clean(arena, headers[i].name), clean(arena, headers[i].value));
    }
    return n;
}

static bool says_length(const struct http_exchange *ex, const struct http_head *head)
{
    if (head->passed_on)
        return head->framing.length >= 0 && head->status != 204;
    return ex->framing == FRAMING_LENGTH && http_status_has_payload(head->status);
}

static size_t make_fields(struct http_exchange *ex, const struct http_head *head, nghttp2_nv *out)
{
    const char *status = arena_printf(&ex->arena, "%03d", head->status % 1000);
    const struct pair *extra = &ex->server->config.extra;
    size_t n = 0;

    out[n++] = field(STR(":status"), str_of(status));
    if (!head->passed_on)
        out[n++] = field(STR("date"), http_server_date(ex->server));
    if (extra->name.len)
        out[n++] = field(extra->name, extra->value);
    n += add_fields(&ex->arena, head->headers, head->count,
                    head->passed_on ? extra->name : STR_NONE, out + n);
    if (says_length(ex, head)) {
        const char *length = arena_printf(&ex->arena, "%lld", (long long)head->framing.length);

        out[n++] = field(STR("content-length"), str_of(length));
    }
    return n;
}

static void submit_trailers(struct http2_stream *stream)
{
    struct http_exchange *ex = &stream->ex;
    nghttp2_nv *fields = arena_alloc(&ex->arena, (stream->end_trailer_count + 1) * sizeof(*fields));
    size_t n =
        add_fields(&ex->arena, stream->end_trailers, stream->end_trailer_count, STR_NONE, fields);

    (void)nghttp2_submit_trailer(stream->session->ng, stream->id, fields, n);
}

/* How much of the queue the next frame may have; the bytes follow in send_data() of http2_session.c. */
static ssize_t read_data(nghttp2_session *ng, int32_t id, uint8_t *p, size_t size,
                         uint32_t *out_flags, nghttp2_data_source *source, void *arg)
{
    struct http2_stream *stream = source->ptr;
    size_t pending = stream->out.pending, len = pending < size ? pending : size;
    bool ended = stream->ex.answer == ANSWER_ENDED;

    (void)ng;
    (void)id;
    (void)p;
    (void)arg;
    if (!pending && !ended)
        return NGHTTP2_ERR_DEFERRED;
    *out_flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (ended && len == pending) {
        *out_flags |= NGHTTP2_DATA_FLAG_EOF;
        if (stream->end_trailer_count) {
            *out_flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            submit_trailers(stream);
        }
    }
    return (ssize_t)len;
}

static void send_head(struct http_exchange *ex, const struct http_head *head, struct str body,
                      enum http_memory memory)
{
    struct http2_stream *stream = stream_of(ex);
    nghttp2_nv *fields = arena_alloc(&ex->arena, (head->count + OWN_FIELDS) * sizeof(*fields));
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = read_data};
    size_t count = make_fields(ex, head, fields);
    bool bare = ex->no_payload || (ex->answer == ANSWER_ENDED && !body.len);

    stream->unframe = head->passed_on && head->framing.kind == HTTP_BODY_CHUNKED;
    if (stream->unframe)
        http_body_init(&stream->body, HTTP_BODY_CHUNKED, 0);
    if (bare)
        (void)http_memory_drop(body, memory);
    else if (body.len)
        http_outq_add_body(&stream->out, body, memory);
    if (nghttp2_submit_response(stream->session->ng, stream->id, fields, count,
                                bare ? NULL : &provider) != 0)
        stream->aborted = true;
    http2_stream_unsettle(stream);
    http2_stream_touch(stream);
}

static size_t pending(const struct http_exchange *ex)
{
    const struct http2_stream *stream = stream_of(ex);

    /* A producer that loops until the queue is full must not loop for ever. */
    if (stream->aborted || stream->closed || stream->session->conn->broken)
        return HTTP_HIGH_WATER + 1;
    return stream->out.pending;
}

static void queue_grew(struct http2_stream *stream)
{
    (void)nghttp2_session_resume_data(stream->session->ng, stream->id);
    http2_stream_unsettle(stream);
    http2_stream_touch(stream);
}

static int add_payload(void *arg, struct str payload)
{
    struct http2_stream *stream = arg;
    struct iovec iov = http_iov(payload.p, payload.len);

    http_outq_add(&stream->out, &iov, 1);
    return 0;
}

static void send_bytes(struct http_exchange *ex, const void *p, size_t len)
{
    struct http2_stream *stream = stream_of(ex);
    struct str in = str_n(p, len);

    if (stream->aborted || stream->closed)
        return;
    if (!stream->unframe)
        (void)add_payload(stream, in);
    else if (http_body_feed(&stream->body, &in, add_payload, stream) < 0)
        http_abort(ex);
    queue_grew(stream);
}

static void send_file(struct http_exchange *ex, int fd_consume, int64_t offset, int64_t len)
{
    struct http2_stream *stream = stream_of(ex);

    http_outq_add_file(&stream->out, fd_consume, offset, len);
    queue_grew(stream);
}

static void send_end(struct http_exchange *ex, const struct pair *trailers, size_t count)
{
    struct http2_stream *stream = stream_of(ex);

    if (count && !ex->no_payload) {
        stream->end_trailers = arena_pairs(&ex->arena, trailers, count);
        stream->end_trailer_count = count;
    }
    queue_grew(stream);
}

static void break_off(struct http_exchange *ex)
{
    stream_of(ex)->aborted = true;
    http2_stream_touch(stream_of(ex));
}

static void fail(struct http_exchange *ex, int status, const char *text)
{
    if (ex->answer == ANSWER_NONE)
        http_exchange_fail(ex, status, text);
    else
        http_abort(ex);
}

static struct stream *detach(struct http_exchange *ex, struct buf *rest)
{
    (void)ex;
    (void)rest;
    return NULL;
}

static const struct http_exchange_ops ops = {
    .stream = connection,
    .conn = conn_below,
    .client_left = client_left,
    .touch = touch,
    .send_continue = send_continue,
    .head = send_head,
    .write = send_bytes,
    .write_file = send_file,
    .end = send_end,
    .abort = break_off,
    .fail = fail,
    .pending = pending,
    .detach = detach,
};

/* ---- life ---- */

static void on_read_timer(struct conn_timer_link *link, enum conn_timer kind)
{
    struct http2_stream *stream = container_of(link, struct http2_stream, read_timer);

    if (kind == CONN_TIMER_LINGER)
        reset(stream, NGHTTP2_NO_ERROR);
    else
        fail(&stream->ex, 408, "the request did not come in time");
    http2_stream_touch(stream);
}

static void on_write_timer(struct conn_timer_link *link, enum conn_timer kind)
{
    struct http2_stream *stream = container_of(link, struct http2_stream, write_timer);

    (void)kind;
    stream->unread = true;
    http_abort(&stream->ex);
}

/* All streams the same, each a frame in turn: by nghttp2's own order one would be sent whole before the next. */
static void share_alike(struct http2_session *session, int32_t id)
{
    nghttp2_extpri priority = {.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 1};

    (void)nghttp2_session_change_extpri_stream_priority(session->ng, id, &priority, 1);
}

struct http2_stream *http2_stream_open(struct http2_session *session, int32_t id)
{
    struct http_server *server = session->conn->server;
    struct http2_stream *stream;

    if (session->count && !http_server_carry(server, session->conn->address))
        return NULL;
    stream = xcalloc(1, sizeof(*stream));
    stream->session = session;
    stream->id = id;
    http_exchange_init(&stream->ex, server, &ops);
    buf_init(&stream->in, HTTP2_WINDOW_WIDE + HTTP2_WINDOW);
    list_init(&stream->todo);
    list_init(&stream->sent);
    list_init(&stream->unsettled);
    conn_timer_init(&stream->read_timer, on_read_timer);
    conn_timer_init(&stream->write_timer, on_write_timer);
    stream->hold = (struct http_hold){.conn = session->conn, .ex = &stream->ex};
    stream->write_timer.hold = &stream->hold;
    list_push_back(&session->streams, &stream->all);
    session->count++;
    share_alike(session, id);
    return stream;
}

void http2_stream_free(struct http2_stream *stream)
{
    list_remove(&stream->all);
    list_remove(&stream->todo);
    list_remove(&stream->sent);
    list_remove(&stream->unsettled);
    list_remove(&stream->read_timer.link);
    list_remove(&stream->write_timer.link);
    http_outq_done(&stream->out);
    buf_done(&stream->in);
    arena_done(&stream->ex.arena);
    buf_done(&stream->ex.body);
    free(stream);
}

/* The end of the exchange. */
static void finish(struct http2_stream *stream, bool finished)
{
    struct http2_session *session = stream->session;

    if (stream->over)
        return;
    stream->over = true;
    stream->ex.finished = finished;
    list_remove(&stream->sent);
    list_remove(&stream->unsettled);
    http_hold_release(&stream->hold);
    list_remove(&stream->read_timer.link);
    list_remove(&stream->write_timer.link);
    stream->read_timer.kind = stream->write_timer.kind = CONN_TIMER_NONE;
    session->wide -= stream->wide;
    if (--session->count)
        http_server_carried(session->conn->server, session->conn->address);
    else
        session->conn->restart = true;
    http_exchange_done(&stream->ex);
    http_outq_done(&stream->out);
}

/* After the end: what the peer still wants to send is of no use. */
static void dismiss(struct http2_stream *stream, bool unwanted)
{
    struct http2_session *session = stream->session;

    if (stream->closed) {
        http2_stream_free(stream);
        return;
    }
    if (stream->in.len)
        (void)nghttp2_session_consume_stream(session->ng, stream->id, stream->in.len);
    buf_done(&stream->in);
    if (stream->ended || stream->aborted)
        return;
    if (unwanted)
        reset(stream, NGHTTP2_NO_ERROR);
    else
        http_server_set_timer(session->conn->server, &stream->read_timer, CONN_TIMER_LINGER, true);
}

static void finish_and_dismiss(struct http2_stream *stream, bool finished)
{
    bool unwanted = stream->ex.continue_due || stream->ex.request.content_length > CONN_SKIP_MAX;
    const struct http2_session *session = stream->session;

    finish(stream, finished);
    if (!session->closed) /* else it goes with the session */
        dismiss(stream, unwanted);
}

void http2_stream_drop(struct http2_stream *stream)
{
    finish(stream, false);
}

void http2_stream_start(struct http2_stream *stream, bool has_body)
{
    struct http_exchange *ex = &stream->ex;
    const struct http2_head *head = &stream->session->head;
    bool good = http2_head_request(stream->session, has_body);

    ex->open = true;
    http2_stream_touch(stream);
    if (!good) {
        http_exchange_fail(ex, head->refusal, head->refusal_text);
        return;
    }
    if (!http_budget_admits(stream->session->conn)) {
        stream->unread = true;
        http2_session_charge(stream->session, HTTP2_COST_OF_RESET);
        http_abort(ex);
        return;
    }
    if (has_body)
        ex->continue_due = http_headers_has_token(&ex->request.headers, "expect", "100-continue");
    ex->server->config.on_request(ex, ex->server->config.arg);
}

/* ---- request body ---- */

static void drop_data(struct http2_stream *stream, size_t len)
{
    (void)nghttp2_session_consume(stream->session->ng, stream->id, len);
    stream->skipped += len;
    if (stream->skipped > CONN_SKIP_MAX && !stream->aborted)
        reset(stream, NGHTTP2_NO_ERROR);
}

void http2_stream_data(struct http2_stream *stream, struct str data)
{
    nghttp2_session *ng = stream->session->ng;
    int32_t id = stream->id;

    if (stream->over) {
        drop_data(stream, data.len);
        return;
    }
    stream->restart = true; /* the body timer counts from the last byte */
    http2_stream_touch(stream);
    if (stream->in.len || !http_exchange_reads(&stream->ex) || stream->aborted) {
        (void)buf_add_str(&stream->in, data);
        (void)nghttp2_session_consume_connection(ng, data.len);
        return;
    }
    (void)nghttp2_session_consume(ng, id, data.len);
    (void)http_exchange_data(&stream->ex, data);
}

void http2_stream_end(struct http2_stream *stream)
{
    stream->ended = true;
    http2_stream_touch(stream);
}

/* More may be under way when somebody reads it. */
static void widen(struct http2_stream *stream)
{
    struct http2_session *session = stream->session;
    int64_t length = stream->ex.request.content_length;

    if (stream->wide || stream->ended || session->wide >= HTTP2_WIDE_MAX ||
        (length >= 0 && length <= HTTP2_WINDOW))
        return;
    stream->wide = true;
    session->wide++;
    (void)nghttp2_session_set_local_window_size(session->ng, NGHTTP2_FLAG_NONE, stream->id,
                                                HTTP2_WINDOW_WIDE);
}

static bool step_body(struct http2_stream *stream)
{
    struct http_exchange *ex = &stream->ex;
    auto_buf struct buf in = {0};

    if (ex->too_large) {
        fail(ex, 413, "request body is too large");
        return true;
    }
    if (stream->in.len) {
        in = stream->in;
        buf_init(&stream->in, in.max);
        (void)nghttp2_session_consume_stream(stream->session->ng, stream->id, in.len);
        (void)http_exchange_data(ex, buf_str(&in));
        return true;
    }
    if (stream->ended) {
        http_exchange_data_end(ex);
        return true;
    }
    widen(stream);
    return false;
}

/* ---- state ---- */

void http2_stream_closed(struct http2_stream *stream)
{
    stream->closed = true;
    if (stream->over)
        http2_stream_free(stream);
    else
        http2_stream_touch(stream);
}

void http2_stream_end_made(struct http2_stream *stream)
{
    stream->end_made = true;
    if (!stream->over)
        list_push_back(&stream->session->sent, &stream->sent);
}

void http2_stream_end_sent(struct http2_stream *stream)
{
    stream->end_sent = true;
    http2_stream_touch(stream);
}

static bool step(struct http2_stream *stream)
{
    struct http_exchange *ex = &stream->ex;

    if (stream->out.pending < HTTP_LOW_WATER && http_exchange_drained(ex))
        return true;
    return http_exchange_reads(ex) && step_body(stream);
}

/* True when the exchange is over; then the stream may be gone. */
static bool step_end(struct http2_stream *stream)
{
    if (stream->aborted) {
        reset(stream, stream->unread ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_INTERNAL_ERROR);
        finish_and_dismiss(stream, false);
        return true;
    }
    if (stream->closed && !stream->end_made) {
        finish_and_dismiss(stream, false);
        return true;
    }
    if (stream->end_sent && stream->ex.answer == ANSWER_ENDED) {
        finish_and_dismiss(stream, true);
        return true;
    }
    return false;
}

static void set_timers(struct http2_stream *stream)
{
    struct http_server *server = stream->session->conn->server;
    const struct http_exchange *ex = &stream->ex;
    bool deadline = ex->mode == BODY_ALL && server->timeouts[CONN_TIMER_WHOLE];
    enum conn_timer kind = CONN_TIMER_NONE;

    if ((ex->mode == BODY_ALL || ex->mode == BODY_STREAM) && !ex->paused && !stream->ended)
        kind = deadline ? CONN_TIMER_WHOLE : CONN_TIMER_BODY;
    http_server_set_timer(server, &stream->read_timer, kind, stream->restart && !deadline);
    http_server_set_timer(server, &stream->write_timer,
                          waits(stream) ? CONN_TIMER_WRITE : CONN_TIMER_NONE, stream->progress);
    stream->restart = stream->progress = false;
}

void http2_stream_advance(struct http2_stream *stream)
{
    const struct http2_session *session = stream->session;

    if (stream->over)
        return;
    while (!step_end(stream)) {
        if (step(stream))
            continue;
        if (!session->closed)
            set_timers(stream);
        return;
    }
}
