/* Writes JSON text piece by piece at the end of a buffer, without a tree: for streams, and for what is long or
 * frequent. A comma is written where the text so far ends with a value: not behind '{', '[' or ':', and not at the
 * begin of a text, which is the begin of the buffer, of a line, or behind a blank ("data: "). So the writer has no state,
 * and a text can be continued by anybody. Overflow is the buffer's flag.
 *
 * name: of the member; NULL for an item of an array, a whole text, or the value behind json_out_name(). It is written
 * as it is, so it must be plain ASCII without quotation marks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"

/* What stands in front of a value: a comma if need be, and the name. */
void json_out_head(struct buf *out, const char *name, size_t len);
static inline void json_out_key(struct buf *out, const char *name)
{
    json_out_head(out, name, name ? strlen(name) : 0);
}
/* A member's name that may be anything; its value follows. */
void json_out_name(struct buf *out, struct str name);

/* bracket: '{' or '['. */
static inline void json_out_open(struct buf *out, const char *name, char bracket)
{
    json_out_key(out, name);
    (void)buf_add_char(out, bracket);
}
/* Brackets, inner ones first; also a line's end behind them: "]}\n". */
static inline void json_out_close(struct buf *out, const char *brackets)
{
    (void)buf_add(out, brackets, strlen(brackets));
}

/* Bad UTF-8 is replaced. STR_NONE is "". */
void json_out_str(struct buf *out, const char *name, struct str value);
void json_out_base64(struct buf *out, const char *name, struct str bytes);
void json_out_int(struct buf *out, const char *name, int64_t value);
void json_out_uint(struct buf *out, const char *name, uint64_t value);
/* As a string: protobuf's mapping of 64-bit numbers. */
void json_out_uint_str(struct buf *out, const char *name, uint64_t value);
/* The members of an object that somebody else made, compact: written into the object that is open. */
void json_out_members(struct buf *out, struct str object);
/* JSON that somebody else made. */
static inline void json_out_raw(struct buf *out, const char *name, struct str json)
{
    json_out_key(out, name);
    (void)buf_add_str(out, json);
}
static inline void json_out_bool(struct buf *out, const char *name, bool value)
{
    json_out_raw(out, name, value ? STR("true") : STR("false"));
}
static inline void json_out_null(struct buf *out, const char *name)
{
    json_out_raw(out, name, STR("null"));
}
