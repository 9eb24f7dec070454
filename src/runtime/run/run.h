/* Commands on a machine: what one is made of, whether it is allowed, how it runs and how it is reached meanwhile. Nothing here
 * knows of rows. */
#pragma once

#include "base/buf.h"
#include "provider/core/provider.h"
#include "runtime/core/runtime.h"

enum runtime_keep { KEEP_AS_PROFILE, KEEP_YES, KEEP_NO };

struct runtime_command {
    struct str command; /* a line for `bash -lc` (or `sh -c` where there is no bash) ... */
    json_t *argv;       /* ... or an array of strings, as it is; exactly one of both */
    struct str cwd, user;
    json_t *env;            /* object of strings, or NULL */
    struct str input;       /* standard input, whole; STR_NONE = none */
    bool open_stdin;        /* instead: it comes by runtime_exec_input() */
    int64_t timeout_ms;     /* 0 = the profile's */
    int64_t output_limit;   /* 0 = the profile's */
    enum runtime_keep keep; /* its output, in the store (kept.h) */
    int64_t keep_limit;     /* of that, when it is not output_limit; 0 = it is */
    bool own;               /* a step of the runtime itself: no allow list, not told by events */
    /* It runs, and may be reached by this id until its end is told; or NULL. -1: as below. */
    int (*on_started)(void *arg, const char *process_id);
    /* Told as it comes instead of being kept; or NULL. Without data: it runs and was silent for a
     * while. 1: not all could be taken, to be called again with the same. -1: nobody listens any more,
     * the command is killed. */
    int (*on_output)(void *arg, bool is_err, struct str data);
    void *on_output_arg; /* of both */
};

struct runtime_result {
    struct buf out, err;
    int exit_code; /* a value, never a failure of the call; 124 = timed_out */
    int64_t duration_ms;
    bool timed_out, truncated; /* truncated output ends with "\n[output truncated]" */
    bool stopped;              /* nobody listened any more: it was killed, exit code 137 */
    bool out_of_memory; /* the sandbox's memory was used up: it was killed, as far as is known */
    char keep_id[RUNTIME_ID_SIZE]; /* its output was to be kept, under this id; "" = not */
    bool kept;                     /* and it is */
};

#define RUNTIME_OUT_OF_MEMORY "out of memory"

void runtime_result_done(struct runtime_result *result);
/* There was no memory for its output, so it was killed; see buf_refuse(). */
bool runtime_result_refused(const struct runtime_result *result);
/* To one that runs now. sandbox_id: STR_NONE = any. ERROR_NOT_FOUND when it has ended. Input waits
 * until the command has taken it; without open_stdin it is ERROR_CONFLICT. */
int runtime_exec_input(struct runtime *runtime, const struct runtime_caller *caller,
                       struct str sandbox_id, struct str id, struct str data, bool close,
                       struct error *err);
int runtime_exec_signal(struct runtime *runtime, const struct runtime_caller *caller,
                        struct str sandbox_id, struct str id, int signal, struct error *err);
/* Never blocks: as if on_output had said that nobody listens. Ended already is fine. */
void runtime_exec_stop(struct runtime *runtime, struct str id);
/* ERROR_FORBIDDEN when an allow list is set and does not hold it. */
int runtime_command_check(struct runtime *runtime, const struct runtime_command *command,
                          struct error *err);
/* Hooks: no hook that is not on the list. */
int runtime_command_check_hooks(struct runtime *runtime, const json_t *hooks, struct error *err);
/* With a list of allowed commands: no variable that changes what is run. ERROR_FORBIDDEN. env may be NULL. */
int runtime_command_check_env(struct runtime *runtime, const json_t *env, struct error *err);

/* ---- on a machine ---- */

struct runtime_capture;
struct runtime_running;
struct runtime_output;
struct runtime_run {
    const char *const *argv;
    const struct pair *env;
    size_t env_count;
    const char *cwd, *user;
    struct str input; /* STR_NONE = none */
    bool open_stdin;
    int64_t timeout_ms;
    int64_t output_limit;
    int64_t ttl_s; /* extended while it runs, at least four times in this time; 0 = not */
    void (*extend)(struct runtime *runtime, struct provider *provider,
                   const struct provider_ref *ref, struct str sandbox_id, int64_t ttl_s);
    struct str sandbox_id;                                /* for that */
    int (*on_started)(void *arg, const char *process_id); /* as in runtime_command */
    int (*on_output)(void *arg, bool is_err, struct str data);
    void *on_output_arg;
    struct runtime_running *running; /* to be found by others; NULL = not */
    struct runtime_output *output;   /* told as events too; NULL = not */
    struct runtime_capture *capture; /* and captured; NULL = not */
};
/* One command on a machine. *out_started: it was sent; before that the caller may try again. */
int runtime_run(struct runtime *runtime, struct provider *provider, const struct provider_ref *ref,
                const struct runtime_run *run, struct runtime_result *out, bool *out_started,
                struct error *err);
/* The argv of a command for this machine: as given, or a line for bash or sh. */
int runtime_command_argv(struct runtime *runtime, struct provider *provider,
                         const struct provider_ref *ref, struct str image,
                         const struct runtime_command *command, struct arena *arena,
                         const char *const **out, struct error *err);
/* Later ones win over earlier ones. Objects of strings, or NULL. */
int runtime_command_env(const json_t *first, const json_t *second, struct arena *arena,
                        const struct pair **out, size_t *out_count, struct error *err);
/* For people: the line, or the words joined; masked and cut to 4 KiB. */
struct str runtime_command_text(struct runtime *runtime, struct str team_id,
                                const struct runtime_command *command, struct arena *arena);

/* ---- opened and closed by runtime_main.c ---- */

void runtime_runs_open(struct runtime *runtime);
void runtime_runs_close(struct runtime *runtime);
