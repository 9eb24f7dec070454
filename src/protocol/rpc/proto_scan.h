/* Reads JSON text piece by piece, for proto_encode.c. Blanks in front of a piece are skipped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/str.h"

struct proto_scan {
    struct str text;
    size_t at;
    bool broken; /* set when the text is no JSON; it stays set */
    bool first;  /* the next item is the first of its array or object */
};

/* The next character, or NUL at the end. */
char proto_scan_peek(struct proto_scan *scan);
/* Takes '{', '[' or ':' when it is next. */
bool proto_scan_open(struct proto_scan *scan, char c);
/* Between items: true before the next one, false behind the closing character or when broken. */
bool proto_scan_item(struct proto_scan *scan, char close);
/* Appends a string's value; false when there is none, it is broken, or out is full. */
bool proto_scan_string(struct proto_scan *scan, struct buf *out);
/* A number, true, false or null: whatever is not punctuation. */
struct str proto_scan_word(struct proto_scan *scan);
/* Any value. */
void proto_scan_skip(struct proto_scan *scan);
