#include "protocol/json/json_out.h"

#include "base/encode.h"
#include "protocol/json/json_shape.h"

static bool needs_comma(const struct buf *out)
{
    char last = out->len ? out->p[out->len - 1] : '\n';

    return last != '{' && last != '[' && last != ':' && last != '\n' && last != ' ';
}

void json_out_head(struct buf *out, const char *name, size_t len)
{
    bool comma = needs_comma(out);
    size_t size = (comma ? 1 : 0) + (name ? len + 3 : 0);
    char *to;

    if (!size || !(to = buf_reserve(out, size)))
        return;
    if (comma)
        *to++ = ',';
    if (name) {
        *to++ = '"';
        memcpy(to, name, len);
        to[len] = '"';
        to[len + 1] = ':';
    }
    buf_grew(out, size);
}

void json_out_name(struct buf *out, struct str name)
{
    json_out_str(out, NULL, name);
    (void)buf_add_char(out, ':');
}

void json_out_str(struct buf *out, const char *name, struct str value)
{
    json_out_key(out, name);
    (void)json_add_str(out, value);
}

void json_out_base64(struct buf *out, const char *name, struct str bytes)
{
    size_t len = BASE64_LEN(bytes.len);
    char *to;

    json_out_key(out, name);
    if (!(to = buf_reserve(out, len + 2)))
        return;
    *to = '"';
    base64_encode(to + 1, bytes.p, bytes.len);
    to[len + 1] = '"';
    buf_grew(out, len + 2);
}

enum { DIGITS_MAX = 24 };

/* Formatted printing would be most of the work of a long listing. */
static struct str make_digits(char digits[DIGITS_MAX], bool negative, uint64_t number)
{
    size_t at = DIGITS_MAX;

    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    if (negative)
        digits[--at] = '-';
    return str_n(digits + at, DIGITS_MAX - at);
}

void json_out_int(struct buf *out, const char *name, int64_t value)
{
    uint64_t number = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    char digits[DIGITS_MAX];

    json_out_raw(out, name, make_digits(digits, value < 0, number));
}

void json_out_uint(struct buf *out, const char *name, uint64_t value)
{
    char digits[DIGITS_MAX];

    json_out_raw(out, name, make_digits(digits, false, value));
}

void json_out_uint_str(struct buf *out, const char *name, uint64_t value)
{
    char digits[DIGITS_MAX];

    json_out_str(out, name, make_digits(digits, false, value));
}

void json_out_members(struct buf *out, struct str object)
{
    if (object.len > 2)
        json_out_raw(out, NULL, str_n(object.p + 1, object.len - 2));
}
