#include "base/id.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

void random_bytes(void *p, size_t len)
{
    /* Up to 256 bytes getrandom() neither blocks halfway nor is interrupted. */
    while (len) {
        size_t part = len < 256 ? len : 256;

        if (getrandom(p, part, 0) != (ssize_t)part)
            abort();
        p = (char *)p + part;
        len -= part;
    }
}

void id_make(char out[ID_SIZE])
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    size_t n = 1;

    out[0] = 'i';
    while (n < ID_LEN) {
        unsigned char bytes[32];

        random_bytes(bytes, sizeof(bytes));
        for (size_t i = 0; i < sizeof(bytes) && n < ID_LEN; i++)
            if (bytes[i] < 252) /* 7 * 36: no bias */
                out[n++] = alphabet[bytes[i] % 36];
    }
    out[n] = '\0';
}

bool id_valid(struct str s)
{
    if (s.len != ID_LEN || s.p[0] != 'i')
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (!((s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= '0' && s.p[i] <= '9')))
            return false;
    return true;
}

void id_hex(char *out, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";

    /* The random bytes go to the second half of out, where each is read before it is overwritten. */
    random_bytes(out + bytes, bytes);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)out[bytes + i];

        out[2 * i] = digits[byte >> 4];
        out[2 * i + 1] = digits[byte & 15];
    }
    out[2 * bytes] = '\0';
}

bool id_is_uuid(struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;

        if (dash ? s.p[i] != '-' : !isxdigit((unsigned char)s.p[i]))
            return false;
    }
    return s.len == UUID_SIZE - 1;
}

void id_uuid(char out[UUID_SIZE])
{
    unsigned char b[16];

    random_bytes(b, sizeof(b));
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    (void)snprintf(out, UUID_SIZE,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                   b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                   b[14], b[15]);
}
