/* Reads JSON text piece by piece, without a tree, for what is long or frequent. Blanks in front of a piece are
 * skipped. It reads loosely where that is harmless, but never past the end of the text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/str.h"

struct json_scan {
    struct str text;
    size_t at;
    bool broken; /* set when the text is no JSON; it stays set */
    bool first;  /* the next item is the first of its array or object */
};

/* The next character, or NUL at the end. */
char json_scan_peek(struct json_scan *scan);
/* Takes '{', '[' or ':' when it is next. */
bool json_scan_open(struct json_scan *scan, char c);
/* Between items: true before the next one, false behind the closing character or when broken. */
bool json_scan_item(struct json_scan *scan, char close);
/* Appends a string's value; false when there is none, it is broken, or out is full. */
bool json_scan_string(struct json_scan *scan, struct buf *out);
/* A number, true, false or null: whatever is not punctuation. */
struct str json_scan_word(struct json_scan *scan);
/* Any value. */
void json_scan_skip(struct json_scan *scan);
