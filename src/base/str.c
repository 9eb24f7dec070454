#include "base/str.h"

#include "base/alloc.h"

char ascii_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

bool str_eq(struct str a, struct str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.p, b.p, a.len) == 0);
}

bool str_eq_nocase(struct str a, struct str b)
{
    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        if (ascii_lower(a.p[i]) != ascii_lower(b.p[i]))
            return false;
    return true;
}

void str_lower(struct str s, char *out)
{
    for (size_t i = 0; i < s.len; i++)
        out[i] = ascii_lower(s.p[i]);
}

bool str_is(struct str a, const char *b)
{
    return str_eq(a, str_of(b));
}

int str_cmp(struct str a, struct str b)
{
    size_t shorter = a.len < b.len ? a.len : b.len;
    int order = shorter ? memcmp(a.p, b.p, shorter) : 0;

    return order ? order : (a.len > b.len) - (a.len < b.len);
}

bool str_starts(struct str s, struct str prefix)
{
    return s.len >= prefix.len && str_eq(str_n(s.p, prefix.len), prefix);
}

bool str_ends(struct str s, struct str suffix)
{
    return s.len >= suffix.len && str_eq(str_skip(s, s.len - suffix.len), suffix);
}

struct str str_skip(struct str s, size_t n)
{
    if (n > s.len)
        n = s.len;
    return s.p ? str_n(s.p + n, s.len - n) : s;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct str str_trim(struct str s)
{
    while (s.len && is_blank(s.p[0]))
        s = str_skip(s, 1);
    while (s.len && is_blank(s.p[s.len - 1]))
        s.len--;
    return s;
}

ptrdiff_t str_find(struct str s, char c)
{
    const char *hit = s.len ? memchr(s.p, c, s.len) : NULL;

    return hit ? hit - s.p : -1;
}

ptrdiff_t str_find_str(struct str s, struct str what)
{
    const char *hit;

    if (what.len == 0)
        return 0;
    hit = s.len ? memmem(s.p, s.len, what.p, what.len) : NULL;
    return hit ? hit - s.p : -1;
}

struct str str_split(struct str *rest, char c)
{
    ptrdiff_t at = str_find(*rest, c);
    struct str head = *rest;

    if (at < 0) {
        *rest = STR_NONE;
        return head;
    }
    head.len = (size_t)at;
    *rest = str_skip(*rest, (size_t)at + 1);
    return head;
}

bool str_to_u64(struct str s, uint64_t *out)
{
    uint64_t value = 0;

    if (s.len == 0)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(s.p[i] - '0'), &value))
            return false;
    }
    *out = value;
    return true;
}

bool str_to_i64(struct str s, int64_t *out)
{
    bool negative = s.len && s.p[0] == '-';
    uint64_t magnitude;

    if (!str_to_u64(negative ? str_skip(s, 1) : s, &magnitude))
        return false;
    if (magnitude > (uint64_t)INT64_MAX + (negative ? 1 : 0))
        return false;
    *out = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return true;
}

char *str_dup(struct str s)
{
    return xstrndup(s.p, s.len);
}

bool str_copy(struct str s, char *dst, size_t dst_size)
{
    if (s.len >= dst_size || (s.len && memchr(s.p, '\0', s.len))) {
        dst[0] = '\0';
        return false;
    }
    if (s.len)
        memcpy(dst, s.p, s.len);
    dst[s.len] = '\0';
    return true;
}

/* Length of the UTF-8 sequence at p, or 0 when it is not one (overlong forms, surrogates and
 * values above U+10FFFF included). */
static size_t utf8_sequence(const unsigned char *p, size_t left)
{
    uint32_t value;
    size_t len;

    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf)
        len = 2;
    else if ((p[0] & 0xf0) == 0xe0)
        len = 3;
    else if (p[0] >= 0xf0 && p[0] <= 0xf4)
        len = 4;
    else
        return 0;
    if (len > left)
        return 0;
    value = p[0] & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        value = (value << 6) | (p[i] & 0x3fu);
    }
    if ((len == 3 && value < 0x800) || (len == 4 && value < 0x10000) || value > 0x10ffff ||
        (value >= 0xd800 && value <= 0xdfff))
        return 0;
    return len;
}

bool str_valid_utf8(struct str s)
{
    for (size_t i = 0; i < s.len;) {
        size_t len = utf8_sequence((const unsigned char *)s.p + i, s.len - i);

        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

bool ascii_is_token(char c)
{
    char low = ascii_lower(c);

    return (low >= 'a' && low <= 'z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

bool str_is_token(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!ascii_is_token(s.p[i]))
            return false;
    return s.len > 0;
}
