/* The WebSocket protocol (RFC 6455), both sides, without a socket. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

enum {
    WEBSOCKET_CONTROL_MAX = 125,
    WEBSOCKET_ACCEPT_SIZE = 29,
    WEBSOCKET_HEAD_MAX = 14, /* of a frame, with its mask */
};

enum websocket_opcode {
    WEBSOCKET_CONTINUATION = 0,
    WEBSOCKET_TEXT = 1,
    WEBSOCKET_BINARY = 2,
    WEBSOCKET_CLOSE = 8,
    WEBSOCKET_PING = 9,
    WEBSOCKET_PONG = 10,
};

enum websocket_code {
    WEBSOCKET_NORMAL = 1000,
    WEBSOCKET_GOING_AWAY = 1001,
    WEBSOCKET_PROTOCOL_ERROR = 1002,
    WEBSOCKET_NO_CODE = 1005, /* never sent */
    WEBSOCKET_BAD_TEXT = 1007,
    WEBSOCKET_TOO_LARGE = 1009,
    WEBSOCKET_FAILED = 1011,
};

/* Answer to Sec-WebSocket-Key: base64 of 16 bytes. False when it is not. */
bool websocket_accept(struct str key, char out[WEBSOCKET_ACCEPT_SIZE]);

/* Clients mask what they send, servers do not. */
enum websocket_side { WEBSOCKET_CLIENT, WEBSOCKET_SERVER };

/* A message of this side, as one frame. */
void websocket_add(struct buf *out, enum websocket_side from, enum websocket_opcode opcode,
                   struct str data);

/* Takes bytes of one side, gives whole messages. */
struct websocket_parser {
    enum websocket_side from;
    size_t message_max;
    struct buf in;      /* bytes of a frame that is not whole yet */
    struct buf message; /* fragments so far */
    enum websocket_opcode kind;
    bool fragmented;
    bool ended; /* a close or an error was given: nothing follows */
};

struct websocket_message {
    enum websocket_opcode opcode; /* TEXT, BINARY, PING, PONG, CLOSE */
    struct str data;              /* of CLOSE: the reason; until the next call */
    uint16_t code;                /* of CLOSE */
};

void websocket_parser_init(struct websocket_parser *parser, enum websocket_side from,
                           size_t message_max);
void websocket_parser_done(struct websocket_parser *parser);
/* 1 = a message; 0 = all of *bytes is taken, more is needed; -1 = the sender broke the protocol:
 * out->code is the code to close with. */
int websocket_parse(struct websocket_parser *parser, struct str *bytes,
                    struct websocket_message *out);
