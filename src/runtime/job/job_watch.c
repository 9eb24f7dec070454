/* Waiting for the ends of jobs, in turns (job_rest.c).
 *
 * A watch holds the stream of the wrapper. When the stream breaks it finds out why: the sandbox was
 * killed (137), paused (the watch goes; a new one comes with the resume), or only the connection is
 * gone (attach again). When the wrapper is not there any more, the exit file says how it ended; no
 * file means that the machine was restarted or the wrapper killed: 137.
 *
 * The end is recorded by one conditional update, so it does not matter how many notice it. */
#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "protocol/sender/sender.h"
#include "runtime/command/command.h"
#include "runtime/core/event.h"
#include "runtime/job/job_internal.h"

enum {
    EXIT_LOST = 137,
    EXIT_STOPPED = 143,
    EXIT_TIMED_OUT = 124,
    HOLD_MS = 30000,
    HOLD_FIRST_MS = 500, /* until its sandbox's time is known */
    POLL_MS = 2000,      /* where a process cannot be attached to */
    RETRY_MAX_MS = 10000,
    LOG_TRIES = 5, /* of the log for its callback */
    LOG_WAIT_MS = 500,
    LOG_PIECE = 32 * 1024,
    LOG_PIECES = 4,
};

/* ---- the end ---- */

static void tell_end(struct runtime *runtime, const struct runtime_caller *caller,
                     const struct store_runtime_job *row, const struct store_runtime_job_end *end)
{
    json_t *data =
        json_pack("{s:b, s:s, s:I}", "job", 1, "status", name_of(&job_state_names, end->state),
                  "duration_ms", (json_int_t)((end->at_us - row->started_at_us) / 1000));
    struct runtime_event event = {
        .type = STR("process.exited"),
        .sandbox_id = row->sandbox_id,
        .process_id = row->id,
        .agent_id = row->agent_id,
        .actor = caller->actor,
        .data = data,
    };

    if (end->has_exit_code)
        (void)json_object_set_new(data, "exit_code", json_integer(end->exit_code));
    if (end->error.p)
        (void)json_object_set_new(data, "error", json_str(end->error));
    if (str_is(end->error, RUNTIME_OUT_OF_MEMORY))
        (void)json_object_set_new(data, "reason", json_str(end->error));
    runtime_event_add(runtime, caller, &event);
    json_decref(data);
}

void job_ended(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
               const struct job_end *end)
{
    struct jobs *jobs = runtime->jobs;
    auto_arena struct arena arena = {0};
    struct store_runtime_job_end row_end;
    struct store_runtime_job row;
    struct job_end told = *end;
    auto_free char *body = NULL;
    bool ended = false, callback = false;
    struct error err;

    if (store_runtime_job_get(runtime->config.store, caller->team_id, id, &arena, &row, &err) < 0 ||
        row.state != JOB_RUNNING)
        return;
    if (row.stopping) {
        told.has_exit_code = true;
        told.exit_code = EXIT_STOPPED;
    }
    row_end = (struct store_runtime_job_end){
        .state = row.stopping                                ? JOB_CANCELLED
                 : told.has_exit_code && told.exit_code == 0 ? JOB_COMPLETED
                                                             : JOB_FAILED,
        .error = str_of(told.error),
        .has_exit_code = told.has_exit_code,
        .exit_code = told.exit_code,
        .at_us = clock_wall_us(),
    };
    if (row.callback_state != CALLBACK_NONE) {
        body = job_callback_body(&told, row_end.state == JOB_COMPLETED);
        row_end.body = str_of(body);
    }
    if (store_runtime_job_ended(runtime->config.store, id, &row_end, &ended, &callback, &err) < 0) {
        log_error("runtime", "job=%.*s end not recorded: %s", STR_ARG(id), err.message);
        return;
    }
    if (ended)
        tell_end(runtime, caller, &row, &row_end);
    if (callback)
        sender_kick(runtime->config.sender);
    (void)pthread_mutex_lock(&jobs->lock);
    jobs->ends++;
    (void)pthread_cond_broadcast(&jobs->changed);
    (void)pthread_mutex_unlock(&jobs->lock);
}

/* ---- watches ---- */

void job_wait_changed(struct jobs *jobs, int64_t ms)
{
    (void)cond_wait_ms(&jobs->changed, &jobs->lock, ms);
}

/* With the lock held. */
static struct job_watch *find_watch(struct jobs *jobs, struct str id)
{
    struct list *pos;

    list_for_each (pos, &jobs->watches) {
        struct job_watch *watch = container_of(pos, struct job_watch, link);

        if (str_is(id, watch->id))
            return watch;
    }
    return NULL;
}

struct job_watch *job_watch_acquire(struct runtime *runtime, struct str id)
{
    struct job_watch *watch;

    (void)pthread_mutex_lock(&runtime->jobs->lock);
    watch = find_watch(runtime->jobs, id);
    if (watch && watch->process)
        watch->users++;
    else
        watch = NULL;
    (void)pthread_mutex_unlock(&runtime->jobs->lock);
    return watch;
}

void job_watch_release(struct runtime *runtime, struct job_watch *watch)
{
    (void)pthread_mutex_lock(&runtime->jobs->lock);
    watch->users--;
    (void)pthread_cond_broadcast(&runtime->jobs->changed);
    (void)pthread_mutex_unlock(&runtime->jobs->lock);
}

/* Waits for ms or until the watch is cancelled. */
static bool rest(struct job_watch *watch, int64_t ms)
{
    struct jobs *jobs = watch->runtime->jobs;
    int64_t until_ms = clock_mono_ms() + ms, left_ms;
    bool cancelled;

    (void)pthread_mutex_lock(&jobs->lock);
    while (!watch->cancelled && (left_ms = until_ms - clock_mono_ms()) > 0)
        job_wait_changed(jobs, left_ms);
    cancelled = watch->cancelled;
    (void)pthread_mutex_unlock(&jobs->lock);
    return !cancelled;
}

static void set_process(struct job_watch *watch, struct provider_process *process)
{
    struct jobs *jobs = watch->runtime->jobs;
    struct provider_process *old;

    (void)pthread_mutex_lock(&jobs->lock);
    old = watch->process;
    watch->process = NULL;
    while (watch->users)
        job_wait_changed(jobs, 1000);
    watch->process = process;
    if (process && watch->cancelled)
        provider_process_cancel(process);
    (void)pthread_mutex_unlock(&jobs->lock);
    provider_process_free(old);
}

/* What the row of the sandbox says: 1 = it runs, 0 = nothing to watch now, -1 = it is gone. */
static int look(struct job_watch *watch, struct arena *arena, struct runtime_use *use)
{
    struct runtime *runtime = watch->runtime;
    struct store_runtime_sandbox row;
    struct backend *backend = NULL;
    struct error err;

    if (store_runtime_sandbox_get(runtime->config.store, watch->caller.team_id,
                                  str_of(watch->sandbox_id), arena, &row, &err) < 0)
        return err.code == ERROR_NOT_FOUND ? -1 : 0;
    if (row.destroyed_at_us || row.state == SANDBOX_LOST)
        return -1;
    if (row.state != SANDBOX_RUNNING ||
        runtime_row_backend(runtime, &watch->caller, &row, &backend, &err) < 0)
        return 0;
    use->backend = backend;
    use->provider = backend_provider(backend);
    use->ref = runtime_row_ref(&row, 0);
    runtime_sandbox_of(&row, arena, &use->sandbox);
    return 1;
}

/* A job at work keeps its sandbox alive. */
static int keep_alive(struct job_watch *watch)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox row;
    struct runtime_use use;
    int64_t ttl_s;
    struct error err;
    int r = look(watch, &arena, &use);

    if (r <= 0)
        return r;
    if (store_runtime_sandbox_get(watch->runtime->config.store, watch->caller.team_id,
                                  str_of(watch->sandbox_id), &arena, &row, &err) < 0)
        return 0;
    ttl_s = runtime_row_ttl(watch->runtime, use.backend, &row);
    watch->hold_ms = ttl_s > 0 && ttl_s * 250 < HOLD_MS ? ttl_s * 250 : HOLD_MS;
    runtime_live_used(watch->runtime, row.id, 0, 0);
    runtime_use_extend(watch->runtime, use.provider, &use.ref, row.id, ttl_s);
    return 1;
}

/* The end of its output, for the callback, while the machine is there. A provider that does not
 * answer just now is asked again. -1 = the watch was cancelled: its end is not ours to tell. */
static int end_logs(struct job_watch *watch, struct runtime_result *logs)
{
    int64_t wait_ms = LOG_WAIT_MS;

    for (int tries = 1;; tries++) {
        auto_arena struct arena arena = {0};
        struct runtime_use use;
        struct error err = {0};

        if (look(watch, &arena, &use) <= 0 ||
            job_read_log(watch->runtime, &use, watch->id, watch->user, -1, JOB_LOGS_TOLD, logs,
                         &err) == 0)
            return 0;
        log_info("runtime", "job=%s log not read for its callback: %s", watch->id, err.message);
        runtime_result_done(logs);
        *logs = (struct runtime_result){0};
        if (tries == LOG_TRIES || (err.code != ERROR_UNAVAILABLE && err.code != ERROR_TIMEOUT))
            return 0;
        if (!rest(watch, wait_ms))
            return -1;
        wait_ms *= 2;
    }
}

static void end_with(struct job_watch *watch, int code, const char *why)
{
    auto_arena struct arena arena = {0};
    struct job_end end = {.has_exit_code = true, .exit_code = code, .error = why};
    struct runtime_result logs = {0};
    struct store_runtime_job row;
    struct error err;

    if (store_runtime_job_get(watch->runtime->config.store, watch->caller.team_id,
                              str_of(watch->id), &arena, &row, &err) == 0 &&
        row.callback_state != CALLBACK_NONE && end_logs(watch, &logs) < 0)
        return;
    if (logs.out.len)
        end.logs = buf_str(&logs.out);
    job_ended(watch->runtime, &watch->caller, str_of(watch->id), &end);
    runtime_result_done(&logs);
}

/* What its log has got since the last time, for those who watch. It is read only while somebody does. */
static void tell_output(struct job_watch *watch)
{
    auto_arena struct arena arena = {0};
    struct runtime_use use;
    struct error err;
    size_t got = LOG_PIECE;

    if (watch->told < 0 || !runtime_output_watched(&watch->output) ||
        look(watch, &arena, &use) <= 0)
        return;
    for (int i = 0; i < LOG_PIECES && got == LOG_PIECE; i++) {
        struct runtime_result logs = {0};

        got = 0;
        if (job_read_log(watch->runtime, &use, watch->id, watch->user, watch->told, LOG_PIECE,
                         &logs, &err) == 0) {
            got = logs.out.len;
            watch->told += (int64_t)got;
            runtime_output_tell(&watch->output, false, buf_str(&logs.out));
        }
        runtime_result_done(&logs);
    }
}

/* Reads what there is: 1 = the job has ended, 0 = nothing more just now, -1 = the stream is of no use. */
static int read_stream(struct job_watch *watch)
{
    struct provider_event event;
    struct error err;

    for (;;) {
        int r = provider_process_next(watch->process, 0, &event, &err);

        if (r < 0)
            return -1;
        tell_output(watch);
        if (r > 0 && event.kind == PROVIDER_EXITED) {
            end_with(watch, event.timed_out ? EXIT_TIMED_OUT : event.exit_code,
                     event.timed_out       ? "its timeout has ended it"
                     : event.out_of_memory ? RUNTIME_OUT_OF_MEMORY
                                           : NULL);
            return 1;
        }
        if (r > 0)
            continue;
        if (clock_mono_ms() - watch->kept_ms < watch->hold_ms)
            return 0;
        if (keep_alive(watch) <= 0)
            return -1;
        watch->kept_ms = clock_mono_ms();
    }
}

/* The wrapper cannot be attached to: 1 = its end is recorded. */
static int ask(struct job_watch *watch, const struct runtime_use *use)
{
    enum wrapper_status status = WRAPPER_RUNS;
    struct error err;
    int code = 0;

    if (job_status(watch->runtime, use, watch->id, watch->user, &status, &code, &err) < 0 ||
        status == WRAPPER_RUNS)
        return 0;
    if (status == WRAPPER_EXITED)
        end_with(watch, code, NULL);
    else
        end_with(watch, EXIT_LOST,
                 status == WRAPPER_NEVER ? "it was not launched: the server stopped before that"
                                         : "it was killed, or its sandbox restarted");
    return 1;
}

/* 1 = there is a stream again, 0 = not now, -1 = nothing to do any more. */
static int attach(struct job_watch *watch)
{
    auto_arena struct arena arena = {0};
    struct provider_process *process = NULL;
    struct provider_sandbox machine = {0};
    struct runtime_use use;
    struct error err;
    int r = look(watch, &arena, &use);

    if (r < 0)
        end_with(watch, EXIT_LOST, "its sandbox is gone");
    if (r <= 0)
        return -1;
    if (provider_attach(use.provider, &use.ref, watch->id, 0, &process, &err) == 0) {
        set_process(watch, process);
        return 1;
    }
    if (provider_get(use.provider, &use.ref, &arena, &machine, &err) < 0) {
        if (err.code == ERROR_NOT_FOUND) {
            runtime_use_lost(watch->runtime, &watch->caller, &use);
            end_with(watch, EXIT_LOST, "its sandbox is gone");
            return -1;
        }
        return 0;
    }
    if (machine.state != PROVIDER_RUNNING)
        return -1;
    return ask(watch, &use) ? -1 : 0;
}

/* false = it is needed again. */
static bool leave(struct job_watch *watch)
{
    struct jobs *jobs = watch->runtime->jobs;
    bool stays;

    set_process(watch, NULL);
    (void)pthread_mutex_lock(&jobs->lock);
    stays = watch->again && !watch->cancelled;
    watch->again = false;
    if (!stays)
        list_remove(&watch->link);
    (void)pthread_cond_broadcast(&jobs->changed);
    (void)pthread_mutex_unlock(&jobs->lock);
    if (stays)
        return false;
    arena_done(&watch->arena);
    free(watch);
    return true;
}

static int64_t longer(int64_t wait_ms)
{
    wait_ms = wait_ms ? wait_ms * 2 : POLL_MS / 4;
    return wait_ms < RETRY_MAX_MS ? wait_ms : RETRY_MAX_MS;
}

/* false = there is nothing to watch any more. */
static bool turn(struct job_watch *watch, struct provider_wait *wait)
{
    while (rest(watch, 0)) {
        int r = watch->process ? read_stream(watch) : -1;

        if (r == 0)
            *wait = provider_process_wait(watch->process);
        if (r >= 0)
            return r == 0;
        set_process(watch, NULL);
        if (!rest(watch, 0))
            return false;
        r = attach(watch);
        watch->retry_ms = r ? 0 : longer(watch->retry_ms);
        *wait = (struct provider_wait){.fd = -1, .ms = watch->retry_ms};
        if (r <= 0)
            return r == 0;
        watch->kept_ms = clock_mono_ms();
    }
    return false;
}

static void take_turn(struct work *work)
{
    struct job_watch *watch = container_of(work, struct job_watch, work);
    struct provider_wait wait;

    do
        if (turn(watch, &wait)) {
            job_rest(watch->runtime->jobs, watch, wait);
            return;
        }
    while (!leave(watch));
}

void job_watch_start(struct runtime *runtime, const struct store_runtime_job *row,
                     struct provider_process *process)
{
    struct jobs *jobs = runtime->jobs;
    struct job_watch *watch = xcalloc(1, sizeof(*watch)), *there;
    bool wanted;

    watch->runtime = runtime;
    watch->process = process;
    watch->fd = -1;
    watch->hold_ms = HOLD_FIRST_MS;
    watch->kept_ms = clock_mono_ms();
    watch->caller = (struct runtime_caller){
        .team_id = arena_str(&watch->arena, row->team_id),
        .actor = arena_str(&watch->arena, row->actor),
    };
    watch->user = arena_str(&watch->arena, row->run_as).p;
    (void)str_copy(row->id, watch->id, sizeof(watch->id));
    (void)str_copy(row->sandbox_id, watch->sandbox_id, sizeof(watch->sandbox_id));
    watch->told = process ? 0 : -1;
    runtime_output_init(
        &watch->output, runtime, &watch->caller,
        &(struct runtime_event){.sandbox_id = str_of(watch->sandbox_id),
                                .process_id = str_of(watch->id),
                                .agent_id = arena_str(&watch->arena, row->agent_id)});
    (void)pthread_mutex_lock(&jobs->lock);
    there = find_watch(jobs, row->id);
    wanted = !jobs->closing && !there;
    if (wanted) {
        list_push_back(&jobs->watches, &watch->link);
        job_rest_begin(jobs, watch);
    } else if (there) {
        there->again = true;
        job_rest_hurry(jobs, there);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    if (!wanted) {
        watch->cancelled = true;
        (void)leave(watch);
    }
}

/* ---- when sandboxes change ---- */

void jobs_resumed(struct runtime *runtime, struct str sandbox_id)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_job *rows = NULL;
    size_t count = 0;
    struct error err;

    if (!runtime->jobs || store_runtime_job_running(runtime->config.store, sandbox_id, &arena,
                                                    &rows, &count, &err) < 0)
        return;
    for (size_t i = 0; i < count; i++)
        job_watch_start(runtime, &rows[i], NULL);
}

static void cancel_watches(struct jobs *jobs, struct str sandbox_id)
{
    struct list *pos;

    (void)pthread_mutex_lock(&jobs->lock);
    list_for_each (pos, &jobs->watches) {
        struct job_watch *watch = container_of(pos, struct job_watch, link);

        if (sandbox_id.p && !str_is(sandbox_id, watch->sandbox_id))
            continue;
        watch->cancelled = true;
        if (watch->process)
            provider_process_cancel(watch->process);
        job_rest_hurry(jobs, watch);
    }
    (void)pthread_cond_broadcast(&jobs->changed);
    (void)pthread_mutex_unlock(&jobs->lock);
}

void jobs_lost(struct runtime *runtime, struct str sandbox_id)
{
    auto_arena struct arena arena = {0};
    struct job_end end = {
        .has_exit_code = true, .exit_code = EXIT_LOST, .error = "its sandbox is gone"};
    struct store_runtime_job *rows = NULL;
    size_t count = 0;
    struct error err;

    if (!runtime->jobs || store_runtime_job_running(runtime->config.store, sandbox_id, &arena,
                                                    &rows, &count, &err) < 0)
        return;
    if (!count)
        return;
    cancel_watches(runtime->jobs, sandbox_id);
    for (size_t i = 0; i < count; i++) {
        struct runtime_caller caller = {.team_id = rows[i].team_id, .actor = rows[i].actor};

        job_ended(runtime, &caller, rows[i].id, &end);
    }
}

/* ---- open and close ---- */

int jobs_open(struct runtime *runtime, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_job *rows = NULL;
    struct jobs *jobs;
    size_t count = 0;

    if (runtime_sandboxes_open(runtime, err) < 0 || terminals_open(runtime, err) < 0)
        return -1;
    jobs = runtime->jobs = xcalloc(1, sizeof(*jobs));
    (void)pthread_mutex_init(&jobs->lock, NULL);
    cond_init(&jobs->changed);
    list_init(&jobs->watches);
    runtime->on_resumed = jobs_resumed;
    runtime->on_gone = jobs_lost;
    runtime_prune_open(runtime);
    if (job_rest_open(jobs, take_turn, err) < 0)
        return -1;
    if (store_runtime_job_running(runtime->config.store, STR_NONE, &arena, &rows, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        job_watch_start(runtime, &rows[i], NULL);
    job_callbacks_open(runtime);
    return 0;
}

void jobs_close(struct runtime *runtime)
{
    struct jobs *jobs = runtime->jobs;

    terminals_close(runtime);
    if (jobs) {
        (void)pthread_mutex_lock(&jobs->lock);
        jobs->closing = true;
        (void)pthread_mutex_unlock(&jobs->lock);
        cancel_watches(jobs, STR_NONE);
        (void)pthread_mutex_lock(&jobs->lock);
        while (!list_empty(&jobs->watches))
            job_wait_changed(jobs, 1000);
        (void)pthread_mutex_unlock(&jobs->lock);
        job_rest_close(jobs);
        job_callbacks_close(runtime);
        (void)pthread_cond_destroy(&jobs->changed);
        (void)pthread_mutex_destroy(&jobs->lock);
        free(jobs);
        runtime->jobs = NULL;
    }
    runtime_sandboxes_close(runtime);
}
