/* Users and groups of a root directory, as its own /etc/passwd and /etc/group name them. */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "image/unpack/tree.h"

enum { ACCOUNTS_MAX = 1024 * 1024 };

/* All of a file beneath the root; "" when it is not there or too long. */
void accounts_read(int root, const char *path, struct buf *out);
/* The line's n-th field between colons, from 0; STR_NONE when there is none. */
struct str account_field(struct str line, int n);
/* The first line whose n-th field is this text; STR_NONE. */
struct str account_find(struct str file, int n, struct str text);

/* "name", "name:group", "1000", "1000:1000". A name's group is the one in /etc/passwd, a number's the same number. */
int owner_find(int root, const char *text, struct owner *out, struct error *err);
