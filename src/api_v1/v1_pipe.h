/* A bounded pipe between the worker that runs a call and the loop that has its connection: bodies of
 * any size go through it in either direction, and whoever is faster waits. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/str.h"
#include "loop/loop.h"

struct v1_call;

struct v1_pipe {
    pthread_mutex_t lock; /* guards the next six */
    pthread_cond_t changed;
    struct buf data;
    bool closed; /* the client has gone, or the server ends */
    bool ended;  /* nothing follows what is in data */
    bool posted; /* job is under way to the loop */
    struct loop_job job;
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
bool v1_pipe_gone(struct v1_call *call);

/* ---- for v1.c, on the loop ---- */

/* The client has gone: the worker's next call fails. */
void v1_pipe_close(struct v1_pipe *pipe);
/* The handler has returned: sends what is left. failed: the client must see a broken answer. */
void v1_pipe_finish(struct v1_call *call, bool failed);
