/* HTTP to other services, by libcurl: https, keep-alive, Unix sockets, streamed bodies.
 *
 * A call blocks its thread, always with a deadline. A stream is read piece by piece by one thread
 * and may be cancelled by any other. A status of 400 and above is an answer, not a failure.
 * Failures: ERROR_UNAVAILABLE (no connection, or it broke: errnum is ECONNABORTED when the other side
 * may have got the request), ERROR_TIMEOUT, ERROR_LIMIT (answer
 * longer than response_max), ERROR_INVALID (the URL). Messages name method and host, never headers,
 * query or body: these may hold secrets. Redirects are not followed; only http and https. A POST or
 * PATCH leaves once: when a kept connection ends before the answer the caller decides, unless he said
 * that it is repeatable. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "protocol/http/http.h"

struct fetch; /* connections kept for the next call; safe from any thread */

struct fetch *fetch_new(void);
/* No call may be under way. NULL is fine. */
void fetch_free(struct fetch *fetch);

/* For those at a `unix_path` who may be made to stand still: who does that says so first in what
 * open() tells, and then calls fetch_cut(). Calls and streams to that one end at once with
 * ERROR_UNAVAILABLE; those that were not sent yet with ERROR_CONFLICT and errnum EHOSTDOWN. Set before the
 * first call. */
struct fetch_gate {
    bool (*open)(void *arg, const char *unix_path);
    void *arg;
    /* NULL, or where those are whose unix_path does not begin with '/' but is a name: the path, or -errno. Never
     * waits. */
    int (*find)(void *arg, const char *name, char *out, size_t size);
};
void fetch_set_gate(struct fetch *fetch, const struct fetch_gate *gate);
void fetch_cut(struct fetch *fetch, const char *unix_path);

enum { FETCH_BODY_LATER = -1 };

/* For URLs that are not the operator's. What is not public: addresses of this host
 * (whatever their range; not those that a router in front of it translates), of private and link-local networks, and all that is not given out; then ERROR_FORBIDDEN. */
enum fetch_reach {
    FETCH_ANYWHERE, /* through a proxy of the environment, when there is one */
    FETCH_DIRECT,   /* never through a proxy */
    FETCH_PUBLIC,   /* never through a proxy, and only to public addresses */
};

static inline enum fetch_reach fetch_reach(bool public_only)
{
    return public_only ? FETCH_PUBLIC : FETCH_ANYWHERE;
}

struct fetch_request {
    const char *method;
    const char *url; /* http://... or https://... */
    const char
        *unix_path; /* connect here instead of to the URL's host (or fetch_gate.find); NULL = no */
    const struct pair *headers;
    size_t header_count;
    struct str body;
    /* A body that is made while it is sent: fills p, returns how much, 0 at the end, -1 to give
     * up. length: in all, or FETCH_BODY_LATER for chunked. NULL = `body`. */
    ssize_t (*source)(void *arg, void *p, size_t size);
    void *source_arg;
    int64_t source_length;
    uint32_t connect_ms; /* 0 = 10 s */
    uint32_t timeout_ms; /* the whole call; for a stream: until its head has come. 0 = 60 s */
    /* The call, or a stream that has no head yet, ends at this deadline (base/clock.h) with ERROR_TIMEOUT, even before
     * timeout_ms; not of a hub's stream. 0 = none. */
    int64_t deadline_us;
    /* Nothing came for so long = ERROR_TIMEOUT; 0 = never. Of a call: no byte either way. */
    uint32_t idle_ms;
    size_t response_max; /* of a call's body; 0 = 1 MiB */
    const char *ca_file; /* certificates to trust besides the system's, as PEM; NULL = none */
    enum fetch_reach reach;
    bool repeatable; /* a POST or PATCH that may arrive twice */
    /* Told each header of the answer before the call or fetch_open() returns; NULL = not wanted. */
    void (*on_header)(void *arg, struct str name, struct str value);
    void *header_arg;
};

struct fetch_response {
    int status;            /* also of an answer that was too long */
    int64_t retry_after_s; /* of the header; -1 = none */
    struct buf body;
};

/* Whether this is an http or https URL of plain characters, with a host and without a user. */
bool fetch_url_ok(const char *url);
/* Where the Location of an answer of `base` leads; false when that is no URL (as above) of that size. */
bool fetch_url_follow(const char *base, const char *location, char *out, size_t size);

/* The caller inits nothing and calls fetch_response_done() in any case. */
int fetch_call(struct fetch *fetch, const struct fetch_request *request, struct fetch_response *out,
               struct error *err);
void fetch_response_done(struct fetch_response *response);
#define auto_response __attribute__((cleanup(fetch_response_done)))

/* ---- streams ---- */

struct fetch_stream;

/* Returns when the answer's head is there. A `source` must live until fetch_close(). */
int fetch_open(struct fetch *fetch, const struct fetch_request *request, struct fetch_stream **out,
               struct error *err);
int fetch_status(const struct fetch_stream *stream);
/* > 0: bytes; 0: the body is complete; -1: ERROR_TIMEOUT when nothing came within timeout_ms (the
 * stream goes on: call again), ERROR_CONFLICT after fetch_cancel(), else it broke. */
ssize_t fetch_read(struct fetch_stream *stream, void *p, size_t size, uint32_t timeout_ms,
                   struct error *err);
/* The reader's alone, after fetch_read() has timed out and until it is called again: a descriptor that can be
 * read when it may have more; -1 = none. Neither fetch_cancel() nor fetch_cut() shows there. */
int fetch_stream_fd(const struct fetch_stream *stream);
/* Any thread: the reader returns at once, now and from then on. */
void fetch_cancel(struct fetch_stream *stream);
void fetch_close(struct fetch_stream *stream); /* NULL is fine */

/* ---- many streams on one thread ---- */

struct fetch_hub;
struct fetch_hub_stream;

/* All on the hub's thread; they must not block. */
struct fetch_hub_events {
    void (*on_head)(void *arg, int status);
    void (*on_data)(void *arg, struct str data);
    /* Exactly once, last. why: NULL = complete. Not called after fetch_hub_close(). */
    void (*on_end)(void *arg, const struct error *why);
};

struct fetch_hub *fetch_hub_new(void);
void fetch_hub_free(struct fetch_hub *hub); /* closes what is open */
/* Copies the request. Any thread. Callbacks may begin before it returns. */
struct fetch_hub_stream *fetch_hub_open(struct fetch_hub *hub, const struct fetch_request *request,
                                        const struct fetch_hub_events *events, void *arg);
/* Any thread, also inside a callback. No callback runs after it returned. Each stream is closed
 * exactly once, also after its on_end. */
void fetch_hub_close(struct fetch_hub_stream *stream);
