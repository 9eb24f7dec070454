/* Volumes, and which sandboxes use them. */
#pragma once

#include "store/core/store.h"

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
