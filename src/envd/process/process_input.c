/* How it works: writes queue up and are done in order as the pipe (or terminal) takes them; each
 * one's callback is called when its last byte is in. The first is tried at once, because nearly all
 * fit. Callbacks are never called from inside process_input_write(): a write that succeeded at once
 * is still reported through the queue, from the poll callback or a zero-length turn. */
#include <errno.h>
#include <fcntl.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "envd/process/process.h"
#include "protocol/loop/loop.h"

enum { WIDE_FROM = 128 * 1024, WIDE_SIZE = 512 * 1024 };

struct process_write {
    struct list link;
    process_written_fn *written;
    void *arg;
    size_t len, done;
    char bytes[];
};

static void on_writable(uv_poll_t *poll, int status, int events);

static void pop(struct process *process, const struct error *err)
{
    struct process_write *item =
        container_of(list_pop_front(&process->input.queue), struct process_write, link);

    process->input.queued--;
    item->written(item->arg, err);
    free(item);
}

void process_input_close(struct process *process)
{
    struct process_input *input = &process->input;
    struct error err;

    if (input->fd < 0)
        return;
    process_handle_close(process, (uv_handle_t *)&input->poll);
    close_fd(&input->fd);
    error_set(&err, ERROR_INTERNAL, "error writing input: the process does not read it any more");
    while (!list_empty(&input->queue)) {
        struct process_write *item = container_of(input->queue.next, struct process_write, link);

        /* What is in the pipe already was taken, whatever became of the reader since. */
        pop(process, item->done == item->len ? NULL : &err);
    }
}

/* False when the other side is gone. */
static bool write_first(struct process *process)
{
    struct process_write *item =
        container_of(process->input.queue.next, struct process_write, link);

    while (item->done < item->len) {
        ssize_t n = write(process->input.fd, item->bytes + item->done, item->len - item->done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        item->done += (size_t)n;
    }
    return true;
}

static void flush(struct process *process)
{
    struct process_input *input = &process->input;

    while (input->fd >= 0 && !list_empty(&input->queue)) {
        struct process_write *item = container_of(input->queue.next, struct process_write, link);

        if (!write_first(process)) {
            process_input_close(process);
            return;
        }
        if (item->done < item->len)
            return;
        pop(process, NULL);
    }
    if (input->fd < 0)
        return;
    if (input->polling) {
        input->polling = false;
        (void)uv_poll_stop(&input->poll);
    }
    if (input->close_after)
        process_input_close(process);
}

static void on_writable(uv_poll_t *poll, int status, int events)
{
    struct process *process = poll->data;

    (void)events;
    if (status < 0)
        process_input_close(process);
    else
        flush(process);
    process_advance(process);
}

void process_input_open(struct process *process, int fd_consume)
{
    struct process_input *input = &process->input;

    input->fd = fd_consume;
    if (uv_poll_init(loop_uv(process->table->loop), &input->poll, fd_consume) != 0) {
        close_fd(&input->fd);
        return;
    }
    input->poll.data = process;
    process_handle_opened(process);
}

/* Much input goes through a larger pipe in fewer turns. What the kernel refuses, beyond the user's
 * share, is only slower. */
static void widen(struct process_input *input, size_t len)
{
    if (input->wide || len < WIDE_FROM)
        return;
    input->wide = true;
    (void)fcntl(input->fd, F_SETPIPE_SZ, WIDE_SIZE);
}

/* How much goes in without waiting. What goes wrong is found again by who writes the rest. */
static size_t write_now(int fd, struct str data)
{
    ssize_t n = data.len ? write(fd, data.p, data.len) : 0;

    return n > 0 ? (size_t)n : 0;
}

int process_input_write(struct process *process, bool to_pty, struct str data,
                        process_written_fn *written, void *arg, struct error *err)
{
    struct process_input *input = &process->input;
    struct process_write *item;

    if (to_pty != process->is_pty)
        return error_set(err, ERROR_INTERNAL, "error writing to %s: tty is %s for the process",
                         to_pty ? "tty" : "stdin", process->is_pty ? "enabled" : "not enabled");
    if (input->fd < 0 || input->close_after)
        return error_set(err, ERROR_INTERNAL,
                         "error writing to stdin: stdin not enabled or closed");
    if (input->queued >= PROCESS_INPUTS_MAX)
        return error_set(err, ERROR_QUOTA, "too many inputs wait to be read by the process");
    widen(input, data.len);
    if (list_empty(&input->queue))
        data = str_skip(data, write_now(input->fd, data));
    item = xmalloc(sizeof(*item) + data.len);
    *item = (struct process_write){.written = written, .arg = arg, .len = data.len};
    if (data.len)
        memcpy(item->bytes, data.p, data.len);
    list_push_back(&input->queue, &item->link);
    input->queued++;
    if (!input->polling) {
        input->polling = true;
        (void)uv_poll_start(&input->poll, UV_WRITABLE, on_writable);
    }
    return 0;
}

int process_input_end(struct process *process, struct error *err)
{
    if (process->is_pty)
        return error_set(err, ERROR_INTERNAL,
                         "error closing stdin: a terminal's input has no end; send Ctrl-D");
    if (process->input.fd < 0 || process->input.close_after)
        return error_set(err, ERROR_INTERNAL, "error closing stdin: stdin not enabled or closed");
    process->input.close_after = true;
    flush(process);
    return 0;
}
