/* Commands in the foreground.
 *
 * The exit code is a value. A command that ran longer than its timeout is killed and has exit code
 * 124, as of timeout(1), and timed_out. Output above the limit is read and dropped, so that the
 * command does not block. A command is tried again only when its sandbox turned out to be paused:
 * then it cannot have begun. Once it was sent, a broken connection is reported and nothing else. A
 * program that is not there is exit code 127, one that may not be run 126, as in a shell.
 *
 * Output that is passed on as it comes is read only as fast as it is taken; when nobody takes it any
 * more, everything the command has started is killed. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/output.h"
#include "runtime/command/running.h"
#include "runtime/core/event.h"
#include "runtime/sandbox/kept.h"
#include "runtime/sandbox/sandbox_internal.h"
#include "store/platform/store_layer.h"

enum {
    EXIT_TIMED_OUT = 124,
    EXIT_NOT_ALLOWED = 126,
    EXIT_NO_PROGRAM = 127,
    EXIT_STOPPED = 128 + SIGKILL,
    GRACE_MS = 1000,     /* the provider's own timeout comes first */
    KILL_WAIT_MS = 2000, /* for the end of what was killed */
    WAIT_MAX_MS = 30000,
    OUTPUT_MAX = 16 * 1024 * 1024,
    OUTPUT_DEFAULT = 64 * 1024,
    INPUT_INLINE = 32 * 1024, /* fits into a pipe: cannot block */
    INPUT_PIECE = 64 * 1024,
    INPUT_WAIT_MS = 600 * 1000, /* for a command that does not read */
    TIMEOUT_MAX_MS = 24 * 3600 * 1000,
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
            runtime_use_extend(runtime, provider, ref, run->sandbox_id, run->ttl_s);
    return r;
}

/* For those who are not the caller. */
static void note(const struct runtime_run *run, const struct provider_event *event)
{
    bool is_err = event->kind == PROVIDER_STDERR;

    if (run->output)
        runtime_output_tell(run->output, is_err, event->data);
    if (run->kept)
        runtime_kept_take(run->kept, is_err, event->data);
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

static bool is_refused(const struct runtime_result *result)
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
        if (is_refused(reading->out))
            return end_refused(process);
        if (run->ttl_s > 0)
            runtime_use_extend(runtime, provider, ref, run->sandbox_id, run->ttl_s);
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
    if (run->kept)
        runtime_kept_take(run->kept, true, event.data);
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

/* process_id: NULL = nobody is told. */
static void tell(struct runtime *runtime, const struct runtime_caller *caller,
                 const struct runtime_use *use, const char *process_id, const char *type,
                 json_t *data)
{
    struct runtime_event event = {
        .type = str_of(type),
        .sandbox_id = use->sandbox.id,
        .process_id = str_of(process_id),
        .agent_id = use->sandbox.agent_id,
        .task_id = use->sandbox.task_id,
        .actor = caller->actor,
        .data = data,
    };

    if (process_id)
        runtime_event_add(runtime, caller, &event);
    json_decref(data);
}

static int prepare(struct runtime *runtime, const struct runtime_use *use,
                   const struct runtime_command *command, struct arena *arena,
                   struct runtime_run *run, struct error *err)
{
    const struct runtime_settings *settings = runtime->config.settings;

    if (command->timeout_ms < 0 || command->timeout_ms > TIMEOUT_MAX_MS)
        return error_set(err, ERROR_INVALID, "timeout must be between 0 and 24 hours");
    if (command->output_limit < 0 || command->output_limit > OUTPUT_MAX)
        return error_set(err, ERROR_INVALID, "the output limit must be between 0 and %d bytes",
                         OUTPUT_MAX);
    *run = (struct runtime_run){
        .cwd = command->cwd.len || command->own ? arena_str(arena, command->cwd).p
                                                : arena_str(arena, use->workspace_root).p,
        .user = arena_str(arena, command->user).p,
        .input = command->input,
        .open_stdin = command->open_stdin,
        .timeout_ms = command->timeout_ms,
        .output_limit = command->output_limit,
        .sandbox_id = use->sandbox.id,
        .on_started = command->on_started,
        .on_output = command->on_output,
        .on_output_arg = command->on_output_arg,
    };
    if (!run->timeout_ms)
        run->timeout_ms =
            (use->timeout_s > 0 ? use->timeout_s : settings->command_timeout_s) * 1000;
    if (!run->output_limit)
        run->output_limit = use->output_limit > 0 ? use->output_limit : OUTPUT_DEFAULT;
    if (!use->sandbox.adopted && (provider_caps(use->provider)->features & PROVIDER_TTL))
        run->ttl_s =
            use->sandbox.idle_s > 0 ? use->sandbox.idle_s : settings->sandbox_timeout_ms / 1000;
    return runtime_command_env(use->env, command->env, arena, &run->env, &run->env_count, err);
}

/* The stream broke and the provider says why. */
static void broke_off(enum provider_state state, struct error *err)
{
    if (state == PROVIDER_ENDED)
        (void)error_set(err, ERROR_NOT_FOUND, "the sandbox ended while the command ran");
    else if (state == PROVIDER_PAUSED || state == PROVIDER_PAUSING)
        (void)error_set(err, ERROR_CONFLICT,
                        "the sandbox was paused while the command ran; it goes on when the sandbox"
                        " is resumed");
}

/* One try, counted for the breaker; never repeated by it. */
static int run_once(struct runtime *runtime, struct runtime_use *use,
                    const struct runtime_command *command, struct arena *arena,
                    struct runtime_run *run, struct runtime_result *out, bool *out_started,
                    struct error *err)
{
    struct backend_try try = {0};
    enum provider_state state;
    int r;

    if (backend_try_begin(&try, runtime, use->backend, err) < 0)
        return -1;
    r = runtime_command_argv(runtime, use->provider, &use->ref, use->sandbox.image, command, arena,
                             &run->argv, err);
    if (r == 0)
        r = runtime_run(runtime, use->provider, &use->ref, run, out, out_started, err);
    if (backend_try_inside(&try, &use->ref, r, err, &state) && *out_started)
        broke_off(state, err);
    return r;
}

static json_t *exit_data(const struct runtime_result *result)
{
    json_t *data = json_pack("{s:i, s:I, s:b, s:b}", "exit_code", result->exit_code, "duration_ms",
                             (json_int_t)result->duration_ms, "truncated", (int)result->truncated,
                             "timed_out", (int)result->timed_out);

    if (result->stopped)
        (void)json_object_set_new(data, "reason", json_string("its client has gone"));
    else if (result->out_of_memory)
        (void)json_object_set_new(data, "reason", json_string(RUNTIME_OUT_OF_MEMORY));
    return data;
}

static bool is_kept(const struct runtime_use *use, const struct runtime_command *command)
{
    return !command->own &&
           (command->keep == KEEP_AS_PROFILE ? use->keep_output : command->keep == KEEP_YES);
}

/* err: NULL = it ran to its end. */
static void store_kept(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct runtime_use *use, struct runtime_kept *kept, struct str command,
                       const char *process_id, struct runtime_result *out, const struct error *err)
{
    out->kept = runtime_kept_store(runtime, caller, use, kept,
                                   &(struct runtime_kept_end){.process_id = process_id,
                                                              .command = command,
                                                              .error = err ? err->message : NULL,
                                                              .exit_code = out->exit_code,
                                                              .duration_ms = out->duration_ms,
                                                              .timed_out = out->timed_out});
    (void)str_copy(str_of(process_id), out->keep_id, sizeof(out->keep_id));
    runtime_kept_done(kept);
}

int runtime_exec(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                 const struct runtime_command *command, struct runtime_result *out,
                 struct error *err)
{
    auto_arena struct arena arena = {0};
    char id_text[RUNTIME_ID_SIZE];
    const char *process_id = command->own ? NULL : id_text;
    struct runtime_running running = {.id = id_text, .team_id = caller->team_id};
    struct runtime_output output;
    struct runtime_kept kept;
    struct str text = STR_NONE;
    struct runtime_use use;
    struct runtime_run run;
    bool started = false;
    int r;

    *out = (struct runtime_result){0};
    if ((!command->own && runtime_command_check(runtime, command, err) < 0) ||
        runtime_use(runtime, caller, id, PROVIDER_EXEC, &arena, &use, err) < 0 ||
        prepare(runtime, &use, command, &arena, &run, err) < 0)
        return -1;
    runtime_id("exe_", id_text);
    running.agent_id = use.sandbox.agent_id;
    running.sandbox_id = use.sandbox.id;
    running.open_stdin = command->open_stdin;
    if (!command->own || command->on_started)
        run.running = &running;
    if (!command->own) {
        runtime_output_init(&output, runtime, caller,
                            &(struct runtime_event){.sandbox_id = use.sandbox.id,
                                                    .process_id = str_of(id_text),
                                                    .agent_id = use.sandbox.agent_id,
                                                    .task_id = use.sandbox.task_id});
        run.output = &output;
    }
    if (is_kept(&use, command)) {
        runtime_kept_begin(&kept, command->keep_limit ? command->keep_limit : run.output_limit);
        run.kept = &kept;
    }
    text = runtime_command_text(runtime, caller->team_id, command, &arena);
    tell(runtime, caller, &use, process_id, "process.started",
         json_pack("{s:o}", "command", json_str(text)));
    r = run_once(runtime, &use, command, &arena, &run, out, &started, err);
    if (r < 0 && !started && err->errnum == ECONNABORTED) {
        (void)error_prefix(err, "the command may have been started");
    } else if (r < 0 && !started) {
        int again = runtime_use_recover(runtime, caller, &use, &arena, err);

        if (again > 0) {
            runtime_result_done(out);
            r = run_once(runtime, &use, command, &arena, &run, out, &started, err);
        }
    }
    if (r == 0 && is_refused(out)) {
        r = buf_refuse(out->out.refused ? &out->out : &out->err, err);
        (void)error_prefix(err, "the command was killed");
    }
    runtime_live_used(runtime, use.sandbox.id, 1, 0);
    if (run.kept)
        store_kept(runtime, caller, &use, &kept, text, id_text, out, r < 0 ? err : NULL);
    if (r < 0) {
        tell(runtime, caller, &use, process_id, "process.exited",
             json_pack("{s:o}", "error", json_str(str_of(err->message))));
        runtime_log_failure(runtime, caller->team_id, &use.sandbox, "command", err);
        runtime_result_done(out);
        return -1;
    }
    tell(runtime, caller, &use, process_id, "process.exited", exit_data(out));
    return 0;
}
