/* HTTP/2 for the server of src/protocol/http, by nghttp2: each stream is an exchange, and handlers see no
 * difference. A connection becomes one of HTTP/2 when its peer begins with the preface, which is so after TLS has
 * chosen "h2" and for clients that know beforehand ("prior knowledge"); "Upgrade: h2c" is ignored.
 *
 * What a stream may hold: its window of the request's body until the handler wants it, and what http_write()
 * may queue. A stream that its peer does not read stops only itself. Peers that make work and want nothing
 * (resets, pings, settings, empty frames, endless heads) lose the connection with ENHANCE_YOUR_CALM. */
#pragma once

struct http_protocol;

extern const struct http_protocol http2_protocol;

enum {
    HTTP2_STREAMS_MAX = 128,         /* of one connection at the same time */
    HTTP2_WINDOW = 64 * 1024 - 1,    /* of a stream whose body nobody has asked for */
    HTTP2_WINDOW_WIDE = 1024 * 1024, /* ... and of one whose body somebody reads */
    HTTP2_WIDE_MAX = 16,             /* streams with such a window at the same time */
    HTTP2_CONNECTION_WINDOW = 4 * 1024 * 1024,
    HTTP2_FIELDS_MAX = 1000, /* of one head: more than that are an attack and not a mistake */
    HTTP2_TRAILERS_MAX = 32,
    HTTP2_CREDIT = 1000,     /* what a peer may do for nothing at once */
    HTTP2_CREDIT_PER_S = 50, /* ... and comes back by itself */
    HTTP2_CREDIT_OF_DATA =
        4, /* a frame of data that we send earns so much: it may be acknowledged */
    HTTP2_COST_OF_FRAME = 1,
    HTTP2_COST_OF_RESET = 5,
};
