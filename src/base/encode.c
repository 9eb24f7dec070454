#include "base/encode.h"

#include <stdint.h>

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(char *out, const void *p, size_t len)
{
    const unsigned char *in = p;

    for (; len >= 3; len -= 3, in += 3, out += 4) {
        uint32_t v = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];

        out[0] = base64_digits[v >> 18];
        out[1] = base64_digits[v >> 12 & 63];
        out[2] = base64_digits[v >> 6 & 63];
        out[3] = base64_digits[v & 63];
    }
    if (len) {
        uint32_t v = (uint32_t)in[0] << 16 | (len == 2 ? (uint32_t)in[1] << 8 : 0);

        out[0] = base64_digits[v >> 18];
        out[1] = base64_digits[v >> 12 & 63];
        out[2] = len == 2 ? base64_digits[v >> 6 & 63] : '=';
        out[3] = '=';
    }
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+' || c == '-')
        return 62;
    if (c == '/' || c == '_')
        return 63;
    return -1;
}

bool base64_decode(struct str in, struct buf *out)
{
    uint32_t acc = 0;
    unsigned bits = 0;
    char *to;
    size_t n = 0;

    while (in.len && in.p[in.len - 1] == '=')
        in.len--;
    if (in.len % 4 == 1)
        return false;
    to = buf_reserve(out, in.len / 4 * 3 + 3);
    if (!to)
        return false;
    for (size_t i = 0; i < in.len; i++) {
        int value = base64_value(in.p[i]);

        if (value < 0)
            return false;
        acc = acc << 6 | (uint32_t)value;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            to[n++] = (char)(acc >> bits & 0xff);
        }
    }
    buf_grew(out, n);
    return true;
}

void hex_encode(char *out, const void *p, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *in = p;

    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[in[i] >> 4];
        out[2 * i + 1] = digits[in[i] & 15];
    }
    out[2 * len] = '\0';
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool url_decode(struct str in, bool plus_is_blank, struct buf *out)
{
    for (size_t i = 0; i < in.len; i++) {
        char c = in.p[i];

        if (c == '%') {
            int high = i + 2 < in.len ? hex_value(in.p[i + 1]) : -1;
            int low = i + 2 < in.len ? hex_value(in.p[i + 2]) : -1;

            if (high < 0 || low < 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && plus_is_blank) {
            c = ' ';
        }
        if (!buf_add_char(out, c))
            return false;
    }
    return true;
}

bool url_query_get(struct str query, const char *name, struct buf *out)
{
    while (query.p) {
        struct str pair = str_split(&query, '&');
        struct str key = str_split(&pair, '=');

        if (str_is(key, name))
            return url_decode(pair, true, out);
    }
    return false;
}
