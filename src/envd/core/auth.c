#include "envd/core/auth.h"

#include "base/buf.h"
#include "base/encode.h"
#include "envd/files/sha256.h"

static bool same(struct str a, struct str b)
{
    unsigned char difference = 0;

    if (a.len != b.len)
        return false;
    for (size_t i = 0; i < a.len; i++)
        difference |= (unsigned char)(a.p[i] ^ b.p[i]);
    return difference == 0;
}

bool auth_token_is(const struct settings *settings, struct str given)
{
    return settings->token[0] != '\0' && same(str_of(settings->token), given);
}

bool auth_allows(const struct settings *settings, const struct http_exchange *ex)
{
    static const struct {
        const char *method, *path;
    } open_to_all[] = {
        {"GET", "/health"}, {"GET", "/files"},       {"POST", "/files"},
        {"POST", "/init"},  {"POST", "/init/lease"}, {"POST", "/init/authority"},
    };
    const struct http_request *request = http_request(ex);

    if (settings->token[0] == '\0' || auth_token_is(settings, http_header(ex, "x-access-token")))
        return true;
    for (size_t i = 0; i < sizeof(open_to_all) / sizeof(open_to_all[0]); i++)
        if (str_is(request->method, open_to_all[i].method) &&
            str_is(request->path, open_to_all[i].path))
            return true;
    return false;
}

/* "v1_" and the hash of path:operation:user:token[:expiration] in base64 without padding. */
static void sign(const struct settings *settings, const struct auth_signature *of, struct buf *out)
{
    unsigned char hash[SHA256_SIZE];
    char text[BASE64_LEN(SHA256_SIZE)];
    size_t len = sizeof(text);
    auto_buf struct buf message = {0};

    buf_init(&message, 64 * 1024);
    buf_printf(&message, "%.*s:%s:%.*s:%s", STR_ARG(of->path), of->operation, STR_ARG(of->username),
               settings->token);
    if (of->expiration.p)
        buf_printf(&message, ":%.*s", STR_ARG(of->expiration));
    sha256(buf_str(&message), hash);
    base64_encode(text, hash, sizeof(hash));
    while (len > 0 && text[len - 1] == '=')
        len--;
    buf_add_str(out, STR("v1_"));
    buf_add(out, text, len);
}

int auth_check_files(const struct settings *settings, struct str token_header,
                     const struct auth_signature *signature, int64_t now_s, struct error *err)
{
    auto_buf struct buf expected = {0};
    int64_t expiration = 0;

    if (settings->token[0] == '\0')
        return 0;
    if (token_header.len > 0) {
        if (auth_token_is(settings, token_header))
            return 0;
        return error_set(err, ERROR_UNAUTHORIZED,
                         "access token present in header but does not match");
    }
    if (!signature->signature.p)
        return error_set(err, ERROR_UNAUTHORIZED, "missing signature query parameter");
    buf_init(&expected, 128);
    sign(settings, signature, &expected);
    if (!same(buf_str(&expected), signature->signature) ||
        (signature->expiration.p && !str_to_i64(signature->expiration, &expiration)))
        return error_set(err, ERROR_UNAUTHORIZED, "invalid signature");
    if (signature->expiration.p && expiration < now_s)
        return error_set(err, ERROR_UNAUTHORIZED, "signature is already expired");
    return 0;
}
