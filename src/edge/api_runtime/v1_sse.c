/* How it works
 *
 * The stream remembers only the id of the last event it wrote. When the watch wakes it, it reads what
 * follows from memory and writes it until the connection has enough; on_drain goes on. So a slow
 * reader costs one connection's queue and never more. What has left memory meanwhile is read from
 * the store by a worker.
 *
 * Several things may outlive the connection for a moment: the timer's handle, a wake that was posted,
 * a worker that reads. Each holds a reference; all are given back on the loop. */
#include "edge/api_runtime/v1_sse.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/http/http_server.h"
#include "protocol/json/json_out.h"

enum { BATCH = 64, TEXT_MAX = 16 * 1024 * 1024 };

struct sse {
    struct v1_stream stream;
    struct v1 *v1;
    struct loop *loop;
    struct http_exchange *ex; /* NULL before take_over() and when the client has gone */
    struct event_watch *watch;
    struct runtime_caller caller;
    struct v1_sse_options options;
    struct arena arena;
    struct buf first; /* what is replayed at the start */
    int64_t since;
    int holds;
    bool closed, reading;
    bool read_all; /* the store has nothing that memory lacks */

    struct loop_errand wake_errand;
    atomic_bool woken;
    uv_timer_t timer;

    struct work work; /* the worker's, while `reading` */
    struct buf batch;
    int64_t batch_last;
    bool batch_more; /* there may be more behind it */
};

void v1_sse_format(int64_t id, struct str type, struct str data, struct buf *out)
{
    if (id >= 0)
        (void)buf_printf(out, "id: %lld\n", (long long)id);
    if (type.len)
        (void)buf_printf(out, "event: %.*s\n", STR_ARG(type));
    do {
        (void)buf_add_str(out, STR("data: "));
        (void)buf_add_str(out, str_split(&data, '\n'));
        (void)buf_add_char(out, '\n');
    } while (data.p);
    (void)buf_add_char(out, '\n');
}

struct str v1_sse_plain_name(struct str type)
{
    if (str_starts(type, STR("git.pr.succeeded")))
        return STR("pr_created");
    if (str_starts(type, STR("git.")))
        return STR("git_operation");
    if (str_starts(type, STR("process.")))
        return STR("command_output");
    return str_starts(type, STR("sandbox.")) ? STR("sandbox_status") : type;
}

static void format(const struct sse *sse, const struct runtime_event_text *event, struct buf *out)
{
    v1_sse_format(event->id,
                  sse->options.plain_names ? v1_sse_plain_name(event->type) : event->type,
                  event->json, out);
}

static void unref(struct sse *sse)
{
    if (--sse->holds)
        return;
    buf_done(&sse->first);
    buf_done(&sse->batch);
    arena_done(&sse->arena);
    free(sse);
}

static void on_timer_closed(uv_handle_t *handle)
{
    unref(handle->data);
}

/* No connection (any more): everything ends. */
static void close_stream(struct sse *sse)
{
    bool had_timer = sse->ex != NULL;

    sse->closed = true;
    sse->ex = NULL;
    v1_stream_remove(sse->v1, &sse->stream);
    event_watch_free(sse->watch);
    v1_share_stream_end(sse->v1, sse->caller.team_id);
    if (had_timer)
        uv_close((uv_handle_t *)&sse->timer, on_timer_closed);
    if (atomic_load(&sse->woken))
        sse->holds++; /* given back by on_wake() */
    unref(sse);
}

static void pump(struct sse *sse);

/* ---- from the store ---- */

static void read_store(struct work *work)
{
    struct sse *sse = container_of(work, struct sse, work);
    auto_arena struct arena arena = {0};
    struct runtime_event_texts events = {0};
    struct error err = {0};

    if (runtime_event_list(sse->v1->config.runtime, &sse->caller, &sse->options.filter,
                           sse->batch_last, BATCH, &arena, &events, &err) < 0)
        log_warn("v1", "events after %lld: %s", (long long)sse->batch_last, err.message);
    sse->batch_more = events.more;
    for (size_t i = 0; i < events.count; i++) {
        format(sse, &events.items[i], &sse->batch);
        sse->batch_last = events.items[i].id;
    }
}

static void read_done(struct work *work)
{
    struct sse *sse = container_of(work, struct sse, work);

    sse->reading = false;
    if (!sse->closed && !sse->batch.overflowed) {
        (void)http_write(sse->ex, sse->batch.p, sse->batch.len);
        sse->since = sse->batch_last;
        sse->read_all = !sse->batch_more;
        pump(sse);
    } else if (!sse->closed) {
        http_abort(sse->ex);
    }
    unref(sse);
}

static void start_reading(struct sse *sse)
{
    buf_clear(&sse->batch);
    sse->batch_last = sse->since;
    sse->work = (struct work){.run = read_store, .done = read_done, .loop = sse->loop};
    if (workers_run(sse->v1->config.lanes[V1_LANE_CONTROL].workers, &sse->work) < 0) {
        /* The client comes back with the id it has seen last. */
        http_end(sse->ex);
        return;
    }
    sse->reading = true;
    sse->holds++;
}

/* ---- from memory ---- */

/* False when there is nothing (or nothing more for now) to write. */
static bool write_some(struct sse *sse)
{
    auto_arena struct arena arena = {0};
    auto_buf struct buf text = {0};
    struct runtime_event_text *events = NULL;
    bool missed = false;
    size_t count = event_watch_read(sse->watch, sse->since, BATCH, &arena, &events, &missed);

    if (missed && !sse->read_all) {
        start_reading(sse);
        return false;
    }
    sse->read_all = false;
    if (!count)
        return false;
    buf_init(&text, TEXT_MAX);
    for (size_t i = 0; i < count; i++)
        format(sse, &events[i], &text);
    sse->since = events[count - 1].id;
    if (text.overflowed) {
        http_abort(sse->ex);
        return false;
    }
    (void)http_write(sse->ex, text.p, text.len);
    return true;
}

static void pump(struct sse *sse)
{
    while (sse->ex && !sse->reading && http_pending(sse->ex) <= HTTP_HIGH_WATER && write_some(sse))
        ;
}

static void on_wake(struct loop_errand *errand)
{
    struct sse *sse = container_of(errand, struct sse, wake_errand);

    atomic_store(&sse->woken, false);
    if (sse->closed)
        unref(sse);
    else
        pump(sse);
}

/* On the thread of whoever adds an event. */
static void wake(void *arg)
{
    struct sse *sse = arg;

    if (!atomic_exchange(&sse->woken, true))
        loop_post(sse->loop, &sse->wake_errand);
}

/* ---- the connection ---- */

static void on_heartbeat(uv_timer_t *timer)
{
    struct sse *sse = timer->data;

    if (sse->ex && http_pending(sse->ex) <= HTTP_HIGH_WATER)
        (void)http_write(sse->ex, ":heartbeat\n\n", 12);
}

static void on_drain(struct http_exchange *ex, void *arg)
{
    (void)ex;
    pump(arg);
}

static void on_exchange_done(struct http_exchange *ex, void *arg)
{
    (void)ex;
    close_stream(arg);
}

static void on_server_drain(struct v1_stream *stream)
{
    struct sse *sse = container_of(stream, struct sse, stream);

    if (sse->ex)
        http_end(sse->ex);
}

static void take_over(struct v1_call *call)
{
    static const struct pair headers[] = {
        {STR_INIT("Content-Type"), STR_INIT("text/event-stream; charset=utf-8")},
        {STR_INIT("Cache-Control"), STR_INIT("no-store")},
        {STR_INIT("X-Accel-Buffering"), STR_INIT("no")},
        {STR_INIT("Access-Control-Allow-Origin"), STR_INIT("*")},
    };
    struct sse *sse = call->taken;
    uint32_t given = sse->v1->config.heartbeat_ms;
    uint64_t period = given ? given : V1_SSE_HEARTBEAT_MS;

    sse->ex = call->ex;
    sse->holds++; /* the timer's handle */
    (void)uv_timer_init(loop_uv(sse->loop), &sse->timer);
    sse->timer.data = sse;
    (void)uv_timer_start(&sse->timer, on_heartbeat, period, period);
    http_on_done(sse->ex, on_exchange_done, sse);
    http_on_drain(sse->ex, on_drain, sse);
    http_begin(sse->ex, 200, headers, sizeof(headers) / sizeof(headers[0]), -1);
    (void)http_write(sse->ex, "retry: 2000\n\n", 13);
    (void)http_write(sse->ex, sse->first.p, sse->first.len);
    call->status = 200;
    if (atomic_load(&sse->v1->draining))
        http_end(sse->ex);
    else
        pump(sse);
}

static void forget(void *taken)
{
    close_stream(taken);
}

static struct str copied(struct sse *sse, struct str s)
{
    return s.len ? arena_str(&sse->arena, s) : STR_NONE;
}

static struct sse *sse_new(struct v1_call *call, const struct v1_sse_options *options)
{
    struct sse *sse = xcalloc(1, sizeof(*sse));
    const struct runtime_event_filter *filter = &options->filter;

    sse->v1 = call->v1;
    sse->loop = call->loop;
    sse->stream = (struct v1_stream){.loop = call->loop, .end = on_server_drain};
    sse->caller = (struct runtime_caller){.team_id = copied(sse, call->caller.team_id),
                                          .agent_id = copied(sse, call->caller.agent_id),
                                          .actor = copied(sse, call->caller.actor)};
    sse->options = *options;
    sse->options.filter =
        (struct runtime_event_filter){.sandbox_id = copied(sse, filter->sandbox_id),
                                      .session_id = copied(sse, filter->session_id),
                                      .process_id = copied(sse, filter->process_id),
                                      .agent_id = copied(sse, filter->agent_id),
                                      .type = copied(sse, filter->type)};
    sse->holds = 1;
    sse->wake_errand.fn = on_wake;
    buf_init(&sse->first, TEXT_MAX);
    buf_init(&sse->batch, TEXT_MAX);
    return sse;
}

/* The past that a stream begins with. What is left out of it is announced to the client. */
static int replay(struct v1_call *call, struct sse *sse, struct error *err)
{
    const struct v1_sse_options *options = &sse->options;
    size_t max = options->since < 0 ? options->replay : options->buffered, i = 0;
    struct runtime_event_texts events = {0};

    if (!max)
        return 0;
    if (runtime_event_last(call->v1->config.runtime, &sse->caller, &options->filter, max + 1,
                           &call->arena, &events, err) < 0)
        return -1;
    while (i < events.count && events.items[i].id <= options->since)
        i++;
    if (events.count - i > max || (events.more && i == 0 && events.count)) {
        i = events.count > max ? events.count - max : 0;
        if (options->since >= 0) {
            (void)buf_add_str(&sse->first, STR("event: events_skipped\ndata: "));
            json_out_open(&sse->first, NULL, '{');
            json_out_int(&sse->first, "after", options->since);
            json_out_int(&sse->first, "before", events.items[i].id);
            json_out_close(&sse->first, "}\n\n");
        }
    }
    for (; i < events.count; i++) {
        format(sse, &events.items[i], &sse->first);
        sse->since = events.items[i].id;
    }
    return 0;
}

int v1_sse_open(struct v1_call *call, const struct v1_sse_options *options, struct error *err)
{
    struct sse *sse;

    if (v1_share_stream(call->v1, call->caller.team_id, err) < 0)
        return -1;
    sse = sse_new(call, options);
    sse->since = options->since >= 0 ? options->since : clock_wall_us();
    /* Watched before the past is read: nothing falls in between. */
    sse->watch =
        event_watch_new(call->v1->config.runtime, &sse->caller, &sse->options.filter, wake, sse);
    v1_stream_add(call->v1, &sse->stream);
    call->taken = sse;
    call->forget = forget;
    if (replay(call, sse, err) < 0)
        return -1;
    call->take_over = take_over;
    return 0;
}
