#include "domain/account/signin.h"

#include <openssl/crypto.h>

#include "base/clock.h"
#include "base/encode.h"
#include "base/id.h"
#include "store/platform/store_signin.h"

#define BROWSER_PREFIX "qsb_"
#define LINK_PREFIX    "qsl_"

static void make_token(const char *prefix, char out[SIGNIN_TOKEN_SIZE])
{
    unsigned char secret[20];

    random_bytes(secret, sizeof(secret));
    (void)str_copy(str_of(prefix), out, SIGNIN_TOKEN_SIZE);
    hex_encode(out + 4, secret, sizeof(secret));
    OPENSSL_cleanse(secret, sizeof(secret));
}

static bool has_form(struct str token, const char *prefix)
{
    return token.len == SIGNIN_TOKEN_SIZE - 1 && str_starts(token, str_of(prefix));
}

bool signin_is_browser(struct str token)
{
    return has_form(token, BROWSER_PREFIX);
}

static int find(struct store *store, struct str token, const char *kind,
                char out_key_hash[API_KEY_HASH_SIZE], struct error *err)
{
    auto_arena struct arena arena = {0};
    char hash[API_KEY_HASH_SIZE];
    struct store_signin found;

    api_key_hash(token, hash);
    if (store_signin_find(store, str_of(hash), clock_wall_us(), &arena, &found, err) < 0)
        return -1;
    if (!str_is(found.kind, kind) || !str_copy(found.key_hash, out_key_hash, API_KEY_HASH_SIZE))
        return error_set(err, ERROR_NOT_FOUND, "sign-in not found");
    return 0;
}

int signin_key_hash(struct store *store, struct str token, char out_hash[API_KEY_HASH_SIZE],
                    struct error *err)
{
    return find(store, token, "browser", out_hash, err);
}

static int insert(struct store *store, const char *key_hash, const char *kind, int64_t seconds,
                  struct str token, struct error *err)
{
    char hash[API_KEY_HASH_SIZE];
    int64_t now_us = clock_wall_us();

    api_key_hash(token, hash);
    return store_signin_insert(store,
                               &(struct store_signin){
                                   .token_hash = str_of(hash),
                                   .kind = str_of(kind),
                                   .key_hash = str_of(key_hash),
                                   .expires_at_us = now_us + seconds * 1000 * 1000,
                               },
                               now_us, SIGNIN_KEY_MAX, err);
}

static int new_browser(struct store *store, const char *key_hash, char out_token[SIGNIN_TOKEN_SIZE],
                       struct error *err)
{
    make_token(BROWSER_PREFIX, out_token);
    return insert(store, key_hash, "browser", SIGNIN_BROWSER_S, str_of(out_token), err);
}

static int hash_of(struct store *store, struct str key, char out_hash[API_KEY_HASH_SIZE],
                   struct error *err)
{
    if (signin_is_browser(key))
        return signin_key_hash(store, key, out_hash, err);
    api_key_hash(key, out_hash);
    return 0;
}

int signin_link(struct store *store, struct str key, char out_link[SIGNIN_TOKEN_SIZE],
                struct error *err)
{
    char hash[API_KEY_HASH_SIZE];

    if (hash_of(store, key, hash, err) < 0)
        return -1;
    make_token(LINK_PREFIX, out_link);
    return insert(store, hash, "link", SIGNIN_LINK_S, str_of(out_link), err);
}

int signin_browser(struct store *store, struct str key, char out_token[SIGNIN_TOKEN_SIZE],
                   struct error *err)
{
    char hash[API_KEY_HASH_SIZE];

    return hash_of(store, key, hash, err) < 0 ? -1 : new_browser(store, hash, out_token, err);
}

static int refuse(struct error *err)
{
    return err->code == ERROR_NOT_FOUND
               ? error_set(err, ERROR_UNAUTHORIZED,
                           "this link was used already or is too old: sign in with an API key, or "
                           "ask for another link with 'quicksand open'")
               : -1;
}

int signin_redeem(struct store *store, struct str link, char out_token[SIGNIN_TOKEN_SIZE],
                  struct error *err)
{
    char key_hash[API_KEY_HASH_SIZE], hash[API_KEY_HASH_SIZE];

    if (!has_form(link, LINK_PREFIX)) {
        (void)error_set(err, ERROR_NOT_FOUND, "not a link");
        return refuse(err);
    }
    api_key_hash(link, hash);
    if (find(store, link, "link", key_hash, err) < 0 ||
        store_signin_delete(store, str_of(hash), err) < 0)
        return refuse(err);
    return new_browser(store, key_hash, out_token, err);
}

int signin_end(struct store *store, struct str token, struct error *err)
{
    char hash[API_KEY_HASH_SIZE];

    api_key_hash(token, hash);
    if (store_signin_delete(store, str_of(hash), err) < 0 && err->code != ERROR_NOT_FOUND)
        return -1;
    return 0;
}
