/* Random names. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

enum { ID_LEN = 20, ID_SIZE = ID_LEN + 1 };

/* A sandbox id: 'i' and 19 characters of [a-z0-9], about 98 random bits. */
void id_make(char out[ID_SIZE]);
/* What id_make() makes, and nothing else: safe in file names, host names and cgroup names. */
bool id_valid(struct str s);
/* 2*bytes lower-case hex digits and a NUL. */
void id_hex(char *out, size_t bytes);
/* A version-4 UUID. */
enum { UUID_SIZE = 37 };
void id_uuid(char out[UUID_SIZE]);
bool id_is_uuid(struct str s); /* of any version */
void random_bytes(void *p, size_t len);
