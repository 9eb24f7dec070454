/* Server-sent events: a stream of what event.h tells, on the loop of its connection. */
#pragma once

#include "edge/api_runtime/v1_internal.h"
#include "runtime/core/event.h"

enum { V1_SSE_HEARTBEAT_MS = 30000 };

struct v1_sse_options {
    struct runtime_event_filter filter;
    int64_t since;    /* events after this id; -1 = from now on */
    size_t replay;    /* with -1: so many of the newest first */
    size_t buffered;  /* with an id: at most so many of those after it, the newest; 0 = all */
    bool plain_names; /* "sandbox_status" and the like instead of our types */
};

/* Appends one event. Line ends inside data become further data lines. id < 0: none. */
void v1_sse_format(int64_t id, struct str type, struct str data, struct buf *out);
/* The few names of clients that know only these. */
struct str v1_sse_plain_name(struct str type);
/* For a handler: leaves a take_over() in the call. */
int v1_sse_open(struct v1_call *call, const struct v1_sse_options *options, struct error *err);
