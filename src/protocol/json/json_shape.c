/* How it works: a text is first scanned once for its nesting depth (jansson's own limit is fixed
 * when jansson is compiled and far higher than any message of ours), then parsed by jansson with
 * duplicate keys refused. The tables are walked twice over: json_read() stores members of an object
 * into a struct, json_write() makes an object from one. */
#include "protocol/json/json_shape.h"

#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "base/cleanup.h"

enum {
    TEXT_MAX = 8 * 1024 * 1024,
    DEPTH_MAX = 32,
};

/* Largest number of open brackets, strings skipped. Broken texts give some number; the parser
 * refuses them later. */
static size_t depth_of(struct str text)
{
    size_t depth = 0, deepest = 0;
    bool in_string = false;

    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];

        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > deepest)
                deepest = depth;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return deepest;
}

int json_parse(struct str text, json_t **out, struct error *err)
{
    json_error_t why;

    *out = NULL;
    if (text.len > TEXT_MAX)
        return error_set(err, ERROR_LIMIT, "JSON text is longer than %d bytes", TEXT_MAX);
    if (depth_of(text) > DEPTH_MAX)
        return error_set(err, ERROR_INVALID, "JSON text is nested deeper than %d", DEPTH_MAX);
    *out = json_loadb(text.p ? text.p : "", text.len, JSON_REJECT_DUPLICATES, &why);
    if (!*out)
        return error_set(err, ERROR_INVALID, "invalid JSON at line %d, column %d: %s", why.line,
                         why.column, why.text);
    return 0;
}

static int wrong_type(const struct json_field *field, const char *want, struct error *err)
{
    return error_set(err, ERROR_INVALID, "'%s' must be %s", field->name, want);
}

static int read_int(const struct json_field *field, const json_t *value, int64_t *out,
                    struct error *err)
{
    /* 2^53: beyond it a double no longer tells neighbouring integers apart. */
    const double exact_max = 9007199254740992.0;

    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return 0;
    }
    if (json_is_real(value)) {
        double number = json_real_value(value);

        if (fabs(number) <= exact_max && trunc(number) == number) {
            *out = (int64_t)number;
            return 0;
        }
    }
    if (json_is_string(value) &&
        str_to_i64(str_n(json_string_value(value), json_string_length(value)), out))
        return 0;
    return wrong_type(field, "an integer", err);
}

static int read_member(const struct json_field *field, json_t *value, char *at, struct error *err)
{
    switch (field->kind) {
    case JSON_STR:
        if (!json_is_string(value))
            return wrong_type(field, "a string", err);
        *(struct str *)(void *)at = str_n(json_string_value(value), json_string_length(value));
        return 0;
    case JSON_BOOL:
        if (!json_is_boolean(value))
            return wrong_type(field, "true or false", err);
        *(bool *)(void *)at = json_is_true(value);
        return 0;
    case JSON_INT:
        return read_int(field, value, (int64_t *)(void *)at, err);
    case JSON_NUM:
        if (!json_is_number(value))
            return wrong_type(field, "a number", err);
        *(double *)(void *)at = json_number_value(value);
        return 0;
    case JSON_RAW:
        *(json_t **)(void *)at = value;
        return 0;
    case JSON_NESTED:
        if (!json_is_object(value))
            return wrong_type(field, "an object", err);
        if (json_read(field->inner, value, at, err) == 0)
            return 0;
        return error_prefix(err, "in '%s'", field->name);
    }
    return error_set(err, ERROR_INTERNAL, "'%s' has no known kind", field->name);
}

int json_read(const struct json_field *fields, const json_t *object, void *out, struct error *err)
{
    if (!json_is_object(object))
        return error_set(err, ERROR_INVALID, "a JSON object is expected");
    for (const struct json_field *field = fields; field->name; field++) {
        json_t *value = json_object_get(object, field->name);

        if (!value || json_is_null(value)) {
            if (field->flags & JSON_REQUIRED)
                return error_set(err, ERROR_INVALID, "'%s' is missing", field->name);
            continue;
        }
        if (read_member(field, value, (char *)out + field->offset, err) != 0)
            return -1;
        if (field->present_offset)
            *(bool *)(void *)((char *)out + field->present_offset) = true;
    }
    return 0;
}

int json_parse_as(const struct json_field *fields, struct str text, void *out, json_t **out_tree,
                  struct error *err)
{
    if (json_parse(text, out_tree, err) != 0)
        return -1;
    if (json_read(fields, *out_tree, out, err) == 0)
        return 0;
    json_decref(*out_tree);
    *out_tree = NULL;
    return -1;
}

static bool is_empty(const struct json_field *field, const char *at)
{
    switch (field->kind) {
    case JSON_STR:
        return !((const struct str *)(const void *)at)->p;
    case JSON_BOOL:
        return !*(const bool *)(const void *)at;
    case JSON_INT:
        return *(const int64_t *)(const void *)at == 0;
    case JSON_NUM:
        return fpclassify(*(const double *)(const void *)at) == FP_ZERO;
    case JSON_RAW:
        return !*(json_t *const *)(const void *)at;
    case JSON_NESTED:
        for (const struct json_field *inner = field->inner; inner->name; inner++)
            if (!(inner->flags & JSON_OMIT_EMPTY) || !is_empty(inner, at + inner->offset))
                return false;
        return true;
    }
    return true;
}

static json_t *write_member(const struct json_field *field, const char *at)
{
    json_t *raw;

    switch (field->kind) {
    case JSON_STR:
        return json_str(*(const struct str *)(const void *)at);
    case JSON_BOOL:
        return json_boolean(*(const bool *)(const void *)at);
    case JSON_INT:
        return json_integer(*(const int64_t *)(const void *)at);
    case JSON_NUM:
        return json_real(*(const double *)(const void *)at);
    case JSON_RAW:
        raw = *(json_t *const *)(const void *)at;
        return raw ? json_incref(raw) : json_null();
    case JSON_NESTED:
        return json_write(field->inner, at);
    }
    return json_null();
}

json_t *json_write(const struct json_field *fields, const void *in)
{
    json_t *object = json_object();

    for (const struct json_field *field = fields; field->name; field++) {
        const char *at = (const char *)in + field->offset;
        json_t *value;

        if ((field->flags & JSON_OMIT_EMPTY) && is_empty(field, at))
            continue;
        value = write_member(field, at);
        /* json_real() refuses what JSON cannot say (infinite, not a number). */
        json_object_set_new(object, field->name, value ? value : json_null());
    }
    return object;
}

/* More digits behind a point than a number with 15 significant ones has. */
static bool has_long_fraction(const char *text)
{
    while ((text = strchr(text, '.'))) {
        size_t digits = strspn(++text, "0123456789");

        if (digits > 14)
            return true;
    }
    return false;
}

/* jansson writes 17 digits, which every double needs at most: 0.28 becomes 0.28000000000000003. With 15 most come back as
 * they were. */
char *json_text_as(const json_t *json, size_t flags)
{
    char *text = json_dumps(json, flags | JSON_ENCODE_ANY);
    auto_free char *brief = NULL;
    auto_json json_t *back = NULL;

    if (!text || !has_long_fraction(text))
        return text ? text : xstrdup("null");
    brief = json_dumps(json, flags | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    back = brief ? json_loads(brief, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    if (back && json_equal(back, json)) {
        free(text);
        text = brief;
        brief = NULL;
    }
    return text;
}

char *json_text(const json_t *json)
{
    return json_text_as(json, JSON_COMPACT);
}

/* Each value has an object of jansson and a place in its parent, which are much more than the byte or two of their text. */
size_t json_cost(struct str text)
{
    enum { VALUE_COST = 192 };
    bool inside = false;
    size_t values = 1;

    for (size_t i = 0; i < text.len; i++) {
        if (inside && text.p[i] == '\\')
            i++;
        else if (text.p[i] == '"')
            inside = !inside;
        else if (!inside)
            values += text.p[i] == ',' || text.p[i] == ':' || text.p[i] == '[' || text.p[i] == '{';
    }
    return 2 * text.len + values * VALUE_COST;
}

/* Length of the valid UTF-8 character at the start of s, or 0. */
static size_t utf8_char(struct str s)
{
    size_t most = s.len < 4 ? s.len : 4;

    for (size_t n = 1; n <= most; n++)
        if (str_valid_utf8(str_n(s.p, n)))
            return n;
    return 0;
}

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* How many bytes at the begin stand for themselves; long texts are mostly such. */
static size_t plain_bytes(struct str s)
{
    size_t n = 0;

    while (n < s.len && s.p[n] >= 0x20 && s.p[n] < 0x7f && s.p[n] != '"' && s.p[n] != '\\')
        n++;
    return n;
}

static bool add_plain(struct buf *out, struct str s)
{
    char *to = buf_reserve(out, s.len + 2);

    if (!to)
        return false;
    to[0] = '"';
    if (s.len)
        memcpy(to + 1, s.p, s.len);
    to[s.len + 1] = '"';
    buf_grew(out, s.len + 2);
    return true;
}

bool json_add_str(struct buf *out, struct str s)
{
    bool fits;

    if (plain_bytes(s) == s.len)
        return add_plain(out, s);
    fits = buf_add_char(out, '"');
    while (s.len > 0 && fits) {
        unsigned char c = (unsigned char)s.p[0];
        size_t n = plain_bytes(s);

        if (n == 0)
            n = c < 0x80 ? 1 : utf8_char(s);
        if (c == '"' || c == '\\')
            fits = buf_add_char(out, '\\') && buf_add(out, s.p, 1);
        else if (c == '\n')
            fits = buf_add_str(out, STR("\\n"));
        else if (c < 0x20 || c == 0x7f)
            fits = buf_printf(out, "\\u%04x", c);
        else if (n > 0)
            fits = buf_add(out, s.p, n);
        else
            fits = buf_add(out, replacement, sizeof(replacement) - 1);
        s = str_skip(s, n > 0 ? n : 1);
    }
    return fits && buf_add_char(out, '"');
}

json_t *json_str(struct str s)
{
    auto_buf struct buf fixed = {0};
    json_t *json;

    if (!s.p)
        return json_null();
    json = json_stringn(s.p, s.len);
    if (json)
        return json;
    buf_init(&fixed, s.len * 3 + 1);
    while (s.len > 0) {
        size_t n = utf8_char(s);

        if (n > 0)
            buf_add(&fixed, s.p, n);
        else
            buf_add(&fixed, replacement, sizeof(replacement) - 1);
        s = str_skip(s, n > 0 ? n : 1);
    }
    json = json_stringn(fixed.p ? fixed.p : "", fixed.len);
    return json ? json : json_string("");
}

struct str json_get_str(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    if (!json_is_string(value))
        return STR_NONE;
    return str_n(json_string_value(value), json_string_length(value));
}

size_t json_pairs(const json_t *object, struct arena *arena, struct pair **out)
{
    size_t count = 0;
    const char *name;
    json_t *value;

    *out = arena_alloc(arena, (json_object_size(object) + 1) * sizeof(**out));
    json_object_foreach ((json_t *)(uintptr_t)object, name, value)
        if (json_is_string(value))
            (*out)[count++] = (struct pair){
                arena_str(arena, str_of(name)),
                arena_str(arena, str_n(json_string_value(value), json_string_length(value)))};
    return count;
}

json_t *json_of_pairs(const struct pair *pairs, size_t count)
{
    json_t *object = json_object();

    for (size_t i = 0; i < count; i++)
        (void)json_object_setn_new(object, pairs[i].name.len ? pairs[i].name.p : "",
                                   pairs[i].name.len, json_str(pairs[i].value));
    return object;
}
