/* How it works: one pass over the JSON text, without a tree in between: listings are long, and the
 * envd's memory is small. Each member's value is written behind its tag; a length is put in front
 * when what it counts is complete. The text is our own, so it is read loosely where that is
 * harmless, but never past its end. */
#include "protocol/rpc/proto.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "protocol/json/json_scan.h"
#include "protocol/rpc/proto_wire.h"

struct encoder {
    struct json_scan scan;
    struct buf *out;
    struct buf text; /* scratch: the string read last */
    unsigned depth;
    struct error *err;
};

static int encode_message(struct encoder *enc, const struct proto_message *message);

static int broken(const struct encoder *enc)
{
    return error_set(enc->err, ERROR_INVALID, "broken JSON at byte %zu", enc->scan.at);
}

static int wrong_kind(const struct encoder *enc, const struct proto_field *field)
{
    return error_set(enc->err, ERROR_INVALID, "'%s' has a value of a wrong kind", field->name);
}

static bool read_text(struct encoder *enc)
{
    buf_clear(&enc->text);
    return json_scan_string(&enc->scan, &enc->text);
}

/* ---- numbers ---- */

static bool read_integer(struct encoder *enc, int64_t *out)
{
    if (json_scan_peek(&enc->scan) == '"')
        return read_text(enc) && str_to_i64(buf_str(&enc->text), out);
    return str_to_i64(json_scan_word(&enc->scan), out);
}

static bool read_enum(struct encoder *enc, const struct proto_field *field, int64_t *out)
{
    if (json_scan_peek(&enc->scan) != '"')
        return str_to_i64(json_scan_word(&enc->scan), out) && *out >= INT32_MIN &&
               *out <= INT32_MAX;
    if (!read_text(enc))
        return false;
    for (const struct proto_name *name = field->names; name->name; name++) {
        if (str_is(buf_str(&enc->text), name->name)) {
            *out = name->number;
            return true;
        }
    }
    return false;
}

static bool read_bool(struct encoder *enc, int64_t *out)
{
    struct str word = json_scan_word(&enc->scan);

    *out = str_is(word, "true");
    return *out || str_is(word, "false");
}

/* The number as it goes on the wire. */
static bool read_scalar(struct encoder *enc, const struct proto_field *field, uint64_t *out)
{
    int64_t value;
    bool ok;

    if (field->kind == PROTO_BOOL)
        ok = read_bool(enc, &value);
    else if (field->kind == PROTO_ENUM)
        ok = read_enum(enc, field, &value);
    else
        ok = read_integer(enc, &value);
    if (!ok || (field->kind == PROTO_UINT32 && (value < 0 || value > UINT32_MAX)) ||
        (field->kind == PROTO_SINT32 && (value < INT32_MIN || value > INT32_MAX)))
        return false;
    *out = field->kind == PROTO_SINT32 ? proto_wire_zigzag((int32_t)value) : (uint64_t)value;
    return true;
}

static int encode_scalar(struct encoder *enc, const struct proto_field *field)
{
    uint64_t value;

    if (!read_scalar(enc, field, &value))
        return wrong_kind(enc, field);
    if (value != 0 || field->presence) {
        proto_wire_add_tag(enc->out, field->number, PROTO_WIRE_VARINT);
        proto_wire_add_varint(enc->out, value);
    }
    return 0;
}

static int encode_packed(struct encoder *enc, const struct proto_field *field)
{
    size_t mark;

    proto_wire_add_tag(enc->out, field->number, PROTO_WIRE_BYTES);
    mark = enc->out->len;
    while (json_scan_item(&enc->scan, ']')) {
        uint64_t value;

        if (!read_scalar(enc, field, &value))
            return wrong_kind(enc, field);
        proto_wire_add_varint(enc->out, value);
    }
    proto_wire_add_length(enc->out, mark);
    return enc->scan.broken ? broken(enc) : 0;
}

/* ---- what has a length ---- */

/* Behind a value: its length in front of it, or nothing at all when it is a default. */
static int close_value(struct encoder *enc, const struct proto_field *field, size_t before,
                       size_t mark)
{
    if (enc->out->overflowed)
        return 0;
    if (enc->out->len > mark || field->presence || field->repeated)
        proto_wire_add_length(enc->out, mark);
    else
        enc->out->p[enc->out->len = before] = '\0';
    return 0;
}

/* The value is scanned straight into the output. */
static int encode_string(struct encoder *enc, const struct proto_field *field)
{
    size_t before = enc->out->len, mark;

    proto_wire_add_tag(enc->out, field->number, PROTO_WIRE_BYTES);
    mark = enc->out->len;
    if (!json_scan_string(&enc->scan, enc->out))
        return enc->out->overflowed ? 0 : wrong_kind(enc, field);
    return close_value(enc, field, before, mark);
}

static int encode_bytes(struct encoder *enc, const struct proto_field *field)
{
    size_t before = enc->out->len, mark;

    if (!read_text(enc))
        return wrong_kind(enc, field);
    proto_wire_add_tag(enc->out, field->number, PROTO_WIRE_BYTES);
    mark = enc->out->len;
    if (!base64_decode(buf_str(&enc->text), enc->out))
        return enc->out->overflowed ? 0 : wrong_kind(enc, field);
    return close_value(enc, field, before, mark);
}

static int encode_time(struct encoder *enc, const struct proto_field *field)
{
    int64_t us, seconds, nanos;
    size_t mark;

    if (!read_text(enc) || !clock_parse(buf_str(&enc->text), &us))
        return wrong_kind(enc, field);
    seconds = us / 1000000 - (us % 1000000 < 0);
    nanos = (us - seconds * 1000000) * 1000;
    proto_wire_add_tag(enc->out, field->number, PROTO_WIRE_BYTES);
    mark = enc->out->len;
    if (seconds) {
        proto_wire_add_tag(enc->out, 1, PROTO_WIRE_VARINT);
        proto_wire_add_varint(enc->out, (uint64_t)seconds);
    }
    if (nanos) {
        proto_wire_add_tag(enc->out, 2, PROTO_WIRE_VARINT);
        proto_wire_add_varint(enc->out, (uint64_t)nanos);
    }
    proto_wire_add_length(enc->out, mark);
    return 0;
}

static int encode_map(struct encoder *enc, const struct proto_field *field)
{
    static const struct proto_field key = {1, "key", PROTO_STRING};
    static const struct proto_field value = {2, "value", PROTO_STRING};

    if (!json_scan_open(&enc->scan, '{'))
        return wrong_kind(enc, field);
    while (json_scan_item(&enc->scan, '}')) {
        size_t mark;

        proto_wire_add_tag(enc->out, field->number, PROTO_WIRE_BYTES);
        mark = enc->out->len;
        if (encode_string(enc, &key) != 0)
            return -1;
        if (!json_scan_open(&enc->scan, ':'))
            return enc->out->overflowed ? 0 : broken(enc);
        if (encode_string(enc, &value) != 0)
            return -1;
        proto_wire_add_length(enc->out, mark);
        if (enc->out->overflowed)
            return 0;
    }
    return enc->scan.broken ? broken(enc) : 0;
}

static int encode_inner(struct encoder *enc, const struct proto_field *field)
{
    size_t mark;
    int r;

    if (++enc->depth > PROTO_DEPTH_MAX)
        return error_set(enc->err, ERROR_INVALID, "a message is nested too deeply");
    proto_wire_add_tag(enc->out, field->number, PROTO_WIRE_BYTES);
    mark = enc->out->len;
    r = encode_message(enc, field->message);
    proto_wire_add_length(enc->out, mark);
    enc->depth--;
    return r;
}

static int encode_one(struct encoder *enc, const struct proto_field *field)
{
    switch (field->kind) {
    case PROTO_STRING:
        return encode_string(enc, field);
    case PROTO_BYTES:
        return encode_bytes(enc, field);
    case PROTO_MESSAGE:
        return encode_inner(enc, field);
    case PROTO_TIMESTAMP:
        return encode_time(enc, field);
    case PROTO_MAP:
        return encode_map(enc, field);
    default:
        return encode_scalar(enc, field);
    }
}

static int encode_value(struct encoder *enc, const struct proto_field *field)
{
    if (json_scan_peek(&enc->scan) == 'n')
        return str_is(json_scan_word(&enc->scan), "null") ? 0 : broken(enc);
    if (!field->repeated)
        return encode_one(enc, field);
    if (!json_scan_open(&enc->scan, '['))
        return wrong_kind(enc, field);
    if (field->kind <= PROTO_ENUM)
        return encode_packed(enc, field);
    while (json_scan_item(&enc->scan, ']')) {
        if (encode_one(enc, field) != 0)
            return -1;
        if (enc->out->overflowed)
            return 0;
    }
    return enc->scan.broken ? broken(enc) : 0;
}

static const struct proto_field *find_field(const struct proto_message *message, struct str name)
{
    for (const struct proto_field *field = message->fields; field->number; field++)
        if (str_is(name, field->name))
            return field;
    return NULL;
}

static int encode_message(struct encoder *enc, const struct proto_message *message)
{
    if (!json_scan_open(&enc->scan, '{'))
        return broken(enc);
    while (json_scan_item(&enc->scan, '}')) {
        const struct proto_field *field;

        if (!read_text(enc) || !json_scan_open(&enc->scan, ':'))
            return broken(enc);
        field = find_field(message, buf_str(&enc->text));
        if (!field)
            json_scan_skip(&enc->scan);
        else if (encode_value(enc, field) != 0)
            return -1;
        if (enc->out->overflowed)
            return 0;
    }
    return enc->scan.broken ? broken(enc) : 0;
}

int proto_encode(const struct proto_message *message, struct str json, struct buf *out,
                 struct error *err)
{
    struct encoder enc = {.scan = {.text = json}, .out = out, .err = err};
    int r;

    buf_init(&enc.text, json.len + 1);
    r = encode_message(&enc, message);
    buf_done(&enc.text);
    if (r == 0 && out->overflowed)
        r = error_set(err, ERROR_LIMIT, "the message is too long");
    return r;
}
