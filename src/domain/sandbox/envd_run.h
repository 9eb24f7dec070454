/* Programs that the server itself runs in a box through its envd, before a client has a token for it: the start and
 * ready commands of templates, and the check that a port is listened on. Their output comes from inside the box: it is
 * bounded and not trusted. */
#pragma once

#include "base/buf.h"
#include "protocol/envd/envd_client.h"

struct sandboxes;

/* Zeroed before envd_run_start(). */
struct envd_run {
    bool exited;     /* and then: */
    int exit_code;   /* 128 + signal when it was killed */
    char status[64]; /* "exit status 3", "signal: killed" */
    bool out_of_memory;
    /* its own */
    struct envd_process *process;
    struct buf tail; /* the last of what it wrote */
};

/* Begins "/bin/bash -l -c TEXT" as the default user of the box, with one more variable (or NULL); envd ends it after
 * timeout_ms, 0 = never. Returns when it runs, or cannot: its errors are envd's ("cwd '/x' does not exist"). To be
 * followed by envd_run_done() in any case, which does not end it. */
int envd_run_start(struct sandboxes *all, const char *id, struct str text,
                   const struct pair *variable, int64_t timeout_ms, struct envd_run *run,
                   struct error *err);
/* 1 when it has ended; 0 when that takes longer than this. */
int envd_run_wait(struct envd_run *run, int64_t ms, struct error *err);
void envd_run_done(struct envd_run *run);
/* "exit status 3; the last that it wrote: '…'", for people. */
const char *envd_run_words(const struct envd_run *run, struct arena *arena);

#define auto_run __attribute__((cleanup(envd_run_done)))
