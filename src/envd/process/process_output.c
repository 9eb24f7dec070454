/* How it works: each output pipe is polled; what is read becomes one event that goes to every
 * subscriber. When a subscriber's connection is slow (more than HTTP_HIGH_WATER waits to be sent) no
 * pipe of that program is read until it has caught up, so the program itself is slowed down.
 * Without subscribers output is read and dropped, so that the program does not block.
 *
 * A subscriber is freed when its exchange is over and both its timers are closed (refs). */
#include <errno.h>
#include <fcntl.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "envd/process/process.h"
#include "protocol/loop/loop.h"
#include "protocol/rpc/connect.h"

enum {
    READS_PER_TURN = 8,
    PIPE_FULL = 64 * 1024,    /* the usual size */
    PIPE_SIZE = 1024 * 1024,  /* of those through which much comes */
    SOCKET_SIZE = 512 * 1024, /* the same */
};

struct subscriber {
    struct list link;
    struct process *process; /* NULL when detached */
    struct http_exchange *ex;
    uv_timer_t keepalive, deadline;
    uint64_t sent_at_ms, keepalive_ms;
    const struct proto_message *format;
    unsigned refs;
    bool starter, slow, widened;
};

static void update_polling(struct process *process);

static void unref(struct subscriber *sub)
{
    if (--sub->refs == 0)
        free(sub);
}

static void on_timer_closed(uv_handle_t *handle)
{
    unref(handle->data);
}

static void detach(struct subscriber *sub)
{
    struct process *process = sub->process;

    if (!process)
        return;
    sub->process = NULL;
    list_remove(&sub->link);
    uv_close((uv_handle_t *)&sub->keepalive, on_timer_closed);
    uv_close((uv_handle_t *)&sub->deadline, on_timer_closed);
    update_polling(process);
}

static void on_exchange_done(struct http_exchange *ex, void *arg)
{
    struct subscriber *sub = arg;

    (void)ex;
    detach(sub);
    unref(sub);
}

/* Ends one stream; with the program's end event in front of the end frame when it has ended. */
static void finish(struct subscriber *sub, const struct process *ended, const struct error *err)
{
    struct http_exchange *ex = sub->ex;
    auto_buf struct buf last = {0};

    detach(sub);
    buf_init(&last, 16 * 1024);
    if (ended)
        process_event_end(&last, sub->format, ended->status, ended->out_of_memory);
    connect_add_end(&last, err);
    http_write(ex, last.p, last.len);
    http_end(ex);
}

static void on_drain(struct http_exchange *ex, void *arg)
{
    struct subscriber *sub = arg;

    (void)ex;
    sub->slow = false;
    if (sub->process) {
        update_polling(sub->process);
        process_advance(sub->process);
    }
}

static void on_keepalive(uv_timer_t *timer)
{
    struct subscriber *sub = timer->data;
    uint64_t now = uv_now(timer->loop);
    char space[128];
    struct buf event = {.p = space, .cap = sizeof(space), .max = sizeof(space) - 1};

    if (!sub->process || now - sub->sent_at_ms < sub->keepalive_ms || sub->slow)
        return;
    process_event_keepalive(&event, sub->format);
    sub->sent_at_ms = now;
    http_write(sub->ex, event.p, event.len);
}

static void on_deadline(uv_timer_t *timer)
{
    struct subscriber *sub = timer->data;
    struct error err;

    error_set(&err, ERROR_TIMEOUT, "the stream's time limit is over");
    finish(sub, NULL, &err);
}

static void send_to(struct subscriber *sub, struct str bytes)
{
    sub->sent_at_ms = uv_now(sub->keepalive.loop);
    if (http_write(sub->ex, bytes.p, bytes.len) <= HTTP_LOW_WATER)
        return;
    sub->slow = true;
    if (!sub->widened)
        http_widen(sub->ex, SOCKET_SIZE);
    sub->widened = true;
}

static struct buf *event_buffer(struct buf *events, bool binary)
{
    size_t size = process_event_data_size(binary, PROCESS_READ_MAX);

    if (!events->p)
        *events = (struct buf){.p = xmalloc_wide(size + 1), .cap = size + 1, .max = size};
    return events;
}

/* Each form is made when the first subscriber wants it. */
static void publish(struct process_output *output, const char *p, size_t len)
{
    struct buf *events = output->process->table->events;
    struct list *pos, *next;

    buf_clear(&events[0]);
    buf_clear(&events[1]);
    list_for_each_safe (pos, next, &output->process->subscribers) {
        struct subscriber *sub = container_of(pos, struct subscriber, link);
        bool binary = sub->format != NULL;

        if (events[binary].len == 0)
            process_event_data(event_buffer(&events[binary], binary), binary, output->channel, p,
                               len);
        send_to(sub, buf_str(&events[binary]));
    }
}

struct replay_target {
    struct buf *out;
    bool binary;
};

static void add_replayed(void *arg, enum process_channel channel, const char *p, size_t len)
{
    struct replay_target *target = arg;

    process_event_data(target->out, target->binary, channel, p, len);
}

int process_output_replay(const struct process_ring *ring, const struct process_replay *replay,
                          bool binary, struct buf *out, struct error *err)
{
    uint64_t lost = ring->total - ring->kept;
    struct replay_target target = {out, binary};

    if (!replay->wanted)
        return 0;
    if (replay->from > 0 && replay->from < lost)
        return error_set(err, ERROR_LIMIT, "bytes %llu to %llu of the output are not kept any more",
                         (unsigned long long)replay->from, (unsigned long long)lost);
    process_ring_each(ring, replay->from, add_replayed, &target);
    return 0;
}

void process_subscribe(struct process *process, struct http_exchange *ex,
                       const struct process_subscription *subscription)
{
    uv_loop_t *uv = loop_uv(process->table->loop);
    struct subscriber *sub = xcalloc(1, sizeof(*sub));
    auto_buf struct buf events = {0};
    struct error err;

    buf_init(&events, PROCESS_REPLAY_MAX);
    *sub = (struct subscriber){.process = process,
                               .ex = ex,
                               .format = connect_format(ex),
                               .refs = 3,
                               .starter = subscription->starter,
                               .keepalive_ms = (uint64_t)subscription->keepalive_ms};
    (void)uv_timer_init(uv, &sub->keepalive);
    (void)uv_timer_init(uv, &sub->deadline);
    sub->keepalive.data = sub->deadline.data = sub;
    list_push_back(&process->subscribers, &sub->link);
    http_on_done(ex, on_exchange_done, sub);
    http_on_drain(ex, on_drain, sub);
    /* Checked twice per interval, so that silence is never longer than one and a half. */
    (void)uv_timer_start(&sub->keepalive, on_keepalive, sub->keepalive_ms,
                         (sub->keepalive_ms + 1) / 2);
    if (subscription->timeout_ms > 0)
        (void)uv_timer_start(&sub->deadline, on_deadline, (uint64_t)subscription->timeout_ms, 0);
    process_event_start(&events, sub->format, process->pid);
    connect_begin(ex);
    if (process_output_replay(&process->ring, &subscription->replay, sub->format != NULL, &events,
                              &err) != 0)
        finish(sub, NULL, &err);
    else
        send_to(sub, buf_str(&events));
}

bool process_output_paused(const struct process *process)
{
    struct list *pos;

    list_for_each (pos, &process->subscribers) {
        if (container_of(pos, struct subscriber, link)->slow)
            return true;
    }
    return false;
}

bool process_output_at_end(const struct process *process)
{
    return process->outputs[0].fd < 0 && process->outputs[1].fd < 0;
}

static void close_output(struct process_output *output)
{
    process_handle_close(output->process, (uv_handle_t *)&output->poll);
    close_fd(&output->fd);
    output->polling = false;
}

static char *read_buffer(struct process_table *table)
{
    if (!table->read_buffer)
        table->read_buffer = xmalloc_wide(PROCESS_READ_MAX);
    return table->read_buffer;
}

/* A full pipe is worth a larger one: fewer turns for the same bytes. Not from the start, because
 * most programs print little and the kernel counts the size against the user. */
static void widen(struct process_output *output)
{
    output->widened = true;
    (void)fcntl(output->fd, F_SETPIPE_SZ, PIPE_SIZE);
}

/* One read; false when there is nothing more for now. */
static bool read_some(struct process_output *output)
{
    struct process *process = output->process;
    char *buffer = read_buffer(process->table);
    ssize_t n;

    do
        n = read(output->fd, buffer, PROCESS_READ_MAX);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) { /* the end, which terminals report as EIO */
        close_output(output);
        return false;
    }
    process->output_at_ms = (int64_t)uv_now(output->poll.loop);
    if (n >= PIPE_FULL && !output->widened)
        widen(output);
    process_ring_add(&process->ring, output->channel, buffer, (size_t)n);
    publish(output, buffer, (size_t)n);
    return true;
}

static bool read_output(struct process_output *output)
{
    bool any = false;

    for (int i = 0; i < READS_PER_TURN && output->fd >= 0; i++) {
        if (process_output_paused(output->process) || !read_some(output))
            break;
        any = true;
    }
    return any;
}

bool process_output_read(struct process *process)
{
    bool any = false;

    for (size_t i = 0; i < 2; i++)
        if (process->outputs[i].fd >= 0)
            any |= read_output(&process->outputs[i]);
    update_polling(process);
    return any;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct process_output *output = poll->data;
    struct process *process = output->process;

    (void)events;
    if (output->fd < 0)
        return;
    if (status < 0)
        close_output(output);
    else
        (void)read_output(output);
    update_polling(process);
    process_advance(process);
}

static void update_polling(struct process *process)
{
    bool wanted = !process_output_paused(process);

    for (size_t i = 0; i < 2; i++) {
        struct process_output *output = &process->outputs[i];

        if (output->fd < 0 || output->polling == wanted)
            continue;
        output->polling = wanted;
        if (wanted)
            (void)uv_poll_start(&output->poll, UV_READABLE, on_readable);
        else
            (void)uv_poll_stop(&output->poll);
    }
}

void process_output_open(struct process *process, size_t index, enum process_channel channel,
                         int fd_consume)
{
    struct process_output *output = &process->outputs[index];

    *output = (struct process_output){.process = process, .channel = channel, .fd = fd_consume};
    if (uv_poll_init(loop_uv(process->table->loop), &output->poll, fd_consume) != 0) {
        close_fd(&output->fd);
        return;
    }
    output->poll.data = output;
    process_handle_opened(process);
    update_polling(process);
}

void process_output_finish(struct process *process)
{
    while (!list_empty(&process->subscribers))
        finish(container_of(process->subscribers.next, struct subscriber, link), process, NULL);
}

void process_output_timed_out(struct process *process)
{
    struct list *pos, *next;
    struct error err;

    error_set(&err, ERROR_TIMEOUT, "the process did not end within %lld ms",
              (long long)process->timeout_ms);
    list_for_each_safe (pos, next, &process->subscribers) {
        struct subscriber *sub = container_of(pos, struct subscriber, link);

        if (sub->starter)
            finish(sub, NULL, &err);
    }
}
