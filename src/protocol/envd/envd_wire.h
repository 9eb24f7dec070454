/* Messages of envd's procedures (process.proto, filesystem.proto), as a client writes and reads them.
 *
 * Pure functions over the bytes of one message. What is read comes from inside a sandbox: every byte
 * may be a lie, so readers fail with ERROR_UNAVAILABLE on anything that is not such a message. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/pair.h"
#include "base/str.h"

struct envd_command {
    const char *const *argv; /* NULL at the end */
    const struct pair *env;
    size_t env_count;
    const char *cwd;  /* NULL = envd's default */
    const char *user; /* NULL = envd's default; sent as a header, not in the message */
    const char *tag;  /* to find it again; NULL = none */
    bool open_stdin;
    bool pty;
    uint16_t cols, rows; /* 0 = 80, 24 */
    int64_t timeout_ms;  /* envd kills it then; 0 = never */
    uint32_t input_ms;   /* how long input may wait for the process to read it; 0 = the usual */
};

enum envd_event_kind { ENVD_NOTHING, ENVD_STARTED, ENVD_STDOUT, ENVD_STDERR, ENVD_EXITED };

struct envd_event {
    enum envd_event_kind kind; /* NOTHING: a sign of life, or something that we do not know */
    struct str data;           /* of STDOUT (also what a terminal prints) and STDERR */
    int64_t pid;               /* of STARTED */
    int exit_code;             /* of EXITED; 128 + signal when it was killed */
    struct str status;         /* of EXITED: "exit status 3", "signal: killed" */
    bool timed_out;            /* of EXITED: its timeout ended it */
    bool out_of_memory;        /* of EXITED: the sandbox's memory did */
};

struct envd_file {
    struct str name, path;
    bool directory;
    int64_t size;
    uint32_t mode;
    int64_t modified_at_us;
};

/* ---- requests ---- */

void envd_put_start(struct buf *out, const struct envd_command *command);
/* Which process: by its tag; by its pid when tag is NULL. A whole message of Connect and CloseStdin,
 * and the beginning of the others. */
void envd_put_process(struct buf *out, const char *tag, int64_t pid);
void envd_put_input(struct buf *out, int64_t pid, bool to_pty, struct str data);
void envd_put_resize(struct buf *out, int64_t pid, uint16_t cols, uint16_t rows);
void envd_put_signal(struct buf *out, int64_t pid, int signal);
/* Of Stat, MakeDir and Remove; with a depth, of ListDir. */
void envd_put_path(struct buf *out, const char *path, unsigned depth);

/* ---- answers ---- */

/* A message of the streams of Start and Connect. Its strings point into the message. */
int envd_read_event(struct str message, struct envd_event *out, struct error *err);
/* The file of MakeDir and Stat. Its strings are copied into the arena. */
int envd_read_file(struct str message, struct arena *arena, struct envd_file *out,
                   struct error *err);
int envd_read_list(struct str message, struct arena *arena, struct envd_file **out,
                   size_t *out_count, struct error *err);
/* "exit status 3", "signal: killed"; else what exit_code says. */
int envd_exit_code(struct str status, int64_t exit_code);
