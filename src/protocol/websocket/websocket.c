/* How it works
 *
 * Bytes are collected until a frame is whole; its length is known, and checked, as soon as its head
 * is there, so no more is kept than a message may have. Fragments are joined in `message`; control
 * frames may come between them. */
#include "protocol/websocket/websocket.h"

#include <openssl/sha.h>

#include "base/encode.h"
#include "base/id.h"

enum { MASK_SIZE = 4 };

bool websocket_accept(struct str key, char out[WEBSOCKET_ACCEPT_SIZE])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    unsigned char digest[SHA_DIGEST_LENGTH];
    char text[24 + sizeof(guid)];
    auto_buf struct buf nonce = {0};

    buf_init(&nonce, 32);
    if (key.len != 24 || !base64_decode(key, &nonce) || nonce.len != 16)
        return false;
    memcpy(text, key.p, 24);
    memcpy(text + 24, guid, sizeof(guid));
    (void)SHA1((const unsigned char *)text, 24 + sizeof(guid) - 1, digest);
    base64_encode(out, digest, sizeof(digest));
    out[WEBSOCKET_ACCEPT_SIZE - 1] = '\0';
    return true;
}

static void mask(char *p, size_t len, const char key[MASK_SIZE])
{
    char twice[2 * MASK_SIZE];
    uint64_t word, keys;
    size_t i = 0;

    memcpy(twice, key, MASK_SIZE);
    memcpy(twice + MASK_SIZE, key, MASK_SIZE);
    memcpy(&keys, twice, sizeof(keys));
    for (; len - i >= sizeof(word); i += sizeof(word)) {
        memcpy(&word, p + i, sizeof(word));
        word ^= keys;
        memcpy(p + i, &word, sizeof(word));
    }
    for (; i < len; i++)
        p[i] = (char)(p[i] ^ twice[i % MASK_SIZE]);
}

void websocket_add(struct buf *out, enum websocket_side from, enum websocket_opcode opcode,
                   struct str data)
{
    size_t bytes = data.len < 126 ? 0 : data.len <= UINT16_MAX ? 2 : 8;
    char masked = (char)(from == WEBSOCKET_CLIENT ? 0x80 : 0), key[MASK_SIZE] = {0};

    (void)buf_add_char(out, (char)(0x80 | opcode));
    (void)buf_add_char(out, (char)(masked | (bytes == 0 ? (int)data.len : bytes == 2 ? 126 : 127)));
    for (size_t i = 0; i < bytes; i++)
        (void)buf_add_char(out, (char)((uint64_t)data.len >> (8 * (bytes - 1 - i))));
    if (masked) {
        random_bytes(key, sizeof(key));
        (void)buf_add(out, key, sizeof(key));
    }
    if (buf_add_str(out, data) && masked)
        mask(out->p + out->len - data.len, data.len, key);
}

void websocket_parser_init(struct websocket_parser *parser, enum websocket_side from,
                           size_t message_max)
{
    *parser = (struct websocket_parser){.from = from, .message_max = message_max};
    buf_init(&parser->in, message_max + WEBSOCKET_HEAD_MAX);
    buf_init(&parser->message, message_max);
}

void websocket_parser_done(struct websocket_parser *parser)
{
    buf_done(&parser->in);
    buf_done(&parser->message);
}

struct frame {
    bool last;
    enum websocket_opcode opcode;
    size_t head; /* with the mask */
    uint64_t length;
};

static int broken(struct websocket_parser *parser, struct websocket_message *out, uint16_t code)
{
    parser->ended = true;
    out->code = code;
    return -1;
}

/* 1 = the head is there, 0 = not yet, -1 = wrong (out->code). */
static int read_head(struct websocket_parser *parser, struct frame *frame,
                     struct websocket_message *out)
{
    const uint8_t *p = (const uint8_t *)parser->in.p;
    bool masked = parser->from == WEBSOCKET_CLIENT;
    size_t bytes;

    if (parser->in.len < 2)
        return 0;
    frame->last = p[0] & 0x80;
    frame->opcode = p[0] & 0x0f;
    if ((p[0] & 0x70) || !(p[1] & 0x80) == masked) /* the first: extensions nobody agreed on */
        return broken(parser, out, WEBSOCKET_PROTOCOL_ERROR);
    frame->length = p[1] & 0x7f;
    bytes = frame->length == 126 ? 2 : frame->length == 127 ? 8 : 0;
    frame->head = 2 + bytes + (masked ? MASK_SIZE : 0);
    if (parser->in.len < frame->head)
        return 0;
    if (bytes)
        frame->length = 0;
    for (size_t i = 0; i < bytes; i++)
        frame->length = frame->length << 8 | p[2 + i];
    return 1;
}

/* Is this frame allowed here? */
static int check(struct websocket_parser *parser, const struct frame *frame,
                 struct websocket_message *out)
{
    bool ok;

    switch (frame->opcode) {
    case WEBSOCKET_CONTINUATION:
        ok = parser->fragmented;
        break;
    case WEBSOCKET_TEXT:
    case WEBSOCKET_BINARY:
        ok = !parser->fragmented;
        break;
    case WEBSOCKET_CLOSE:
    case WEBSOCKET_PING:
    case WEBSOCKET_PONG:
        ok = frame->last && frame->length <= WEBSOCKET_CONTROL_MAX;
        break;
    default:
        ok = false;
    }
    if (!ok)
        return broken(parser, out, WEBSOCKET_PROTOCOL_ERROR);
    if (frame->length > parser->message_max ||
        (frame->opcode < WEBSOCKET_CLOSE &&
         parser->message.len + frame->length > parser->message_max))
        return broken(parser, out, WEBSOCKET_TOO_LARGE);
    return 0;
}

static int give_close(struct websocket_parser *parser, struct str data,
                      struct websocket_message *out)
{
    uint16_t code = WEBSOCKET_NO_CODE;

    if (data.len == 1)
        return broken(parser, out, WEBSOCKET_PROTOCOL_ERROR);
    if (data.len)
        code = (uint16_t)((uint8_t)data.p[0] << 8 | (uint8_t)data.p[1]);
    /* 1004 to 1006 and 1015 only stand for what did not come over the wire. */
    if (data.len && (code < 1000 || (code >= 1004 && code <= 1006) ||
                     (code > 1014 && code < 3000) || code >= 5000))
        return broken(parser, out, WEBSOCKET_PROTOCOL_ERROR);
    if (data.len && !str_valid_utf8(str_skip(data, 2)))
        return broken(parser, out, WEBSOCKET_BAD_TEXT);
    parser->ended = true;
    *out = (struct websocket_message){
        .opcode = WEBSOCKET_CLOSE, .code = code, .data = str_skip(data, 2)};
    return 1;
}

/* A whole, allowed, unmasked frame. 1 = a message, 0 = a fragment, -1. */
static int give(struct websocket_parser *parser, const struct frame *frame, struct str data,
                struct websocket_message *out)
{
    if (frame->opcode == WEBSOCKET_CLOSE)
        return give_close(parser, data, out);
    if (frame->opcode > WEBSOCKET_CLOSE) {
        *out = (struct websocket_message){.opcode = frame->opcode, .data = data};
        return 1;
    }
    if (frame->opcode != WEBSOCKET_CONTINUATION)
        parser->kind = frame->opcode;
    if (!frame->last || parser->fragmented) {
        (void)buf_add_str(&parser->message, data);
        data = buf_str(&parser->message);
    }
    parser->fragmented = !frame->last;
    if (!frame->last)
        return 0;
    if (parser->kind == WEBSOCKET_TEXT && !str_valid_utf8(data))
        return broken(parser, out, WEBSOCKET_BAD_TEXT);
    *out = (struct websocket_message){.opcode = parser->kind, .data = data};
    return 1;
}

/* Moves bytes over until `in` has `want`, at most. */
static bool fill(struct websocket_parser *parser, struct str *bytes, size_t want)
{
    size_t n = want > parser->in.len ? want - parser->in.len : 0;

    if (n > bytes->len)
        n = bytes->len;
    (void)buf_add(&parser->in, bytes->p, n);
    *bytes = str_skip(*bytes, n);
    return parser->in.len >= want;
}

/* Takes what the next head still lacks; see read_head(). */
static int take_head(struct websocket_parser *parser, struct str *bytes, struct frame *frame,
                     struct websocket_message *out)
{
    for (;;) {
        int r;

        frame->head = 2;
        r = read_head(parser, frame, out);
        if (r != 0)
            return r;
        if (!fill(parser, bytes, frame->head))
            return 0;
    }
}

int websocket_parse(struct websocket_parser *parser, struct str *bytes,
                    struct websocket_message *out)
{
    *out = (struct websocket_message){0};
    while (!parser->ended) {
        struct frame frame = {0};
        char *p;
        int r;

        if (!parser->fragmented)
            buf_clear(&parser->message);
        r = take_head(parser, bytes, &frame, out);
        if (r <= 0)
            return r;
        if (check(parser, &frame, out) < 0)
            return -1;
        if (!fill(parser, bytes, frame.head + (size_t)frame.length))
            return 0;
        p = parser->in.p + frame.head;
        if (parser->from == WEBSOCKET_CLIENT)
            mask(p, (size_t)frame.length, p - MASK_SIZE);
        /* The bytes stay where they are until the next frame begins to be filled. */
        parser->in.len = 0;
        r = give(parser, &frame, str_n(p, (size_t)frame.length), out);
        if (r != 0)
            return r;
    }
    return 0;
}
