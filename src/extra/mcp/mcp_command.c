/* run_command: what the command prints is told as progress while it runs, and given back at its end. */
#include "extra/mcp/mcp_tool.h"

#include "extra/mcp/mcp_output.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"

struct command {
    struct mcp_call *call;
    struct mcp_capture streams[2]; /* stdout, stderr */
};

static int on_output(void *arg, bool is_err, struct str data)
{
    struct command *command = arg;
    struct mcp_call *call = command->call;

    if (mcp_running_cancelled(call))
        return -1;
    if (!data.len)
        return mcp_progress_flush(call) < 0 ? -1 : mcp_beat(call);
    mcp_capture_add(&command->streams[is_err], data);
    return mcp_progress_add(call, data);
}

static int on_started(void *arg, const char *process_id)
{
    struct command *command = arg;

    return mcp_running_started(command->call, process_id) ? 0 : -1;
}

/* ---- begin and end ---- */

int mcp_command_read(struct mcp_call *call, json_t *args, struct runtime_command *out,
                     struct error *err)
{
    *out = (struct runtime_command){
        .command = json_get_str(args, "command"),
        .cwd = json_get_str(args, "cwd"),
        .user = json_get_str(args, "user"),
        .env = json_object_get(args, "env"),
        .input = json_get_str(args, "input"),
        .timeout_ms = mcp_arg_int(args, "timeout_s", 0) * 1000,
    };
    if (!out->command.len)
        return error_set(err, ERROR_INVALID, "'command' is empty");
    return runtime_command_check(call->mcp->config.runtime, out, err);
}

/* As a person would read it: what was printed, then what is worth knowing about the end. */
static void add_text(struct mcp_call *call, struct str out, struct str err,
                     const struct runtime_result *result, struct mcp_outcome *outcome)
{
    auto_buf struct buf text = {0};

    buf_init(&text, out.len + err.len + 256);
    (void)buf_add_str(&text, out);
    if (err.len)
        (void)buf_printf(&text, "%s[stderr]\n", out.len && !str_ends(out, STR("\n")) ? "\n" : "");
    (void)buf_add_str(&text, err);
    if (result->timed_out || result->exit_code != 0 || result->out_of_memory || !text.len)
        (void)buf_printf(&text, "%s[exit code %d%s]",
                         text.len && !str_ends(buf_str(&text), STR("\n")) ? "\n" : "",
                         result->exit_code,
                         result->timed_out       ? ": it took too long and was ended"
                         : result->out_of_memory ? ": " RUNTIME_OUT_OF_MEMORY
                                                 : "");
    mcp_outcome_text(outcome, arena_str(&call->arena, buf_str(&text)));
}

static void tell_end(struct command *command, struct str sandbox_id,
                     const struct runtime_result *result, struct mcp_outcome *outcome)
{
    struct mcp_call *call = command->call;
    bool truncated = mcp_capture_missing(&command->streams[0]) > 0 ||
                     mcp_capture_missing(&command->streams[1]) > 0;
    struct str out = mcp_capture_text(&command->streams[0], &call->arena);
    struct str err = mcp_capture_text(&command->streams[1], &call->arena);

    (void)mcp_progress_flush(call);
    add_text(call, out, err, result, outcome);
    mcp_outcome_json(outcome, json_pack("{s:o, s:o, s:o, s:i, s:I, s:b, s:b}", "sandbox_id",
                                        json_str(sandbox_id), "stdout", json_str(out), "stderr",
                                        json_str(err), "exit_code", result->exit_code,
                                        "duration_ms", (json_int_t)result->duration_ms, "timed_out",
                                        (int)result->timed_out, "truncated", (int)truncated));
}

int mcp_run_command(struct mcp_call *call, json_t *args, struct mcp_outcome *out, struct error *err)
{
    size_t limit = (size_t)mcp_arg_int(args, "output_limit", MCP_OUTPUT_DEFAULT);
    struct command command = {.call = call};
    struct runtime_command wanted;
    struct runtime_result result = {0};
    struct str id;
    int r;

    if (mcp_command_read(call, args, &wanted, err) < 0 || mcp_sandbox(call, args, &id, err) < 0)
        return -1;
    for (int i = 0; i < 2; i++)
        mcp_capture_init(&command.streams[i], limit);
    wanted.on_started = on_started;
    wanted.on_output = on_output;
    wanted.on_output_arg = &command;
    wanted.keep_limit = (int64_t)limit;
    r = runtime_exec(call->mcp->config.runtime, &call->caller, id, &wanted, &result, err);
    if (r == 0)
        tell_end(&command, id, &result, out);
    runtime_result_done(&result);
    for (int i = 0; i < 2; i++)
        mcp_capture_done(&command.streams[i]);
    return r;
}
