/* Passwords for registries of images. */
#pragma once

#include "store/core/store.h"

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
