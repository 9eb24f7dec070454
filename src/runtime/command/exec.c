/* Commands in the foreground, in a sandbox.
 *
 * The exit code is a value. A command is tried again only when its sandbox turned out to be paused: then it cannot have begun.
 * Once it was sent, a broken connection is reported and nothing else. */
#include "runtime/command/command.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"
#include "runtime/run/capture.h"
#include "runtime/run/output.h"
#include "runtime/run/running.h"
#include "runtime/sandbox/kept.h"
#include "runtime/sandbox/sandbox_parts.h"

enum {
    OUTPUT_MAX = 16 * 1024 * 1024,
    OUTPUT_DEFAULT = 64 * 1024,
    TIMEOUT_MAX_MS = 24 * 3600 * 1000,
};

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
        .extend = runtime_use_extend,
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
                       const struct runtime_use *use, struct runtime_capture *kept,
                       struct str command, const char *process_id, struct runtime_result *out,
                       const struct error *err)
{
    out->kept = runtime_kept_store(runtime, caller, use, kept,
                                   &(struct runtime_kept_end){.process_id = process_id,
                                                              .command = command,
                                                              .error = err ? err->message : NULL,
                                                              .exit_code = out->exit_code,
                                                              .duration_ms = out->duration_ms,
                                                              .timed_out = out->timed_out});
    (void)str_copy(str_of(process_id), out->keep_id, sizeof(out->keep_id));
    runtime_capture_done(kept);
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
    struct runtime_capture capture;
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
        runtime_capture_begin(&capture,
                              command->keep_limit ? command->keep_limit : run.output_limit);
        run.capture = &capture;
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
    if (r == 0 && runtime_result_refused(out)) {
        r = buf_refuse(out->out.refused ? &out->out : &out->err, err);
        (void)error_prefix(err, "the command was killed");
        err->retry_after_s = ERROR_RETRY_NEVER;
    }
    runtime_live_used(runtime, use.sandbox.id, 1, 0);
    if (run.capture)
        store_kept(runtime, caller, &use, &capture, text, id_text, out, r < 0 ? err : NULL);
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
