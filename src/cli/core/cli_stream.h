/* A blocking HTTP/1.1 client, plain or over TLS, for bodies of any length: one request per connection, the request body
 * sent in pieces or from a file, the response body taken in pieces. Memory stays bounded by what
 * one read brings (or by `max` when the caller lets the body collect). */
#pragma once

#include <llhttp.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "protocol/http/http.h"

struct cli_url {
    char host[256]; /* without brackets */
    uint16_t port;
    bool tls;
};

/* "http://host[:port][/]", or https. */
int cli_url_parse(const char *text, struct cli_url *out, struct error *err);

struct cli_stream {
    int fd;
    struct cli_tls *tls; /* NULL: plain */
    uint32_t timeout_ms; /* for one step; 0 = none */
    bool chunked;        /* the request body */
    bool head_done;      /* status and headers are there */
    bool ended;          /* the response is complete */
    bool upgrade;        /* another protocol was asked for ... */
    bool raw;            /* ... and granted (101): `body` has its bytes */
    int status;
    int64_t content_length; /* of the response, -1 when unknown */
    bool is_json;           /* says its head */
    struct buf body;        /* decoded response bytes not yet taken by the caller (buf_clear()) */
    struct buf next_token;  /* value of x-next-token */
    llhttp_t parser;
    llhttp_settings_t settings;
    struct buf header_name, header_value;
    char *bytes; /* of one read */
};

struct cli_request {
    const char *method;
    const char *target;
    const struct http_header *headers;
    size_t header_count;
    int64_t length; /* of the body; -1 = chunked */
    bool upgrade;   /* asks for another protocol; the headers say which */
};

/* Connects and sends the head. cli_stream_close() is due also after a failure. */
int cli_stream_open(struct cli_stream *stream, const struct cli_url *url,
                    const struct cli_request *request, uint32_t timeout_ms, size_t max,
                    struct error *err);
int cli_stream_send(struct cli_stream *stream, struct str data, struct error *err);
/* `length` bytes from the file's position. */
int cli_stream_send_file(struct cli_stream *stream, int fd, int64_t length, struct error *err);
/* Only needed for chunked bodies. */
int cli_stream_send_end(struct cli_stream *stream, struct error *err);
/* The bytes of the other protocol, after an upgrade. */
int cli_stream_send_raw(struct cli_stream *stream, struct str data, struct error *err);
enum { CLI_STREAM_LATER = 2 };
/* Adds what has come to `body`, without waiting: 1, 0 when nothing more will come, or
 * CLI_STREAM_LATER when it has to be waited for on `fd`. */
int cli_stream_take(struct cli_stream *stream, struct error *err);
/* Waits for bytes and adds what they hold to `body`. 0 when nothing more will come. */
int cli_stream_recv(struct cli_stream *stream, struct error *err);
/* Until the head is there; or until the response is complete. */
int cli_stream_recv_head(struct cli_stream *stream, struct error *err);
int cli_stream_recv_all(struct cli_stream *stream, struct error *err);
void cli_stream_close(struct cli_stream *stream);

#define auto_stream __attribute__((cleanup(cli_stream_close)))
