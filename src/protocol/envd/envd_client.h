/* A client of the envd inside a sandbox: processes, and files. Calls are Connect in the binary codec,
 * over any connection that fetch can make: TLS to a service, a Unix socket, or whatever the gate of the
 * fetch connects a name to. Output is handed over as the bytes that came.
 *
 * Calls block their thread, always with a deadline. Whatever comes back is from inside: it is bounded,
 * and a lie in it misleads only who asked. Errors: ERROR_NOT_FOUND, ERROR_INVALID (the request was
 * refused as wrong; of a command whose program is not there or may not be run, errnum is ENOENT or
 * EACCES), ERROR_UNAUTHORIZED, ERROR_TIMEOUT, ERROR_UNAVAILABLE (no connection, or not an envd's
 * answer; also of a sandbox that a proxy says is not there), ERROR_CONFLICT (cancelled, or cut). */
#pragma once

#include <sys/types.h>

#include "protocol/envd/envd_wire.h"
#include "protocol/fetch/fetch.h"

enum {
    ENVD_PORT = 49983,
    ENVD_HEADERS_MAX = 4,
    ENVD_MESSAGE_MAX = 16 * 1024 * 1024,
    ENVD_CALL_MS = 60 * 1000,
};

/* Where an envd is and what it wants to see. Borrowed for a call; a process copies it. */
struct envd_address {
    struct fetch *fetch;
    const char *who;       /* begins every message: "e2b"; "" = of processes, none does */
    const char *base;      /* "http://host", without a slash at the end */
    const char *unix_path; /* see fetch.h; NULL = by base */
    struct str token;      /* STR_NONE or empty = none */
    struct pair extra[ENVD_HEADERS_MAX];
    size_t extra_count;
    bool public_only;    /* see fetch.h */
    int64_t deadline_us; /* of each request; of a process, until it runs. 0 = none */
};

int envd_health(const struct envd_address *address, struct error *err);

/* ---- processes ---- */

struct envd_process;

/* Returns when it runs, or cannot. */
int envd_start(const struct envd_address *address, const struct envd_command *command,
               struct envd_process **out, struct error *err);
/* To one that runs, by its tag (or pid, when tag is NULL). ERROR_NOT_FOUND when it has ended. */
int envd_attach(const struct envd_address *address, const char *tag, int64_t pid,
                struct envd_process **out, struct error *err);

/* One reader; all others from any thread. */
/* 1 = an event other than NOTHING, whose strings are there until the next call; 0 = none within
 * timeout_ms; -1 = the stream broke (the process may go on), ERROR_CONFLICT after cancel. The first is
 * STARTED, and nothing follows EXITED. */
int envd_process_next(struct envd_process *process, uint32_t timeout_ms, struct envd_event *out,
                      struct error *err);
/* The reader's, after next() has returned 0 and until it is called again: a descriptor that can be read
 * when there may be more (-1 = there is none). next() is due after *out_ms in any case. */
int envd_process_wait(const struct envd_process *process, int64_t *out_ms);
int envd_process_input(struct envd_process *process, struct str data, struct error *err);
int envd_process_close_stdin(struct envd_process *process, struct error *err);
/* All of stdin: the data, then EOF. */
int envd_process_feed(struct envd_process *process, struct str data, struct error *err);
int envd_process_resize(struct envd_process *process, uint16_t cols, uint16_t rows,
                        struct error *err);
/* SIGTERM and SIGKILL; of a terminal also SIGINT. */
int envd_process_signal(struct envd_process *process, int signal, struct error *err);
/* next() returns -1 at once. The process goes on. */
void envd_process_cancel(struct envd_process *process);
/* Lets go of it; the process goes on. NULL is fine. */
void envd_process_free(struct envd_process *process);

/* ---- files: absolute paths, or relative to the default user's home ---- */

/* As in fetch: -1 gives up. */
typedef int envd_sink_fn(void *arg, struct str data);
typedef ssize_t envd_source_fn(void *arg, void *p, size_t size);

int envd_read(const struct envd_address *address, const char *path, envd_sink_fn *sink, void *arg,
              struct error *err);
/* Makes parents; replaces as a whole. length: FETCH_BODY_LATER when unknown. */
int envd_write(const struct envd_address *address, const char *path, envd_source_fn *source,
               void *arg, int64_t length, struct error *err);
int envd_list(const struct envd_address *address, const char *path, struct arena *arena,
              struct envd_file **out, size_t *out_count, struct error *err);
int envd_make_dir(const struct envd_address *address, const char *path, struct arena *arena,
                  struct envd_file *out, struct error *err);
/* Recursive; gone already is ERROR_NOT_FOUND. */
int envd_remove(const struct envd_address *address, const char *path, struct error *err);

/* ---- shared by the files of this room ---- */

/* One unary call. answer (may be NULL: nobody looks at it) is inited here, buf_done() in any case. */
int envd_call(const struct envd_address *address, const char *method, struct str request,
              uint32_t timeout_ms, struct buf *answer, struct error *err);
size_t envd_headers(const struct envd_address *address, struct pair *out, size_t count);
/* Reads what a stream was refused with. Always -1. */
int envd_refused_stream(const struct envd_address *address, const char *what,
                        struct fetch_stream *stream, struct error *err);
enum error_code envd_code(struct str connect_code);
