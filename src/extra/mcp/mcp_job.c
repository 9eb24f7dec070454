/* Jobs: commands in the background. */
#include "extra/mcp/mcp_tool.h"

#include "base/names.h"
#include "protocol/json/json_shape.h"
#include "runtime/job/job.h"

enum { LOG_DEFAULT = 64 * 1024, WAIT_STEP_MS = 5000 };

static json_t *job_json(const struct job *job)
{
    return json_pack("{s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "job_id", json_str(job->id),
                     "sandbox_id", json_str(job->sandbox_id), "command", json_str(job->command),
                     "state", name_of(&job_state_names, job->state), "sandbox_state",
                     mcp_text(job->sandbox_state), "exit_code",
                     job->has_exit_code ? json_integer(job->exit_code) : json_null(), "error",
                     mcp_text(job->error), "started_at", mcp_time(job->started_at_us), "ended_at",
                     mcp_time(job->ended_at_us));
}

static struct runtime *runtime_of(const struct mcp_call *call)
{
    return call->mcp->config.runtime;
}

int mcp_job_start(struct mcp_call *call, json_t *args, struct mcp_outcome *out, struct error *err)
{
    struct runtime_command command;
    struct job job = {0};
    struct str id;

    if (mcp_command_read(call, args, &command, err) < 0 || mcp_sandbox(call, args, &id, err) < 0 ||
        job_start(runtime_of(call), &call->caller, id, &command, NULL, &call->arena, &job, err) < 0)
        return -1;
    mcp_outcome_json(out, job_json(&job));
    return 0;
}

/* The job that is meant; with an API key for one sandbox, of that one. */
static int find(struct mcp_call *call, json_t *args, struct job *out, struct error *err)
{
    struct str given = json_get_str(args, "job_id"), id;
    auto_json json_t *of = NULL;

    if (job_get(runtime_of(call), &call->caller, given, &call->arena, out, err) < 0)
        return -1;
    if (!call->key_sandbox.len)
        return 0;
    of = json_pack("{s:o}", "sandbox_id", json_str(out->sandbox_id));
    if (mcp_sandbox(call, of, &id, err) < 0)
        return error_set(err, ERROR_NOT_FOUND, "job '%.*s' not found", STR_ARG(given));
    return 0;
}

static int answer(struct mcp_call *call, struct str id, struct mcp_outcome *out, struct error *err)
{
    struct job job = {0};

    if (job_get(runtime_of(call), &call->caller, id, &call->arena, &job, err) < 0)
        return -1;
    mcp_outcome_json(out, job_json(&job));
    return 0;
}

int mcp_job_status(struct mcp_call *call, json_t *args, struct mcp_outcome *out, struct error *err)
{
    int64_t left_ms = mcp_arg_int(args, "wait_s", 0) * 1000;
    struct job job = {0};
    int ended = 0;

    if (find(call, args, &job, err) < 0)
        return -1;
    while (left_ms > 0 && !ended && !mcp_running_cancelled(call)) {
        int64_t step = left_ms < WAIT_STEP_MS ? left_ms : WAIT_STEP_MS;

        ended = job_wait(runtime_of(call), &call->caller, job.id, (uint32_t)step, err);
        if (ended < 0 || mcp_beat(call) < 0)
            return ended < 0 ? -1 : 0;
        left_ms -= step;
    }
    return answer(call, job.id, out, err);
}

static int collect(void *arg, struct str data)
{
    return buf_add_str(arg, data) ? 0 : -1;
}

int mcp_job_logs(struct mcp_call *call, json_t *args, struct mcp_outcome *out, struct error *err)
{
    struct job_read read = {.after = mcp_arg_int(args, "after", 0),
                            .limit = (size_t)mcp_arg_int(args, "limit", LOG_DEFAULT)};
    auto_buf struct buf text = {0};
    struct job job = {0};
    int64_t next = read.after;

    buf_init(&text, read.limit);
    if (find(call, args, &job, err) < 0 ||
        job_logs(runtime_of(call), &call->caller, job.id, &read, collect, &text, &next, err) < 0)
        return -1;
    mcp_outcome_text(out, text.len ? buf_str(&text) : STR(""));
    mcp_outcome_json(out, json_pack("{s:o, s:o, s:I}", "job_id", json_str(job.id), "output",
                                    json_str(text.len ? buf_str(&text) : STR("")), "next",
                                    (json_int_t)next));
    return 0;
}

int mcp_job_stop(struct mcp_call *call, json_t *args, struct mcp_outcome *out, struct error *err)
{
    struct job job = {0};

    if (find(call, args, &job, err) < 0 ||
        job_stop(runtime_of(call), &call->caller, job.id, 0, err) < 0)
        return -1;
    return answer(call, job.id, out, err);
}

int mcp_job_list(struct mcp_call *call, json_t *args, struct mcp_outcome *out, struct error *err)
{
    struct str id = STR_NONE;
    struct job *items = NULL;
    size_t count = 0;
    json_t *array;

    if (((json_get_str(args, "sandbox_id").len || call->key_sandbox.len) &&
         mcp_sandbox(call, args, &id, err) < 0) ||
        job_list(runtime_of(call), &call->caller, id, &call->arena, &items, &count, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, job_json(&items[i]));
    mcp_outcome_json(out, json_pack("{s:o}", "jobs", array));
    return 0;
}
