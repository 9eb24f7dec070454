#include "proxy/proxy_token.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/buf.h"
#include "base/encode.h"

enum { QUERY_MAX = 16 * 1024, SIGNATURE_LEN = 43 }; /* base64 of 32 bytes, without padding */

/* What a signature covers, around the token: "path:operation:user:" TOKEN [":expiry"]. */
struct signed_parts {
    struct buf before, after;
    struct str digest; /* as given, without "v1_" */
};

static bool fits(const struct route *route, void *arg)
{
    const struct signed_parts *parts = arg;
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char text[BASE64_LEN(SHA256_DIGEST_LENGTH)];
    auto_buf struct buf covered = {0};

    buf_init(&covered, 2 * QUERY_MAX);
    (void)buf_add_str(&covered, buf_str(&parts->before));
    (void)buf_add_str(&covered, str_of(route->access_token));
    (void)buf_add_str(&covered, buf_str(&parts->after));
    if (covered.overflowed)
        return false;
    (void)SHA256((const unsigned char *)covered.p, covered.len, digest);
    base64_encode(text, digest, sizeof(digest));
    return CRYPTO_memcmp(text, parts->digest.p, SIGNATURE_LEN) == 0; /* its length was checked */
}

/* The query's parts in the order the SDKs hash them. Absent ones are empty. */
static void collect(struct signed_parts *parts, const struct http_request *request)
{
    auto_buf struct buf value = {0};

    buf_init(&value, QUERY_MAX);
    buf_init(&parts->before, QUERY_MAX);
    buf_init(&parts->after, QUERY_MAX);
    if (url_query_get(request->query, "path", &value))
        (void)buf_add_str(&parts->before, buf_str(&value));
    (void)buf_printf(&parts->before, ":%s:", str_is(request->method, "POST") ? "write" : "read");
    buf_clear(&value);
    if (url_query_get(request->query, "username", &value))
        (void)buf_add_str(&parts->before, buf_str(&value));
    (void)buf_add_char(&parts->before, ':');
    buf_clear(&value);
    if (url_query_get(request->query, "signature_expiration", &value))
        (void)buf_printf(&parts->after, ":%.*s", STR_ARG(buf_str(&value)));
}

static enum proxy_token find_signed(struct routes *routes, const struct http_request *request,
                                    struct str signature, struct route *out)
{
    struct signed_parts parts = {0};
    bool found;

    if (!str_starts(signature, STR("v1_")) || signature.len != SIGNATURE_LEN + 3)
        return PROXY_TOKEN_UNSIGNED;
    parts.digest = str_skip(signature, 3);
    collect(&parts, request);
    found = !parts.before.overflowed && !parts.after.overflowed &&
            routes_search(routes, fits, &parts, out);
    buf_done(&parts.before);
    buf_done(&parts.after);
    return found ? PROXY_TOKEN_OK : PROXY_TOKEN_UNSIGNED;
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
