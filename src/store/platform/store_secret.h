/* Secrets of teams. */
#pragma once

#include "store/core/store.h"

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
