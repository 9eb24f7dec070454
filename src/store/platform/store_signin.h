/* Who is signed in at the dashboard. */
#pragma once

#include "store/core/store.h"

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
