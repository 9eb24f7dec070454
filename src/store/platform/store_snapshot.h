/* Snapshots of sandboxes. */
#pragma once

#include "store/core/store.h"

struct store_snapshot {
    struct str template_id, tag;
    struct str team_id, name; /* name "" = none */
    struct str source_id;     /* the sandbox */
    struct str layers;
    int64_t cpu_count, mem_mb, disk_mb;
    int64_t created_at_us;
    struct str setup; /* of the sandbox */
};

struct store_snapshot_query {
    struct str team_id;
    struct str source_id;      /* STR_NONE = any */
    struct str name;           /* or id of the template; STR_NONE = any */
    struct str tag;            /* STR_NONE = any */
    struct str after_template; /* STR_NONE = from the start; else the last one of the page before */
    struct str after_tag;
    int64_t after_us;
    size_t limit;
};

/* Inserts, or replaces what the team has under that name and tag; sets snapshot->template_id.
 * *out_freed: what was replaced had layers of its own. */
int store_snapshot_put(struct store *store, struct store_snapshot *snapshot, struct arena *arena,
                       bool *out_freed, struct error *err);
/* Newest first. */
int store_snapshot_page(struct store *store, const struct store_snapshot_query *wanted,
                        struct arena *arena, struct store_snapshot **out, size_t *out_count,
                        struct error *err);
/* One tag (or all, with STR_NONE) of a snapshot template; the template goes with its last tag. */
int store_snapshot_delete(struct store *store, struct str template_id, struct str tag,
                          bool *out_freed, struct error *err);
