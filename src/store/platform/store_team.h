/* Teams, their limits, and API keys: store_team.c, store_account.c. */
#pragma once

#include "store/core/store.h"

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
