/* Templates: what a sandbox starts from. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "store/platform/store_build.h"

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

/* ---- of those that are built ---- */

struct sandboxes;

struct template_view {
    struct store_template row; /* the build of its default tag, else of its newest build */
    struct str build_status;   /* of its newest build; "ready" for what was never built */
    int64_t build_count;
    int64_t layer_count,
        layer_bytes;      /* bytes: without the platform's own; both 0 until it is built */
    struct str full_name; /* "team/name"; "" = none */
};

/* The team's own and the public ones, without snapshots; oldest first. */
int template_views(struct store *store, struct str team_id, struct arena *arena,
                   struct template_view **out, size_t *out_count, struct error *err);
/* The team's own one, by id or name, whatever tags it has. */
int template_view(struct store *store, struct str team_id, struct str name, struct arena *arena,
                  struct template_view *out, struct error *err);
/* Likewise, or a public one of others: to be seen, not to be changed. */
int template_look(struct store *store, struct str team_id, struct str name, struct arena *arena,
                  struct template_view *out, struct error *err);
/* Newest first. */
int template_builds(struct store *store, const struct store_build_query *wanted,
                    struct arena *arena, struct store_build **out, size_t *out_count,
                    struct error *err);
int template_set_public(struct store *store, struct str team_id, struct str name, bool is_public,
                        struct error *err);
/* With its builds; those under way are ended by their threads. Sandboxes keep what they use. The
 * platform's own are ERROR_FORBIDDEN, snapshots ERROR_NOT_FOUND (snapshot_delete()). */
int template_delete(struct sandboxes *all, struct str team_id, struct str name, struct error *err);

struct template_tag {
    struct str tag, build_id;
    int64_t created_at_us;
};

/* POST /templates/tags: what "name:tag" (target) is now is what these tags are from now on.  * ERROR_INVALID for bad names and tags; ERROR_NOT_FOUND. */
int template_tags_assign(struct sandboxes *all, struct str team_id, struct str target,
                         const struct str *tags, size_t count, struct arena *arena,
                         struct str *out_build_id, struct error *err);
/* DELETE /templates/tags. ERROR_INVALID "tag 'default' cannot be deleted", ERROR_NOT_FOUND when it has none of them.
 * What nothing names any more goes. */
int template_tags_delete(struct sandboxes *all, struct str team_id, struct str name,
                         const struct str *tags, size_t count, struct error *err);
/* Of one that template_look() shows. */
int template_tags(struct store *store, struct str team_id, struct str name, struct arena *arena,
                  struct template_tag **out, size_t *out_count, struct error *err);
/* In small letters; ERROR_INVALID "invalid tag '…'". */
int template_tag_check(struct str tag, struct arena *arena, struct str *out, struct error *err);
/* Is it one of "a,b"? */
bool template_tags_have(struct str tags, struct str tag);
