/* Background jobs: a durable row before launch, output in a file of the sandbox, completion told
 * once and for all.
 *
 * The command runs in the sandbox under a small wrapper that writes log, pid and exit in
 * ~/.quicksand/jobs/ID; we hold the stream of the wrapper and so learn of the end at once. After a
 * restart of this process the stream is attached again, or the exit file read. A job whose sandbox was
 * killed or rebooted ended with 137, a stopped one with 143. */
#pragma once

#include "runtime/core/runtime.h"
#include "runtime/run/run.h"
#include "runtime/sandbox/sandbox.h"

struct runtime_callback {
    struct str url, token; /* token: sent as x-job-token; made when STR_NONE */
};

struct job {
    struct str id, sandbox_id, agent_id, command;
    enum job_state state;
    struct str
        sandbox_state; /* of one that runs: it stands still while this is "paused"; STR_NONE = not known */
    bool has_exit_code;
    int exit_code;
    struct str error;
    enum callback_state callback_state;             /* never WAITING */
    int64_t callback_attempts, callback_next_at_us; /* next: 0 = none is due */
    int64_t started_at_us, ended_at_us;
};

/* command->input: STR_NONE = no standard input; else it is sent, and stays open for
 * job_input(). command->timeout_ms: 0 = none. */
int job_start(struct runtime *runtime, const struct runtime_caller *caller, struct str sandbox_id,
              const struct runtime_command *command, const struct runtime_callback *callback,
              struct arena *arena, struct job *out, struct error *err);
int job_get(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
            struct arena *arena, struct job *out, struct error *err);
int job_list(struct runtime *runtime, const struct runtime_caller *caller, struct str sandbox_id,
             struct arena *arena, struct job **out, size_t *out_count, struct error *err);
struct job_read {
    int64_t after;
    size_t limit; /* bytes; 0 = 1 MiB */
    bool follow;
    uint32_t wait_ms;
};
/* Output from byte `after` on. follow: goes on until the job has ended, the sink gives up (-1) or
 * wait_ms have passed without output. *out_next: the cursor for the next call. */
int job_logs(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
             const struct job_read *read, provider_sink_fn *sink, void *arg, int64_t *out_next,
             struct error *err);
/* Whether they can be read at all: for those who must know before they tell the first byte. */
int job_logs_check(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                   struct error *err);
/* TERM, a second, KILL; the whole tree; exit code 143. Ended already is success. signal != 0: only
 * that signal. */
int job_stop(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
             int signal, struct error *err);
int job_input(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
              struct str data, bool close, struct error *err);
/* 1 = it has ended, 0 = not within timeout_ms. */
int job_wait(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
             uint32_t timeout_ms, struct error *err);

/* ---- opened and closed by runtime_main.c ---- */

int jobs_open(struct runtime *runtime, struct error *err);
void jobs_close(struct runtime *runtime);
