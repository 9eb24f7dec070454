/* The interpreter: runs code like a notebook, inside a sandbox, for whoever comes by HTTP (docs/code-interpreter.md).
 *
 * A client runs a *cell* in a *context*: a language, a directory, and what earlier cells left. Each context has a *kernel*, a
 * process that runs its cells one after the other. The interpreter holds three ends of it: a control socket, over which cells
 * go in and frames come out (frame.h), and the pipes of its stdout and stderr, which whatever the cell starts writes to as well.
 * Kernels of Python are forked by a *zygote* that has loaded the libraries already.
 *
 * One thread, one loop. Frames of kernels: k it can take cells, r a result (a line of JSON), e an error (the same), d the cell
 * has ended. Frames of the zygote: l it has loaded, p a process was forked (its number), w one has ended (number and status of waitpid). */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"
#include "extra/interpreter/program/frame.h"
#include "extra/interpreter/program/language.h"
#include "protocol/http/http_server.h"
#include "protocol/loop/loop.h"

enum {
    INTERPRETER_PORT = 49999,
    CONTEXTS_MAX = 128,
    CELLS_WAITING_MAX = 64, /* per context */
    BODY_MAX = 32 * 1024 * 1024,
    CWD_MAX = 1024,
    CONTEXT_ID_SIZE = 37,
};

#define INTERPRETER_KERNELS "/usr/local/lib/quicksand/kernels"
#define INTERPRETER_HOME    "/home/user"

struct zygote;

struct interpreter {
    struct loop *loop;
    struct list contexts; /* oldest first */
    size_t context_count;
    const char *kernels; /* folder of their scripts */
    const char *home;    /* where contexts begin that name no directory */
    uint16_t envd_port;
    struct zygote *zygote;
};

void interpreter_handle(struct http_exchange *ex, void *arg);

/* ---- kernels ---- */

enum kernel_pipe { KERNEL_STDOUT, KERNEL_STDERR };

struct kernel_events {
    void (*on_ready)(void *arg);
    void (*on_output)(enum kernel_pipe pipe, struct str bytes, void *arg);
    /* What was written before a frame was sent has been given to on_output when it begins. */
    void (*on_frame)(char kind, enum frame_event event, struct str bytes, void *arg);
    /* Its process is gone, why is a sentence. The kernel is freed afterwards. */
    void (*on_end)(const char *why, void *arg);
};

struct kernel;

/* NULL when it cannot be started. */
struct kernel *kernel_start(struct interpreter *ip, const struct language *language,
                            const char *cwd, const struct kernel_events *events, void *arg,
                            struct error *err);
/* Takes the text's memory. */
void kernel_send(struct kernel *kernel, struct buf *text_consume);
/* Nothing is read from it until it goes on: it stands still once its pipes are full. */
void kernel_hold(struct kernel *kernel, bool held);
void kernel_interrupt(struct kernel *kernel);
/* on_end follows. */
void kernel_kill(struct kernel *kernel);
/* Ends it; no event follows. */
void kernel_free(struct kernel *kernel);

/* For the zygote. */
void kernel_forked(struct kernel *kernel, pid_t pid);
void kernel_exited(struct kernel *kernel, int status);
pid_t kernel_pid(const struct kernel *kernel);

/* ---- the zygote ---- */

int zygote_start(struct interpreter *ip, struct error *err);
bool zygote_loads(const struct interpreter *ip);
/* Forks a process with these three descriptors (control, stdout, stderr), which stay the caller's. */
int zygote_fork(struct interpreter *ip, struct kernel *kernel, const char *cwd, const int fds[3],
                struct error *err);
/* Nothing of it is told any more. */
void zygote_forget(struct interpreter *ip, const struct kernel *kernel);

/* ---- contexts ---- */

struct cell;

struct context {
    struct interpreter *ip;
    struct list node; /* in interpreter.contexts */
    char id[CONTEXT_ID_SIZE];
    char cwd[CWD_MAX];
    const struct language *language;
    bool is_default;       /* of its language */
    bool ready;            /* its kernel takes cells */
    bool busy;             /* a cell is under way in the kernel, whoever still listens */
    bool envs_known;       /* the kernel has the sandbox's variables */
    bool lost;             /* the last kernel ended by itself while nothing ran */
    bool skip;             /* the rest of this frame is nobody's */
    bool failed;           /* the cell has told an error already */
    int64_t count;         /* cells of this kernel */
    struct kernel *kernel; /* NULL: the next cell starts one */
    struct cell *running;
    struct list waiting; /* struct cell */
    size_t waiting_count;
    uv_timer_t *interrupts; /* a cell that nobody wants any more does not end */
    int interrupt_count;
};

struct context *context_new(struct interpreter *ip, const struct language *language, struct str cwd,
                            struct error *err);
struct context *context_find(struct interpreter *ip, struct str id);
/* The one of its language, made when there is none. */
struct context *context_default(struct interpreter *ip, const struct language *language,
                                struct error *err);
int context_boot(struct context *context, struct error *err); /* its kernel, before a cell asks */
int context_restart(struct context *context, struct error *err);
void context_remove(struct context *context);
int context_run(struct context *context, struct cell *cell, struct error *err);
/* The client of a cell has gone. */
void context_drop(struct context *context, struct cell *cell);

/* ---- cells ---- */

struct cell {
    struct list node; /* in context.waiting */
    struct context *context;
    const struct language *language;
    struct http_exchange *ex;
    json_t *request; /* what the strings below are part of */
    struct str code, token;
    const json_t *envs;
    struct buf lines;                    /* to be sent */
    struct buf text[2];                  /* of stdout and stderr, not told yet */
    int64_t output_ms[2], unended_ms[2]; /* when it came last; since when all of it waits */
    uv_timer_t *flush, *keepalive;
    int64_t last_ms; /* when something was sent */
};

struct cell *cell_new(struct http_exchange *ex, json_t *request_consume);
/* The answer begins; from here on the cell frees itself when the exchange is over. */
void cell_begin(struct cell *cell, struct context *context);
void cell_number(struct cell *cell, int64_t count);
void cell_output(struct cell *cell, enum kernel_pipe pipe, struct str bytes);
/* How much of the text that was collected may be told now. The begin of a line waits for its rest, unless its writer has been
 * silent for a while or it has waited long. */
size_t cell_text_due(struct str text, int64_t silent_ms, int64_t waited_ms);
/* A line that a kernel made, in pieces: what was written before it goes first. */
void cell_line_begin(struct cell *cell);
void cell_line_bytes(struct cell *cell, struct str bytes);
void cell_line_end(struct cell *cell);
void cell_error(struct cell *cell, const char *name, const char *value);
/* The last line. The cell must not be touched afterwards. */
void cell_end(struct cell *cell);
void cell_free(struct cell *cell); /* one that has not begun */

/* ---- the sandbox's variables ---- */

/* What envd inside has, an object; NULL when it does not tell (no token, another one, no envd). */
json_t *envs_fetch(uint16_t port, struct str token);

/* ---- small parts ---- */

/* A timer that frees itself: libuv must not lose its memory before the loop has closed it. */
uv_timer_t *timer_start(struct loop *loop, uint64_t ms, uint64_t again_ms, uv_timer_cb fn,
                        void *arg);
void timer_stop(uv_timer_t **timer);
