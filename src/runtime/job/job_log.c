/* Logs of jobs: a piece of the file, or the file as it grows. Following is a `tail -f` in the
 * sandbox; it is ended when the job has ended, and what it may have missed is read after it. */
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "protocol/json/json_shape.h"
#include "runtime/job/job_internal.h"

enum { PIECE = 256 * 1024, LIMIT_DEFAULT = 1024 * 1024, STEP_MS = 250 };

struct logs {
    struct runtime *runtime;
    const struct runtime_caller *caller;
    struct store_runtime_job row;
    struct runtime_use use;
    int64_t at;
    size_t left;
    uint32_t wait_ms;
    provider_sink_fn *sink;
    void *arg;
};

/* 1 = enough: the limit is reached or the sink gave up. */
static int pass(struct logs *logs, struct str data)
{
    if (data.len > logs->left)
        data.len = logs->left;
    if (data.len && logs->sink(logs->arg, data) < 0)
        return 1;
    logs->at += (int64_t)data.len;
    logs->left -= data.len;
    return logs->left == 0;
}

/* 1 = enough, 0 = all there is. */
static int read_rest(struct logs *logs, struct error *err)
{
    for (;;) {
        int64_t piece = logs->left < PIECE ? (int64_t)logs->left : PIECE;
        struct runtime_result result = {0};
        size_t got;
        int r = job_read_log(logs->runtime, &logs->use, logs->row.id.p, logs->row.run_as.p,
                             logs->at, piece, &result, err);

        got = result.out.len;
        if (r == 0)
            r = pass(logs, buf_str(&result.out));
        runtime_result_done(&result);
        if (r != 0 || got < (size_t)piece)
            return r;
    }
}

static bool running(struct logs *logs)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_job row;
    struct error err;

    return store_runtime_job_get(logs->runtime->config.store, logs->caller->team_id, logs->row.id,
                                 &arena, &row, &err) == 0 &&
           row.state == JOB_RUNNING;
}

/* 1 = enough, 0 = the job has ended or the stream broke, 2 = nothing came for too long. */
static int read_stream(struct logs *logs, struct provider_process *process)
{
    int64_t quiet_ms = clock_mono_ms();
    struct provider_event event;
    struct error err;

    for (;;) {
        int r = provider_process_next(process, STEP_MS, &event, &err);

        if (r < 0 || (r > 0 && event.kind == PROVIDER_EXITED))
            return 0;
        if (r > 0 && event.kind == PROVIDER_STDOUT) {
            if (pass(logs, event.data))
                return 1;
            quiet_ms = clock_mono_ms();
        }
        if (r > 0)
            continue;
        if (!running(logs))
            return 0;
        if (clock_mono_ms() - quiet_ms >= logs->wait_ms)
            return 2;
    }
}

static int follow_once(struct logs *logs, struct error *err)
{
    struct provider_process *process = NULL;
    struct error ignored;
    int r;

    if (job_follow_log(&logs->use, logs->row.id.p, logs->row.run_as.p, logs->at, &process, err) < 0)
        return -1;
    r = read_stream(logs, process);
    (void)provider_process_signal(process, SIGKILL, &ignored);
    provider_process_free(process);
    /* The last lines may have come after the tail was gone. */
    return r == 0 ? read_rest(logs, err) : r;
}

/* Again when only the stream was lost. */
static int follow(struct logs *logs, struct error *err)
{
    int64_t at;
    int r;

    do {
        at = logs->at;
        r = follow_once(logs, err);
    } while (r == 0 && logs->at > at && running(logs));
    return r;
}

static int use_logs(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    struct arena *arena, struct store_runtime_job *row, struct runtime_use *use,
                    struct error *err)
{
    if (store_runtime_job_get(runtime->config.store, caller->team_id, id, arena, row, err) < 0)
        return -1;
    if (runtime_use(runtime, caller, row->sandbox_id, PROVIDER_EXEC | PROVIDER_JOB_LOGS, arena, use,
                    err) < 0)
        return job_refused(err, "there is no live log; its end comes with the callback");
    return 0;
}

int job_logs_check(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                   struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_job row;
    struct runtime_use use;

    return use_logs(runtime, caller, id, &arena, &row, &use, err);
}

int job_logs(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
             const struct job_read *read, provider_sink_fn *sink, void *arg, int64_t *out_next,
             struct error *err)
{
    auto_arena struct arena arena = {0};
    struct logs logs = {
        .runtime = runtime,
        .caller = caller,
        .at = read->after > 0 ? read->after : 0,
        .left = read->limit ? read->limit : LIMIT_DEFAULT,
        .wait_ms = read->wait_ms,
        .sink = sink,
        .arg = arg,
    };
    int r;

    if (use_logs(runtime, caller, id, &arena, &logs.row, &logs.use, err) < 0)
        return -1;
    r = read->follow && logs.row.state == JOB_RUNNING ? follow(&logs, err) : read_rest(&logs, err);
    if (r < 0)
        return -1;
    *out_next = logs.at;
    return 0;
}
