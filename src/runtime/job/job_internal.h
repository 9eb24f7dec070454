/* Shared by the files about jobs.
 *
 * A job that runs has a watch, which holds the stream of its wrapper. A job whose sandbox is paused has
 * none; it gets one when the sandbox is resumed.
 *
 * A watch rests, or a worker takes its turn: reads what there is, keeps the sandbox alive, attaches again. One
 * thread waits for all that rest, for their streams and their times, and hands them to workers. */
#pragma once

#include "base/list.h"
#include "protocol/loop/workers.h"
#include "runtime/job/job.h"
#include "runtime/run/output.h"
#include "runtime/sandbox/sandbox_parts.h"

enum { JOB_LOGS_TOLD = 32 * 1024 };

struct jobs {
    pthread_mutex_t lock;   /* guards all below */
    pthread_cond_t changed; /* a job has ended or a watch is gone; monotonic */
    struct list watches;
    bool closing;
    uint64_t ends; /* how many jobs have ended */
    struct job_rest *rest;
};

struct job_watch {
    struct list link;
    struct runtime *runtime;
    char id[RUNTIME_ID_SIZE], sandbox_id[RUNTIME_ID_SIZE];
    struct arena arena;
    struct runtime_caller caller;     /* in the arena */
    const char *user;                 /* in the arena; NULL = the default */
    struct provider_process *process; /* the wrapper; NULL while there is no stream */
    size_t users; /* threads besides the one whose turn it is that use process */
    int64_t told; /* bytes of its log that were told as events; -1 = not known */
    struct runtime_output output;
    bool cancelled;
    bool again; /* its sandbox was resumed while it was about to go */

    /* of who has the turn */
    struct work work;
    int64_t hold_ms,
        kept_ms;      /* how long its sandbox may wait for more time, and since when it does */
    int64_t retry_ms; /* the last wait before attaching again; 0 = none */

    /* job_rest.c's */
    bool resting, hurry; /* hurry: the next turn begins at once */
    int fd;              /* that is waited for; -1 = none */
    int64_t due_ms, look_ms;
};

/* A feature is missing: says what that means for jobs. -1. */
int job_refused(struct error *err, const char *what);

/* ---- job_watch.c ---- */

/* process is taken; NULL = attach to it. */
void job_watch_start(struct runtime *runtime, const struct store_runtime_job *row,
                     struct provider_process *process);
/* NULL when it has none, or no stream; else job_watch_release(). */
struct job_watch *job_watch_acquire(struct runtime *runtime, struct str id);
void job_watch_release(struct runtime *runtime, struct job_watch *watch);
/* Until something has changed, at most ms. With jobs->lock held. */
void job_wait_changed(struct jobs *jobs, int64_t ms);

struct job_end {
    bool has_exit_code;
    int exit_code;
    const char *error; /* or NULL */
    struct str logs;   /* the end of its output, for the callback */
};
/* Its end is recorded and told, once. */
void job_ended(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
               const struct job_end *end);

/* ---- job_rest.c: between turns ---- */

/* turn() runs on a worker and ends with job_rest(), or the watch is gone. */
int job_rest_open(struct jobs *jobs, void (*turn)(struct work *work), struct error *err);
/* No watch may be left. */
void job_rest_close(struct jobs *jobs);
/* The first turn of a new watch. With the lock held. */
void job_rest_begin(struct jobs *jobs, struct job_watch *watch);
/* The turn is over, the next one begins as `wait` says. */
void job_rest(struct jobs *jobs, struct job_watch *watch, struct provider_wait wait);
/* The next turn begins now, or right after the one that is under way. With the lock held. */
void job_rest_hurry(struct jobs *jobs, struct job_watch *watch);

/* ---- job_script.c: what runs in the sandbox ---- */

/* The wrapper around argv. */
const char *const *job_wrap(struct arena *arena, const char *id, const char *const *argv);

enum wrapper_status { WRAPPER_RUNS, WRAPPER_EXITED, WRAPPER_LOST, WRAPPER_NEVER };
int job_status(struct runtime *runtime, const struct runtime_use *use, const char *id,
               const char *user, enum wrapper_status *out, int *out_code, struct error *err);
/* At most limit bytes from `after` on, or the last ones when after < 0. */
int job_read_log(struct runtime *runtime, const struct runtime_use *use, const char *id,
                 const char *user, int64_t after, int64_t limit, struct runtime_result *out,
                 struct error *err);
/* A process that prints the log from `after` on and goes on with it. */
int job_follow_log(const struct runtime_use *use, const char *id, const char *user, int64_t after,
                   struct provider_process **out, struct error *err);
/* signal 0: TERM, a second, KILL. */
int job_signal(struct runtime *runtime, const struct runtime_use *use, const char *id,
               const char *user, int signal, struct error *err);

/* ---- when a sandbox changes (job_watch.c) ---- */

/* Its jobs are watched again. */
void jobs_resumed(struct runtime *runtime, struct str sandbox_id);
/* It is gone: its jobs ended with 137. */
void jobs_lost(struct runtime *runtime, struct str sandbox_id);

/* ---- job_callback.c ---- */

void job_callbacks_open(struct runtime *runtime);
void job_callbacks_close(struct runtime *runtime);
int job_callback_check(const struct runtime_callback *callback, struct error *err);
/* {"status", "response": {"exitCode", "logs"}, "error"?}, malloc()ed. */
char *job_callback_body(const struct job_end *end, bool completed);
