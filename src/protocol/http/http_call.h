/* A blocking HTTP/1.1 client for whoever needs the connection itself: kept for the next request,
 * handed over, or upgraded to another protocol. Other calls go by protocol/fetch/fetch.h.
 *
 * One exchange per http_call_start(). Bodies of any length are sent and taken in pieces; memory is
 * bounded by `max`. Failures: ERROR_UNAVAILABLE, ERROR_TIMEOUT, ERROR_LIMIT, ERROR_INVALID. */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "protocol/http/http.h"
#include "protocol/http/http_parser.h"

/* What carries the bytes when it is not the socket alone: as send(2), recv(2) on a non-blocking one.
 * Bytes may be left inside although the descriptor is not readable. */
struct http_carrier {
    ssize_t (*send)(struct http_carrier *carrier, const void *p, size_t len);
    ssize_t (*recv)(struct http_carrier *carrier, void *p, size_t len);
    void (*close)(struct http_carrier *carrier); /* the descriptor with it */
};

struct http_call {
    /* set by the caller */
    int fd;                       /* connected and non-blocking; closed by http_call_done() */
    struct http_carrier *carrier; /* NULL = the socket itself */
    int64_t deadline_ms;          /* moment of clock_mono_ms() for all of it; 0 = none */
    uint32_t step_ms;             /* for each wait; 0 = none */
    size_t max;                   /* of `body` */
    /* to be read */
    bool head_done; /* status and headers are there */
    bool ended;     /* the answer is complete */
    bool raw;       /* an upgrade was granted (101): `body` has the bytes of the other protocol */
    bool cut;       /* the other side reads no more; it may have answered */
    int status;
    struct buf body; /* what came and was not yet taken by the caller (buf_clear()) */
    /* its own */
    bool chunked, upgrade, head_only;
    struct http_parser parser;
    char *bytes;
};

enum { HTTP_CALL_CHUNKED = -1 };

struct http_call_request {
    const char *method, *target;
    const char *host; /* of the Host header; NULL = localhost */
    const struct pair *headers;
    size_t header_count;
    struct str body; /* sent with the head */
    int64_t more;    /* bytes of the body that follow by http_call_send(), or HTTP_CALL_CHUNKED */
    enum http_after { HTTP_AFTER_KEEP, HTTP_AFTER_CLOSE, HTTP_AFTER_UPGRADE } after;
};

/* Sends the head. http_call_done() is due also after a failure. */
int http_call_start(struct http_call *call, const struct http_call_request *request,
                    struct error *err);
/* Of the body; or of the other protocol. */
int http_call_send(struct http_call *call, struct str data, struct error *err);
/* `length` bytes from the file's position. */
int http_call_send_file(struct http_call *call, int fd, int64_t length, struct error *err);
/* Only needed for chunked bodies. */
int http_call_send_end(struct http_call *call, struct error *err);
enum { HTTP_CALL_LATER = 2 };
/* Adds what has come to `body`, without waiting: 1, 0 when nothing more will come, or
 * HTTP_CALL_LATER when it has to be waited for on `fd`. */
int http_call_take(struct http_call *call, struct error *err);
/* Waits for bytes and adds what they hold to `body`. 0 when nothing more will come. */
int http_call_recv(struct http_call *call, struct error *err);
/* Until the head is there; or until the answer is complete. */
int http_call_recv_head(struct http_call *call, struct error *err);
int http_call_recv_all(struct http_call *call, struct error *err);
/* Of the answer, from its head on. */
struct str http_call_header(const struct http_call *call, const char *name);
void http_call_done(struct http_call *call);

#define auto_call __attribute__((cleanup(http_call_done)))

/* One request and its whole answer on a connection that stays the caller's. out_body: not inited,
 * buf_done() in any case. */
int http_call_whole(int fd, const struct http_call_request *request, uint32_t timeout_ms,
                    size_t max, int *out_status, struct buf *out_body, struct error *err);
