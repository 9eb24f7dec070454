/* Programs started for clients: their output streams, their input, their end. One object per
 * program; it lives until the program has ended and nobody holds its output pipes any more. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/error.h"
#include "base/list.h"
#include "base/str.h"
#include "envd/core/users.h"
#include "envd/process/process_event.h"
#include "envd/process/process_ring.h"
#include "protocol/http/http_server.h"

enum {
    PROCESS_COUNT_MAX = 4096,
    PROCESS_INPUTS_MAX = 64, /* waiting to be written, per process */
    PROCESS_FINISHED_MAX = 256,
    PROCESS_FINISHED_KEPT_MS = 30 * 1000,
    PROCESS_FINISHED_OUTPUT_MAX = 4 * 1024 * 1024, /* of all finished ones */
    PROCESS_READ_MAX = 128 * 1024,                 /* as base64 it fits into a socket's buffer */
};

/* One output pipe, or the terminal. */
struct process_output {
    struct process *process;
    enum process_channel channel;
    uv_poll_t poll;
    int fd; /* -1: at its end, or never there */
    bool polling, widened;
};

struct process_input {
    uv_poll_t poll;
    int fd;            /* -1: closed or never there */
    struct list queue; /* of struct process_write */
    size_t queued;
    bool polling, close_after, wide;
};

struct process {
    struct list link; /* in the table */
    struct process_table *table;
    pid_t pid;
    uint64_t mark; /* of its tree; see process_tree.h */
    char *tag;     /* or NULL */
    json_t *config;
    bool is_pty;
    struct process_output outputs[2];
    struct process_input input;
    struct process_ring ring;
    struct list subscribers;
    struct list kill_waiters; /* exchanges to answer when it is gone */
    uv_timer_t deadline, grace;
    int64_t timeout_ms;
    int64_t exited_at_ms, output_at_ms;
    int status;
    uint64_t oom_kills; /* of the sandbox before it was started */
    bool exited, ended;
    bool killed; /* by us, all of it */
    bool out_of_memory;
    unsigned handles; /* open libuv handles inside this struct */
};

/* What is left of a program for a late Connect. */
struct process_finished {
    pid_t pid;
    char *tag;
    int status;
    bool out_of_memory;
    int64_t until_ms;
    struct process_ring ring;
};

struct process_table {
    struct loop *loop;
    struct list live;
    size_t count;
    int null_fd;
    struct process_finished finished[PROCESS_FINISHED_MAX];
    size_t finished_next;
    size_t finished_output; /* bytes kept by them */
    uv_timer_t forget;
    char *read_buffer;    /* while there are programs */
    struct buf events[2]; /* scratch for output events: JSON, binary */
};

struct process_start {
    char *const *candidates; /* see spawn.h */
    char *const *argv;
    char *const *envp;
    const char *cwd;
    const struct user *user;
    json_t *config; /* kept for List */
    struct str tag;
    bool want_stdin, want_pty;
    uint16_t cols, rows;
    int64_t timeout_ms; /* then the whole tree is killed; 0 = never */
};

void process_table_init(struct process_table *table, struct loop *loop);
/* Collects ended children, ours and orphans; on SIGCHLD. */
void process_table_reap(struct process_table *table);

/* Selected by pid, or by tag when pid is 0. NULL when there is none alive. */
struct process *process_find(const struct process_table *table, pid_t pid, struct str tag);
const struct process_finished *process_find_finished(const struct process_table *table, pid_t pid,
                                                     struct str tag);
struct process *process_start(struct process_table *table, const struct process_start *start,
                              struct error *err);
/* SIGKILL reaches the whole tree of descendants, SIGTERM the program itself. */
int process_signal(struct process *process, int signal, struct error *err);
/* Answers {} when the program is gone (at once if it is). */
void process_answer_when_gone(struct process *process, struct http_exchange *ex);
int process_resize(struct process *process, uint16_t cols, uint16_t rows, struct error *err);

/* ---- process_output.c ---- */

/* Which of the output kept is to be sent first. */
struct process_replay {
    bool wanted;
    uint64_t from; /* bytes of output the client has already */
};

struct process_subscription {
    bool starter; /* is told deadline_exceeded when the process's time is over */
    int64_t keepalive_ms, timeout_ms;
    struct process_replay replay;
};

/* Begins the stream: start event now, then what is to be replayed, then whatever the program prints
 * from now on. */
void process_subscribe(struct process *process, struct http_exchange *ex,
                       const struct process_subscription *subscription);
void process_output_open(struct process *process, size_t index, enum process_channel channel,
                         int fd_consume);
/* Reads what is there; true when it read anything. */
bool process_output_read(struct process *process);
bool process_output_at_end(const struct process *process);
bool process_output_paused(const struct process *process);
/* The end event and the end of all streams. */
void process_output_finish(struct process *process);
void process_output_timed_out(struct process *process);
/* Appends the events of what is kept; ERROR_LIMIT when some of it is not any more. */
int process_output_replay(const struct process_ring *ring, const struct process_replay *replay,
                          bool binary, struct buf *out, struct error *err);

/* ---- process_input.c ---- */

typedef void process_written_fn(void *arg, const struct error *err); /* err NULL: written */

void process_input_open(struct process *process, int fd_consume);
/* Copies the bytes; calls written exactly once, later. */
int process_input_write(struct process *process, bool to_pty, struct str data,
                        process_written_fn *written, void *arg, struct error *err);
int process_input_end(struct process *process, struct error *err);
void process_input_close(struct process *process);

/* ---- for these files only ---- */

void process_handle_opened(struct process *process);
void process_handle_close(struct process *process, uv_handle_t *handle);
/* Looks at the state and goes on: end event, freeing. */
void process_advance(struct process *process);
