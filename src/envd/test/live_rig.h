/* Starts the built envd on a Unix socket, and talks to it. For envd_live_test.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/str.h"

struct live {
    pid_t pid;
    char dir[64]; /* scratch, removed by live_stop() */
    char socket[96];
};

void live_start(struct live *live);
/* Before live_start(): what is mounted from now on is seen by this test only and goes with it. */
void live_own_mounts(void);
void live_stop(struct live *live);
/* A path in its scratch directory; one of the last four. */
char *live_in(const struct live *live, const char *name);

/* One request with a body; returns the status, the answer's body in out (cleared first). headers are
 * complete lines, or NULL. */
int live_call(const struct live *live, const char *method, const char *target, const char *headers,
              struct str body, struct buf *out);
/* A header of the last answer, or NULL. */
const char *live_header(const char *name);
/* The same for a JSON remote procedure call. */
int live_rpc(const struct live *live, const char *name, const char *json, struct buf *out);

/* A server stream: events come as they are read. */
struct live_stream {
    int fd;
    struct buf bytes;   /* not yet decoded */
    struct buf message; /* the last one, as text */
    struct buf out, err;
    bool ended;
    char end[512];  /* the end event's object */
    char last[512]; /* the end frame */
    int started_pid;
};

void live_stream_open(struct live_stream *stream, const struct live *live, const char *name,
                      const char *json, const char *headers);
/* Reads one message; false at the end of the stream. */
bool live_stream_next(struct live_stream *stream);
/* Reads until the start event, resp. the end of the stream. */
void live_stream_started(struct live_stream *stream);
void live_stream_finish(struct live_stream *stream);
void live_stream_close(struct live_stream *stream);
/* Start of a command and everything until its end. */
void live_run(struct live_stream *stream, const struct live *live, const char *json,
              const char *headers);
