#include "account/api_key.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/encode.h"
#include "base/id.h"

void api_key_make(char out[API_KEY_SIZE])
{
    unsigned char secret[20];

    random_bytes(secret, sizeof(secret));
    (void)str_copy(STR("e2b_"), out, API_KEY_SIZE);
    hex_encode(out + 4, secret, sizeof(secret));
    OPENSSL_cleanse(secret, sizeof(secret));
}

void api_key_hash(struct str key, char out[API_KEY_HASH_SIZE])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];

    (void)SHA256((const unsigned char *)key.p, key.len, digest);
    hex_encode(out, digest, sizeof(digest));
}

void api_key_mask(struct str key, char out[API_KEY_MASK_SIZE])
{
    if (key.len < 24)
        (void)snprintf(out, API_KEY_MASK_SIZE, "...");
    else
        (void)snprintf(out, API_KEY_MASK_SIZE, "%.*s...%.*s", 6, key.p, 4, key.p + key.len - 4);
}

int api_key_create(struct store *store, struct str team_id, struct str name,
                   char out_key[API_KEY_SIZE], struct error *err)
{
    char id[UUID_SIZE], hash[API_KEY_HASH_SIZE], mask[API_KEY_MASK_SIZE];
    struct store_key key = {
        .team_id = team_id,
        .name = name,
        .created_at_us = clock_wall_us(),
    };

    if (name.len == 0 || name.len > API_KEY_NAME_MAX || memchr(name.p, '\0', name.len) ||
        !str_valid_utf8(name))
        return error_set(err, ERROR_INVALID, "a key's name has 1 to %d characters",
                         API_KEY_NAME_MAX);
    id_uuid(id);
    api_key_make(out_key);
    api_key_hash(str_of(out_key), hash);
    api_key_mask(str_of(out_key), mask);
    key.id = str_of(id);
    key.hash = str_of(hash);
    key.mask = str_of(mask);
    if (store_key_insert(store, &key, err) < 0)
        return error_prefix(err, "make a key");
    return 0;
}

int api_key_list(struct store *store, struct str team_id, struct arena *arena,
                 struct store_key **out, size_t *out_count, struct error *err)
{
    return store_key_list(store, team_id, arena, out, out_count, err);
}

int api_key_delete(struct store *store, struct str team_id, struct str id, struct error *err)
{
    return store_key_delete(store, team_id, id, err);
}
