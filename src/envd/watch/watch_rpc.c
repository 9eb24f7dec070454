/* WatchDir (a stream) and CreateWatcher, GetWatcherEvents, RemoveWatcher (the same by polling).
 *
 * Nothing is ever dropped in silence: when a client does not take its messages (WATCH_QUEUE_MAX
 * bytes wait), or the kernel's queue was too short, a stream ends with resource_exhausted, and a
 * polled watcher answers with it after the events that were kept, until it is removed. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "envd/core/envd.h"
#include "envd/files/guest_path.h"
#include "envd/watch/watch_event.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"

static int too_slow(struct error *err)
{
    return error_set(err, ERROR_QUOTA,
                     "more than %d bytes of filesystem events were not taken: some are lost, watch "
                     "again",
                     WATCH_QUEUE_MAX);
}

/* ---- the request ---- */

struct request_fields {
    struct str path;
    bool recursive, include_entry, allow_network;
};

/* Both spellings that protobuf's JSON allows. */
static const struct json_field request_fields[] = {
    JSON_FIELD(struct request_fields, path, "path", 0),
    JSON_FIELD(struct request_fields, recursive, "recursive", 0),
    JSON_FIELD(struct request_fields, include_entry, "includeEntry", 0),
    JSON_FIELD(struct request_fields, include_entry, "include_entry", 0),
    JSON_FIELD(struct request_fields, allow_network, "allowNetworkMounts", 0),
    JSON_FIELD(struct request_fields, allow_network, "allow_network_mounts", 0),
    JSON_END,
};

static int read_request(const struct call *call, struct watch_request *out, struct error *err)
{
    struct request_fields fields = {0};
    struct user user;

    if (call_user(call, &user, err) != 0 ||
        json_read(request_fields, call->request, &fields, err) != 0)
        return -1;
    out->recursive = fields.recursive;
    out->include_entry = fields.include_entry;
    out->allow_network = fields.allow_network;
    return guest_path_resolve(fields.path, &user, call->envd->settings.default_workdir, out->path,
                              err);
}

/* ---- polled watchers ---- */

/* Freed when it is removed and its creation has been answered. */
struct watch_poll {
    struct envd *envd;
    struct watch *watch;
    struct http_exchange *creator; /* not answered yet */
    struct watch_view view;
    struct buf events; /* comma-separated */
    struct error err;
    int64_t polled_at_ms;
    char id[ID_SIZE + 1];
};

static int64_t now_ms(const struct envd *envd)
{
    return (int64_t)uv_now(loop_uv(envd->loop));
}

static void poll_remove(struct watch_poll *poll)
{
    struct envd *envd = poll->envd;

    (void)map_remove(&envd->watchers.polled, str_of(poll->id));
    envd->watchers.count--;
    if (poll->creator)
        http_on_done(poll->creator, NULL, NULL);
    watch_free(poll->watch);
    watch_view_done(&poll->view);
    buf_done(&poll->events);
    free(poll);
}

/* Forgotten ones give way to new ones. */
static int make_room(struct envd *envd, struct error *err)
{
    struct watch_poll *oldest = NULL;
    struct map_entry *entry;

    if (envd->watchers.count < WATCHERS_MAX)
        return 0;
    map_for_each (&envd->watchers.polled, entry) {
        struct watch_poll *poll = entry->value;

        if (!oldest || poll->polled_at_ms < oldest->polled_at_ms)
            oldest = poll;
    }
    if (!oldest || now_ms(envd) - oldest->polled_at_ms < WATCH_IDLE_MS)
        return error_set(err, ERROR_QUOTA, "more than %d watchers", WATCHERS_MAX);
    poll_remove(oldest);
    return 0;
}

static void on_poll_event(void *arg, enum watch_op op, const char *name)
{
    struct watch_poll *poll = arg;
    size_t before = poll->events.len;

    if (poll->err.code != ERROR_NONE)
        return;
    watch_view_add(&poll->view, &poll->events, op, name);
    if (!poll->events.overflowed)
        return;
    poll->events.len = before;
    (void)too_slow(&poll->err);
    watch_free(take_ptr(&poll->watch));
}

static void on_poll_failed(void *arg, const struct error *err)
{
    struct watch_poll *poll = arg;

    poll->err = *err;
    if (poll->creator) {
        connect_reply_error(poll->creator, err);
        poll_remove(poll);
    }
}

static void on_poll_ready(void *arg)
{
    struct watch_poll *poll = arg;
    auto_buf struct buf answer = {0};

    buf_init(&answer, 64);
    json_out_open(&answer, NULL, '{');
    json_out_str(&answer, "watcherId", str_of(poll->id));
    json_out_close(&answer, "}");
    http_on_done(poll->creator, NULL, NULL);
    connect_reply(poll->creator, buf_str(&answer));
    poll->creator = NULL;
}

/* The client went away before it learnt the id. */
static void on_creator_gone(struct http_exchange *ex, void *arg)
{
    struct watch_poll *poll = arg;

    (void)ex;
    poll->creator = NULL;
    poll_remove(poll);
}

int watch_rpc_create(struct call *call, struct error *err)
{
    auto_free struct watch_request *request = xcalloc(1, sizeof(*request));
    struct watch_poll *poll;

    if (read_request(call, request, err) != 0 || make_room(call->envd, err) != 0)
        return -1;
    poll = xcalloc(1, sizeof(*poll));
    poll->watch = watch_new(call->envd->loop,
                            &(struct watch_config){.path = request->path,
                                                   .recursive = request->recursive,
                                                   .allow_network = request->allow_network,
                                                   .on_ready = on_poll_ready,
                                                   .on_event = on_poll_event,
                                                   .on_failed = on_poll_failed,
                                                   .arg = poll},
                            err);
    if (!poll->watch) {
        free(poll);
        return -1;
    }
    poll->envd = call->envd;
    poll->creator = call->ex;
    poll->polled_at_ms = now_ms(call->envd);
    poll->id[0] = 'w';
    id_make(poll->id + 1);
    watch_view_init(&poll->view, request);
    buf_init(&poll->events, WATCH_QUEUE_MAX);
    (void)map_put(&call->envd->watchers.polled, str_of(poll->id), poll);
    call->envd->watchers.count++;
    http_on_done(call->ex, on_creator_gone, poll);
    return 0;
}

static struct watch_poll *find(const struct call *call, struct error *err)
{
    struct str id = json_get_str(call->request, "watcherId");
    struct watch_poll *poll;

    if (!id.p)
        id = json_get_str(call->request, "watcher_id");
    poll = id.p ? map_get(&call->envd->watchers.polled, id) : NULL;
    if (!poll)
        (void)error_set(err, ERROR_NOT_FOUND, "watcher with id %.*s not found", STR_ARG(id));
    return poll;
}

int watch_rpc_events(struct call *call, struct error *err)
{
    struct watch_poll *poll = find(call, err);
    auto_buf struct buf answer = {0};

    if (!poll)
        return -1;
    poll->polled_at_ms = now_ms(call->envd);
    /* What happened before the call belongs into its answer, whether the loop has seen it or not. */
    if (poll->watch && !poll->creator)
        watch_catch_up(poll->watch);
    if (poll->events.len == 0 && poll->err.code != ERROR_NONE) {
        *err = poll->err;
        return -1;
    }
    buf_init(&answer, WATCH_QUEUE_MAX + 64);
    json_out_open(&answer, NULL, '{');
    json_out_open(&answer, "events", '[');
    json_out_raw(&answer, NULL, buf_str(&poll->events));
    json_out_close(&answer, "]}");
    connect_reply(call->ex, buf_str(&answer));
    buf_done(&poll->events);
    buf_init(&poll->events, WATCH_QUEUE_MAX);
    return 0;
}

int watch_rpc_remove(struct call *call, struct error *err)
{
    struct watch_poll *poll = find(call, err);

    if (!poll)
        return -1;
    poll_remove(poll);
    connect_reply(call->ex, STR("{}"));
    return 0;
}

/* ---- streams ---- */

/* Freed when the exchange is over and both timers are closed. */
struct watch_stream {
    struct envd *envd;
    struct http_exchange *ex;
    struct watch *watch; /* NULL: ended */
    struct watch_view view;
    uv_timer_t keepalive, deadline;
    uint64_t sent_at_ms, keepalive_ms;
    unsigned refs;
    bool begun;
};

static void stream_unref(struct watch_stream *stream)
{
    if (--stream->refs > 0)
        return;
    watch_view_done(&stream->view);
    free(stream);
}

static void on_timer_closed(uv_handle_t *handle)
{
    stream_unref(handle->data);
}

static void stream_stop(struct watch_stream *stream)
{
    if (!stream->watch)
        return;
    watch_free(take_ptr(&stream->watch));
    stream->envd->watchers.count--;
    uv_close((uv_handle_t *)&stream->keepalive, on_timer_closed);
    uv_close((uv_handle_t *)&stream->deadline, on_timer_closed);
}

static void on_stream_done(struct http_exchange *ex, void *arg)
{
    (void)ex;
    stream_stop(arg);
    stream_unref(arg);
}

static void stream_end(struct watch_stream *stream, const struct error *err)
{
    stream_stop(stream);
    if (stream->begun)
        connect_finish(stream->ex, err);
    else
        connect_fail(stream->ex, err);
}

static void stream_send(struct watch_stream *stream, struct str message)
{
    auto_buf struct buf frame = {0};
    struct error err;

    buf_init(&frame, WATCH_EVENT_MAX + 128);
    if (connect_add_message(&frame, connect_format(stream->ex), message, &err) != 0) {
        stream_end(stream, &err);
        return;
    }
    stream->sent_at_ms = uv_now(stream->keepalive.loop);
    if (http_write(stream->ex, frame.p, frame.len) > WATCH_QUEUE_MAX) {
        (void)too_slow(&err);
        stream_end(stream, &err);
    }
}

static void on_stream_event(void *arg, enum watch_op op, const char *name)
{
    struct watch_stream *stream = arg;
    auto_buf struct buf message = {0};

    buf_init(&message, WATCH_EVENT_MAX);
    json_out_open(&message, NULL, '{');
    json_out_key(&message, "filesystem");
    watch_view_add(&stream->view, &message, op, name);
    json_out_close(&message, "}");
    stream_send(stream, buf_str(&message));
}

static void on_stream_failed(void *arg, const struct error *err)
{
    stream_end(arg, err);
}

static void on_keepalive(uv_timer_t *timer)
{
    struct watch_stream *stream = timer->data;

    if (uv_now(timer->loop) - stream->sent_at_ms >= stream->keepalive_ms)
        stream_send(stream, STR("{\"keepalive\":{}}"));
}

static void on_deadline(uv_timer_t *timer)
{
    struct error err;

    error_set(&err, ERROR_TIMEOUT, "the stream's time limit is over");
    stream_end(timer->data, &err);
}

static void on_stream_ready(void *arg)
{
    struct watch_stream *stream = arg;

    stream->begun = true;
    connect_begin(stream->ex);
    (void)uv_timer_start(&stream->keepalive, on_keepalive, stream->keepalive_ms,
                         (stream->keepalive_ms + 1) / 2);
    stream_send(stream, STR("{\"start\":{}}"));
}

int watch_rpc_dir(struct call *call, struct error *err)
{
    auto_free struct watch_request *request = xcalloc(1, sizeof(*request));
    struct watch_stream *stream;
    int64_t timeout_ms;

    if (read_request(call, request, err) != 0 ||
        connect_timeout_ms(call->ex, &timeout_ms, err) != 0 || make_room(call->envd, err) != 0)
        return -1;
    stream = xcalloc(1, sizeof(*stream));
    stream->watch = watch_new(call->envd->loop,
                              &(struct watch_config){.path = request->path,
                                                     .recursive = request->recursive,
                                                     .allow_network = request->allow_network,
                                                     .on_ready = on_stream_ready,
                                                     .on_event = on_stream_event,
                                                     .on_failed = on_stream_failed,
                                                     .arg = stream},
                              err);
    if (!stream->watch) {
        free(stream);
        return -1;
    }
    stream->envd = call->envd;
    stream->ex = call->ex;
    stream->refs = 3;
    stream->keepalive_ms = (uint64_t)call_keepalive_ms(call);
    watch_view_init(&stream->view, request);
    call->envd->watchers.count++;
    (void)uv_timer_init(loop_uv(call->envd->loop), &stream->keepalive);
    (void)uv_timer_init(loop_uv(call->envd->loop), &stream->deadline);
    stream->keepalive.data = stream->deadline.data = stream;
    http_on_done(call->ex, on_stream_done, stream);
    if (timeout_ms > 0)
        (void)uv_timer_start(&stream->deadline, on_deadline, (uint64_t)timeout_ms, 0);
    return 0;
}
