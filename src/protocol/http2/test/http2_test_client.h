/* A client of HTTP/2 for tests, on the rig's thread: whoever waits turns both. */
#pragma once

#include <nghttp2/nghttp2.h>

#include "base/clock.h"
#include "protocol/http/test/http_test_rig.h"

enum { HTTP2_TEST_REPLIES = 1024, HTTP2_TEST_WAIT_MS = 60 * 1000 };

struct http2_reply {
    int status, continues;
    struct buf body;    /* the first bytes */
    struct buf headers; /* "name: value\n" */
    size_t bytes;       /* of the body */
    size_t upload_left; /* bytes 'u' to be sent; upload_hold: more will come */
    bool upload_hold;
    bool upload_trailers;
    bool ended, closed;
    uint32_t error;
};

struct http2_client {
    struct rig *rig;
    int fd;
    nghttp2_session *ng;
    struct http2_reply replies[HTTP2_TEST_REPLIES]; /* by stream id / 2 */
    bool goaway, gone;
    uint32_t goaway_error;
    int32_t goaway_last;
    int pings;
};

/* window: of each stream, which is never opened again when `stingy`. */
void http2_client_open(struct http2_client *client, struct rig *rig, uint32_t window, bool stingy);
void http2_client_close(struct http2_client *client);
/* What is to be sent goes out, what has come is read. */
void http2_client_turn(struct http2_client *client);
/* headers: "name: value\n...", besides the pseudo fields. upload: bytes of the body, or -1: none. */
struct http2_reply *http2_client_ask(struct http2_client *client, const char *method,
                                     const char *path, const char *headers, int64_t upload);
int32_t http2_client_id(const struct http2_client *client, const struct http2_reply *reply);
/* Bytes as they are, behind what nghttp2 had to say. */
void http2_client_raw(struct http2_client *client, const void *p, size_t len);

#define HTTP2_WAIT(client, condition)                                                        \
    do {                                                                                     \
        int64_t wait_end_ = clock_mono_ms() + HTTP2_TEST_WAIT_MS * (int64_t)test_patience(); \
                                                                                             \
        while (!(condition)) {                                                               \
            if (clock_mono_ms() >= wait_end_)                                                \
                test_fail(__FILE__, __LINE__, "waited in vain for " #condition);             \
            http2_client_turn(client);                                                       \
        }                                                                                    \
    } while (0)
