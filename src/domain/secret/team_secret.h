/* Secrets of a team, for headers that its sandboxes' requests get outside of the sandbox (network.rules). A value goes in,
 * encrypted, and comes out only for the egress process. */
#pragma once

#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "store/platform/store_secret.h"

struct secrets;

enum {
    TEAM_SECRETS_MAX = 500, /* of a team */
    TEAM_SECRET_HOSTS_MAX = 64,
    TEAM_SECRET_PAIRS_MAX = 32, /* of its metadata */
    TEAM_SECRET_PAIR_NAME_MAX = 128,
    TEAM_SECRET_PAIR_VALUE_MAX = 1024,
    TEAM_SECRET_METADATA_MAX = 8192,
};

#define TEAM_SECRET_ID_PREFIX "sec_"

struct team_secret_words {
    struct str name;         /* in any case; of a new one only */
    struct str value;        /* what it is */
    const struct str *hosts; /* which hosts it may be sent to: names, or "*." and one; none = any */
    size_t host_count;
    bool hosts_given; /* else those it has stay */
    struct str
        metadata; /* JSON, an object of strings, as the caller checked it; STR_NONE: what it has stays */
};

/* ERROR_INVALID, ERROR_EXISTS, ERROR_QUOTA. */
int team_secret_create(struct store *store, const struct secrets *secrets, struct str team_id,
                       const struct team_secret_words *words, struct arena *arena,
                       struct store_secret *out, struct error *err);
/* By id or name, in any case. ERROR_NOT_FOUND. */
int team_secret_find(struct store *store, struct str team_id, struct str name, struct arena *arena,
                     struct store_secret *out, struct error *err);
int team_secret_change(struct store *store, const struct secrets *secrets, struct str team_id,
                       struct str name, const struct team_secret_words *words, struct arena *arena,
                       struct store_secret *out, struct error *err);
/* *out: what it was. */
int team_secret_delete(struct store *store, struct str team_id, struct str name,
                       struct arena *arena, struct store_secret *out, struct error *err);

/* Its value; whoever asks wipes it. */
int team_secret_value(const struct secrets *secrets, const struct store_secret *secret,
                      struct arena *arena, struct str *out, struct error *err);
/* May it be sent to all that the host (a name, or "*." and one) stands for? */
bool team_secret_is_for(const struct store_secret *secret, struct str host);
