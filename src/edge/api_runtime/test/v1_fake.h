/* A domain for the tests of the edge: answers from a few variables, remembers what it was asked. What tests look at
 * while workers are at it is atomic. */
#pragma once

#include "runtime/core/event.h"
#include "runtime/sandbox/sandbox.h"

#define V1_FAKE_KEY "e2b_0123456789012345678901234567890123456789"
#define V1_FAKE_ID  "sbx_00000000000000000001"
/* All that runtime_mask() knows. */
#define V1_FAKE_SECRET "dtn_operators_own_key"

struct v1_fake {
    struct error fail;      /* every operation fails so, when it has a code */
    int delay_ms;           /* of runtime_exec() */
    size_t output_size;     /* of a command that is streamed, besides a few bytes; made of 'x' */
    _Atomic size_t taken;   /* bytes of it that somebody took */
    _Atomic bool hangs;     /* such a command runs until it is stopped ... */
    _Atomic int stopped;    /* ... which is counted */
    char asked[4096];       /* "name(arg,...) " of the last operations */
    size_t file_size;       /* of the file that can be read; made of 'x' */
    _Atomic size_t written; /* bytes runtime_file_write() got */
    bool directory;         /* the path is one */
    _Atomic size_t log_at;  /* how much of a job's output there is already */
    _Atomic bool job_running;
    bool memory_missed; /* the next event_watch_read() says that older ones are gone */
    size_t store_reads;
    int event_pad;         /* blanks in each event */
    _Atomic int terminals; /* open now */
    _Atomic bool terminal_fails;
};

extern struct v1_fake v1_fake;

/* Notes an operation in v1_fake.asked; -1 when operations are to fail. */
int v1_fake_asked(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Whether the caller may use the sandbox. */
int v1_fake_find(const struct runtime_caller *caller, struct str id, struct error *err);

/* Any thread. */
void v1_fake_event(const char *type, const char *agent_id);
size_t v1_fake_watchers(void);
/* What the open terminal's shell prints, or its end. */
bool v1_fake_print(const char *text);
void v1_fake_exit(int code);
