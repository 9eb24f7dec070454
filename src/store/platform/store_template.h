/* Templates, built or installed, and the names they are found by. */
#pragma once

#include "store/core/store.h"

struct store_template {
    struct str id;
    struct str team_id; /* "" = the platform's */
    struct str alias;   /* STR_NONE = none */
    struct str layers;  /* "a,b", lowest first */
    int64_t cpu_count, mem_mb, disk_mb;
    bool is_public;
    bool is_snapshot;
    struct str name; /* of a snapshot or a built template, within its team; "" = none */
    struct str tag;  /* the one that was found */
    int64_t created_at_us, updated_at_us;
    /* Of the build that was found; all STR_NONE or "" for snapshots and for what was never built. */
    struct str build_id;
    struct str env; /* JSON object */
    struct str default_user, workdir;
    struct str start_cmd, ready_cmd;
    int64_t spawn_count, last_spawned_at_us; /* only read */
    struct str setup; /* of a snapshot: the same as JSON, as its sandbox had it; "" = none */
};

/* By id, alias or the team's name of a template or snapshot, each with or without "team/" and ":tag", as far as
 * the team may see it: its own, and public ones (of another team by "team/name"). What a built one holds is
 * that of the tag's build. ERROR_NOT_FOUND "template 'x' not found", also when it has no ready build. */
int store_template_find(struct store *store, struct str team_id, struct str text,
                        struct arena *arena, struct store_template *out, struct error *err);
/* As above, whatever tags it has and whether or not it was built; out->tag is the one in the name, or STR_NONE. */
int store_template_get(struct store *store, struct str team_id, struct str text,
                       struct arena *arena, struct store_template *out, struct error *err);
/* Without snapshots, oldest first, with what the tag "default" has. */
int store_template_list(struct store *store, struct str team_id, struct arena *arena,
                        struct store_template **out, size_t *out_count, struct error *err);
/* Inserts, or updates the one that has the alias already; *out_id is the id that holds. */
int store_template_put(struct store *store, const struct store_template *template,
                       struct arena *arena, struct str *out_id, struct error *err);
