#include "base/encode.h"
#include "base/test.h"
#include "envd/core/auth.h"
#include "envd/files/sha256.h"

static void check_hash(struct str message, const char *want)
{
    unsigned char hash[SHA256_SIZE];
    char hex[2 * SHA256_SIZE + 1];

    sha256(message, hash);
    hex_encode(hex, hash, sizeof(hash));
    CHECK_STR(str_of(hex), want);
}

TEST(sha256_known_answers)
{
    char a[1000];

    memset(a, 'a', sizeof(a));
    check_hash(STR(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_hash(STR("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_hash(STR("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check_hash(str_n(a, 1000), "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

TEST(auth_token)
{
    struct settings settings = {0};

    CHECK(!auth_token_is(&settings, STR("")));
    memcpy(settings.token, "secret", 7);
    CHECK(auth_token_is(&settings, STR("secret")));
    CHECK(!auth_token_is(&settings, STR("secre")));
    CHECK(!auth_token_is(&settings, STR("secret2")));
    CHECK(!auth_token_is(&settings, STR_NONE));
}

/* printf '%s' '/home/user/a.txt:read:user:secret:200' | sha256sum, in base64 */
static const char with_expiration[] = "v1_VCzkhB/0z7m2qLzP95VXFHqsdBjXQ0ZkDVTLGUX673c";
static const char without[] = "v1_Yke8CLD0Vow7fVL5MPAGPsSqfKzb2d7F/bf46N4Et4k";

static const char *check(const struct auth_signature *signature, const char *token_header)
{
    static struct error err;
    struct settings settings = {.token = "secret"};

    err = (struct error){0};
    return auth_check_files(&settings, str_of(token_header), signature, 150, &err) == 0
               ? "ok"
               : err.message;
}

TEST(auth_files)
{
    struct auth_signature signature = {
        .path = STR("/home/user/a.txt"),
        .username = STR("user"),
        .operation = "read",
        .signature = str_of(with_expiration),
        .expiration = STR("200"),
    };

    CHECK_STR(str_of(check(&signature, NULL)), "ok");
    CHECK_STR(str_of(check(&signature, "secret")), "ok");
    CHECK_STR(str_of(check(&signature, "wrong")),
              "access token present in header but does not match");
    signature.expiration = STR("201");
    CHECK_STR(str_of(check(&signature, NULL)), "invalid signature");
    signature.expiration = STR("200");
    signature.operation = "write";
    CHECK_STR(str_of(check(&signature, NULL)), "invalid signature");
    signature.signature = STR_NONE;
    CHECK_STR(str_of(check(&signature, NULL)), "missing signature query parameter");
}

TEST(auth_files_expired_and_anonymous)
{
    struct auth_signature signature = {
        .path = STR("a.txt"),
        .operation = "write",
        .signature = str_of(without),
    };

    CHECK_STR(str_of(check(&signature, NULL)), "ok");
    signature.signature = str_of("v1_WXUxwBFJMEpatN1ZKCUV6wJ84VPBWsl/pwNnwQ3eA2o");
    signature.expiration = STR("100");
    CHECK_STR(str_of(check(&signature, NULL)), "signature is already expired");
}
