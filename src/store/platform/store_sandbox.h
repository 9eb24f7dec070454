/* Sandboxes of the engine: their rows, and the events written with them. */
#pragma once

#include "store/core/store.h"
#include "store/platform/store_event.h"

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
