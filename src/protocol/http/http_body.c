/* The chunked decoder takes what RFC 9112 section 7.1 says and nothing else: CR LF after sizes, data
 * and trailers, no signs, no sizes that do not fit. llhttp's own decoder skips the two bytes behind a
 * chunk without looking at them, which is enough to smuggle a request past it. */
#include "protocol/http/http_body.h"

#include <stdint.h>

enum { LINE_MAX_BYTES = 4096, SIZE_DIGITS_MAX = 15 };

enum chunk_state {
    CHUNK_SIZE,
    CHUNK_SPACE, /* behind a size: some pad it */
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    TRAILER_START,
    TRAILER_LINE,
    TRAILER_LF,
    TRAILER_END_LF,
};

void http_body_init(struct http_body *body, enum http_body_kind kind, uint64_t length)
{
    *body = (struct http_body){.kind = kind};
    if (kind == HTTP_BODY_LENGTH)
        body->left = length;
    body->complete = kind == HTTP_BODY_NONE || (kind == HTTP_BODY_LENGTH && !length);
}

/* At most body->left bytes of *in. */
static int take_payload(struct http_body *body, struct str *in, http_body_fn *fn, void *arg)
{
    size_t len = in->len < body->left ? in->len : (size_t)body->left;
    struct str payload = str_n(in->p, len);

    *in = str_skip(*in, len);
    body->left -= len;
    return fn && len ? fn(arg, payload) : 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int size_byte(struct http_body *body, char c)
{
    int digit = hex_digit(c);

    if (digit >= 0) {
        if (++body->line > SIZE_DIGITS_MAX)
            return -1;
        body->left = body->left << 4 | (unsigned)digit;
        return 0;
    }
    if (body->line == 0)
        return -1;
    if (c == '\r')
        body->state = CHUNK_SIZE_LF;
    else if (c == ' ' || c == '\t')
        body->state = CHUNK_SPACE;
    else if (c == ';')
        body->state = CHUNK_EXTENSION;
    else
        return -1;
    return 0;
}

static bool is_text(char c)
{
    return (unsigned char)c >= ' ' ? c != 0x7f : c == '\t';
}

static int trailer_byte(struct http_body *body, char c)
{
    if (c != '\n' && (!is_text(c) || ++body->trailer_bytes > HTTP_TRAILER_BYTES_MAX))
        return -1;
    if (body->trailers)
        (void)buf_add_char(body->trailers, c);
    body->state = c == '\n' ? TRAILER_START : TRAILER_LINE;
    return 0;
}

/* One byte of framing. */
static int framing_byte(struct http_body *body, char c)
{
    switch ((enum chunk_state)body->state) {
    case CHUNK_SIZE:
        return size_byte(body, c);
    case CHUNK_SPACE:
        if (c == ';')
            body->state = CHUNK_EXTENSION;
        else if (c == '\r')
            body->state = CHUNK_SIZE_LF;
        else if ((c != ' ' && c != '\t') || ++body->line > LINE_MAX_BYTES)
            return -1;
        return 0;
    case CHUNK_EXTENSION:
        if (c == '\r')
            body->state = CHUNK_SIZE_LF;
        else if (!is_text(c) || ++body->line > LINE_MAX_BYTES)
            return -1;
        return 0;
    case CHUNK_SIZE_LF:
        body->state = body->left ? CHUNK_DATA : TRAILER_START;
        body->line = 0;
        return c == '\n' ? 0 : -1;
    case CHUNK_DATA_CR:
        body->state = CHUNK_DATA_LF;
        return c == '\r' ? 0 : -1;
    case CHUNK_DATA_LF:
        body->state = CHUNK_SIZE;
        return c == '\n' ? 0 : -1;
    case TRAILER_START:
    case TRAILER_LINE:
        if (c != '\r')
            return c == '\n' ? -1 : trailer_byte(body, c);
        body->state = body->state == TRAILER_START ? TRAILER_END_LF : TRAILER_LF;
        return 0;
    case TRAILER_LF:
        return c == '\n' ? trailer_byte(body, c) : -1;
    case TRAILER_END_LF:
        body->complete = true;
        return c == '\n' ? 0 : -1;
    case CHUNK_DATA:
        break;
    }
    return -1;
}

int http_body_feed(struct http_body *body, struct str *in, http_body_fn *fn, void *arg)
{
    body->tail = 0;
    if (body->kind == HTTP_BODY_UNTIL_CLOSE)
        body->left = in->len;
    if (body->kind != HTTP_BODY_CHUNKED) {
        (void)take_payload(body, in, fn, arg);
        body->complete = body->kind != HTTP_BODY_UNTIL_CLOSE && !body->left;
        return 0;
    }
    while (in->len && !body->complete) {
        if (body->state == CHUNK_DATA) {
            int stop = take_payload(body, in, fn, arg);

            if (!body->left)
                body->state = CHUNK_DATA_CR;
            if (stop)
                break;
            continue;
        }
        body->tail += body->state >= TRAILER_START;
        if (framing_byte(body, in->p[0]) < 0)
            return -1;
        *in = str_skip(*in, 1);
    }
    return 0;
}
