/* base64, hex and URL decoding. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/str.h"

#define BASE64_LEN(n) (((n) + 2) / 3 * 4)

/* Writes BASE64_LEN(len) characters, with padding, no NUL. */
void base64_encode(char *out, const void *p, size_t len);
/* Standard or URL alphabet, padding optional; false on junk. Appends to out. */
bool base64_decode(struct str in, struct buf *out);
/* Something, and nothing but digits of base64 as URLs have it. */
bool base64url_is(struct str text);
/* 2*len lower-case digits and a NUL. */
void hex_encode(char *out, const void *p, size_t len);
/* %XX decoding; '+' becomes a blank when plus_is_blank. A broken escape is false. */
bool url_decode(struct str in, bool plus_is_blank, struct buf *out);
/* Value of a query parameter, decoded into out; false when absent or broken. */
bool url_query_get(struct str query, const char *name, struct buf *out);
