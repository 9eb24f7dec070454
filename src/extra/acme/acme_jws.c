/* See acme_jws.h. */
#include "extra/acme/acme_jws.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/sha.h>

#include "base/alloc.h"
#include "base/encode.h"
#include "protocol/json/json_out.h"

enum { FIELD = 32 }; /* bytes of a coordinate, and of each half of a signature */

struct acme_key {
    EVP_PKEY *pkey;
    unsigned char x[FIELD], y[FIELD];
};

static bool coordinate(EVP_PKEY *pkey, const char *name, unsigned char out[FIELD])
{
    BIGNUM *number = NULL;
    bool ok = EVP_PKEY_get_bn_param(pkey, name, &number) == 1 &&
              BN_bn2binpad(number, out, FIELD) == FIELD;

    BN_free(number);
    return ok;
}

int acme_key_parse(struct str pem, struct acme_key **out, struct error *err)
{
    struct acme_key *key = xcalloc(1, sizeof(*key));
    BIO *bio = BIO_new_mem_buf(pem.p, (int)pem.len);

    key->pkey = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    if (!key->pkey || !coordinate(key->pkey, OSSL_PKEY_PARAM_EC_PUB_X, key->x) ||
        !coordinate(key->pkey, OSSL_PKEY_PARAM_EC_PUB_Y, key->y)) {
        acme_key_free(key);
        return error_set(err, ERROR_INVALID, "the account's key is no key of P-256");
    }
    *out = key;
    return 0;
}

void acme_key_free(struct acme_key *key)
{
    if (!key)
        return;
    EVP_PKEY_free(key->pkey);
    free(key);
}

struct str acme_base64(struct arena *arena, struct str bytes)
{
    size_t len = BASE64_LEN(bytes.len);
    char *text = arena_alloc(arena, len + 1);

    base64_encode(text, bytes.p, bytes.len);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '+')
            text[i] = '-';
        else if (text[i] == '/')
            text[i] = '_';
    }
    while (len && text[len - 1] == '=')
        len--;
    text[len] = '\0';
    return str_n(text, len);
}

struct str acme_digest(struct arena *arena, struct str bytes)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];

    (void)SHA256((const unsigned char *)bytes.p, bytes.len, hash);
    return acme_base64(arena, str_n(hash, sizeof(hash)));
}

/* Members in the order that a thumbprint wants. */
static void add_jwk(struct buf *out, const char *name, const struct acme_key *key,
                    struct arena *arena)
{
    json_out_open(out, name, '{');
    json_out_str(out, "crv", STR("P-256"));
    json_out_str(out, "kty", STR("EC"));
    json_out_str(out, "x", acme_base64(arena, str_n(key->x, FIELD)));
    json_out_str(out, "y", acme_base64(arena, str_n(key->y, FIELD)));
    json_out_close(out, "}");
}

struct str acme_key_thumbprint(const struct acme_key *key, struct arena *arena)
{
    auto_buf struct buf jwk = {0};

    buf_init(&jwk, SIZE_MAX);
    add_jwk(&jwk, NULL, key, arena);
    return acme_digest(arena, buf_str(&jwk));
}

/* OpenSSL writes both numbers as DER; the two stand side by side here. */
static bool split_signature(const unsigned char *der, size_t len, unsigned char out[2 * FIELD])
{
    ECDSA_SIG *signature = d2i_ECDSA_SIG(NULL, &der, (long)len);
    bool ok = signature && BN_bn2binpad(ECDSA_SIG_get0_r(signature), out, FIELD) == FIELD &&
              BN_bn2binpad(ECDSA_SIG_get0_s(signature), out + FIELD, FIELD) == FIELD;

    ECDSA_SIG_free(signature);
    return ok;
}

static bool sign(const struct acme_key *key, struct str text, unsigned char out[2 * FIELD])
{
    unsigned char der[128];
    size_t len = sizeof(der);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key->pkey) == 1 &&
              EVP_DigestSign(ctx, der, &len, (const unsigned char *)text.p, text.len) == 1 &&
              split_signature(der, len, out);

    EVP_MD_CTX_free(ctx);
    return ok;
}

int acme_jws(const struct acme_key *key, struct arena *arena, const char *account,
             const char *nonce, const char *url, struct str payload, struct str *out,
             struct error *err)
{
    auto_buf struct buf head = {0}, text = {0};
    struct str first, second = acme_base64(arena, payload);
    unsigned char signature[2 * FIELD];

    buf_init(&head, SIZE_MAX);
    json_out_open(&head, NULL, '{');
    json_out_str(&head, "alg", STR("ES256"));
    if (account)
        json_out_str(&head, "kid", str_of(account));
    else
        add_jwk(&head, "jwk", key, arena);
    json_out_str(&head, "nonce", str_of(nonce));
    json_out_str(&head, "url", str_of(url));
    json_out_close(&head, "}");
    first = acme_base64(arena, buf_str(&head));
    if (!sign(key, str_of(arena_printf(arena, "%s.%s", first.p, second.p)), signature))
        return error_set(err, ERROR_INTERNAL, "a request cannot be signed");
    buf_init(&text, SIZE_MAX);
    json_out_open(&text, NULL, '{');
    json_out_str(&text, "protected", first);
    json_out_str(&text, "payload", second);
    json_out_str(&text, "signature", acme_base64(arena, str_n(signature, sizeof(signature))));
    json_out_close(&text, "}");
    *out = arena_str(arena, buf_str(&text));
    return 0;
}
