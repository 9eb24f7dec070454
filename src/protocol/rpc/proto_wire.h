/* The wire format of Protocol Buffers: tags, variable-length numbers, lengths. Readers take from the
 * front of *in and return false, with *in anywhere, when it does not hold what is asked for. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

enum proto_wire_type {
    PROTO_WIRE_VARINT = 0,
    PROTO_WIRE_FIXED64 = 1,
    PROTO_WIRE_BYTES = 2,
    PROTO_WIRE_GROUP = 3,
    PROTO_WIRE_GROUP_END = 4,
    PROTO_WIRE_FIXED32 = 5,
};

enum { PROTO_VARINT_MAX = 10 };

bool proto_wire_varint(struct str *in, uint64_t *out);
bool proto_wire_tag(struct str *in, uint32_t *out_number, unsigned *out_type);
bool proto_wire_bytes(struct str *in, struct str *out);
/* What follows a tag. Groups are an old form that nobody sends, but they can be skipped. */
bool proto_wire_skip(struct str *in, uint32_t number, unsigned type);

/* A member: a number (PROTO_WIRE_VARINT) or bytes (PROTO_WIRE_BYTES). */
struct proto_item {
    uint32_t field;
    unsigned type;
    uint64_t number;
    struct str bytes;
};
/* 1: the next member, skipping those of other types; 0: the message is over; -1: it is broken. */
int proto_wire_next(struct str *in, struct proto_item *out);

static inline int32_t proto_wire_unzigzag(uint32_t value)
{
    return (int32_t)(value >> 1 ^ -(value & 1));
}

static inline uint32_t proto_wire_zigzag(int32_t value)
{
    return (uint32_t)value << 1 ^ (value < 0 ? UINT32_MAX : 0);
}

/* Returns how many bytes it wrote. */
size_t proto_wire_put(char out[PROTO_VARINT_MAX], uint64_t value);
bool proto_wire_add_varint(struct buf *out, uint64_t value);
bool proto_wire_add_tag(struct buf *out, uint32_t number, enum proto_wire_type type);
bool proto_wire_add_number(struct buf *out, uint32_t field, uint64_t value);
bool proto_wire_add_bytes(struct buf *out, uint32_t field, struct str bytes);
/* Begins a member whose value has a length; returns the mark for proto_wire_add_length(). */
size_t proto_wire_begin(struct buf *out, uint32_t field);
/* Puts the length of everything from `mark` on in front of it. */
bool proto_wire_add_length(struct buf *out, size_t mark);
