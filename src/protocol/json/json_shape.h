/* One table per message, used for reading and for writing. The kind of a member is derived from its
 * C type, so struct and table cannot disagree. The JSON library is jansson.
 *
 *   struct new_sandbox { struct str template_id; int64_t timeout_s; bool secure; };
 *   static const struct json_field new_sandbox_fields[] = {
 *       JSON_FIELD(struct new_sandbox, template_id, "templateID", JSON_REQUIRED),
 *       JSON_FIELD(struct new_sandbox, timeout_s, "timeout", 0),
 *       JSON_FIELD(struct new_sandbox, secure, "secure", 0),
 *       JSON_END,
 *   };
 *
 * Reading: members absent (or null) keep what the struct held before, so callers put defaults there
 * first. Unknown members are ignored. A wrong type is ERROR_INVALID naming the member. Strings are
 * borrowed from the json_t: keep it alive.
 * Integers are also accepted as decimal strings (protobuf's int64 mapping).
 * Writing: JSON_OMIT_EMPTY leaves out STR_NONE, 0, false, NULL; STR_NONE without it becomes null. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

enum json_kind { JSON_STR, JSON_BOOL, JSON_INT, JSON_NUM, JSON_RAW, JSON_NESTED };

enum {
    JSON_REQUIRED = 1,
    JSON_OMIT_EMPTY = 2,
};

struct json_field {
    const char *name; /* NULL ends the table */
    enum json_kind kind;
    unsigned flags;
    size_t offset;
    const struct json_field *inner; /* JSON_NESTED: table of a struct embedded at offset */
    size_t present_offset;          /* bool member set when the field was there; 0 = none */
};

/* clang-format off */
#define JSON_KIND_OF(type, member)      \
    _Generic(((type *)0)->member,       \
             struct str: JSON_STR,      \
             bool: JSON_BOOL,           \
             int64_t: JSON_INT,         \
             double: JSON_NUM,          \
             json_t *: JSON_RAW)
/* clang-format on */
#define JSON_FIELD(type, member, json_name, field_flags)                                 \
    {                                                                                    \
        .name = (json_name), .kind = JSON_KIND_OF(type, member), .flags = (field_flags), \
        .offset = offsetof(type, member),                                                \
    }
/* Also sets a bool member when the field was present. The bool must not be the first member. */
#define JSON_FIELD_SEEN(type, member, json_name, field_flags, seen)                      \
    {                                                                                    \
        .name = (json_name), .kind = JSON_KIND_OF(type, member), .flags = (field_flags), \
        .offset = offsetof(type, member), .present_offset = offsetof(type, seen),        \
    }
#define JSON_FIELD_NESTED(type, member, json_name, field_flags, inner_fields) \
    {                                                                         \
        .name = (json_name), .kind = JSON_NESTED, .flags = (field_flags),     \
        .offset = offsetof(type, member), .inner = (inner_fields),            \
    }
#define JSON_END     \
    {                \
        .name = NULL \
    }

#define auto_json __attribute__((cleanup(json_cleanup)))
static inline void json_cleanup(json_t **json)
{
    json_decref(*json);
}

/* Bounded parse of a whole text: depth and size limited, duplicate keys refused, trailing junk
 * refused. The top level is an object or an array. ERROR_INVALID says where. */
int json_parse(struct str text, json_t **out, struct error *err);
int json_read(const struct json_field *fields, const json_t *object, void *out, struct error *err);
/* parse + read in one: *out_tree keeps the strings alive. */
int json_parse_as(const struct json_field *fields, struct str text, void *out, json_t **out_tree,
                  struct error *err);
/* New object (caller owns). JSON_RAW members are borrowed (increfed). Strings that are not valid
 * UTF-8 have their bad bytes replaced by U+FFFD. */
json_t *json_write(const struct json_field *fields, const void *in);
/* Compact text, malloc()ed. */
char *json_text(const json_t *json);
/* The same with flags of json_dumps(). */
char *json_text_as(const json_t *json, size_t flags);
/* json_string() that never fails: bad UTF-8 is replaced. */
json_t *json_str(struct str s);
/* About what a tree of that text takes, and its text again: for what guests send, before it is parsed. */
size_t json_cost(struct str text);
/* Appends a quoted JSON string to text that is built by hand; bad UTF-8 is replaced. */
bool json_add_str(struct buf *out, struct str s);
/* Member that is a string, or STR_NONE. */
struct str json_get_str(const json_t *object, const char *name);
/* The members of an object that are strings, copied into the arena, which has room for one more. */
size_t json_pairs(const json_t *object, struct arena *arena, struct pair **out);
/* New object; a name that is not valid UTF-8 is left out. */
json_t *json_of_pairs(const struct pair *pairs, size_t count);
