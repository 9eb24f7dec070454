/* Commands: run to their end, or in the background as processes. */
#include <signal.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "edge/api_runtime/v1_types.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"
#include "runtime/job/job.h"
#include "runtime/sandbox/sandbox.h"

static struct runtime *runtime_of(const struct v1_call *call)
{
    return call->v1->config.runtime;
}

/* Text, or base64 for those who want the bytes as they were. Frees the output. */
static void add_output(struct buf *text, const char *name, struct buf *output, bool encoded)
{
    if (encoded)
        json_out_base64(text, name, buf_str(output));
    else
        json_out_str(text, name, buf_str(output));
    buf_done(output);
}

/* Output may be long, so it becomes text without a tree. */
static int answer_result(struct v1_call *call, struct runtime_result *result, bool encoded,
                         struct error *err)
{
    auto_json json_t *rest = json_pack(
        "{s:i, s:I, s:b, s:b, s:s*}", "exit_code", result->exit_code, "duration_ms",
        (json_int_t)result->duration_ms, "timed_out", (int)result->timed_out, "truncated",
        (int)result->truncated, "reason", result->out_of_memory ? RUNTIME_OUT_OF_MEMORY : NULL);
    auto_free char *rest_text = NULL;
    auto_buf struct buf text = {0};

    v1_types_kept(rest, result);
    rest_text = json_text(rest);
    buf_init_charged(&text, SIZE_MAX);
    json_out_open(&text, NULL, '{');
    add_output(&text, "stdout", &result->out, encoded);
    add_output(&text, "stderr", &result->err, encoded);
    json_out_members(&text, str_of(rest_text));
    json_out_close(&text, "}");
    if (text.refused) {
        (void)buf_refuse(&text, err);
        err->retry_after_s = ERROR_RETRY_NEVER;
        return error_prefix(err, "the command has ended");
    }
    call_answer_text(&call->call, 200, buf_take(&text));
    return 0;
}

/* Standard input, as text or bytes. "stdin": more may follow by /input. */
static int read_input(struct v1_call *call, struct runtime_command *out, struct error *err)
{
    struct str encoded = STR_NONE;
    auto_buf struct buf bytes = {0};
    bool open_stdin = false;

    buf_init(&bytes, V1_BODY_MAX);
    if (v1_body_bool(call, "stdin", &open_stdin, err) < 0 ||
        v1_body_str(call, "input", &out->input, err) < 0 ||
        v1_body_str(call, "input_base64", &encoded, err) < 0)
        return -1;
    if (encoded.p && !base64_decode(encoded, &bytes))
        return error_set(err, ERROR_INVALID, "'input_base64' is not base64");
    if (encoded.p)
        out->input = bytes.len ? arena_str(&call->arena, buf_str(&bytes)) : STR("");
    out->open_stdin = open_stdin;
    return 0;
}

/* "command" is a line for the shell, or an array: then the same as "argv". */
static int read_command(struct v1_call *call, struct runtime_command *out, struct error *err)
{
    int64_t timeout_s = 0;
    const char *argv = json_is_array(json_object_get(call->json, "command")) ? "command" : "argv";

    if ((argv[0] == 'a' && v1_body_str(call, "command", &out->command, err) < 0) ||
        v1_body_strings(call, argv, JSON_ARRAY, &out->argv, err) < 0 ||
        v1_body_str(call, "cwd", &out->cwd, err) < 0 ||
        v1_body_str(call, "user", &out->user, err) < 0 ||
        v1_body_strings(call, "env", JSON_OBJECT, &out->env, err) < 0 ||
        read_input(call, out, err) < 0 ||
        v1_body_int(call, "timeout", 0, 86400, &timeout_s, err) < 0)
        return -1;
    out->timeout_ms = timeout_s * 1000;
    if (v1_body_int(call, "timeout_ms", 0, 86400000, &out->timeout_ms, err) < 0 ||
        v1_body_int(call, "output_limit", 0, INT32_MAX, &out->output_limit, err) < 0)
        return -1;
    if ((out->command.len != 0) == (out->argv && json_array_size(out->argv)))
        return error_set(err, ERROR_INVALID,
                         "give either 'command', a line for the shell, or 'argv', an array");
    return 0;
}

static int start_job(struct v1_call *call, const struct runtime_command *command, struct error *err)
{
    struct runtime_callback callback = {0};
    json_t *given = json_object_get(call->json, "callback");
    struct job job = {0};

    if (json_is_string(given)) {
        callback.url = json_get_str(call->json, "callback");
    } else if (json_is_object(given)) {
        callback.url = json_get_str(given, "url");
        callback.token = json_get_str(given, "token");
    }
    if (given && !json_is_null(given) && !callback.url.len)
        return error_set(err, ERROR_INVALID, "'callback' must be {\"url\", \"token\"}");
    if (job_start(runtime_of(call), &call->caller, call->params[0], command,
                  callback.url.len ? &callback : NULL, &call->arena, &job, err) < 0)
        return -1;
    call_header(&call->call, "Location",
                str_of(arena_printf(&call->arena, "/api/v1/sandboxes/%.*s/processes/%.*s",
                                    STR_ARG(job.sandbox_id), STR_ARG(job.id))));
    call_answer(&call->call, 202, v1_types_job(&job));
    return 0;
}

/* How it is to be run and told, besides what it is. */
struct manner {
    bool background, stream, encoded;
};

static int read_keep(struct v1_call *call, bool background, struct runtime_command *command,
                     struct error *err)
{
    const json_t *given = json_object_get(call->json, "keep_output");
    bool keep = false;

    if (v1_body_bool(call, "keep_output", &keep, err) < 0)
        return -1;
    if (keep && background)
        return error_set(
            err, ERROR_INVALID,
            "'keep_output' is not for the background: what a job prints is in its log");
    if (given && !json_is_null(given))
        command->keep = keep ? KEEP_YES : KEEP_NO;
    return 0;
}

static int read_manner(struct v1_call *call, struct runtime_command *command, struct manner *out,
                       struct error *err)
{
    struct str encoding = STR_NONE;

    out->stream = str_find_str(call->accept, STR("text/event-stream")) >= 0 ||
                  str_find_str(call->accept, STR("application/x-ndjson")) >= 0;
    if (v1_body_bool(call, "background", &out->background, err) < 0 ||
        v1_body_bool(call, "stream", &out->stream, err) < 0 ||
        v1_body_str(call, "encoding", &encoding, err) < 0)
        return -1;
    if (read_keep(call, out->background, command, err) < 0)
        return -1;
    out->encoded = str_is(encoding, "base64");
    if (encoding.len && !out->encoded && !str_is(encoding, "utf-8"))
        return error_set(err, ERROR_INVALID, "'encoding' must be utf-8 or base64");
    if (out->background)
        out->stream = false;
    if (out->stream && command->open_stdin && command->input.p)
        return error_set(err, ERROR_INVALID,
                         "give either 'stdin', to send input while it runs, or 'input'");
    if (command->open_stdin && !out->stream) {
        if (!command->input.p)
            command->input = STR("");
        command->open_stdin = false;
    }
    return 0;
}

int v1_execute(struct v1_call *call, struct error *err)
{
    struct runtime_command command = {0};
    struct runtime_result result = {0};
    struct manner manner = {0};
    int r;

    if (read_command(call, &command, err) < 0 || read_manner(call, &command, &manner, err) < 0 ||
        runtime_command_check(runtime_of(call), &command, err) < 0)
        return -1;
    if (manner.background)
        return start_job(call, &command, err);
    if (manner.stream)
        return v1_execute_stream(call, &command, manner.encoded, err);
    if (runtime_exec(runtime_of(call), &call->caller, call->params[0], &command, &result, err) <
        0) {
        runtime_result_done(&result);
        return -1;
    }
    r = answer_result(call, &result, manner.encoded, err);
    runtime_result_done(&result);
    return r;
}

/* ---- processes in the background; the sandbox "-" stands for any ---- */

int v1_processes_list(struct v1_call *call, struct error *err)
{
    struct str sandbox_id = str_is(call->params[0], "-") ? STR_NONE : call->params[0];
    struct job *items = NULL;
    size_t count = 0;
    json_t *array;

    if (job_list(runtime_of(call), &call->caller, sandbox_id, &call->arena, &items, &count, err) <
        0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, v1_types_job(&items[i]));
    call_answer(&call->call, 200, json_pack("{s:o}", "processes", array));
    return 0;
}

static bool in_foreground(const struct v1_call *call)
{
    return str_starts(call->params[1], STR("exe_"));
}

/* Of the path; STR_NONE for "-", which is any. */
static int find_sandbox(struct v1_call *call, struct str *out, struct error *err)
{
    struct runtime_sandbox sandbox = {.id = call->params[0]};

    if (str_starts(call->params[0], STR("key:")) &&
        runtime_sandbox_get(runtime_of(call), &call->caller, call->params[0], false, &call->arena,
                            &sandbox, err) < 0)
        return -1;
    *out = str_is(call->params[0], "-") ? STR_NONE : sandbox.id;
    return 0;
}

/* A process has an id of its own; its sandbox must agree. */
int v1_processes_find(struct v1_call *call, struct job *out, struct error *err)
{
    struct str sandbox_id;

    if (find_sandbox(call, &sandbox_id, err) < 0)
        return -1;
    if (in_foreground(call))
        return error_set(err, ERROR_UNSUPPORTED,
                         "'%.*s' runs in the foreground: it takes input and signals, and its stream"
                         " tells the rest",
                         STR_ARG(call->params[1]));
    if (job_get(runtime_of(call), &call->caller, call->params[1], &call->arena, out, err) < 0)
        return -1;
    if (sandbox_id.p && !str_eq(out->sandbox_id, sandbox_id))
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' has no process '%.*s'",
                         STR_ARG(call->params[0]), STR_ARG(call->params[1]));
    return 0;
}

static int answer_job(struct v1_call *call, struct error *err)
{
    struct job job = {0};

    if (v1_processes_find(call, &job, err) < 0)
        return -1;
    call_answer(&call->call, 200, v1_types_job(&job));
    return 0;
}

int v1_processes_get(struct v1_call *call, struct error *err)
{
    enum { WAIT_MAX = 300 };
    int64_t wait_s = 0;
    struct job job = {0};

    if (v1_query_int(call, "wait", 0, WAIT_MAX, &wait_s, err) < 0 ||
        v1_processes_find(call, &job, err) < 0)
        return -1;
    if (wait_s &&
        job_wait(runtime_of(call), &call->caller, job.id, (uint32_t)wait_s * 1000, err) < 0)
        return -1;
    return answer_job(call, err);
}

/* Whose input is meant, in the foreground or in the background. */
struct receiver {
    bool foreground;
    struct str sandbox_id; /* of one in the foreground; STR_NONE = any */
    struct job job;
};

static int find_receiver(struct v1_call *call, struct receiver *out, struct error *err)
{
    *out = (struct receiver){.foreground = in_foreground(call)};
    return out->foreground ? find_sandbox(call, &out->sandbox_id, err)
                           : v1_processes_find(call, &out->job, err);
}

static int pass_input(struct v1_call *call, const struct receiver *to, struct str data, bool close,
                      struct error *err)
{
    return to->foreground
               ? runtime_exec_input(runtime_of(call), &call->caller, to->sandbox_id,
                                    call->params[1], data, close, err)
               : job_input(runtime_of(call), &call->caller, to->job.id, data, close, err);
}

/* The body as it is, passed on as it comes: whoever sends is held back by a process that does not read. */
int v1_processes_stdin(struct v1_call *call, struct error *err)
{
    auto_free char *piece = xmalloc(CALL_PIPE_MAX);
    struct receiver to;
    bool close = false;
    ssize_t n;

    if (v1_query_bool(call, "close", &close, err) < 0 || find_receiver(call, &to, err) < 0)
        return -1;
    while ((n = call_pipe_read(&call->pipe, piece, CALL_PIPE_MAX)) > 0)
        if (pass_input(call, &to, str_n(piece, (size_t)n), false, err) < 0)
            return -1;
    if (n < 0)
        return error_set(err, ERROR_UNAVAILABLE, "the input ended before it was complete");
    if (pass_input(call, &to, STR_NONE, close, err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}

int v1_processes_input(struct v1_call *call, struct error *err)
{
    struct str data = STR_NONE, encoded = STR_NONE;
    auto_buf struct buf bytes = {0};
    struct receiver to;
    bool close = false;

    buf_init(&bytes, V1_BODY_MAX);
    if (v1_body_str(call, "data", &data, err) < 0 ||
        v1_body_str(call, "data_base64", &encoded, err) < 0 ||
        v1_body_bool(call, "close", &close, err) < 0 || find_receiver(call, &to, err) < 0)
        return -1;
    if (encoded.len && !base64_decode(encoded, &bytes))
        return error_set(err, ERROR_INVALID, "'data_base64' is not base64");
    if (encoded.len)
        data = buf_str(&bytes);
    if (pass_input(call, &to, data, close, err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}

static const struct {
    const char *name;
    int number;
} signals[] = {
    {"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT},   {"KILL", SIGKILL}, {"USR1", SIGUSR1},
    {"USR2", SIGUSR2}, {"TERM", SIGTERM}, {"STOP", SIGSTOP},   {"CONT", SIGCONT}, {"TSTP", SIGTSTP},
    {"ABRT", SIGABRT}, {"ALRM", SIGALRM}, {"WINCH", SIGWINCH},
};

/* A number, or a name with or without SIG. */
static int read_signal(const json_t *value, int *out)
{
    struct str name = str_n(json_string_value(value), json_string_length(value));

    *out = (int)json_integer_value(value);
    if (json_is_integer(value))
        return json_integer_value(value) >= 1 && json_integer_value(value) <= 64 ? 0 : -1;
    if (str_starts(name, STR("SIG")))
        name = str_skip(name, 3);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        if (str_is(name, signals[i].name)) {
            *out = signals[i].number;
            return 0;
        }
    return -1;
}

int v1_processes_signal(struct v1_call *call, struct error *err)
{
    struct job job = {0};
    int signal;

    if (read_signal(json_object_get(call->json, "signal"), &signal) < 0)
        return error_set(err, ERROR_INVALID,
                         "'signal' must be a number from 1 to 64 or a name like SIGINT");
    if (in_foreground(call)) {
        struct str sandbox_id;

        if (find_sandbox(call, &sandbox_id, err) < 0 ||
            runtime_exec_signal(runtime_of(call), &call->caller, sandbox_id, call->params[1],
                                signal, err) < 0)
            return -1;
        call_answer(&call->call, 204, NULL);
        return 0;
    }
    if (v1_processes_find(call, &job, err) < 0 ||
        job_stop(runtime_of(call), &call->caller, job.id, signal, err) < 0)
        return -1;
    return answer_job(call, err);
}

int v1_processes_stop(struct v1_call *call, struct error *err)
{
    struct job job = {0};

    if (v1_processes_find(call, &job, err) < 0 ||
        job_stop(runtime_of(call), &call->caller, job.id, 0, err) < 0)
        return -1;
    return answer_job(call, err);
}
