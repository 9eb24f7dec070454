/* What builds of templates keep: their rows and logs, tags, what steps gave (the cache), uploaded files. */
#pragma once

#include "store/core/store.h"
#include "store/platform/store_template.h"

enum store_build_state {
    STORE_BUILD_WAITING, /* for its recipe */
    STORE_BUILD_BUILDING,
    STORE_BUILD_READY,
    STORE_BUILD_ERROR,
};
/* 'waiting', 'building', 'ready', 'error'. */
const char *store_build_state_name(enum store_build_state state);

struct store_build {
    struct str id, template_id, team_id;
    enum store_build_state state;
    struct str recipe; /* "" until it is started */
    struct str tags;   /* "a,b": given to it when it is ready */
    struct str layers; /* "" until it is ready */
    int64_t cpu_count, mem_mb, disk_mb;
    struct str env; /* JSON object */
    struct str default_user, workdir, start_cmd, ready_cmd;
    struct str reason, reason_step;
    int64_t log_count;
    int64_t created_at_us, started_at_us, finished_at_us;
};

struct store_build_query {
    struct str template_id;
    int64_t
        before_us; /* when the last one of the page before was made, and its id; 0 = from the newest */
    struct str before_id;
    size_t limit;
};

struct store_build_log {
    int64_t seq, at_us;
    int64_t level;   /* STORE_LEVEL_… */
    struct str step; /* "base", "finalize", "3", "" */
    struct str message;
};

/* ---- builds (store_build.c) ---- */

/* A new one, waiting, of the team's template of that name or id, which is made when there is none of that name; sizes
 * of 0 become the template's. Sets build->template_id. ERROR_CONFLICT when a snapshot has the name. */
int store_build_add(struct store *store, struct store_build *build, struct str name,
                    struct arena *arena, struct store_template *out, struct error *err);
/* Templates of a team, and builds of it that wait for their recipe since after. */
struct store_build_counts {
    int64_t templates, waiting;
};
int store_build_count(struct store *store, struct str team_id, int64_t after_us,
                      struct store_build_counts *out, struct error *err);
int store_build_get(struct store *store, struct str team_id, struct str id, struct arena *arena,
                    struct store_build *out, struct error *err);
/* Newest first. */
int store_build_page(struct store *store, const struct store_build_query *wanted,
                     struct arena *arena, struct store_build **out, size_t *out_count,
                     struct error *err);
/* From waiting to building. ERROR_CONFLICT when it does not wait. */
int store_build_start(struct store *store, struct str id, struct str recipe, int64_t at_us,
                      struct error *err);
/* An open one, as an error; does nothing to others. */
int store_build_fail(struct store *store, struct str id, struct str reason, struct str step,
                     int64_t at_us, struct error *err);
/* From building to ready, with all that it gave; its tags are given to it, and what no tag names any more uses no
 * layers. ERROR_CONFLICT when it is not building any more, ERROR_NOT_FOUND when it is gone. */
int store_build_ready(struct store *store, const struct store_build *build, bool *out_freed,
                      struct error *err);
/* Those that say building, when nothing does; and those that waited for their recipe since before. */
int store_build_recover(struct store *store, struct str reason, int64_t before_us, int64_t at_us,
                        size_t *out_count, struct error *err);
/* Forgets, with their logs, those that ended before and have no tag. */
int store_build_prune(struct store *store, int64_t before_us, size_t max, size_t *out_count,
                      struct error *err);

/* ---- logs (store_build_log.c) ---- */

/* After those that are there; seq is given here. Does nothing for a build that is gone. */
int store_build_log_add(struct store *store, struct str id, const struct store_build_log *lines,
                        size_t count, struct error *err);
struct store_build_log_query {
    struct str build_id;
    struct str step;        /* STR_NONE = any */
    int64_t from_us, to_us; /* inclusive; 0 = any */
    int64_t level;          /* and above */
    int64_t offset;
    bool backward;
    size_t limit;
};
int store_build_log_page(struct store *store, const struct store_build_log_query *wanted,
                         struct arena *arena, struct store_build_log **out, size_t *out_count,
                         struct error *err);

/* ---- tags and templates (store_build_tag.c) ---- */

struct store_tag {
    struct str tag, build_id;
    int64_t created_at_us;
};

/* Oldest first. */
int store_tag_list(struct store *store, struct str template_id, struct arena *arena,
                   struct store_tag **out, size_t *out_count, struct error *err);
/* What has the tag `from` has these tags ("a,b") from now on. ERROR_NOT_FOUND. */
struct store_tag_move {
    struct str template_id, from, tags;
    int64_t at_us;
};
int store_tag_assign(struct store *store, const struct store_tag_move *move, struct arena *arena,
                     struct str *out_build_id, bool *out_freed, struct error *err);
/* ERROR_NOT_FOUND when it has none of them. */
int store_tag_delete(struct store *store, struct str template_id, struct str tags, bool *out_freed,
                     struct error *err);

/* ERROR_NOT_FOUND when the team has none such; snapshots are none. */
int store_template_set_public(struct store *store, struct str team_id, struct str id,
                              bool is_public, int64_t at_us, struct error *err);
/* With its tags, builds and their logs. */
int store_template_delete(struct store *store, struct str team_id, struct str id, bool *out_freed,
                          struct error *err);

/* How many builds a template has, and its newest. */
struct store_template_builds {
    int64_t count;
    struct str newest_id, layers; /* of the newest, as what follows */
    enum store_build_state newest;
    int64_t cpu_count, mem_mb, disk_mb;
};
int store_template_builds(struct store *store, struct str template_id, struct arena *arena,
                          struct store_template_builds *out, struct error *err);

/* ---- what steps gave (store_build_cache.c) ---- */

struct store_cached {
    struct str key, team_id;
    struct str layers; /* "a,b" to go on from; it uses them */
    struct str note;   /* JSON */
    int64_t bytes;     /* of what it added */
    int64_t made_at_us, used_at_us;
};

/* *out_found; notes that it was used. */
int store_cache_find(struct store *store, struct str key, int64_t at_us, struct arena *arena,
                     struct store_cached *out, bool *out_found, struct error *err);
/* Replaces one of that key. */
int store_cache_put(struct store *store, const struct store_cached *cached, struct error *err);
int store_cache_delete(struct store *store, struct str key, bool *out_freed, struct error *err);
/* Those that were not used since before, and the longest unused ones above that many bytes in all; at most max. */
int store_cache_old(struct store *store, int64_t before_us, int64_t bytes_max, size_t max,
                    struct arena *arena, struct str **out, size_t *out_count, struct error *err);

/* ---- uploaded files (store_build_file.c) ---- */

struct store_build_file {
    struct str team_id, hash;
    struct str body; /* SHA-256, hex: name of the file */
    int64_t bytes, made_at_us, used_at_us;
};

/* ERROR_NOT_FOUND. Notes that it was used. */
int store_build_file_find(struct store *store, struct str team_id, struct str hash, int64_t at_us,
                          struct arena *arena, struct store_build_file *out, struct error *err);
int store_build_file_put(struct store *store, const struct store_build_file *file,
                         struct error *err);
/* Forgets those that were not used since before; *out: bodies that nobody names any more, whose files may go. */
int store_build_file_prune(struct store *store, int64_t before_us, size_t max, struct arena *arena,
                           struct str **out, size_t *out_count, struct error *err);
int store_build_file_has_body(struct store *store, struct str body, bool *out, struct error *err);
