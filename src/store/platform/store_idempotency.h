/* Creates that may be repeated: which sandbox a key has made. */
#pragma once

#include "store/core/store.h"

/* *out_sandbox_id is STR_NONE when the key was not used yet. */
int store_idempotency_find(struct store *store, struct str team_id, struct str key,
                           struct arena *arena, struct str *out_sandbox_id, struct str *out_hash,
                           struct error *err);
int store_idempotency_prune(struct store *store, int64_t before_us, struct error *err);
