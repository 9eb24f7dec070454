/* The cache in front of the store. Keyed by hash, so the memory holds no keys and a lookup's time
 * says nothing about how much of a guess was right.
 *
 * Two tables: known keys (a map, at most KNOWN_MAX; asked again after KNOWN_US, so that a key
 * deleted by the command line stops working; keys of one sandbox each time, because they end with it),
 * and a small direct-mapped table of unknown ones, so
 * that a client that repeats a wrong key does not cost a query each time. Time is monotonic. */
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "domain/account/api_key.h"
#include "domain/account/signin.h"
#include "domain/account/team.h"

enum {
    KNOWN_MAX = 4096,
    KNOWN_US = 5 * 1000 * 1000,
    UNKNOWN_SLOTS = 256,
    UNKNOWN_US = 1000 * 1000,
    USED_EVERY_US = 60 * 1000 * 1000,
};

struct known {
    struct api_key_owner owner;
    char hash[API_KEY_HASH_SIZE];
    int64_t used_written_at; /* monotonic */
};

struct unknown {
    char hash[API_KEY_HASH_SIZE];
    int64_t until;
};

struct api_keys {
    struct store *store;
    bool has_given;
    char given_hash[API_KEY_HASH_SIZE];
    atomic_uint changes;  /* calls of api_keys_refresh() */
    pthread_mutex_t lock; /* guards what follows; never held during a query */
    struct map known;
    struct unknown unknown[UNKNOWN_SLOTS];
};

struct api_keys *api_keys_new(struct store *store, const char *given_key)
{
    struct api_keys *keys = xcalloc(1, sizeof(*keys));

    keys->store = store;
    (void)pthread_mutex_init(&keys->lock, NULL);
    map_init(&keys->known);
    if (given_key && given_key[0]) {
        keys->has_given = true;
        api_key_hash(str_of(given_key), keys->given_hash);
    }
    return keys;
}

static void forget_known(struct api_keys *keys)
{
    struct map_entry *entry;

    map_for_each (&keys->known, entry)
        free(entry->value);
    map_done(&keys->known);
    map_init(&keys->known);
}

void api_keys_free(struct api_keys *keys)
{
    if (!keys)
        return;
    forget_known(keys);
    map_done(&keys->known);
    (void)pthread_mutex_destroy(&keys->lock);
    free(keys);
}

void api_keys_refresh(struct api_keys *keys)
{
    (void)pthread_mutex_lock(&keys->lock);
    atomic_fetch_add(&keys->changes, 1);
    forget_known(keys);
    memset(keys->unknown, 0, sizeof(keys->unknown));
    (void)pthread_mutex_unlock(&keys->lock);
}

static bool same_hash(const char *a, const char *b)
{
    return CRYPTO_memcmp(a, b, API_KEY_HASH_SIZE - 1) == 0;
}

static struct unknown *unknown_slot(struct api_keys *keys, const char *hash)
{
    /* Hex digits of a SHA-256: as good as random. */
    unsigned index = (unsigned)(unsigned char)hash[0] * 31 + (unsigned)(unsigned char)hash[1] * 7 +
                     (unsigned char)hash[2];

    return &keys->unknown[index % UNKNOWN_SLOTS];
}

enum seen { SEEN_NOT, SEEN_KNOWN, SEEN_UNKNOWN };

/* As found just now, which the store's answer is in if it is asked after this. */
static struct api_key_owner owner_now(struct api_keys *keys)
{
    return (struct api_key_owner){.found_us = clock_mono_us(),
                                  .changes = atomic_load(&keys->changes)};
}

bool api_keys_current(struct api_keys *keys, const struct api_key_owner *owner)
{
    return owner->found_us && clock_mono_us() - owner->found_us < KNOWN_US &&
           owner->changes == atomic_load(&keys->changes);
}

/* The key of the configuration. */
static bool find_given(struct api_keys *keys, const char *hash, struct api_key_owner *out)
{
    if (!keys->has_given || !same_hash(hash, keys->given_hash))
        return false;
    *out = owner_now(keys);
    (void)str_copy(STR(TEAM_DEFAULT_ID), out->team_id, sizeof(out->team_id));
    return true;
}

static bool is_used_due(const struct known *known)
{
    return clock_mono_us() - known->used_written_at >= USED_EVERY_US;
}

static enum seen look_up(struct api_keys *keys, const char *hash, struct api_key_owner *out,
                         bool *out_write_used)
{
    int64_t now = clock_mono_us();
    struct unknown *unknown = unknown_slot(keys, hash);
    enum seen seen = SEEN_NOT;
    struct known *known;

    (void)pthread_mutex_lock(&keys->lock);
    known = map_get(&keys->known, str_of(hash));
    if (known && same_hash(known->hash, hash) && now - known->owner.found_us < KNOWN_US &&
        !known->owner.sandbox_id[0]) {
        *out = known->owner;
        *out_write_used = is_used_due(known);
        if (*out_write_used)
            known->used_written_at = now;
        seen = SEEN_KNOWN;
    } else if (unknown->until > now && same_hash(unknown->hash, hash)) {
        seen = SEEN_UNKNOWN;
    }
    (void)pthread_mutex_unlock(&keys->lock);
    return seen;
}

static void remember_unknown(struct api_keys *keys, const char *hash)
{
    struct unknown *unknown = unknown_slot(keys, hash);

    (void)pthread_mutex_lock(&keys->lock);
    free(map_remove(&keys->known, str_of(hash)));
    memcpy(unknown->hash, hash, API_KEY_HASH_SIZE);
    unknown->until = clock_mono_us() + UNKNOWN_US;
    (void)pthread_mutex_unlock(&keys->lock);
}

/* Says whether the time of use is to be written (a first use, or a minute has passed). */
static bool remember_known(struct api_keys *keys, const char *hash,
                           const struct api_key_owner *owner)
{
    int64_t now = clock_mono_us();
    struct known *known;
    bool write_used;

    (void)pthread_mutex_lock(&keys->lock);
    known = map_get(&keys->known, str_of(hash));
    write_used = !known || is_used_due(known);
    if (!known) {
        if (keys->known.count >= KNOWN_MAX)
            forget_known(keys);
        known = xcalloc(1, sizeof(*known));
        memcpy(known->hash, hash, API_KEY_HASH_SIZE);
        (void)map_put(&keys->known, str_of(hash), known);
    }
    known->owner = *owner;
    if (write_used)
        known->used_written_at = now;
    (void)pthread_mutex_unlock(&keys->lock);
    return write_used;
}

/* The key itself, or the one in whose name a browser is signed in. */
static int find_key(struct api_keys *keys, struct str key, const char *hash, struct arena *arena,
                    struct store_key *out, struct error *err)
{
    char key_hash[API_KEY_HASH_SIZE];

    if (!signin_is_browser(key))
        return store_key_find(keys->store, str_of(hash), arena, out, err);
    if (signin_key_hash(keys->store, key, key_hash, err) < 0)
        return -1;
    if (keys->has_given && same_hash(key_hash, keys->given_hash)) {
        *out = (struct store_key){.team_id = STR(TEAM_DEFAULT_ID)};
        return 0;
    }
    return store_key_find(keys->store, str_of(key_hash), arena, out, err);
}

static int ask_store(struct api_keys *keys, struct str key, const char *hash,
                     struct api_key_owner *out, bool *out_write_used, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_key found;

    *out = owner_now(keys);
    if (find_key(keys, key, hash, &arena, &found, err) < 0) {
        if (err->code != ERROR_NOT_FOUND)
            return error_prefix(err, "look up the key");
        remember_unknown(keys, hash);
        return error_set(err, ERROR_UNAUTHORIZED, "Invalid API key");
    }
    out->banned = found.team_banned;
    if (!api_role_stored(found.role, &out->role) ||
        !str_copy(found.team_id, out->team_id, sizeof(out->team_id)) ||
        !str_copy(found.id, out->key_id, sizeof(out->key_id)) ||
        !str_copy(found.name, out->key_name, sizeof(out->key_name)) ||
        !str_copy(found.agent_id, out->agent_id, sizeof(out->agent_id)) ||
        !str_copy(found.sandbox_id, out->sandbox_id, sizeof(out->sandbox_id)))
        return error_set(err, ERROR_INTERNAL, "key '%.*s' has odd ids", STR_ARG(found.id));
    *out_write_used = remember_known(keys, hash, out);
    return 0;
}

int api_keys_find(struct api_keys *keys, struct str key, struct api_key_owner *out,
                  struct error *err)
{
    char hash[API_KEY_HASH_SIZE];
    bool write_used = false;
    struct error ignored = {0};

    if (key.len == 0)
        return error_set(err, ERROR_UNAUTHORIZED, "No API key was given");
    if (key.len > API_KEY_GIVEN_MAX)
        return error_set(err, ERROR_UNAUTHORIZED, "Invalid API key");
    api_key_hash(key, hash);
    if (find_given(keys, hash, out))
        return 0;
    switch (look_up(keys, hash, out, &write_used)) {
    case SEEN_UNKNOWN:
        return error_set(err, ERROR_UNAUTHORIZED, "Invalid API key");
    case SEEN_NOT:
        if (ask_store(keys, key, hash, out, &write_used, err) < 0)
            return -1;
        break;
    case SEEN_KNOWN:
        break;
    }
    /* Not worth failing a request for. */
    if (write_used && out->key_id[0] &&
        store_key_used(keys->store, str_of(out->key_id), clock_wall_us(), &ignored) < 0)
        log_warn("account", "time of use of key '%s': %s, ignoring", out->key_id, ignored.message);
    return 0;
}

enum api_key_peek api_keys_peek(struct api_keys *keys, struct str key, struct api_key_owner *out)
{
    enum api_key_peek peek = API_KEY_UNSEEN;
    char hash[API_KEY_HASH_SIZE];
    const struct unknown *unknown;
    const struct known *known;

    if (key.len == 0 || key.len > API_KEY_GIVEN_MAX)
        return API_KEY_REFUSED;
    api_key_hash(key, hash);
    if (find_given(keys, hash, out))
        return API_KEY_KNOWN;
    unknown = unknown_slot(keys, hash);
    (void)pthread_mutex_lock(&keys->lock);
    known = map_get(&keys->known, str_of(hash));
    if (known && same_hash(known->hash, hash)) {
        *out = known->owner;
        /* A ban may be over: only the store knows. */
        if (!out->banned || clock_mono_us() - out->found_us < KNOWN_US)
            peek = API_KEY_KNOWN;
        /* A key of one sandbox ends with it, and the time of use is written by api_keys_find(). */
        if (out->sandbox_id[0] || is_used_due(known))
            out->found_us = 0;
    } else if (unknown->until > clock_mono_us() && same_hash(unknown->hash, hash)) {
        peek = API_KEY_REFUSED;
    }
    (void)pthread_mutex_unlock(&keys->lock);
    return peek;
}
