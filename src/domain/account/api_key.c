#include "domain/account/api_key.h"

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

static int check_name(struct str name, struct error *err)
{
    if (name.len == 0 || name.len > API_KEY_NAME_MAX || memchr(name.p, '\0', name.len) ||
        !str_valid_utf8(name))
        return error_set(err, ERROR_INVALID, "a key's name has 1 to %d characters",
                         API_KEY_NAME_MAX);
    return 0;
}

static int check_agent(struct str agent_id, struct error *err)
{
    if (agent_id.p && (agent_id.len == 0 || agent_id.len > API_KEY_AGENT_MAX ||
                       memchr(agent_id.p, '\0', agent_id.len) || !str_valid_utf8(agent_id)))
        return error_set(err, ERROR_INVALID, "an agent's id has 1 to %d bytes of text",
                         API_KEY_AGENT_MAX);
    return 0;
}

static int check_sandbox(struct store *store, const struct api_key_wanted *wanted,
                         struct arena *arena, struct error *err)
{
    struct str engine_id;

    if (!wanted->sandbox_id.p)
        return 0;
    if (store_key_sandbox(store, wanted->team_id, wanted->sandbox_id, arena, &engine_id, err) < 0)
        return err->code == ERROR_NOT_FOUND
                   ? error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' was not found",
                               STR_ARG(wanted->sandbox_id))
                   : -1;
    return 0;
}

int api_key_new(struct store *store, const struct api_key_wanted *wanted, struct arena *arena,
                struct store_key *out, char out_key[API_KEY_SIZE], struct error *err)
{
    char id[UUID_SIZE], hash[API_KEY_HASH_SIZE], mask[API_KEY_MASK_SIZE];

    if (check_name(wanted->name, err) < 0 || check_agent(wanted->agent_id, err) < 0 ||
        check_sandbox(store, wanted, arena, err) < 0)
        return -1;
    id_uuid(id);
    api_key_make(out_key);
    api_key_hash(str_of(out_key), hash);
    api_key_mask(str_of(out_key), mask);
    *out = (struct store_key){
        .id = arena_str(arena, str_of(id)),
        .team_id = arena_str(arena, wanted->team_id),
        .name = arena_str(arena, wanted->name),
        .agent_id = arena_str(arena, wanted->agent_id),
        .sandbox_id = arena_str(arena, wanted->sandbox_id),
        .role = str_of(api_role_store(wanted->role)),
        .hash = arena_str(arena, str_of(hash)),
        .mask = arena_str(arena, str_of(mask)),
        .created_at_us = clock_wall_us(),
    };
    if (store_key_insert(store, out, API_KEY_SANDBOX_KEYS_MAX, err) < 0)
        return error_prefix(err, "make a key");
    return 0;
}

int api_key_create(struct store *store, struct str team_id, struct str name,
                   char out_key[API_KEY_SIZE], struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_key key;

    return api_key_new(store, &(struct api_key_wanted){.team_id = team_id, .name = name}, &arena,
                       &key, out_key, err);
}

int api_key_rename(struct store *store, struct str team_id, struct str id, struct str name,
                   struct error *err)
{
    return check_name(name, err) < 0 ? -1 : store_key_rename(store, team_id, id, name, err);
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
