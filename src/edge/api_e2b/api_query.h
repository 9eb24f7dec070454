/* Query strings: of the sandbox lists, and the parameters that several endpoints have. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

struct api_list_query {
    json_t *metadata; /* object of strings (owned), or NULL */
    bool running, paused;
    bool ascending;
    struct str template_name;
    struct str cursor;
    int64_t started_after_us;
    size_t limit;
};

/* Unknown parameters are ignored; a parameter that cannot be understood is ERROR_INVALID naming
 * it. Strings live in the arena. Done with api_query_done(), also after a failure. */
int api_query_list(struct str query, struct arena *arena, struct api_list_query *out,
                   struct error *err);
void api_query_done(struct api_list_query *query);

/* One parameter, decoded; STR_NONE when it is absent or empty, ERROR_INVALID when it is badly
 * encoded. */
int api_query_get(struct str query, const char *name, struct arena *arena, struct str *out,
                  struct error *err);

/* A number up to max; the fallback when it is absent. */
int api_query_number(struct str query, const char *name, struct arena *arena, uint64_t fallback,
                     uint64_t max, uint64_t *out, struct error *err);
/* "level": STORE_LEVEL_…, 0 when it is absent. */
int api_query_level(struct str query, struct arena *arena, int64_t *out, struct error *err);
const char *api_level_name(int64_t level);
/* "direction": "forward" (or absent) or "backward". */
int api_query_backward(struct str query, struct arena *arena, bool *out, struct error *err);
