#include "envd/files/files_query.h"

#include "base/clock.h"
#include "base/encode.h"
#include "envd/core/auth.h"

enum { VALUE_MAX = 16 * 1024 };

static struct str get(struct str query, const char *name, struct buf *out)
{
    buf_init(out, VALUE_MAX);
    return url_query_get(query, name, out) ? buf_str(out) : STR_NONE;
}

static int find_user(struct files_query *query, const struct envd *envd, struct error *err)
{
    struct str name =
        query->username.len ? buf_str(&query->username) : str_of(envd->settings.default_user);

    if (users_find(name, &query->user, err) == 0)
        return 0;
    return error_set(err, ERROR_UNAUTHORIZED,
                     "error looking up user '%.*s': user: unknown user %.*s", STR_ARG(name),
                     STR_ARG(name));
}

int files_query_read(struct files_query *query, struct envd *envd, struct http_exchange *ex,
                     const char *operation)
{
    struct str text = http_request(ex)->query;
    struct auth_signature signature = {.operation = operation};
    struct error err = {0};

    signature.path = get(text, "path", &query->path);
    signature.username = get(text, "username", &query->username);
    signature.signature = get(text, "signature", &query->signature);
    signature.expiration = get(text, "signature_expiration", &query->expiration);
    query->has_path = signature.path.p != NULL;
    if (auth_check_files(&envd->settings, http_header(ex, "x-access-token"), &signature,
                         clock_wall_us() / 1000000, &err) == 0 &&
        find_user(query, envd, &err) == 0)
        return 0;
    envd_reply_failure(ex, &err);
    return -1;
}

void files_query_done(struct files_query *query)
{
    buf_done(&query->path);
    buf_done(&query->username);
    buf_done(&query->signature);
    buf_done(&query->expiration);
}
