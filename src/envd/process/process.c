/* How it works: a program is "exited" when it was reaped, and "ended" when its end event has been
 * sent. Between the two its pipes are read empty. Usually they reach their end at that moment; when a
 * background child still holds one, output goes on for as long as it keeps coming, but not longer
 * than GRACE_TOTAL_MS, and a silence of GRACE_MS is taken for the end. Afterwards the object stays,
 * out of sight, and drops what comes through the pipe: closing it would kill the background child
 * with SIGPIPE.
 *
 * Freeing: when the program has ended and the pipes are at their end, the remaining handles are
 * closed, and the last close callback frees the object. */
#include "envd/process/process.h"
#include "envd/core/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "envd/process/process_tree.h"
#include "envd/process/pty.h"
#include "envd/process/spawn.h"
#include "envd/process/usage.h"
#include "protocol/loop/loop.h"
#include "protocol/rpc/connect.h"

enum {
    GRACE_MS = 100,
    GRACE_TOTAL_MS = 1000,
};

struct kill_waiter {
    struct list link;
    struct http_exchange *ex;
};

static void on_forget(uv_timer_t *timer);

void process_table_init(struct process_table *table, struct loop *loop)
{
    *table = (struct process_table){.loop = loop};
    list_init(&table->live);
    (void)uv_timer_init(loop_uv(loop), &table->forget);
    table->forget.data = table;
    table->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (table->null_fd < 0)
        log_error("envd", "cannot open /dev/null: errno %d", errno);
}

static int64_t now_ms(const struct process_table *table)
{
    return (int64_t)uv_now(loop_uv(table->loop));
}

static bool selected(pid_t pid, const char *tag, pid_t want_pid, struct str want_tag)
{
    return want_pid ? pid == want_pid : tag && want_tag.p && str_eq(str_of(tag), want_tag);
}

struct process *process_find(const struct process_table *table, pid_t pid, struct str tag)
{
    struct list *pos;

    list_for_each (pos, &table->live) {
        struct process *process = container_of(pos, struct process, link);

        if (!process->ended && selected(process->pid, process->tag, pid, tag))
            return process;
    }
    return NULL;
}

const struct process_finished *process_find_finished(const struct process_table *table, pid_t pid,
                                                     struct str tag)
{
    for (size_t i = 0; i < PROCESS_FINISHED_MAX; i++) {
        const struct process_finished *item = &table->finished[i];

        if (item->pid && item->until_ms > now_ms(table) && selected(item->pid, item->tag, pid, tag))
            return item;
    }
    return NULL;
}

static void forget_output(struct process_table *table, struct process_finished *item)
{
    table->finished_output -= item->ring.records.cap;
    process_ring_done(&item->ring);
}

static void forget(struct process_table *table, struct process_finished *item)
{
    forget_output(table, item);
    free(item->tag);
    *item = (struct process_finished){0};
}

/* What has been kept for long enough. */
static void on_forget(uv_timer_t *timer)
{
    struct process_table *table = timer->data;
    bool any = false;

    for (size_t i = 0; i < PROCESS_FINISHED_MAX; i++) {
        if (table->finished[i].pid && table->finished[i].until_ms <= now_ms(table))
            forget(table, &table->finished[i]);
        any |= table->finished[i].pid != 0;
    }
    if (any)
        (void)uv_timer_start(timer, on_forget, PROCESS_FINISHED_KEPT_MS / 2, 0);
}

static void remember(struct process *process)
{
    struct process_table *table = process->table;
    struct process_finished *item = &table->finished[table->finished_next];

    table->finished_next = (table->finished_next + 1) % PROCESS_FINISHED_MAX;
    forget(table, item);
    *item = (struct process_finished){.pid = process->pid,
                                      .tag = take_ptr(&process->tag),
                                      .status = process->status,
                                      .out_of_memory = process->out_of_memory,
                                      .until_ms = now_ms(table) + PROCESS_FINISHED_KEPT_MS,
                                      .ring = process->ring};
    process->ring = (struct process_ring){0};
    table->finished_output += item->ring.records.cap;
    /* From the oldest on: the next to be overwritten. */
    for (size_t i = 0; table->finished_output > PROCESS_FINISHED_OUTPUT_MAX; i++)
        forget_output(table, &table->finished[(table->finished_next + i) % PROCESS_FINISHED_MAX]);
    if (!uv_is_active((uv_handle_t *)&table->forget))
        (void)uv_timer_start(&table->forget, on_forget, PROCESS_FINISHED_KEPT_MS, 0);
}

/* A new program takes over its pid and its tag. */
static void forget_same(struct process_table *table, const struct process *process)
{
    for (size_t i = 0; i < PROCESS_FINISHED_MAX; i++) {
        struct process_finished *item = &table->finished[i];

        if (item->pid == process->pid ||
            (item->tag && process->tag && strcmp(item->tag, process->tag) == 0))
            forget(table, item);
    }
}

static void free_process(struct process *process)
{
    struct process_table *table = process->table;

    list_remove(&process->link);
    process_ring_done(&process->ring);
    json_decref(process->config);
    free(process->tag);
    free(process);
    if (--table->count > 0)
        return;
    free_wide(take_ptr(&table->read_buffer));
    for (int binary = 0; binary < 2; binary++) {
        free_wide(table->events[binary].p);
        table->events[binary] = (struct buf){0};
    }
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct process *process = handle->data;

    if (--process->handles == 0)
        free_process(process);
}

void process_handle_opened(struct process *process)
{
    process->handles++;
}

void process_handle_close(struct process *process, uv_handle_t *handle)
{
    handle->data = process;
    uv_close(handle, on_handle_closed);
}

static void answer_kill_waiters(struct process *process)
{
    struct list *pos;

    /* The waiter itself is freed when its exchange is done. */
    while ((pos = list_pop_front(&process->kill_waiters)))
        connect_reply(container_of(pos, struct kill_waiter, link)->ex, STR("{}"));
}

static void on_waiter_done(struct http_exchange *ex, void *arg)
{
    struct kill_waiter *waiter = arg;

    (void)ex;
    list_remove(&waiter->link);
    free(waiter);
}

static void on_grace(uv_timer_t *timer);

void process_answer_when_gone(struct process *process, struct http_exchange *ex)
{
    struct kill_waiter *waiter;

    if (process->exited) {
        connect_reply(ex, STR("{}"));
        return;
    }
    waiter = xcalloc(1, sizeof(*waiter));
    waiter->ex = ex;
    list_push_back(&process->kill_waiters, &waiter->link);
    http_on_done(ex, on_waiter_done, waiter);
    (void)uv_timer_start(&process->grace, on_grace, GRACE_TOTAL_MS, 0);
}

static void end(struct process *process)
{
    process->ended = true;
    journal_ended(process->config, process->pid, process->status, process->out_of_memory);
    (void)uv_timer_stop(&process->grace);
    (void)uv_timer_stop(&process->deadline);
    process_output_finish(process);
    process_input_close(process);
    remember(process);
    json_decref(process->config);
    process->config = NULL;
}

static void dispose(struct process *process)
{
    if (uv_is_closing((uv_handle_t *)&process->grace))
        return;
    process_handle_close(process, (uv_handle_t *)&process->grace);
    process_handle_close(process, (uv_handle_t *)&process->deadline);
}

void process_advance(struct process *process)
{
    if (!process->exited)
        return;
    if (!process->ended && process_output_at_end(process))
        end(process);
    if (process->ended && process_output_at_end(process))
        dispose(process);
}

/* Before the exit: a killed program that does not die; those who wait are answered. After it:
 * somebody else holds the pipes. */
static void on_grace(uv_timer_t *timer)
{
    struct process *process = timer->data;
    int64_t now = now_ms(process->table), last;

    if (!process->exited) {
        answer_kill_waiters(process);
        return;
    }
    (void)process_output_read(process);
    if (process_output_at_end(process)) {
        process_advance(process);
        return;
    }
    last = process->output_at_ms > process->exited_at_ms ? process->output_at_ms
                                                         : process->exited_at_ms;
    if (process_output_paused(process) ||
        (now - last < GRACE_MS && now - process->exited_at_ms < GRACE_TOTAL_MS)) {
        (void)uv_timer_start(&process->grace, on_grace, GRACE_MS / 2, 0);
        return;
    }
    end(process);
}

/* Only its first process tells how it ended; a shell gives the signal of what it ran as 128 and more. */
static bool killed_by_memory(const struct process *process, int status)
{
    bool killed =
        WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 128 + SIGKILL;

    return killed && !process->killed && usage_oom_kills(USAGE_ROOT) > process->oom_kills;
}

static void exited(struct process *process, int status)
{
    process->out_of_memory = killed_by_memory(process, status);
    process->exited = true;
    process->status = status;
    process->exited_at_ms = now_ms(process->table);
    answer_kill_waiters(process);
    (void)process_output_read(process);
    if (!process_output_at_end(process))
        (void)uv_timer_start(&process->grace, on_grace, GRACE_MS, 0);
    process_advance(process);
}

void process_table_reap(struct process_table *table)
{
    uv_update_time(loop_uv(table->loop));
    for (;;) {
        struct list *pos;
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);

        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0)
            return;
        list_for_each (pos, &table->live) {
            struct process *process = container_of(pos, struct process, link);

            if (process->pid == pid && !process->exited) {
                exited(process, status);
                break;
            }
        }
    }
}

static void kill_tree(struct process *process)
{
    process->killed = true;
    process_tree_kill(process->pid, process->mark);
}

static void on_deadline(uv_timer_t *timer)
{
    struct process *process = timer->data;

    if (!process->exited)
        kill_tree(process);
    (void)process_output_read(process);
    process_output_timed_out(process);
    process_advance(process);
}

/* The ends of the pipes or of the terminal; ours and the child's. */
struct channels {
    int input, output[2]; /* ours; -1 = none */
    int child[3];
};

static void close_channels(struct channels *channels, const struct process_table *table)
{
    close_fd(&channels->input);
    close_fd(&channels->output[0]);
    close_fd(&channels->output[1]);
    for (int i = 0; i < 3; i++)
        if (channels->child[i] != table->null_fd)
            close_fd(&channels->child[i]);
}

/* ours_reads: we hold the reading end; polling makes it non-blocking. The child's end belongs to the user, or it could not open
 * /dev/stdout and the like. */
static int make_pipe(const struct user *user, bool ours_reads, int *ours, int *childs,
                     struct error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set_errno(err, errno, "cannot create a pipe");
    *ours = ends[ours_reads ? 0 : 1];
    *childs = ends[ours_reads ? 1 : 0];
    if (user->uid != 0 && fchown(*childs, user->uid, user->gid) != 0)
        log_debug("envd", "cannot hand a pipe to its user: errno %d, ignoring", errno);
    return 0;
}

static int open_channels(const struct process_table *table, const struct process_start *start,
                         struct channels *out, struct error *err)
{
    if (start->want_pty) {
        if (pty_open(start->user, start->cols, start->rows, &out->output[0], &out->child[0], err) !=
            0)
            return -1;
        out->child[1] = fcntl(out->child[0], F_DUPFD_CLOEXEC, 3);
        out->child[2] = fcntl(out->child[0], F_DUPFD_CLOEXEC, 3);
        out->input = fcntl(out->output[0], F_DUPFD_CLOEXEC, 3);
        if (out->child[1] < 0 || out->child[2] < 0 || out->input < 0)
            return error_set_errno(err, errno, "cannot duplicate the tty");
        return 0;
    }
    out->child[0] = table->null_fd;
    if (start->want_stdin && make_pipe(start->user, false, &out->input, &out->child[0], err) != 0)
        return -1;
    if (make_pipe(start->user, true, &out->output[0], &out->child[1], err) != 0)
        return -1;
    return make_pipe(start->user, true, &out->output[1], &out->child[2], err);
}

static int spawn_error(const struct process_start *start, const struct spawn_failure *failure,
                       struct error *err)
{
    const char *why = strerror(failure->errnum);

    switch (failure->step) {
    case SPAWN_SETUP:
        return error_set_errno(err, failure->errnum, "error starting process");
    case SPAWN_CWD:
        if (failure->errnum == ENOENT)
            return error_set(err, ERROR_INVALID, "cwd '%s' does not exist", start->cwd);
        return error_set(err, ERROR_INVALID, "cannot use cwd '%s': %s", start->cwd, why);
    case SPAWN_EXEC:
        break;
    }
    return error_set(err, ERROR_INVALID, "error starting process '%s': %s", start->argv[0], why);
}

static struct process *adopt(struct process_table *table, const struct process_start *start,
                             pid_t pid, uint64_t mark, struct channels *channels)
{
    struct process *process = xcalloc(1, sizeof(*process));
    uv_loop_t *uv = loop_uv(table->loop);

    process->table = table;
    process->pid = pid;
    process->mark = mark;
    process->oom_kills = usage_oom_kills(USAGE_ROOT);
    process->tag = start->tag.p ? str_dup(start->tag) : NULL;
    process->config = json_incref(start->config);
    process->is_pty = start->want_pty;
    process->timeout_ms = start->timeout_ms;
    process->outputs[0].fd = process->outputs[1].fd = process->input.fd = -1;
    list_init(&process->subscribers);
    list_init(&process->kill_waiters);
    list_init(&process->input.queue);
    (void)uv_timer_init(uv, &process->deadline);
    (void)uv_timer_init(uv, &process->grace);
    process->deadline.data = process->grace.data = process;
    process->handles = 2;
    forget_same(table, process);
    list_push_back(&table->live, &process->link);
    table->count++;
    process_output_open(process, 0, start->want_pty ? PROCESS_PTY : PROCESS_STDOUT,
                        take_fd(&channels->output[0]));
    if (channels->output[1] >= 0)
        process_output_open(process, 1, PROCESS_STDERR, take_fd(&channels->output[1]));
    if (channels->input >= 0)
        process_input_open(process, take_fd(&channels->input));
    if (start->timeout_ms > 0)
        (void)uv_timer_start(&process->deadline, on_deadline, (uint64_t)start->timeout_ms, 0);
    return process;
}

struct process *process_start(struct process_table *table, const struct process_start *start,
                              struct error *err)
{
    struct channels channels = {-1, {-1, -1}, {-1, -1, -1}};
    struct process *process = NULL;
    uint64_t mark = process_tree_mark();
    struct spawn_failure failure;
    pid_t pid;

    if (table->count >= PROCESS_COUNT_MAX) {
        error_set(err, ERROR_QUOTA, "more than %d processes", PROCESS_COUNT_MAX);
        return NULL;
    }
    if (open_channels(table, start, &channels, err) == 0) {
        pid = spawn(
            &(struct spawn){.candidates = start->candidates,
                            .argv = start->argv,
                            .envp = start->envp,
                            .cwd = start->cwd,
                            .user = start->user,
                            .stdio = {channels.child[0], channels.child[1], channels.child[2]},
                            .tty = start->want_pty,
                            .mark = mark},
            &failure);
        if (pid < 0)
            (void)spawn_error(start, &failure, err);
        else
            process = adopt(table, start, pid, mark, &channels);
    }
    close_channels(&channels, table);
    return process;
}

int process_signal(struct process *process, int signal, struct error *err)
{
    /* Its end event may still be waiting for output of its children. */
    if (process->exited)
        return error_set(err, ERROR_NOT_FOUND, "process with pid %d not found", (int)process->pid);
    if (signal == SIGKILL) {
        kill_tree(process);
        return 0;
    }
    if (kill(process->pid, signal) != 0)
        return error_set_errno(err, errno, "error sending signal");
    return 0;
}

int process_resize(struct process *process, uint16_t cols, uint16_t rows, struct error *err)
{
    if (!process->is_pty || process->outputs[0].fd < 0)
        return error_set(err, ERROR_INTERNAL, "error resizing tty: tty is not enabled");
    return pty_resize(process->outputs[0].fd, cols, rows, err);
}
