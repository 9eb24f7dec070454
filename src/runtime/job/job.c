/* Background jobs as they are asked for. The row is on disk before anything is launched; who watches
 * the job is in job_watch.c, what runs in the sandbox in job_script.c. */
#include "runtime/job/job.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/id.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"
#include "runtime/job/job_internal.h"

enum {
    LIST_MAX = 1000,
    STOP_WAIT_MS = 5000,
    WAIT_STEP_MS = 1000, /* jobs that another process watches */
    INPUT_MAX = 1024 * 1024,
};

static void job_of(const struct store_runtime_job *row, struct job *out)
{
    *out = (struct job){
        .id = row->id,
        .sandbox_id = row->sandbox_id,
        .agent_id = row->agent_id,
        .command = row->command,
        .state = row->state,
        .has_exit_code = row->has_exit_code,
        .exit_code = (int)row->exit_code,
        .error = row->error,
        .callback_state = row->callback_state,
        .callback_attempts = row->callback_attempts,
        .started_at_us = row->started_at_us,
        .ended_at_us = row->ended_at_us,
    };
    /* One that waits for the end of its job is pending for those who ask. */
    if (out->callback_state == CALLBACK_WAITING)
        out->callback_state = CALLBACK_PENDING;
    else if (out->callback_state == CALLBACK_PENDING)
        out->callback_next_at_us = row->callback_next_at_us;
}

int job_refused(struct error *err, const char *what)
{
    struct error cause = *err;

    if (cause.code == ERROR_UNSUPPORTED)
        (void)error_set(err, ERROR_UNSUPPORTED, "%s: %s", cause.message, what);
    return -1;
}

static int get_row(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                   struct arena *arena, struct store_runtime_job *out, struct error *err)
{
    if (store_runtime_job_get(runtime->config.store, caller->team_id, id, arena, out, err) < 0)
        return -1;
    if (caller->agent_id.p && !str_eq(caller->agent_id, out->agent_id))
        return error_set(err, ERROR_FORBIDDEN, "job '%.*s' belongs to another agent than '%.*s'",
                         STR_ARG(id), STR_ARG(caller->agent_id));
    return 0;
}

/* ---- start ---- */

static struct str make_token(struct runtime *runtime, struct str team_id,
                             const struct runtime_callback *callback, struct arena *arena)
{
    char token[33];

    if (callback->token.len) {
        runtime_secret_add(runtime, team_id, callback->token);
        return callback->token;
    }
    id_hex(token, 16);
    runtime_secret_add(runtime, team_id, str_of(token));
    return arena_str(arena, str_of(token));
}

static void tell_start(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct runtime_use *use, const struct store_runtime_job *row)
{
    json_t *data = json_pack("{s:b, s:o}", "job", 1, "command", json_str(row->command));
    struct runtime_event event = {
        .type = STR("process.started"),
        .sandbox_id = row->sandbox_id,
        .process_id = row->id,
        .agent_id = row->agent_id,
        .task_id = use->sandbox.task_id,
        .actor = caller->actor,
        .data = data,
    };

    runtime_event_add(runtime, caller, &event);
    json_decref(data);
}

struct launch {
    const struct runtime_command *command;
    struct provider_command start;
};

static int prepare(struct runtime *runtime, struct runtime_use *use, struct launch *launch,
                   const char *id, struct arena *arena, struct error *err)
{
    const struct runtime_command *command = launch->command;
    const char *const *argv = NULL;

    if (runtime_command_argv(runtime, use->provider, &use->ref, use->sandbox.image, command, arena,
                             &argv, err) < 0)
        return -1;
    launch->start = (struct provider_command){
        .argv = job_wrap(arena, id, argv),
        .cwd = arena_str(arena, command->cwd.len ? command->cwd : use->workspace_root).p,
        .user = arena_str(arena, command->user).p,
        .tag = id,
        .open_stdin = command->input.p != NULL,
        .timeout_ms = command->timeout_ms,
    };
    return runtime_command_env(use->env, command->env, arena, &launch->start.env,
                               &launch->start.env_count, err);
}

/* Tried again when the sandbox turned out to be paused. It may have got the first request all the
 * same, and then begins the job as it is resumed. */
static int launch_job(struct runtime *runtime, const struct runtime_caller *caller,
                      struct runtime_use *use, struct launch *launch, struct arena *arena,
                      struct provider_process **out, struct error *err)
{
    struct backend_try try = {0};
    enum provider_state state;
    bool sent;
    int r;

    if (backend_try_begin(&try, runtime, use->backend, err) < 0)
        return -1;
    r = provider_start(use->provider, &use->ref, &launch->start, out, err);
    (void)backend_try_inside(&try, &use->ref, r, err, &state);
    sent = r < 0 && err->errnum == ECONNABORTED;
    if (r < 0 && runtime_use_recover(runtime, caller, use, arena, err) > 0) {
        if (sent && provider_attach(use->provider, &use->ref, launch->start.tag, 0, out, err) == 0)
            return 0;
        r = provider_start(use->provider, &use->ref, &launch->start, out, err);
    }
    return r;
}

static int check(struct runtime *runtime, const struct runtime_command *command,
                 const struct runtime_callback *callback, struct error *err)
{
    if (runtime_command_check(runtime, command, err) < 0 ||
        (callback && job_callback_check(callback, err) < 0))
        return -1;
    if (command->timeout_ms < 0)
        return error_set(err, ERROR_INVALID, "timeout must not be negative");
    if (command->input.len > INPUT_MAX)
        return error_set(err, ERROR_LIMIT, "input of a job is at most %d bytes at once", INPUT_MAX);
    return 0;
}

static int start_row(struct runtime *runtime, const struct runtime_caller *caller,
                     struct runtime_use *use, const struct runtime_command *command,
                     const struct runtime_callback *callback, struct arena *arena,
                     struct store_runtime_job *row, struct error *err)
{
    char id[RUNTIME_ID_SIZE];

    runtime_id("job_", id);
    *row = (struct store_runtime_job){
        .id = arena_str(arena, str_of(id)),
        .team_id = caller->team_id,
        .sandbox_id = use->sandbox.id,
        .agent_id = use->sandbox.agent_id,
        .actor = caller->actor,
        .command = runtime_command_text(runtime, caller->team_id, command, arena),
        .run_as = command->user,
        .state = JOB_RUNNING,
        .has_input = command->input.p != NULL,
        .started_at_us = clock_wall_us(),
    };
    if (callback) {
        row->callback_url = callback->url;
        row->callback_token = make_token(runtime, caller->team_id, callback, arena);
        row->callback_state = CALLBACK_WAITING;
    }
    return store_runtime_job_insert(runtime->config.store, row,
                                    runtime->config.settings->jobs_per_sandbox, err);
}

/* Whoever asked learns that it was refused, and that is all. Where nobody knows whether it began, its row stays, as one that
 * failed. */
static void not_started(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                        const struct error *why)
{
    const struct job_end end = {.error = why->message};
    struct error err;

    if (why->code == ERROR_UNAVAILABLE || why->code == ERROR_TIMEOUT || why->code == ERROR_INTERNAL)
        job_ended(runtime, caller, id, &end);
    else if (store_runtime_job_delete(runtime->config.store, id, &err) < 0)
        log_error("runtime", "job=%.*s not removed: %s", STR_ARG(id), err.message);
}

int job_start(struct runtime *runtime, const struct runtime_caller *caller, struct str sandbox_id,
              const struct runtime_command *command, const struct runtime_callback *callback,
              struct arena *arena, struct job *out, struct error *err)
{
    struct launch launch = {.command = command};
    struct provider_process *process = NULL;
    struct store_runtime_job row;
    struct runtime_use use;
    struct error ignored;

    if (callback && !callback->url.p)
        callback = NULL;
    if (check(runtime, command, callback, err) < 0 ||
        runtime_use(runtime, caller, sandbox_id, PROVIDER_EXEC, arena, &use, err) < 0 ||
        prepare(runtime, &use, &launch, "", arena, err) < 0 ||
        start_row(runtime, caller, &use, command, callback, arena, &row, err) < 0)
        return -1;
    if (prepare(runtime, &use, &launch, row.id.p, arena, err) < 0 ||
        launch_job(runtime, caller, &use, &launch, arena, &process, err) < 0) {
        not_started(runtime, caller, row.id, err);
        return -1;
    }
    tell_start(runtime, caller, &use, &row);
    if (command->input.len && provider_process_input(process, command->input, &ignored) < 0)
        log_info("runtime", "job=%.*s input not taken: %s", STR_ARG(row.id), ignored.message);
    job_watch_start(runtime, &row, process);
    runtime_live_used(runtime, use.sandbox.id, 0, 1);
    job_of(&row, out);
    return 0;
}

/* ---- read ---- */

/* A job in a paused sandbox is still running, but stands still: whoever asks is shown both. */
static void add_sandbox_state(struct runtime *runtime, const struct runtime_caller *caller,
                              struct arena *arena, struct job *job)
{
    struct store_runtime_sandbox sandbox;
    struct error ignored = {0};

    if (job->state == JOB_RUNNING &&
        runtime_row_get(runtime, caller, job->sandbox_id, arena, &sandbox, &ignored) == 0)
        job->sandbox_state = str_of(name_of(&runtime_state_names, sandbox.state));
}

int job_get(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
            struct arena *arena, struct job *out, struct error *err)
{
    struct store_runtime_job row;

    if (get_row(runtime, caller, id, arena, &row, err) < 0)
        return -1;
    job_of(&row, out);
    add_sandbox_state(runtime, caller, arena, out);
    return 0;
}

int job_list(struct runtime *runtime, const struct runtime_caller *caller, struct str sandbox_id,
             struct arena *arena, struct job **out, size_t *out_count, struct error *err)
{
    struct store_runtime_sandbox sandbox;
    struct store_runtime_job *rows = NULL;
    size_t count = 0, kept = 0;

    if (sandbox_id.p) {
        if (runtime_row_get(runtime, caller, sandbox_id, arena, &sandbox, err) < 0)
            return -1;
        sandbox_id = sandbox.id;
    }
    if (store_runtime_job_list(runtime->config.store, caller->team_id, sandbox_id, LIST_MAX, arena,
                               &rows, &count, err) < 0)
        return -1;
    *out = arena_alloc(arena, (count + 1) * sizeof(**out));
    for (size_t i = 0; i < count; i++)
        if (!caller->agent_id.p || str_eq(caller->agent_id, rows[i].agent_id)) {
            job_of(&rows[i], &(*out)[kept]);
            add_sandbox_state(runtime, caller, arena, &(*out)[kept++]);
        }
    *out_count = kept;
    return 0;
}

static uint64_t ends_until_now(struct jobs *jobs)
{
    uint64_t ends;

    (void)pthread_mutex_lock(&jobs->lock);
    ends = jobs->ends;
    (void)pthread_mutex_unlock(&jobs->lock);
    return ends;
}

/* Of any job after those, at most for ms. */
static void wait_for_end(struct jobs *jobs, uint64_t after, int64_t ms)
{
    int64_t until_us = clock_mono_us() + ms * 1000;

    (void)pthread_mutex_lock(&jobs->lock);
    while (jobs->ends == after && cond_wait_until(&jobs->changed, &jobs->lock, until_us))
        ;
    (void)pthread_mutex_unlock(&jobs->lock);
}

int job_wait(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
             uint32_t timeout_ms, struct error *err)
{
    int64_t until_ms = clock_mono_ms() + timeout_ms;

    for (;;) {
        auto_arena struct arena arena = {0};
        uint64_t ends = ends_until_now(runtime->jobs);
        struct store_runtime_job row;
        int64_t left_ms;

        if (get_row(runtime, caller, id, &arena, &row, err) < 0)
            return -1;
        if (row.state != JOB_RUNNING)
            return 1;
        left_ms = until_ms - clock_mono_ms();
        if (left_ms <= 0)
            return 0;
        wait_for_end(runtime->jobs, ends, left_ms < WAIT_STEP_MS ? left_ms : WAIT_STEP_MS);
    }
}

/* ---- stop and input ---- */

static int use_job(struct runtime *runtime, const struct runtime_caller *caller, unsigned features,
                   const struct store_runtime_job *row, struct arena *arena,
                   struct runtime_use *use, struct error *err)
{
    if (runtime_use(runtime, caller, row->sandbox_id, features | PROVIDER_EXEC, arena, use, err) <
        0)
        return error_prefix(err, "job '%.*s'", STR_ARG(row->id));
    return 0;
}

int job_stop(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
             int signal, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_job row;
    struct runtime_use use;
    int ended;

    if (signal < 0 || signal > 64)
        return error_set(err, ERROR_INVALID, "signal must be 0 to 64");
    if (get_row(runtime, caller, id, &arena, &row, err) < 0)
        return -1;
    if (row.state != JOB_RUNNING)
        return 0;
    if (use_job(runtime, caller, PROVIDER_JOB_STOP, &row, &arena, &use, err) < 0)
        return job_refused(err, "a background job cannot be stopped; kill its sandbox");
    if (!signal && store_runtime_job_stopping(runtime->config.store, row.id, err) < 0)
        return -1;
    if (job_signal(runtime, &use, row.id.p, row.run_as.p, signal, err) < 0)
        return error_prefix(err, "job '%.*s'", STR_ARG(row.id));
    if (signal)
        return 0;
    ended = job_wait(runtime, caller, row.id, STOP_WAIT_MS, err);
    if (ended == 0)
        return error_set(err, ERROR_TIMEOUT,
                         "job '%.*s' was killed, but its end was not seen within %d s",
                         STR_ARG(row.id), STOP_WAIT_MS / 1000);
    return ended < 0 ? -1 : 0;
}

static int feed(struct provider_process *process, struct str data, bool close, struct error *err)
{
    if (data.len && provider_process_input(process, data, err) < 0)
        return -1;
    return close ? provider_process_close_stdin(process, err) : 0;
}

int job_input(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
              struct str data, bool close, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct provider_process *process = NULL;
    struct store_runtime_job row;
    struct job_watch *watch;
    struct runtime_use use;
    int r;

    if (data.len > INPUT_MAX)
        return error_set(err, ERROR_LIMIT, "input of a job is at most %d bytes at once", INPUT_MAX);
    if (get_row(runtime, caller, id, &arena, &row, err) < 0)
        return -1;
    if (row.state != JOB_RUNNING)
        return error_set(err, ERROR_CONFLICT, "job '%.*s' has ended", STR_ARG(id));
    if (!row.has_input)
        return error_set(err, ERROR_CONFLICT,
                         "job '%.*s' was started without standard input: start it with input"
                         " (it may be empty)",
                         STR_ARG(id));
    watch = job_watch_acquire(runtime, row.id);
    if (watch) {
        r = feed(watch->process, data, close, err);
        job_watch_release(runtime, watch);
        return r;
    }
    if (use_job(runtime, caller, 0, &row, &arena, &use, err) < 0 ||
        provider_attach(use.provider, &use.ref, row.id.p, 0, &process, err) < 0)
        return -1;
    r = feed(process, data, close, err);
    provider_process_free(process);
    return r;
}
