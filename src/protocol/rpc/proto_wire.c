#include "protocol/rpc/proto_wire.h"

enum {
    NUMBER_MAX = (1 << 29) - 1,
    GROUPS_MAX = 16,
};

bool proto_wire_varint(struct str *in, uint64_t *out)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < PROTO_VARINT_MAX && i < in->len; i++) {
        unsigned char byte = (unsigned char)in->p[i];

        /* Of the tenth byte only one bit fits. */
        if (i == PROTO_VARINT_MAX - 1 && byte > 1)
            return false;
        value |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80) {
            *in = str_skip(*in, i + 1);
            *out = value;
            return true;
        }
    }
    return false;
}

bool proto_wire_tag(struct str *in, uint32_t *out_number, unsigned *out_type)
{
    uint64_t tag;

    if (!proto_wire_varint(in, &tag) || tag >> 3 == 0 || tag >> 3 > NUMBER_MAX)
        return false;
    *out_number = (uint32_t)(tag >> 3);
    *out_type = (unsigned)(tag & 7);
    return true;
}

static bool skip_bytes(struct str *in, uint64_t len)
{
    if (len > in->len)
        return false;
    *in = str_skip(*in, (size_t)len);
    return true;
}

bool proto_wire_bytes(struct str *in, struct str *out)
{
    uint64_t len;

    if (!proto_wire_varint(in, &len) || len > in->len)
        return false;
    *out = str_n(in->p, (size_t)len);
    *in = str_skip(*in, (size_t)len);
    return true;
}

static bool skip_plain(struct str *in, unsigned type)
{
    struct str bytes;
    uint64_t number;

    switch (type) {
    case PROTO_WIRE_VARINT:
        return proto_wire_varint(in, &number);
    case PROTO_WIRE_FIXED64:
        return skip_bytes(in, 8);
    case PROTO_WIRE_FIXED32:
        return skip_bytes(in, 4);
    case PROTO_WIRE_BYTES:
        return proto_wire_bytes(in, &bytes);
    default:
        return false;
    }
}

bool proto_wire_skip(struct str *in, uint32_t number, unsigned type)
{
    uint32_t open[GROUPS_MAX] = {0};
    size_t depth = 0;

    for (;;) {
        if (type == PROTO_WIRE_GROUP) {
            if (depth == GROUPS_MAX)
                return false;
            open[depth++] = number;
        } else if (type == PROTO_WIRE_GROUP_END) {
            if (depth == 0 || open[--depth] != number)
                return false;
        } else if (!skip_plain(in, type)) {
            return false;
        }
        if (depth == 0)
            return true;
        if (!proto_wire_tag(in, &number, &type))
            return false;
    }
}

int proto_wire_next(struct str *in, struct proto_item *out)
{
    while (in->len > 0) {
        *out = (struct proto_item){0};
        if (!proto_wire_tag(in, &out->field, &out->type))
            return -1;
        if (out->type == PROTO_WIRE_VARINT)
            return proto_wire_varint(in, &out->number) ? 1 : -1;
        if (out->type == PROTO_WIRE_BYTES)
            return proto_wire_bytes(in, &out->bytes) ? 1 : -1;
        if (!proto_wire_skip(in, out->field, out->type))
            return -1;
    }
    return 0;
}

size_t proto_wire_put(char out[PROTO_VARINT_MAX], uint64_t value)
{
    size_t n = 0;

    for (; value >= 0x80; value >>= 7)
        out[n++] = (char)(value | 0x80);
    out[n++] = (char)value;
    return n;
}

bool proto_wire_add_varint(struct buf *out, uint64_t value)
{
    char bytes[PROTO_VARINT_MAX];

    return buf_add(out, bytes, proto_wire_put(bytes, value));
}

bool proto_wire_add_tag(struct buf *out, uint32_t number, enum proto_wire_type type)
{
    return proto_wire_add_varint(out, (uint64_t)number << 3 | type);
}

bool proto_wire_add_number(struct buf *out, uint32_t field, uint64_t value)
{
    return proto_wire_add_tag(out, field, PROTO_WIRE_VARINT) && proto_wire_add_varint(out, value);
}

bool proto_wire_add_bytes(struct buf *out, uint32_t field, struct str bytes)
{
    return proto_wire_add_tag(out, field, PROTO_WIRE_BYTES) &&
           proto_wire_add_varint(out, bytes.len) && buf_add_str(out, bytes);
}

size_t proto_wire_begin(struct buf *out, uint32_t field)
{
    (void)proto_wire_add_tag(out, field, PROTO_WIRE_BYTES);
    return out->len;
}

bool proto_wire_add_length(struct buf *out, size_t mark)
{
    char bytes[PROTO_VARINT_MAX];
    size_t len = out->len - mark, n = proto_wire_put(bytes, len);

    if (!buf_reserve(out, n))
        return false;
    memmove(out->p + mark + n, out->p + mark, len);
    memcpy(out->p + mark, bytes, n);
    buf_grew(out, n);
    return true;
}
