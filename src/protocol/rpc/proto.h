/* Protocol Buffers as another spelling of the JSON messages: a table per message says what each
 * member's number and kind is on the wire, and bytes are turned into the JSON that handlers read,
 * and the JSON that they write into bytes. The tables are made from .proto files by
 * tools/proto_tables.py; names are those of the JSON mapping ("exitCode").
 *
 * Values are what the JSON mapping says: bytes as base64, enumerations by name (numbers that have
 * none stay numbers), timestamps as RFC 3339 text, maps as objects. Absent members are absent. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

enum proto_kind {
    PROTO_UINT32,
    PROTO_INT64,
    PROTO_SINT32,
    PROTO_BOOL,
    PROTO_ENUM,
    PROTO_STRING,
    PROTO_BYTES,
    PROTO_MESSAGE,
    PROTO_TIMESTAMP,
    PROTO_MAP, /* of strings by strings */
};

struct proto_name {
    int32_t number;
    const char *name; /* NULL ends the table */
};

struct proto_message;

struct proto_field {
    uint32_t number; /* 0 ends the table */
    const char *name;
    enum proto_kind kind;
    const struct proto_message *message; /* PROTO_MESSAGE */
    const struct proto_name *names;      /* PROTO_ENUM */
    bool repeated;
    bool presence; /* a default value is written too: absent means something else */
    uint8_t oneof; /* of the members with the same number at most one is set; 0 = any */
};

struct proto_message {
    const char *name;
    const struct proto_field *fields;
};

enum {
    PROTO_DEPTH_MAX = 16,
    PROTO_VALUES_MAX = 256 * 1024, /* in one message, with all inside it */
};

/* Reads a message into a new object. ERROR_INVALID for bytes that are no such message, text that is
 * not UTF-8 or has a NUL inside; ERROR_LIMIT for too many values. Unknown members are skipped. */
int proto_decode(const struct proto_message *message, struct str bytes, json_t **out,
                 struct error *err);
/* Appends the message that a JSON object describes. Unknown members and nulls are skipped;
 * ERROR_INVALID for broken text and values of a wrong kind, ERROR_LIMIT when out is full. */
int proto_encode(const struct proto_message *message, struct str json, struct buf *out,
                 struct error *err);
