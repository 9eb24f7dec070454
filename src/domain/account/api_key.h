/* API keys: "e2b_" and 40 hex digits, shown once when made, kept as SHA-256 only. A key has 160
 * random bits, so a plain hash is as good as a slow one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "store/platform/store_team.h"

enum {
    API_KEY_SIZE = 4 + 40 + 1,
    API_KEY_HASH_SIZE = 64 + 1,
    API_KEY_MASK_SIZE = 24,
    API_KEY_NAME_MAX = 128,
    API_KEY_GIVEN_MAX = 256, /* a key set by the operator may have any form */
    API_KEY_AGENT_MAX = 256,
    API_KEY_SANDBOX_KEYS_MAX = 16, /* living ones of one sandbox */
};

void api_key_make(char out[API_KEY_SIZE]);
void api_key_hash(struct str key, char out[API_KEY_HASH_SIZE]);
/* "e2b_12...cdef", for lists; hides everything of a short key. */
void api_key_mask(struct str key, char out[API_KEY_MASK_SIZE]);

/* Makes a key and stores its hash. The key itself is nowhere else than in out_key. */
int api_key_create(struct store *store, struct str team_id, struct str name,
                   char out_key[API_KEY_SIZE], struct error *err);

/* What a key may do with what its team has. */
enum api_role {
    API_ROLE_FULL,    /* everything; in the operator's team also what only the operator may */
    API_ROLE_MEMBER,  /* of the operator's team, but not the operator */
    API_ROLE_VIEWER,  /* reads, and learns no secrets */
    API_ROLE_METRICS, /* reads /metrics */
};
/* As it is kept with the key; false = there is no such role. */
bool api_role_stored(struct str stored, enum api_role *out);
const char *api_role_store(enum api_role role);
/* As users know it: operator, member, viewer, metrics. */
const char *api_role_name(enum api_role role, struct str team_id);
/* The role of a new key of that team, wanted by its name ("" = the giver's own). ERROR_FORBIDDEN when it would
 * be more than the giver's own. */
int api_role_give(enum api_role giver, struct str team_id, struct str wanted, enum api_role *out,
                  struct error *err);

/* What a key may do: everything of its team, or less. */
struct api_key_wanted {
    struct str team_id, name;
    struct str agent_id;   /* acts as this agent, whatever a request says; STR_NONE = as any */
    struct str sandbox_id; /* may use this sandbox and nothing else, and ends with it; STR_NONE */
    enum api_role role;
};
/* Makes one and tells what was stored; strings in the arena. ERROR_NOT_FOUND when the sandbox is not
 * the team's, ERROR_QUOTA when it has too many keys. */
int api_key_new(struct store *store, const struct api_key_wanted *wanted, struct arena *arena,
                struct store_key *out, char out_key[API_KEY_SIZE], struct error *err);
int api_key_rename(struct store *store, struct str team_id, struct str id, struct str name,
                   struct error *err);
int api_key_list(struct store *store, struct str team_id, struct arena *arena,
                 struct store_key **out, size_t *out_count, struct error *err);
int api_key_delete(struct store *store, struct str team_id, struct str id, struct error *err);

/* Who a key belongs to. */
struct api_key_owner {
    char team_id[64];
    char key_id[64]; /* "" for the key the operator gave by configuration */
    char key_name[API_KEY_NAME_MAX + 1];
    char agent_id[API_KEY_AGENT_MAX + 1]; /* "" = acts as any */
    char sandbox_id[64];                  /* "" = for all of the team's */
    enum api_role role;
    bool banned; /* the team is */
    int64_t
        found_us; /* monotonic: when the store said so; 0 = it must be asked again before the owner may act */
    unsigned changes; /* how many times keys had changed by then; see api_keys_refresh() */
};

/* Resolves keys from memory. Other processes may add and remove keys in the same store: what is
 * known is asked again after a few seconds, what is unknown after one. Safe from any thread. */
struct api_keys;

/* given_key: accepted in addition, for the default team; never stored. NULL or "" = none. */
struct api_keys *api_keys_new(struct store *store, const char *given_key);
void api_keys_free(struct api_keys *keys);
/* ERROR_UNAUTHORIZED when the key is unknown. */
int api_keys_find(struct api_keys *keys, struct str key, struct api_key_owner *out,
                  struct error *err);
/* From memory only, for loops, which must not wait for the store. API_KEY_KNOWN: it was good when last asked
 * about; before anything is done for it, api_keys_current() must hold, or api_keys_find() is called. */
enum api_key_peek { API_KEY_KNOWN, API_KEY_REFUSED, API_KEY_UNSEEN };
enum api_key_peek api_keys_peek(struct api_keys *keys, struct str key, struct api_key_owner *out);
/* Whether what was found still holds: it is as new as memory may be, and no key has changed here since. Without a lock. */
bool api_keys_current(struct api_keys *keys, const struct api_key_owner *owner);
/* Forgets what was remembered; to be called after this process made or deleted a key. */
void api_keys_refresh(struct api_keys *keys);
