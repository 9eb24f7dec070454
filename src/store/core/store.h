/* What must outlive the process: teams, keys, templates and sandboxes. Each function is one
 * transaction; strings it returns live in the caller's arena. Safe from any thread: one writes at a
 * time, several read beside it. All text given must be free of NUL bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "store/core/sandbox_state.h"

struct store;
struct store_driver;
struct conn;

/* What else belongs in a transaction: it is run last, by whoever holds the transaction's connection, and asks for no other.
 * When it fails nothing of the transaction happens. */
struct store_also {
    int (*run)(void *arg, struct conn *conn, struct error *err);
    void *arg;
};

/* Opens or makes the file (mode 0600, the folder must exist) or ":memory:", checks it, applies
 * migrations and forgets sandboxes that ended more than a week ago. */
int store_open(const char *where, struct store **out, struct error *err);
/* With a driver other than SQLite. */
int store_open_driver(const struct store_driver *driver, const char *where, struct store **out,
                      struct error *err);
void store_close(struct store *store); /* NULL is fine */

#define auto_store __attribute__((cleanup(store_cleanup)))
static inline void store_cleanup(struct store **store)
{
    store_close(*store);
}

/* ---- teams and keys (store_team.c, store_account.c) ---- */

struct store_limits {    /* 0 = none */
    int64_t sandboxes;   /* running at the same time */
    int64_t cpu, mem_mb; /* of those */
    int64_t disk_mb;     /* of those and the paused */
    int64_t creates_per_minute;
};

struct store_team {
    struct str id, name;
    int64_t created_at_us;
    bool banned;
    struct store_limits limits;
};

struct store_key {
    struct str id, team_id, name;
    struct str hash; /* SHA-256, 64 hex digits */
    struct str mask;
    struct str agent_id;   /* it acts as this agent; "" = as any */
    struct str sandbox_id; /* it is for this sandbox only; "" = for all of the team's */
    struct str role;       /* what it may do; "" = all that its team may */
    int64_t created_at_us, last_used_at_us;
    bool team_banned; /* only in store_key_find() */
};

/* The team's part of names "team/name": its name when that can stand there, else its id. */
int store_team_slug(struct store *store, struct str team_id, struct arena *arena, struct str *out,
                    struct error *err);
/* ERROR_EXISTS when the id is taken. */
int store_team_insert(struct store *store, const struct store_team *team, struct error *err);
int store_team_get(struct store *store, struct str id, struct arena *arena, struct store_team *out,
                   struct error *err);
/* Everything but the id. */
int store_team_update(struct store *store, const struct store_team *team, struct error *err);
/* Oldest first. */
int store_team_list(struct store *store, struct arena *arena, struct store_team **out,
                    size_t *out_count, struct error *err);
/* ERROR_QUOTA when it is for a sandbox that has max living keys. */
int store_key_insert(struct store *store, const struct store_key *key, int64_t max,
                     struct error *err);
/* ERROR_NOT_FOUND when there is none, also when its sandbox has ended. */
int store_key_find(struct store *store, struct str hash, struct arena *arena, struct store_key *out,
                   struct error *err);
/* Is that one of the team's living sandboxes, by either id? *out_engine_id: the engine's own id of it,
 * "" when it is elsewhere. ERROR_NOT_FOUND. */
int store_key_sandbox(struct store *store, struct str team_id, struct str sandbox_id,
                      struct arena *arena, struct str *out_engine_id, struct error *err);
/* Oldest first; without those whose sandbox has ended. */
int store_key_list(struct store *store, struct str team_id, struct arena *arena,
                   struct store_key **out, size_t *out_count, struct error *err);
int store_key_count(struct store *store, size_t *out, struct error *err);
/* By id, within the team. ERROR_NOT_FOUND. */
int store_key_delete(struct store *store, struct str team_id, struct str id, struct error *err);
int store_key_rename(struct store *store, struct str team_id, struct str id, struct str name,
                     struct error *err);
int store_key_used(struct store *store, struct str id, int64_t at_us, struct error *err);

/* ---- platform/store_history.c ---- */

/* What the server did within a step of time, see domain/history/history.h. */
struct store_history {
    int64_t step_s, slot, at_us;
    int64_t running, paused, warm, creates, failures, p50_us, p99_us, cpu_permille;
    int64_t mem_used, mem_total, pool_used, pool_total, disk_used, disk_total;
};

/* In the place of what was in that slot. */
int store_history_put(struct store *store, const struct store_history *entry, struct error *err);
/* Oldest first. */
int store_history_list(struct store *store, int64_t step_s, int64_t from_us, struct arena *arena,
                       struct store_history **out, size_t *out_count, struct error *err);

/* ---- platform/store_signin.c ---- */

struct store_signin {
    struct str token_hash; /* SHA-256, 64 hex digits */
    struct str kind;       /* "browser", "link" */
    struct str key_hash;   /* of the API key in whose name it is */
    int64_t expires_at_us;
};

/* Removes what has ended, and of this API key the oldest beyond max. */
int store_signin_insert(struct store *store, const struct store_signin *signin, int64_t now_us,
                        int64_t max, struct error *err);
/* ERROR_NOT_FOUND also when it has ended. */
int store_signin_find(struct store *store, struct str token_hash, int64_t now_us,
                      struct arena *arena, struct store_signin *out, struct error *err);
/* ERROR_NOT_FOUND: somebody else was first. */
int store_signin_delete(struct store *store, struct str token_hash, struct error *err);

/* ---- what was changed (store_audit.c) ---- */

struct store_audit {
    int64_t seq, at_us;
    struct str team_id, key_id, method, path, request_id;
    struct str key_name;  /* when it happened: keys may go */
    struct str agent_id;  /* on whose behalf; "" = nobody's */
    struct str team_name; /* only in store_audit_page() */
    int64_t status;
};

int store_audit_add(struct store *store, const struct store_audit *entry, struct error *err);
/* Newest first; STR_NONE = all teams; before_seq 0 = from the newest. */
int store_audit_page(struct store *store, struct str team_id, int64_t before_seq, size_t limit,
                     struct arena *arena, struct store_audit **out, size_t *out_count,
                     struct error *err);
/* As store_event_prune(). */
int store_audit_prune(struct store *store, int64_t before_us, int64_t keep, size_t max,
                      size_t *out_count, struct error *err);

/* ---- creates that may be repeated (store_idempotency.c) ---- */

/* *out_sandbox_id is STR_NONE when the key was not used yet. */
int store_idempotency_find(struct store *store, struct str team_id, struct str key,
                           struct arena *arena, struct str *out_sandbox_id, struct str *out_hash,
                           struct error *err);
int store_idempotency_prune(struct store *store, int64_t before_us, struct error *err);

/* ---- templates (store_template.c) ---- */

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

/* ---- builds (store_build.c, store_build_log.c) ---- */

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

/* ---- passwords for registries of images (store_registry.c) ---- */

struct store_registry {
    struct str team_id, host, username;
    struct str secret; /* encrypted */
    int64_t made_at_us;
};

/* Inserts or replaces. ERROR_QUOTA when it would be one more than the team may have. */
int store_registry_put(struct store *store, const struct store_registry *registry, int64_t max,
                       struct error *err);
int store_registry_find(struct store *store, struct str team_id, struct str host,
                        struct arena *arena, struct store_registry *out, struct error *err);
/* By host. */
int store_registry_list(struct store *store, struct str team_id, struct arena *arena,
                        struct store_registry **out, size_t *out_count, struct error *err);
int store_registry_delete(struct store *store, struct str team_id, struct str host,
                          struct error *err);

/* ---- secrets of teams (store_secret.c) ---- */

struct store_secret {
    struct str id, team_id, name;
    struct str value;    /* encrypted */
    struct str hosts;    /* lines; "" = any */
    struct str metadata; /* JSON, an object of strings */
    int64_t version, created_at_us, updated_at_us;
};

/* ERROR_EXISTS when the team has one of that name, ERROR_QUOTA when it has `max`. */
int store_secret_insert(struct store *store, const struct store_secret *secret, int64_t max,
                        struct error *err);
/* By id or name. */
int store_secret_find(struct store *store, struct str team_id, struct str name, struct arena *arena,
                      struct store_secret *out, struct error *err);
/* By name, those behind `after` ("" = from the first). */
int store_secret_list(struct store *store, struct str team_id, struct str after, int64_t limit,
                      struct arena *arena, struct store_secret **out, size_t *out_count,
                      struct error *err);
/* Value, hosts, metadata and time of the one with that id and team; its version grows by one, and is told. */
int store_secret_update(struct store *store, struct store_secret *secret, struct error *err);
int store_secret_delete(struct store *store, struct str team_id, struct str id, struct error *err);

/* ---- layers made by snapshots (store_layer.c) ---- */

/* Before the layer is made: what nobody uses is deleted later, so a crash leaves nothing. */
int store_layer_add(struct store *store, struct str name, struct str team_id, int64_t at_us,
                    struct error *err);
/* Once it is made. base: the layer it holds too ('' = none); its bytes are added. *out_bytes: in all. */
int store_layer_size(struct store *store, struct str name, struct str base, int64_t bytes,
                     int64_t *out_bytes, struct error *err);
/* What the layers "a,b" hold together; those that the operator installed are not known here. */
int store_layers_bytes(struct store *store, struct str layers, int64_t *out_bytes,
                       struct error *err);
struct store_shared {
    int64_t bytes;  /* of all of the layers */
    int64_t shared; /* of those that others use as well */
    int64_t users;  /* the most that one of them has besides: sandboxes, snapshots, builds */
};
/* The same for one user, as the tables say; blocks that layers share on disk are counted with each. */
int store_layers_shared(struct store *store, struct str layers, struct store_shared *out,
                        struct error *err);
/* What a team keeps beside its sandboxes: volumes (those that are being deleted too), and the bytes of the
 * layers that somebody uses, of the files it uploaded for builds, and of notes and extensions of browsers. */
struct store_kept {
    int64_t volumes, layer_bytes, file_bytes;
};
int store_team_kept(struct store *store, struct str team_id, struct store_kept *out,
                    struct error *err);
/* At most max of those that nobody uses. */
int store_layer_unused(struct store *store, size_t max, struct arena *arena, struct str **out,
                       size_t *out_count, struct error *err);
int store_layer_state(struct store *store, struct str name, bool *out_known, bool *out_used,
                      struct error *err);
/* After it was deleted. */
int store_layer_forget(struct store *store, struct str name, struct error *err);

/* ---- snapshots (store_snapshot.c) ---- */

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

/* ---- volumes (store_volume.c) ---- */

struct store_volume {
    struct str id, team_id, name, token;
    bool deleting;
    int64_t created_at_us;
};

/* ERROR_EXISTS when the team has one of that name. */
int store_volume_insert(struct store *store, const struct store_volume *volume, struct error *err);
/* By id or name. */
int store_volume_find(struct store *store, struct str team_id, struct str name, struct arena *arena,
                      struct store_volume *out, struct error *err);
/* Oldest first; STR_NONE = of all teams, also those that are being deleted. */
int store_volume_list(struct store *store, struct str team_id, struct arena *arena,
                      struct store_volume **out, size_t *out_count, struct error *err);
/* ERROR_UNAUTHORIZED when there is none (any more). */
int store_volume_by_token(struct store *store, struct str token, struct arena *arena,
                          struct store_volume *out, struct error *err);
/* From now on nobody finds it. ERROR_CONFLICT when a sandbox uses it. */
int store_volume_deleting(struct store *store, struct str id, struct error *err);
int store_volume_deleted(struct store *store, struct str id, struct error *err);

/* ---- events (store_event.c) ---- */

enum { STORE_LEVEL_DEBUG, STORE_LEVEL_INFO, STORE_LEVEL_WARN, STORE_LEVEL_ERROR };

struct store_event {
    /* What a writer says. */
    struct str type, message, detail;
    int64_t level, at_us;
    /* What a reader finds besides: what the sandbox was. */
    int64_t seq;
    struct str id, team_id, sandbox_id, template_id, metadata;
    int64_t since_us, cpu_count, mem_mb;
};

struct store_event_query {
    struct str team_id;    /* STR_NONE = all teams, ascending */
    struct str sandbox_id; /* STR_NONE = all of the team */
    bool ascending;
    int64_t after_seq; /* 0 = from the start (or end) */
    size_t limit;
};

/* About a sandbox that has a row, else nothing is written. */
int store_event_add(struct store *store, struct str sandbox_id, const struct store_event *event,
                    struct error *err);
int store_event_page(struct store *store, const struct store_event_query *wanted,
                     struct arena *arena, struct store_event **out, size_t *out_count,
                     struct error *err);
/* Forgets, among the oldest max, those from before and those above the number to keep. */
int store_event_prune(struct store *store, int64_t before_us, int64_t keep, size_t max,
                      size_t *out_count, struct error *err);

/* ---- copies (store_backup.c) ---- */

/* Makes a copy beside the store's file, unless the last one is younger. The last three are kept. */
int store_backup(struct store *store, int64_t min_age_us, struct error *err);

/* ---- the host's clock (store_clock.c) ---- */

/* What was noted in this boot of the host; *out stays when nothing was. */
int store_clock_get(struct store *store, struct str boot_id, int64_t *out_us, struct error *err);
/* Notes it, and moves the ends of all that run. */
int store_clock_set(struct store *store, struct str boot_id, int64_t clock_us, int64_t move_us,
                    struct error *err);

/* ---- webhooks (store_webhook.c) ---- */

struct store_webhook {
    struct str id, team_id, name, url, secret;
    struct str events; /* types: ",created,killed," */
    bool enabled;
    int64_t created_at_us;
};

struct store_delivery {
    struct store_webhook webhook;
    int64_t event_seq, attempts, next_at_us;
};

/* Inserts, or replaces all but team and time. */
int store_webhook_put(struct store *store, const struct store_webhook *webhook, struct error *err);
/* Oldest first. */
int store_webhook_list(struct store *store, struct str team_id, struct arena *arena,
                       struct store_webhook **out, size_t *out_count, struct error *err);
/* With all it still had to be told. */
int store_webhook_delete(struct store *store, struct str team_id, struct str id, struct error *err);
/* Is there one, of any team? */
int store_webhook_any(struct store *store, bool *out, struct error *err);
/* The one that is due next, may be later; ERROR_NOT_FOUND: there is none. busy: ",a,b,", without these
 * webhooks and teams. */
int store_delivery_next(struct store *store, struct str busy, struct arena *arena,
                        struct store_delivery *out, struct error *err);
int store_delivery_done(struct store *store, struct str webhook_id, int64_t event_seq,
                        struct error *err);
/* How many it has not taken yet, and when the next of them is due (0 = there is none). */
int store_delivery_waiting(struct store *store, struct str webhook_id, int64_t *out_count,
                           int64_t *out_next_at_us, struct error *err);
/* It failed: tried again then, and nothing else for this webhook before. */
int store_delivery_later(struct store *store, struct str webhook_id, int64_t event_seq,
                         int64_t next_at_us, struct error *err);

/* ---- sandboxes (store_sandbox.c) ---- */

enum store_resumed { STORE_RESUMED_NEVER, STORE_RESUMED_MEMORY, STORE_RESUMED_DISK };

/* The part of a row that changes when a sandbox is paused or resumed. */
struct store_sandbox_life {
    enum sandbox_state state;
    enum sandbox_state
        listed; /* as sandbox_state_listed(); RUNNING while it is paused at the end of its time */
    int64_t end_at_us;        /* of a paused one: when it was paused */
    int64_t running_since_us; /* when it was made or resumed last */
    bool memory;              /* its (last) pause keeps the processes */
    bool auto_pause;          /* paused, not killed, at the end of its time */
    enum store_resumed resumed_from;
};

struct store_sandbox {
    struct str id, team_id, template_id, alias;
    struct store_sandbox_life life; /* state: any */
    int64_t revision;
    int64_t started_at_us;
    int64_t timeout_s; /* as asked for at create */
    int64_t cpu_count, mem_mb, disk_mb;
    struct str metadata, env; /* JSON text of objects */
    struct str setup; /* what it has of its template, as JSON: sandbox_setup.c; "" = nothing */
    struct str access_token;  /* "" when not secured */
    struct str traffic_token; /* "" when its ports are public */
    struct str ingress;       /* the way to them, as lines: domain/route/ingress.h */
    bool internet, internet_given, secure;
    struct str network;     /* lists of what it may reach, as JSON: domain/network; "" = none */
    bool auto_pause_memory; /* how it is paused at the end of its time */
    bool auto_resume;
    struct str layers;  /* "a,b", lowest first */
    struct str volumes; /* lines "id name path" */
    /* Stand for the pairs of its metadata; only written. tagged: they were. */
    const struct str *tags;
    size_t tag_count;
    bool tagged;
    const struct store_event *event;              /* only written, with an insert; or NULL */
    struct str idempotency_key, idempotency_hash; /* the same; STR_NONE = none */
    const struct store_also *also;                /* the same */
    int64_t ended_at_us;
    struct str end_reason;
};

enum { STORE_QUERY_TAGS = 4 };

struct store_sandbox_query {
    struct str team_id;
    bool running, paused;     /* which states; at least one */
    struct str template_id;   /* STR_NONE = any */
    int64_t started_after_us; /* inclusive */
    bool ascending;
    struct str after_id; /* STR_NONE = from the start; else the last one of the page before */
    int64_t after_us;    /* and when it started */
    struct str tags[STORE_QUERY_TAGS]; /* it must have all of them */
    size_t tag_count;
    size_t limit;
};

int store_sandbox_insert(struct store *store, const struct store_sandbox *row, struct error *err);
int store_sandbox_get(struct store *store, struct str id, struct arena *arena,
                      struct store_sandbox *out, struct error *err);
/* Running and paused ones by (started_at, id). */
int store_sandbox_page(struct store *store, const struct store_sandbox_query *wanted,
                       struct arena *arena, struct store_sandbox **out, size_t *out_count,
                       struct error *err);
/* All running ones that match, whatever states and page are wanted. */
int store_sandbox_count_running(struct store *store, const struct store_sandbox_query *wanted,
                                size_t *out, struct error *err);
/* Adds the tags of a row from before there were tags. */
int store_sandbox_tag(struct store *store, const struct store_sandbox *row, struct error *err);
/* Networks of a team's sandboxes that did not end, of those that have secrets in them. */
struct store_sandbox_policy {
    struct str id, network;
};
int store_sandbox_policies(struct store *store, struct str team_id, struct arena *arena,
                           struct store_sandbox_policy **out, size_t *out_count, struct error *err);
/* All that did not end, without metadata and env. */
int store_sandbox_live(struct store *store, struct arena *arena, struct store_sandbox **out,
                       size_t *out_count, struct error *err);
struct store_sandbox_end {
    int64_t end_at_us;
    bool only_later;     /* leaves a later end as it is */
    int64_t max_life_us; /* never later than this after running_since; 0 = no limit */
};

/* New end of a running one. Says what holds now. The revision orders changes made by several
 * threads. ERROR_NOT_FOUND when it does not run. */
int store_sandbox_set_end(struct store *store, struct str id, const struct store_sandbox_end *end,
                          int64_t *out_end_at_us, int64_t *out_revision, struct error *err);
/* Replaces the life of one, and adds an event (or NULL). With durable it is on disk when this returns.
 * ERROR_NOT_FOUND when there is no such row, or it may not get there from its state (sandbox_state.h). */
int store_sandbox_set_life(struct store *store, struct str id,
                           const struct store_sandbox_life *life, const struct store_event *event,
                           bool durable, int64_t *out_revision, struct error *err);
/* Of a running or paused one. */
struct store_sandbox_network {
    struct str text;
    bool internet, given;
};
int store_sandbox_set_network(struct store *store, struct str id,
                              const struct store_sandbox_network *network, struct error *err);
/* Both do nothing when there is no such row, or it ended before. The first reason stays.
 * *out_freed: it used layers that snapshots made. */
int store_sandbox_killing(struct store *store, struct str id, struct str reason, struct error *err);
int store_sandbox_ended(struct store *store, struct str id, struct str reason,
                        const struct store_event *event, int64_t at_us, bool *out_freed,
                        struct error *err);
/* Forgets at most max of those that ended before; *out_count is how many. */
int store_sandbox_prune(struct store *store, int64_t before_us, size_t max, size_t *out_count,
                        struct error *err);
enum { STORE_HISTORY_DAYS = 7 };
