/* Programs that the server itself runs in a box through its envd, before a client has a token for it: the start and
 * ready commands of templates, and the check that a port is listened on. Their output comes from inside the box: it is
 * bounded and not trusted. */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "host/engine/engine.h"
#include "protocol/http/http_call.h"
#include "protocol/rpc/connect.h"

struct envd_command {
    /* Ended by NULL; the text is the last argument. NULL = /bin/bash -l -c. */
    const char *const *shell;
    struct str text;
    struct str user, cwd; /* STR_NONE or "" = envd's defaults */
    const json_t *env;    /* besides envd's own; or NULL */
    int64_t timeout_ms;   /* envd ends it then; 0 = never */
};

typedef void envd_output_fn(void *arg, bool is_stderr, struct str data);

struct envd_run {
    /* set by the caller */
    envd_output_fn *output; /* or NULL */
    void *arg;
    /* to be read */
    int64_t pid;     /* 0 = it did not start yet */
    bool exited;     /* and then: */
    int exit_code;   /* -1 = by a signal, or by its timeout */
    char status[64]; /* "exit status 3", "signal: killed" */
    bool timed_out;  /* by the command's own limit */
    bool out_of_memory;
    struct buf tail; /* the last of what it wrote */
    /* its own */
    struct http_call call;
    struct connect_decoder decoder;
    struct error why;
};

/* Returns when it runs, or cannot: its errors are envd's ("cwd '/x' does not exist"). To be followed by
 * envd_run_done() in any case, which does not end it. */
int envd_run_start(struct engine *engine, const char *id, const struct envd_command *command,
                   struct envd_run *run, struct error *err);
/* 1 when it has ended; 0 when that takes longer than this. */
int envd_run_wait(struct envd_run *run, int64_t ms, struct error *err);
void envd_run_done(struct envd_run *run);
/* "exit status 3; the last it wrote: '…'", for people. */
const char *envd_run_words(const struct envd_run *run, struct arena *arena);

#define auto_run __attribute__((cleanup(envd_run_done)))
