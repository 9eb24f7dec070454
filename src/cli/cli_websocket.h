/* The WebSocket protocol (RFC 6455), client side, on a stream that was upgraded. */
#pragma once

#include "cli/cli_client.h"

enum cli_frame_kind {
    CLI_FRAME_TEXT = 1,
    CLI_FRAME_BINARY = 2,
    CLI_FRAME_CLOSE = 8,
    CLI_FRAME_PING = 9,
    CLI_FRAME_PONG = 10,
};

struct cli_frame {
    enum cli_frame_kind kind;
    struct str data; /* of CLOSE: the reason. Until the next call. */
    uint16_t code;   /* of CLOSE */
};

/* Connects and upgrades; a refusal is the server's error. */
int cli_websocket_open(const struct cli_server *server, const char *target,
                       struct cli_stream *stream, struct error *err);
/* Masked, as clients must. */
int cli_websocket_send(struct cli_stream *stream, enum cli_frame_kind kind, struct str data,
                       struct error *err);
/* A frame of what was received (drop *out_used bytes of stream->body before the next call): 1, 0
 * when it is not whole yet, -1 when the server breaks the protocol. */
int cli_websocket_parse(const struct cli_stream *stream, struct cli_frame *out, size_t *out_used,
                        struct error *err);
