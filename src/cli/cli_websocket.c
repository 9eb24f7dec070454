/* The server sends whole messages: a fragmented one is refused. */
#include "cli/cli_websocket.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/id.h"

enum { OPEN_MS = 60 * 1000, BODY_MAX = 16 * 1024 * 1024, FRAME_MAX = 8 * 1024 * 1024, MASK = 4 };

int cli_websocket_open(const struct cli_server *server, const char *target,
                       struct cli_stream *stream, struct error *err)
{
    unsigned char random[16];
    char key[BASE64_LEN(sizeof(random))];
    const struct http_header headers[] = {
        {STR("X-API-KEY"), str_of(server->key)},
        {STR("Upgrade"), STR("websocket")},
        {STR("Sec-WebSocket-Version"), STR("13")},
        {STR("Sec-WebSocket-Key"), str_n(key, sizeof(key))},
    };
    const struct cli_request request = {"GET", target, headers, 4, 0, true};

    random_bytes(random, sizeof(random));
    base64_encode(key, random, sizeof(random));
    if (cli_stream_open(stream, &server->api, &request, OPEN_MS, BODY_MAX, err) < 0 ||
        cli_stream_recv_head(stream, err) < 0)
        return -1;
    if (stream->raw)
        return 0;
    if (cli_stream_recv_all(stream, err) < 0)
        return -1;
    if (stream->status / 100 == 2)
        return error_set(err, ERROR_UNAVAILABLE, "the server did not open a WebSocket");
    return cli_answer_error(stream, err);
}

int cli_websocket_send(struct cli_stream *stream, enum cli_frame_kind kind, struct str data,
                       struct error *err)
{
    auto_free unsigned char *frame = xmalloc(14 + data.len);
    unsigned char *mask;
    size_t n = 2;

    frame[0] = (unsigned char)(0x80 | kind);
    if (data.len < 126) {
        frame[1] = (unsigned char)(0x80 | data.len);
    } else if (data.len < 65536) {
        frame[1] = 0x80 | 126;
        frame[n++] = (unsigned char)(data.len >> 8);
        frame[n++] = (unsigned char)data.len;
    } else {
        frame[1] = 0x80 | 127;
        for (int shift = 56; shift >= 0; shift -= 8)
            frame[n++] = (unsigned char)((uint64_t)data.len >> shift);
    }
    mask = frame + n;
    random_bytes(mask, MASK);
    n += MASK;
    for (size_t i = 0; i < data.len; i++)
        frame[n + i] = (unsigned char)data.p[i] ^ mask[i % MASK];
    return cli_stream_send_raw(stream, str_n(frame, n + data.len), err);
}

int cli_websocket_parse(const struct cli_stream *stream, struct cli_frame *out, size_t *out_used,
                        struct error *err)
{
    const unsigned char *p = (const unsigned char *)stream->body.p;
    size_t have = stream->body.len, head = 2, extra;
    uint64_t length;

    if (have < 2)
        return 0;
    length = p[1] & 0x7f;
    extra = length == 126 ? 2 : length == 127 ? 8 : 0;
    if (!(p[0] & 0x80) || (p[0] & 0x70) || (p[1] & 0x80) || !(p[0] & 0x0f))
        return error_set(err, ERROR_UNAVAILABLE, "the server sent a frame that is not allowed");
    if (have < head + extra)
        return 0;
    if (extra)
        length = 0;
    for (size_t i = 0; i < extra; i++)
        length = length << 8 | p[head + i];
    head += extra;
    if (length > FRAME_MAX)
        return error_set(err, ERROR_LIMIT, "the server sent a frame that is too long");
    if (have < head + length)
        return 0;
    *out = (struct cli_frame){.kind = p[0] & 0x0f, .data = str_n(p + head, (size_t)length)};
    if (out->kind == CLI_FRAME_CLOSE && length >= 2) {
        out->code = (uint16_t)(p[head] << 8 | p[head + 1]);
        out->data = str_skip(out->data, 2);
    }
    *out_used = head + (size_t)length;
    return 1;
}
