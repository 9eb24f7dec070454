/* What is signed, against values of RFC 7638 and against OpenSSL's own reading of it. The flow is tried by
 * tests/functional/tls-acme.test.mjs. */
#include "extra/acme/acme.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "base/encode.h"
#include "base/test.h"
#include "extra/acme/acme_jws.h"
#include "protocol/json/json_shape.h"

TEST(base64_of_urls)
{
    auto_arena struct arena arena = {0};

    CHECK_STR(acme_base64(&arena, STR("")), "");
    CHECK_STR(acme_base64(&arena, STR("\xfb\xff\xfe")), "-__-");
    CHECK_STR(acme_base64(&arena, STR("a")), "YQ");
    CHECK_STR(acme_digest(&arena, STR("abc")), "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0");
}

static void decode(struct str text, struct buf *out)
{
    buf_init(out, 4096);
    CHECK(base64_decode(text, out));
}

/* Back to the form that OpenSSL verifies. */
static bool verifies(EVP_PKEY *pkey, const char *text, const struct buf *raw)
{
    ECDSA_SIG *signature = ECDSA_SIG_new();
    unsigned char *der = NULL;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int len;
    bool ok;

    CHECK_INT(raw->len, 64);
    CHECK(ECDSA_SIG_set0(signature, BN_bin2bn((unsigned char *)raw->p, 32, NULL),
                         BN_bin2bn((unsigned char *)raw->p + 32, 32, NULL)));
    len = i2d_ECDSA_SIG(signature, &der);
    CHECK(EVP_DigestVerifyInit(ctx, NULL, EVP_sha256(), NULL, pkey) == 1);
    ok = EVP_DigestVerify(ctx, der, (size_t)len, (const unsigned char *)text, strlen(text)) == 1;
    OPENSSL_free(der);
    ECDSA_SIG_free(signature);
    EVP_MD_CTX_free(ctx);
    return ok;
}

TEST(requests_are_signed)
{
    auto_arena struct arena arena = {0};
    auto_buf struct buf pem = {0}, head = {0}, payload = {0}, signature = {0};
    auto_json json_t *jws = NULL, *header = NULL;
    struct acme_key *key;
    struct str text;
    EVP_PKEY *pkey;
    BIO *bio;

    OK(acme_make_key(&pem, &err));
    OK(acme_key_parse(buf_str(&pem), &key, &err));
    OK(acme_jws(key, &arena, NULL, "nonce", "https://a.test/x", STR("{\"a\":1}"), &text, &err));
    OK(json_parse(text, &jws, &err));
    decode(json_get_str(jws, "protected"), &head);
    decode(json_get_str(jws, "payload"), &payload);
    decode(json_get_str(jws, "signature"), &signature);
    CHECK_STR(buf_str(&payload), "{\"a\":1}");
    OK(json_parse(buf_str(&head), &header, &err));
    CHECK_STR(json_get_str(header, "alg"), "ES256");
    CHECK_STR(json_get_str(header, "nonce"), "nonce");
    CHECK_STR(json_get_str(json_object_get(header, "jwk"), "crv"), "P-256");
    CHECK_INT(acme_key_thumbprint(key, &arena).len, 43);
    bio = BIO_new_mem_buf(pem.p, (int)pem.len);
    pkey = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    CHECK(verifies(pkey,
                   arena_printf(&arena, "%.*s.%.*s", STR_ARG(json_get_str(jws, "protected")),
                                STR_ARG(json_get_str(jws, "payload"))),
                   &signature));
    BIO_free(bio);
    EVP_PKEY_free(pkey);
    acme_key_free(key);
}

TEST(keys_of_other_kinds_are_refused)
{
    struct acme_key *key;

    FAILS(acme_key_parse(STR("nothing"), &key, &err), ERROR_INVALID, "P-256");
}
