/* How it works: one pass over the bytes, each member set in the object as it comes. A member that
 * comes twice follows the rules of the format: the last scalar wins, messages are merged, and of a
 * oneof only what came last stays. A member with another wire type than its table says counts as
 * unknown, as generated readers have it. */
#include "protocol/rpc/proto.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/proto_wire.h"

/* The years 1 to 9999, which are what the text form can say. */
static const int64_t time_min_s = -62135596800, time_max_s = 253402300799;

struct decoder {
    size_t values;
    unsigned depth;
    struct error *err;
};

static int decode_message(struct decoder *dec, const struct proto_message *message, struct str in,
                          json_t *object);

static int check_text(const struct decoder *dec, const struct proto_field *field, struct str text)
{
    if (!str_valid_utf8(text) || str_find(text, '\0') >= 0)
        return error_set(dec->err, ERROR_INVALID, "'%s' is not valid text", field->name);
    return 0;
}

static const char *enum_name(const struct proto_field *field, int32_t number)
{
    for (const struct proto_name *name = field->names; name->name; name++)
        if (name->number == number)
            return name->name;
    return NULL;
}

static json_t *scalar_json(const struct proto_field *field, uint64_t value)
{
    const char *name;

    switch (field->kind) {
    case PROTO_BOOL:
        return json_boolean(value != 0);
    case PROTO_UINT32:
        return json_integer((uint32_t)value);
    case PROTO_SINT32:
        return json_integer(proto_wire_unzigzag((uint32_t)value));
    case PROTO_ENUM:
        name = enum_name(field, (int32_t)value);
        return name ? json_string(name) : json_integer((int32_t)value);
    default:
        return json_integer((int64_t)value);
    }
}

static json_t *bytes_json(struct str bytes)
{
    size_t len = BASE64_LEN(bytes.len);
    auto_free char *text = xmalloc(len + 1);

    base64_encode(text, bytes.p, bytes.len);
    return json_stringn_nocheck(text, len);
}

/* google.protobuf.Timestamp: seconds and nanoseconds. */
static int time_json(const struct decoder *dec, const struct proto_field *field, struct str in,
                     json_t **out)
{
    int64_t seconds = 0, nanos = 0;
    struct proto_item item;
    char text[CLOCK_TEXT_SIZE];
    int r;

    while ((r = proto_wire_next(&in, &item)) > 0)
        if (item.type == PROTO_WIRE_VARINT && item.field <= 2)
            *(item.field == 1 ? &seconds : &nanos) = (int64_t)item.number;
    if (r < 0)
        return error_set(dec->err, ERROR_INVALID, "'%s' is no timestamp", field->name);
    if (seconds < time_min_s || seconds > time_max_s || nanos < 0 || nanos > 999999999)
        return error_set(dec->err, ERROR_INVALID, "'%s' is out of range", field->name);
    clock_format(seconds * 1000000 + nanos / 1000, text);
    *out = json_string(text);
    return 0;
}

/* ---- setting members ---- */

static int count_value(struct decoder *dec)
{
    if (++dec->values > PROTO_VALUES_MAX)
        return error_set(dec->err, ERROR_LIMIT, "a message has more than %d values",
                         PROTO_VALUES_MAX);
    return 0;
}

static void clear_others(const struct proto_message *message, const struct proto_field *field,
                         json_t *object)
{
    for (const struct proto_field *other = message->fields; other->number; other++)
        if (field->oneof && other != field && other->oneof == field->oneof)
            (void)json_object_del(object, other->name);
}

/* The array or map that a member is, made when it is not there. */
static json_t *collection(json_t *object, const struct proto_field *field)
{
    json_t *there = json_object_get(object, field->name);

    if (!there) {
        there = field->kind == PROTO_MAP ? json_object() : json_array();
        json_object_set_new_nocheck(object, field->name, there);
    }
    return there;
}

static int set_value(struct decoder *dec, const struct proto_field *field, json_t *object,
                     json_t *take_value)
{
    if (field->repeated)
        json_array_append_new(collection(object, field), take_value);
    else
        json_object_set_new_nocheck(object, field->name, take_value);
    return count_value(dec);
}

static int set_map_entry(struct decoder *dec, const struct proto_field *field, struct str in,
                         json_t *object)
{
    struct str key = STR(""), value = STR("");
    struct proto_item item;
    int r;

    while ((r = proto_wire_next(&in, &item)) > 0)
        if (item.type == PROTO_WIRE_BYTES && item.field <= 2)
            *(item.field == 1 ? &key : &value) = item.bytes;
    if (r < 0)
        return error_set(dec->err, ERROR_INVALID, "'%s' is no map", field->name);
    if (check_text(dec, field, key) != 0 || check_text(dec, field, value) != 0)
        return -1;
    json_object_setn_new_nocheck(collection(object, field), key.p, key.len,
                                 json_stringn_nocheck(value.p, value.len));
    return count_value(dec);
}

static int set_message(struct decoder *dec, const struct proto_field *field, struct str in,
                       json_t *object)
{
    json_t *there = field->repeated ? NULL : json_object_get(object, field->name);
    int r;

    if (!there) {
        there = json_object();
        if (set_value(dec, field, object, there) != 0)
            return -1;
    }
    if (++dec->depth > PROTO_DEPTH_MAX)
        return error_set(dec->err, ERROR_INVALID, "a message is nested too deeply");
    r = decode_message(dec, field->message, in, there);
    dec->depth--;
    return r;
}

/* Repeated numbers in one piece. */
static int set_packed(struct decoder *dec, const struct proto_field *field, struct str in,
                      json_t *object)
{
    while (in.len > 0) {
        uint64_t value;

        if (!proto_wire_varint(&in, &value))
            return error_set(dec->err, ERROR_INVALID, "'%s' is no list of numbers", field->name);
        if (set_value(dec, field, object, scalar_json(field, value)) != 0)
            return -1;
    }
    return 0;
}

static int set_bytes(struct decoder *dec, const struct proto_field *field, struct str in,
                     json_t *object)
{
    json_t *value = NULL;

    switch (field->kind) {
    case PROTO_STRING:
        if (check_text(dec, field, in) != 0)
            return -1;
        return set_value(dec, field, object, json_stringn_nocheck(in.p, in.len));
    case PROTO_BYTES:
        return set_value(dec, field, object, bytes_json(in));
    case PROTO_MESSAGE:
        return set_message(dec, field, in, object);
    case PROTO_TIMESTAMP:
        if (time_json(dec, field, in, &value) != 0)
            return -1;
        return set_value(dec, field, object, value);
    case PROTO_MAP:
        return set_map_entry(dec, field, in, object);
    default:
        return set_packed(dec, field, in, object);
    }
}

static bool is_scalar(const struct proto_field *field)
{
    return field->kind <= PROTO_ENUM;
}

static const struct proto_field *find_field(const struct proto_message *message, uint32_t number,
                                            unsigned type)
{
    const struct proto_field *field = message->fields;

    while (field->number && field->number != number)
        field++;
    if (!field->number)
        return NULL;
    if (type == PROTO_WIRE_BYTES)
        return !is_scalar(field) || field->repeated ? field : NULL;
    return type == PROTO_WIRE_VARINT && is_scalar(field) ? field : NULL;
}

static int decode_message(struct decoder *dec, const struct proto_message *message, struct str in,
                          json_t *object)
{
    struct proto_item item;
    int r;

    while ((r = proto_wire_next(&in, &item)) > 0) {
        const struct proto_field *field = find_field(message, item.field, item.type);

        if (!field)
            continue;
        clear_others(message, field, object);
        r = item.type == PROTO_WIRE_VARINT
                ? set_value(dec, field, object, scalar_json(field, item.number))
                : set_bytes(dec, field, item.bytes, object);
        if (r != 0)
            return -1;
    }
    return r < 0 ? error_set(dec->err, ERROR_INVALID, "invalid %s message", message->name) : 0;
}

int proto_decode(const struct proto_message *message, struct str bytes, json_t **out,
                 struct error *err)
{
    struct decoder dec = {.err = err};
    auto_json json_t *object = json_object();

    if (decode_message(&dec, message, bytes, object) != 0)
        return -1;
    *out = take_ptr(&object);
    return 0;
}
