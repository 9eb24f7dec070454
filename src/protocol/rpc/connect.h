/* The Connect protocol, as servers speak it: unary calls (application/json) and streams
 * (application/connect+json) of envelopes, each a flag byte, a big-endian 32-bit length and the
 * message. A server's stream ends with an envelope flagged CONNECT_END that holds {} or an error;
 * errors of streams come with HTTP status 200.
 *
 * Handlers read and write JSON. Clients may choose the binary codec instead (application/proto,
 * application/connect+proto): messages are turned around here, at the edge. Errors and end frames
 * are JSON in both. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "protocol/http/http_server.h"
#include "protocol/rpc/proto.h"

enum {
    CONNECT_HEAD_SIZE = 5,
    CONNECT_COMPRESSED = 1, /* flag bits */
    CONNECT_END = 2,
    CONNECT_MESSAGE_MAX = 8 * 1024 * 1024,
};

/* ---- envelopes ---- */

void connect_head(char out[CONNECT_HEAD_SIZE], uint8_t flags, uint32_t len);
bool connect_add(struct buf *out, uint8_t flags, struct str message);
/* The end frame; err NULL or without a code means success. */
void connect_add_end(struct buf *out, const struct error *err);
/* {"code":"not_found","message":"..."}, malloc()ed. */
char *connect_error_text(const struct error *err);

/* Reads envelopes from bytes that come in any pieces. Zeroed is ready to use, after setting max. */
struct connect_decoder {
    size_t max; /* of one message */
    unsigned char head[CONNECT_HEAD_SIZE];
    size_t head_len;
    struct buf message;
};

/* Takes a message from the front of *data: 1; 0 when the rest of it has not come yet; -1 with err for a
 * message too long, unknown flags or compression. The message points into the data or the decoder,
 * until the next call. */
int connect_next(struct connect_decoder *decoder, struct str *data, uint8_t *flags,
                 struct str *message, struct error *err);
/* Returns 0 to go on; anything else ends connect_decode() with that value. */
typedef int connect_message_fn(void *arg, uint8_t flags, struct str message);

/* All messages in data. 0; -1 as connect_next(); or what fn returned. */
int connect_decode(struct connect_decoder *decoder, struct str data, connect_message_fn *fn,
                   void *arg, struct error *err);
/* True between messages: the stream may end here. */
bool connect_decoder_idle(const struct connect_decoder *decoder);
void connect_decoder_done(struct connect_decoder *decoder);
/* The one message of a server stream's request body. */
int connect_decode_single(struct str body, struct str *out_message, struct error *err);

/* ---- codecs ---- */

struct connect_method {
    const char *path;
    const struct proto_message *request, *response;
};

/* Says which method an exchange calls, before any function below is used on it. Takes the
 * exchange's user pointer. False when the request's content type is none that such a call may have;
 * method NULL allows JSON only. */
bool connect_open(struct http_exchange *ex, const struct connect_method *method, bool stream);
/* How the client wants its answers: NULL means JSON, else the table to write them with. */
const struct proto_message *connect_format(const struct http_exchange *ex);
/* One request message, in the exchange's codec; no bytes at all are an empty message. */
int connect_read(const struct http_exchange *ex, struct str message, json_t **out,
                 struct error *err);
/* An envelope with a message that is given as JSON, in the wanted format; nothing on failure. */
int connect_add_message(struct buf *out, const struct proto_message *format, struct str json,
                        struct error *err);

/* ---- answers ---- */

bool connect_is_stream(const struct http_exchange *ex); /* by the request's content type */
/* Connect-Timeout-Ms; 0 when absent. */
int connect_timeout_ms(const struct http_exchange *ex, int64_t *out_ms, struct error *err);
/* Unary answers. The message is given as JSON text. */
void connect_reply(struct http_exchange *ex, struct str message);
void connect_reply_error(struct http_exchange *ex, const struct error *err);
/* Streams. */
void connect_begin(struct http_exchange *ex);
void connect_finish(struct http_exchange *ex, const struct error *err); /* end frame, http_end() */
/* An error in the form the request's kind wants; for a stream that has not begun. */
void connect_fail(struct http_exchange *ex, const struct error *err);
