/* Templates: what a sandbox starts from. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "store/core/store.h"

#define TEMPLATE_BASE_ALIAS "base"

enum {
    TEMPLATE_BASE_CPU = 2,
    TEMPLATE_BASE_MEM_MB = 512,
    TEMPLATE_BASE_DISK_MB = 10240,
};

/* 0 = the default above. */
struct template_base {
    struct str layer; /* name of the layer, [a-z0-9]{1,31} */
    int64_t cpu_count, mem_mb, disk_mb;
};

/* By id or alias, either with ":default". Any other tag, and what the team may not see, is
 * ERROR_NOT_FOUND. */
int template_find(struct store *store, struct str team_id, struct str name, struct arena *arena,
                  struct store_template *out, struct error *err);
int template_list(struct store *store, struct str team_id, struct arena *arena,
                  struct store_template **out, size_t *out_count, struct error *err);
/* Makes or updates the public template "base"; its id stays the same for good. */
int template_register_base(struct store *store, const struct template_base *base,
                           struct arena *arena, struct str *out_id, struct error *err);
