/* A signature names no sandbox, so every token is tried. What is before the token in the hashed text, which
 * a client can make long, is hashed once; each token then costs two or three blocks. The hash of OpenSSL's
 * older interface is a plain struct, which can be copied for that; EVP would allocate for each token. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "edge/proxy/proxy_token.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/buf.h"
#include "base/encode.h"

enum {
    QUERY_MAX = 16 * 1024,
    SIGNATURE_LEN = 43, /* base64 of 32 bytes, without padding */
    EXPIRY_LEN_MAX = 20,
};

/* What a signature covers, around the token: "path:operation:user:" TOKEN [":expiry"]. */
struct signed_parts {
    SHA256_CTX before;
    char after[EXPIRY_LEN_MAX + 1]; /* no NUL */
    size_t after_len;
    unsigned char digest[SHA256_DIGEST_LENGTH];
};

static bool fits(const struct route *route, void *arg)
{
    const struct signed_parts *parts = arg;
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256_CTX hash = parts->before;

    if (route->volume)
        return false;
    (void)SHA256_Update(&hash, route->access_token, strlen(route->access_token));
    (void)SHA256_Update(&hash, parts->after, parts->after_len);
    (void)SHA256_Final(digest, &hash);
    return CRYPTO_memcmp(digest, parts->digest, sizeof(digest)) == 0;
}

static void cover(struct signed_parts *parts, struct str text)
{
    (void)SHA256_Update(&parts->before, text.len ? text.p : "", text.len);
}

/* ":" and digits, or nothing. */
static bool cover_expiry(struct signed_parts *parts, struct str expiry)
{
    if (expiry.len > EXPIRY_LEN_MAX)
        return false;
    parts->after[0] = ':';
    for (size_t i = 0; i < expiry.len; i++) {
        if (expiry.p[i] < '0' || expiry.p[i] > '9')
            return false;
        parts->after[i + 1] = expiry.p[i];
    }
    parts->after_len = expiry.len + 1;
    return true;
}

/* The value of a parameter; absent and broken ones are empty. */
static void cover_query(struct signed_parts *parts, struct str query, const char *name)
{
    auto_buf struct buf value = {0};

    buf_init(&value, QUERY_MAX);
    if (url_query_get(query, name, &value))
        cover(parts, buf_str(&value));
}

/* The query's parts in the order the SDKs hash them. */
static bool collect(struct signed_parts *parts, const struct http_request *request)
{
    auto_buf struct buf expiry = {0};

    (void)SHA256_Init(&parts->before);
    cover_query(parts, request->query, "path");
    cover(parts, str_is(request->method, "POST") ? STR(":write:") : STR(":read:"));
    cover_query(parts, request->query, "username");
    cover(parts, STR(":"));
    buf_init(&expiry, QUERY_MAX);
    return !url_query_get(request->query, "signature_expiration", &expiry) ||
           cover_expiry(parts, buf_str(&expiry));
}

/* The digest behind "v1_". */
static bool take_digest(struct signed_parts *parts, struct str signature)
{
    auto_buf struct buf digest = {0};

    if (!str_starts(signature, STR("v1_")) || signature.len != SIGNATURE_LEN + 3)
        return false;
    buf_init(&digest, sizeof(parts->digest) + 3);
    if (!base64_decode(str_skip(signature, 3), &digest) || digest.len != sizeof(parts->digest))
        return false;
    memcpy(parts->digest, digest.p, sizeof(parts->digest));
    return true;
}

static enum proxy_token find_signed(struct routes *routes, const struct http_request *request,
                                    struct str signature, struct route *out)
{
    struct signed_parts parts = {0};

    return take_digest(&parts, signature) && collect(&parts, request) &&
                   routes_search(routes, fits, &parts, out)
               ? PROXY_TOKEN_OK
               : PROXY_TOKEN_UNSIGNED;
}

enum proxy_token proxy_token_route(struct routes *routes, const struct http_request *request,
                                   struct route *out)
{
    struct str token = http_headers_get(&request->headers, "x-access-token");
    auto_buf struct buf signature = {0};

    buf_init(&signature, QUERY_MAX);
    if (token.len)
        return routes_find_token(routes, token, out) ? PROXY_TOKEN_OK : PROXY_TOKEN_UNKNOWN;
    if (str_is(request->path, "/files") && url_query_get(request->query, "signature", &signature))
        return find_signed(routes, request, buf_str(&signature), out);
    return PROXY_TOKEN_NONE;
}
