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

struct v1_call;

struct v1_pipe {
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

void v1_pipe_init(struct v1_pipe *pipe);
void v1_pipe_done(struct v1_pipe *pipe);

/* ---- for handlers, on the worker ---- */

/* The next bytes of the request's body; 0 at its end, -1 when the client has gone. The body is asked
 * for by the first call. */
ssize_t v1_pipe_read(struct v1_call *call, void *p, size_t size);
/* From now on the answer is written in pieces. */
void v1_pipe_begin(struct v1_call *call, int status, const char *content_type);
/* -1 when the client has gone. */
int v1_pipe_write(struct v1_call *call, struct str data);
/* The same, but waits for at most wait_ms: 1 when *data, which is what was not taken yet, is not empty. */
int v1_pipe_offer(struct v1_call *call, struct str *data, uint32_t wait_ms);
bool v1_pipe_gone(struct v1_call *call);
/* fn(arg), once and on the loop, when the client goes before the handler has returned; both must live
 * as long as the call. false: it has gone already. */
bool v1_pipe_on_close(struct v1_call *call, void (*fn)(void *arg), void *arg);

/* ---- for v1.c, on the loop ---- */

/* The client has gone: the worker's next call fails. */
void v1_pipe_close(struct v1_pipe *pipe);
/* After v1_pipe_close(): puts something behind all that was written. */
void v1_pipe_last(struct v1_call *call, struct str data);
/* The handler has returned: sends what is left. failed: the client must see a broken answer. */
void v1_pipe_finish(struct v1_call *call, bool failed);
