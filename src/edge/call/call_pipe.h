/* A bounded pipe between the worker that runs a call and the loop that has its connection: bodies of
 * any size go through it in either direction, and whoever is faster waits. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/str.h"
#include "protocol/loop/loop.h"

struct call;

enum { CALL_PIPE_MAX = 256 * 1024 }; /* bytes between a worker and its loop */

struct call_pipe {
    struct call *call;
    pthread_mutex_t lock; /* guards the next eight */
    pthread_cond_t changed;
    struct buf data;
    bool closed; /* the client has gone, or the server ends */
    bool ended;  /* nothing follows what is in data */
    bool posted; /* errand is under way to the loop */
    struct loop_errand errand;
    void (*on_close)(void *arg);
    void *on_close_arg;
    bool writes; /* worker: it has begun to answer */
    /* only for the loop */
    bool begun, reading, paused;
};

void call_pipe_init(struct call_pipe *pipe, struct call *call);
void call_pipe_done(struct call_pipe *pipe);

/* ---- for handlers, on the worker ---- */

/* The next bytes of the request's body; 0 at its end, -1 when the client has gone. The body is asked
 * for by the first call. */
ssize_t call_pipe_read(struct call_pipe *pipe, void *p, size_t size);
/* From now on the answer is written in pieces. */
void call_pipe_begin(struct call_pipe *pipe, int status, const char *content_type);
/* -1 when the client has gone. */
int call_pipe_write(struct call_pipe *pipe, struct str data);
/* The same, but waits for at most wait_ms: 1 when *data, which is what was not taken yet, is not empty. */
int call_pipe_offer(struct call_pipe *pipe, struct str *data, uint32_t wait_ms);
bool call_pipe_gone(struct call_pipe *pipe);
/* fn(arg), once and on the loop, when the client goes before the handler has returned; both must live
 * as long as the call. false: it has gone already. */
bool call_pipe_on_close(struct call_pipe *pipe, void (*fn)(void *arg), void *arg);

/* ---- for the API, on the loop ---- */

/* The client has gone: the worker's next call fails. */
void call_pipe_close(struct call_pipe *pipe);
/* After call_pipe_close(): puts something behind all that was written. */
void call_pipe_last(struct call_pipe *pipe, struct str data);
/* The handler has returned: sends what is left. failed: the client must see a broken answer. */
void call_pipe_finish(struct call_pipe *pipe, bool failed);
