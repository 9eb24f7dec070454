/* Tokens and passwords. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "image/registry/registry_internal.h"

enum { TOKEN_ANSWER_MAX = 64 * 1024, TOKEN_MS = 30 * 1000 };

static bool has_login(const struct visit *visit)
{
    return visit->login && visit->login->password.p;
}

static void basic(const struct visit *visit, struct buf *out)
{
    auto_buf struct buf words = {0};
    char *place;

    buf_init(&words, REGISTRY_TOKEN_SIZE);
    buf_printf(&words, "%.*s:%.*s", STR_ARG(visit->login->username),
               STR_ARG(visit->login->password));
    buf_add_str(out, STR("Basic "));
    place = buf_reserve(out, BASE64_LEN(words.len));
    if (!place)
        return;
    base64_encode(place, words.p, words.len);
    buf_grew(out, BASE64_LEN(words.len));
}

static void add_encoded(struct buf *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (isalnum(c) || strchr("-._~", c))
            buf_add_char(out, (char)c);
        else
            buf_printf(out, "%%%02X", c);
    }
}

static void token_url(const struct visit *visit, const struct challenge *challenge, struct buf *out)
{
    buf_printf(out, "%s%cservice=", challenge->realm, strchr(challenge->realm, '?') ? '&' : '?');
    add_encoded(out, challenge->service);
    buf_add_str(out, STR("&scope="));
    if (challenge->scope[0]) {
        add_encoded(out, challenge->scope);
    } else {
        auto_free char *scope = xasprintf("repository:%s:pull", visit->reference->repository);

        add_encoded(out, scope);
    }
}

static bool token_ok(struct str token)
{
    for (size_t i = 0; i < token.len; i++)
        if (token.p[i] <= ' ' || token.p[i] > '~')
            return false;
    return token.len > 0 && token.len < REGISTRY_TOKEN_SIZE;
}

static int read_token(struct str body, struct buf *out, struct error *err)
{
    json_t *root = json_loadb(body.p ? body.p : "", body.len, 0, NULL);
    const char *token = json_string_value(json_object_get(root, "token"));
    bool ok;

    if (!token)
        token = json_string_value(json_object_get(root, "access_token"));
    ok = token && token_ok(str_of(token));
    if (ok)
        buf_printf(out, "Bearer %s", token);
    json_decref(root);
    return ok ? 0 : error_set(err, ERROR_UNAVAILABLE, "the registry's token server gives no token");
}

/* A password is given to whom the registry names, but never in plain text to somebody it did not come from. */
static int bearer(struct visit *visit, const struct challenge *challenge, struct buf *out,
                  struct error *err)
{
    struct pair header = {.name = STR("Authorization")};
    auto_buf struct buf url = {0}, login = {0};
    auto_response struct fetch_response response = {0};
    struct fetch_request request = {
        .method = "GET", .timeout_ms = TOKEN_MS, .response_max = TOKEN_ANSWER_MAX};

    buf_init(&url, 2 * REGISTRY_URL_SIZE + 3 * CHALLENGE_TEXT_SIZE);
    buf_init(&login, 2 * REGISTRY_TOKEN_SIZE);
    token_url(visit, challenge, &url);
    request.url = url.p;
    if (url.overflowed || !fetch_url_ok(url.p) ||
        registry_reach(visit, url.p, &request.reach, err) < 0)
        return error_set(err, ERROR_FORBIDDEN,
                         "the registry wants a token from an address that is not allowed");
    if (has_login(visit)) {
        basic(visit, &login);
        header.value = buf_str(&login);
        request.headers = &header;
        request.header_count = 1;
    }
    if (fetch_call(visit->registry->fetch, &request, &response, err) < 0)
        return error_prefix(err, "token for the registry");
    if (response.status == 401 || response.status == 403)
        return error_set(err, ERROR_UNAUTHORIZED, "the registry's token server refuses%s",
                         has_login(visit) ? ": user name or password are wrong"
                                          : " without a password");
    if (response.status != 200)
        return error_set(err, ERROR_UNAVAILABLE, "the registry's token server answers with %d",
                         response.status);
    return read_token(buf_str(&response.body), out, err);
}

int visit_authorize(struct visit *visit, const struct challenge *challenge, struct error *err)
{
    auto_buf struct buf text = {0};

    buf_init(&text, sizeof(visit->authorization));
    if (challenge->kind == CHALLENGE_BEARER) {
        if (bearer(visit, challenge, &text, err) < 0)
            return -1;
    } else if (challenge->kind == CHALLENGE_BASIC && has_login(visit)) {
        basic(visit, &text);
    } else {
        return error_set(err, ERROR_UNAUTHORIZED, "the registry wants to know who asks: %s",
                         challenge->kind == CHALLENGE_BASIC ? "a user name and password are needed"
                                                            : "in a way that is not known");
    }
    (void)pthread_mutex_lock(&visit->lock);
    if (!str_copy(buf_str(&text), visit->authorization, sizeof(visit->authorization)))
        visit->authorization[0] = '\0';
    (void)pthread_mutex_unlock(&visit->lock);
    return 0;
}
