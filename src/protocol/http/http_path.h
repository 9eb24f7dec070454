/* Paths against patterns, for tables of endpoints. A pattern's "{x}" stands for one segment that is not
 * empty. Paths are compared as they came; parameters are decoded afterwards, so that an escaped slash
 * is part of one. */
#pragma once

#include "base/arena.h"
#include "protocol/http/http.h"

enum { HTTP_ALLOW_SIZE = 96 };

/* Fills raw[] with the segments that stand for {..}; the others stay as they are. */
bool http_path_match(const char *pattern, struct str path, struct str *raw, size_t max);
/* Decodes raw[] up to the first STR_NONE into the arena. False for a bad escape or a NUL. */
bool http_path_decode(const struct str *raw, size_t max, struct arena *arena, struct str *params);
/* One more method for an Allow header, once. */
void http_allow_add(char allow[HTTP_ALLOW_SIZE], const char *method);
