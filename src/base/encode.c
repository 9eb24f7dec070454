#include "base/encode.h"

#include <stdint.h>
#if defined(__x86_64__)
#include <tmmintrin.h>
#endif

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#if defined(__x86_64__)
/* Twelve bytes become sixteen characters per step. Each 32-bit lane gets three bytes in the order
 * 1 0 2 1, so that two multiplications move the four groups of six bits to the low end of their
 * bytes. What is added to a group to make it a character depends on its range only; the range is
 * computed and looks the number up. Returns how many bytes were encoded. */
__attribute__((target("ssse3"))) static size_t encode_ssse3(char *out, const unsigned char *in,
                                                            size_t len)
{
    const __m128i order = _mm_set_epi8(10, 11, 9, 10, 7, 8, 6, 7, 4, 5, 3, 4, 1, 2, 0, 1);
    /* Range 0: lower case, 1 to 10: digits, 11: '+', 12: '/', 13: upper case. */
    const __m128i add =
        _mm_setr_epi8('a' - 26, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52, '0' - 52,
                      '0' - 52, '0' - 52, '0' - 52, '0' - 52, '+' - 62, '/' - 63, 'A', 0, 0);
    size_t done = 0;

    /* A step reads sixteen bytes. */
    for (; len - done >= 16; done += 12, out += 16) {
        __m128i bytes =
            _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(in + done)), order);
        __m128i odd = _mm_mulhi_epu16(_mm_and_si128(bytes, _mm_set1_epi32(0x0fc0fc00)),
                                      _mm_set1_epi32(0x04000040));
        __m128i even = _mm_mullo_epi16(_mm_and_si128(bytes, _mm_set1_epi32(0x003f03f0)),
                                       _mm_set1_epi32(0x01000010));
        __m128i groups = _mm_or_si128(odd, even);
        __m128i upper = _mm_cmpgt_epi8(_mm_set1_epi8(26), groups);
        __m128i range = _mm_or_si128(_mm_subs_epu8(groups, _mm_set1_epi8(51)),
                                     _mm_and_si128(upper, _mm_set1_epi8(13)));

        _mm_storeu_si128((__m128i *)(void *)out,
                         _mm_add_epi8(groups, _mm_shuffle_epi8(add, range)));
    }
    return done;
}

static size_t encode_fast(char *out, const unsigned char *in, size_t len)
{
    return len >= 16 && __builtin_cpu_supports("ssse3") ? encode_ssse3(out, in, len) : 0;
}
#else
static size_t encode_fast(char *out, const unsigned char *in, size_t len)
{
    (void)out;
    (void)in;
    (void)len;
    return 0;
}
#endif

void base64_encode(char *out, const void *p, size_t len)
{
    const unsigned char *in = p;
    size_t done = encode_fast(out, in, len);

    if (!len)
        return; /* p may be NULL */
    in += done;
    len -= done;
    out += done / 3 * 4;
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
        out[2] = (char)(len == 2 ? base64_digits[v >> 6 & 63] : '=');
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

bool base64url_is(struct str text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_'))
            return false;
    }
    return text.len > 0;
}
