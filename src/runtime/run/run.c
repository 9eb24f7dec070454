/* Runs one command on a machine and reads what it prints.
 *
 * A command that ran longer than its timeout is killed and has exit code 124, as of timeout(1), and timed_out. Output above
 * the limit is read and dropped, so that the command does not block. Output that is passed on as it comes is read only as fast
 * as it is taken; when nobody takes it any more, the command is killed with everything it has started. A program that is
 * missing is exit code 127, one that may not be run 126, as in a shell. */
#include "runtime/run/run.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "runtime/run/capture.h"
#include "runtime/run/output.h"
#include "runtime/run/running.h"

enum {
    EXIT_TIMED_OUT = 124,
    EXIT_NOT_ALLOWED = 126,
    EXIT_NO_PROGRAM = 127,
    EXIT_STOPPED = 128 + SIGKILL,
    GRACE_MS = 1000,     /* the provider's own timeout comes first */
    KILL_WAIT_MS = 2000, /* for the end of what was killed */
    WAIT_MAX_MS = 30000,
    INPUT_INLINE = 32 * 1024, /* fits into a pipe: cannot block */
    INPUT_PIECE = 64 * 1024,
    INPUT_WAIT_MS = 600 * 1000, /* for a command that does not read */
};

#define TRUNCATED "\n[output truncated]"

static void keep(struct buf *buf, struct str data, int64_t limit, bool *truncated)
{
    size_t room = (size_t)limit > buf->len ? (size_t)limit - buf->len : 0;

    if (data.len > room) {
        *truncated = true;
        data.len = room;
    }
    if (!buf_add_str(buf, data))
        *truncated = true;
}

/* Marks what was cut, at the start of a character. */
static void mark(struct buf *buf, int64_t limit)
{
    if (buf->len < (size_t)limit)
        return;
    for (int i = 0; i < 3 && buf->len && ((unsigned char)buf->p[buf->len - 1] & 0xc0) == 0x80; i++)
        buf->len--;
    if (buf->len && (unsigned char)buf->p[buf->len - 1] >= 0xc0)
        buf->len--;
    (void)buf_add(buf, TRUNCATED, sizeof(TRUNCATED) - 1);
}

struct feeder {
    struct thread thread;
    struct provider_process *process;
    struct str input;
};

static void feed(void *arg)
{
    struct feeder *feeder = arg;
    struct str rest = feeder->input;
    struct error ignored;

    while (rest.len) {
        struct str piece = str_n(rest.p, rest.len < INPUT_PIECE ? rest.len : INPUT_PIECE);

        /* A command need not read its input. */
        if (provider_process_input(feeder->process, piece, &ignored) < 0)
            return;
        rest = str_skip(rest, piece.len);
    }
    (void)provider_process_close_stdin(feeder->process, &ignored);
}

static void feeder_start(struct feeder *feeder, struct provider_process *process, struct str input)
{
    *feeder = (struct feeder){.process = process, .input = input};
    if (!input.p)
        return;
    if (input.len <= INPUT_INLINE ||
        thread_start(&feeder->thread, "input", THREAD_STACK_DEFAULT, feed, feeder, NULL) < 0)
        feed(feeder);
}

struct reading {
    const struct runtime_run *run;
    struct runtime_result *out;
    int64_t deadline_ms; /* monotonic; 0 = none */
    bool killed, cut_out, cut_err;
};

/* As it comes. 0, or -1: nobody listens. */
static int pass_on(struct runtime *runtime, struct provider *provider,
                   const struct provider_ref *ref, const struct runtime_run *run,
                   const struct provider_event *event)
{
    int r;

    while ((r = run->on_output(run->on_output_arg, event->kind == PROVIDER_STDERR, event->data)) >
           0)
        if (run->ttl_s > 0)
            run->extend(runtime, provider, ref, run->sandbox_id, run->ttl_s);
    return r;
}

/* For those who are not the caller. */
static void note(const struct runtime_run *run, const struct provider_event *event)
{
    bool is_err = event->kind == PROVIDER_STDERR;

    if (run->output)
        runtime_output_tell(run->output, is_err, event->data);
    if (run->capture)
        runtime_capture_take(run->capture, is_err, event->data);
}

/* 1 = it has ended. */
static int take(struct reading *reading, const struct provider_event *event)
{
    const struct runtime_run *run = reading->run;
    struct runtime_result *out = reading->out;

    switch (event->kind) {
    case PROVIDER_STARTED:
        return 0;
    case PROVIDER_STDOUT:
        keep(&out->out, event->data, run->output_limit, &reading->cut_out);
        return 0;
    case PROVIDER_STDERR:
        keep(&out->err, event->data, run->output_limit, &reading->cut_err);
        return 0;
    case PROVIDER_EXITED:
        out->timed_out = event->timed_out || reading->killed;
        out->exit_code = out->timed_out ? EXIT_TIMED_OUT : event->exit_code;
        out->out_of_memory = event->out_of_memory && !out->timed_out;
        return 1;
    }
    return 0;
}

/* 1 = give up waiting: it was killed and still says nothing. */
static int overdue(struct reading *reading, struct provider_process *process)
{
    struct error ignored;

    if (reading->killed) {
        reading->out->timed_out = true;
        reading->out->exit_code = EXIT_TIMED_OUT;
        return 1;
    }
    reading->killed = true;
    reading->deadline_ms = clock_mono_ms() + KILL_WAIT_MS;
    (void)provider_process_signal(process, SIGKILL, &ignored);
    return 0;
}

bool runtime_result_refused(const struct runtime_result *result)
{
    return result->out.refused || result->err.refused;
}

/* There is no memory for its output, and it would block if nobody read that. */
static int end_refused(struct provider_process *process)
{
    struct error ignored;

    (void)provider_process_signal(process, SIGKILL, &ignored);
    return 0;
}

static int nobody_listens(struct reading *reading, struct provider_process *process,
                          struct error *err)
{
    reading->out->stopped = true;
    reading->out->exit_code = EXIT_STOPPED;
    if (provider_process_signal(process, SIGKILL, err) < 0 && err->code != ERROR_NOT_FOUND)
        return error_prefix(err, "nobody listens any more, and the command could not be ended");
    return 0;
}

static int read_all(struct runtime *runtime, struct provider *provider,
                    const struct provider_ref *ref, struct provider_process *process,
                    struct reading *reading, struct error *err)
{
    const struct runtime_run *run = reading->run;

    for (;;) {
        int64_t wait_ms = WAIT_MAX_MS, left_ms = reading->deadline_ms - clock_mono_ms();
        struct provider_event event = {0};
        int r;

        if (reading->deadline_ms && left_ms <= 0) {
            if (overdue(reading, process))
                return 0;
            continue;
        }
        if (run->ttl_s > 0 && wait_ms > run->ttl_s * 250)
            wait_ms = run->ttl_s * 250;
        if (reading->deadline_ms && wait_ms > left_ms)
            wait_ms = left_ms;
        r = provider_process_next(process, (uint32_t)wait_ms, &event, err);
        if (r < 0 && run->running && runtime_running_stopped(runtime, run->running))
            return nobody_listens(reading, process, err);
        if (r < 0 && reading->killed)
            return overdue(reading, process), 0;
        if (r < 0)
            return error_prefix(err, "the command was started and may still run");
        if (r > 0 && (event.kind == PROVIDER_STDOUT || event.kind == PROVIDER_STDERR))
            note(run, &event);
        if (run->on_output &&
            (r == 0 || event.kind == PROVIDER_STDOUT || event.kind == PROVIDER_STDERR)) {
            if (pass_on(runtime, provider, ref, run, &event) < 0)
                return nobody_listens(reading, process, err);
        } else if (r > 0 && take(reading, &event)) {
            return 0;
        }
        if (runtime_result_refused(reading->out))
            return end_refused(process);
        if (run->ttl_s > 0)
            run->extend(runtime, provider, ref, run->sandbox_id, run->ttl_s);
    }
}

/* As a shell would tell it. */
static int no_program(struct runtime *runtime, struct provider *provider,
                      const struct provider_ref *ref, const struct runtime_run *run,
                      struct runtime_result *out, const struct error *err)
{
    struct provider_event event = {.kind = PROVIDER_STDERR};
    char text[512];

    (void)snprintf(text, sizeof(text), "%.400s: %s\n", run->argv[0], strerror(err->errnum));
    event.data = str_of(text);
    out->exit_code = err->errnum == ENOENT ? EXIT_NO_PROGRAM : EXIT_NOT_ALLOWED;
    if (run->capture)
        runtime_capture_take(run->capture, true, event.data);
    if (!run->on_output)
        keep(&out->err, event.data, run->output_limit, &out->truncated);
    else if ((run->on_started && run->on_started(run->on_output_arg, run->running->id) < 0) ||
             pass_on(runtime, provider, ref, run, &event) < 0)
        out->stopped = true;
    return 0;
}

static int start(struct provider *provider, const struct provider_ref *ref,
                 const struct runtime_run *run, struct provider_process **out, struct error *err)
{
    struct provider_command command = {
        .argv = run->argv,
        .env = run->env,
        .env_count = run->env_count,
        .cwd = run->cwd,
        .user = run->user,
        .open_stdin = run->input.p || run->open_stdin,
        .timeout_ms = run->timeout_ms,
        .input_ms = run->open_stdin ? INPUT_WAIT_MS : 0,
    };

    return provider_start(provider, ref, &command, out, err);
}

int runtime_run(struct runtime *runtime, struct provider *provider, const struct provider_ref *ref,
                const struct runtime_run *run, struct runtime_result *out, bool *out_started,
                struct error *err)
{
    struct reading reading = {.run = run, .out = out};
    int64_t begin_us = clock_mono_us();
    struct provider_process *process = NULL;
    struct feeder feeder;
    int r;

    *out = (struct runtime_result){0};
    buf_init_charged(&out->out, (size_t)run->output_limit + sizeof(TRUNCATED));
    buf_init_charged(&out->err, (size_t)run->output_limit + sizeof(TRUNCATED));
    if (start(provider, ref, run, &process, err) < 0) {
        if (err->code != ERROR_INVALID || (err->errnum != ENOENT && err->errnum != EACCES))
            return -1;
        *out_started = true;
        return no_program(runtime, provider, ref, run, out, err);
    }
    *out_started = true;
    if (run->running)
        runtime_running_add(runtime, run->running, process);
    if (run->timeout_ms > 0)
        reading.deadline_ms = begin_us / 1000 + run->timeout_ms + GRACE_MS;
    feeder_start(&feeder, process, run->input);
    r = run->on_started && run->running && run->on_started(run->on_output_arg, run->running->id) < 0
            ? nobody_listens(&reading, process, err)
            : read_all(runtime, provider, ref, process, &reading, err);
    provider_process_cancel(process);
    if (run->running)
        runtime_running_remove(runtime, run->running);
    thread_join(&feeder.thread);
    provider_process_free(process);
    if (reading.cut_out)
        mark(&out->out, run->output_limit);
    if (reading.cut_err)
        mark(&out->err, run->output_limit);
    out->truncated = reading.cut_out || reading.cut_err;
    out->duration_ms = (clock_mono_us() - begin_us + 500) / 1000;
    return r;
}

void runtime_result_done(struct runtime_result *result)
{
    buf_done(&result->out);
    buf_done(&result->err);
}
