/* Requests to one registry: who asks, where it leads, what is an error. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "image/registry/registry_internal.h"

enum {
    HEAD_MS = 30 * 1000,
    READ_MS = 1000,
    CONNECT_MS = 15 * 1000,
    DOCUMENT_MS = 60 * 1000, /* for all of one, however steadily it drips */
};

static const struct registry_mirror *mirror_of(const struct registry *registry, const char *host)
{
    for (size_t i = registry->mirror_count; i > 0; i--)
        if (strcmp(registry->mirrors[i - 1].host, host) == 0)
            return &registry->mirrors[i - 1];
    return NULL;
}

void visit_open(struct visit *visit, struct registry *registry, const struct reference *reference,
                const struct registry_login_words *login, const struct registry_watch *watch)
{
    const struct registry_mirror *mirror = mirror_of(registry, reference->host);

    *visit = (struct visit){.registry = registry,
                            .mirror = mirror,
                            .reference = reference,
                            .login = login,
                            .watch = watch};
    (void)pthread_mutex_init(&visit->lock, NULL);
    if (mirror)
        (void)snprintf(visit->base, sizeof(visit->base), "%s", mirror->urls[0]);
    else
        (void)snprintf(visit->base, sizeof(visit->base), "https://%s",
                       strcmp(reference->host, "docker.io") == 0 ? "registry-1.docker.io"
                                                                 : reference->host);
}

void visit_close(struct visit *visit)
{
    (void)pthread_mutex_destroy(&visit->lock);
    explicit_bzero(visit->authorization, sizeof(visit->authorization));
}

bool visit_stopped(const struct visit *visit)
{
    return visit->watch && visit->watch->stopped && visit->watch->stopped(visit->watch->arg);
}

/* ---- one request ---- */

static void take_range(struct answer *answer, struct str value)
{
    uint64_t from;

    if (!str_starts(value, STR("bytes ")))
        return;
    value = str_skip(value, sizeof("bytes ") - 1);
    if (str_to_u64(str_split(&value, '-'), &from) && from <= INT64_MAX)
        answer->range_from = (int64_t)from;
}

static void on_header(void *arg, struct str name, struct str value)
{
    struct answer *answer = arg;
    struct challenge challenge;
    int64_t seconds;

    if (str_eq_nocase(name, STR("location"))) {
        if (!str_copy(value, answer->location, sizeof(answer->location)))
            answer->location[0] = '\0';
    } else if (str_eq_nocase(name, STR("www-authenticate"))) {
        challenge_parse(value, &challenge);
        if (challenge.kind > answer->challenge.kind)
            answer->challenge = challenge;
    } else if (str_eq_nocase(name, STR("content-range"))) {
        take_range(answer, value);
    } else if (str_eq_nocase(name, STR("retry-after")) && str_to_i64(value, &seconds)) {
        answer->retry_after_s = seconds;
    }
}

static int request_once(struct visit *visit, const char *url, const char *accept, int64_t from,
                        struct fetch_stream **out, struct answer *answer, struct error *err)
{
    char authorization[sizeof(visit->authorization)], range[64];
    struct pair headers[3];
    struct fetch_request request = {.method = "GET",
                                    .url = url,
                                    .headers = headers,
                                    .connect_ms = CONNECT_MS,
                                    .timeout_ms = HEAD_MS,
                                    .on_header = on_header,
                                    .header_arg = answer};

    *answer = (struct answer){.range_from = -1};
    if (registry_reach(visit, url, &request.reach, err) < 0)
        return -1;
    if (accept)
        headers[request.header_count++] =
            (struct pair){.name = STR("Accept"), .value = str_of(accept)};
    if (from > 0) {
        (void)snprintf(range, sizeof(range), "bytes=%lld-", (long long)from);
        headers[request.header_count++] =
            (struct pair){.name = STR("Range"), .value = str_of(range)};
    }
    /* Nobody else gets what the registry gave us. */
    (void)pthread_mutex_lock(&visit->lock);
    memcpy(authorization, visit->authorization, sizeof(authorization));
    (void)pthread_mutex_unlock(&visit->lock);
    if (authorization[0] && registry_same_origin(url, visit->base))
        headers[request.header_count++] =
            (struct pair){.name = STR("Authorization"), .value = str_of(authorization)};
    if (fetch_open(visit->registry->fetch, &request, out, err) < 0)
        return -1;
    answer->status = fetch_status(*out);
    return 0;
}

static int refused(const struct visit *visit, const struct answer *answer, struct error *err)
{
    switch (answer->status) {
    case 401:
    case 403:
        return error_set(
            err, ERROR_UNAUTHORIZED, "the registry refuses (%d)%s", answer->status,
            visit->login && visit->login->password.p ? "" : ": it may be private, or not there");
    case 404:
        return error_set(err, ERROR_NOT_FOUND, "the registry does not have it");
    case 429:
        (void)error_set(err, ERROR_QUOTA, "the registry wants fewer requests (429)");
        err->retry_after_s = (int)answer->retry_after_s;
        return -1;
    default:
        return error_set(err, answer->status >= 500 ? ERROR_UNAVAILABLE : ERROR_INVALID,
                         "the registry answers with %d", answer->status);
    }
}

static bool redirects(const struct answer *answer)
{
    return (answer->status >= 301 && answer->status <= 303) || answer->status == 307 ||
           answer->status == 308;
}

int visit_get(struct visit *visit, const char *path, const char *accept, int64_t from,
              struct fetch_stream **out, struct answer *answer, struct error *err)
{
    char url[REGISTRY_URL_SIZE], next[REGISTRY_URL_SIZE];
    bool asked = false;

    if (snprintf(url, sizeof(url), "%s/v2/%s/%s", visit->base, visit->reference->repository,
                 path) >= (int)sizeof(url))
        return error_set(err, ERROR_LIMIT, "the name is too long");
    for (int i = 0; i <= REGISTRY_REDIRECTS_MAX; i++) {
        if (request_once(visit, url, accept, from, out, answer, err) < 0)
            return -1;
        if (answer->status == 200 || answer->status == 206)
            return 0;
        fetch_close(*out);
        *out = NULL;
        if (answer->status == 401 && !asked && registry_same_origin(url, visit->base)) {
            asked = true;
            if (visit_authorize(visit, &answer->challenge, err) < 0)
                return -1;
        } else if (redirects(answer)) {
            if (!fetch_url_follow(url, answer->location, next, sizeof(next)))
                return error_set(err, ERROR_INVALID, "the registry leads nowhere");
            memcpy(url, next, sizeof(url));
        } else {
            return refused(visit, answer, err);
        }
    }
    return error_set(err, ERROR_INVALID, "the registry leads in circles");
}

ssize_t visit_next(struct visit *visit, struct fetch_stream *stream, void *p, size_t size,
                   struct error *err)
{
    int64_t begin_ms = clock_mono_ms();

    for (;;) {
        ssize_t got = fetch_read(stream, p, size, READ_MS, err);

        if (visit_stopped(visit))
            return error_set(err, ERROR_CONFLICT, "stopped");
        if (got >= 0 || err->code != ERROR_TIMEOUT)
            return got;
        if (clock_mono_ms() - begin_ms >= visit->registry->stall_ms)
            return error_set(err, ERROR_TIMEOUT, "the registry sends nothing more");
    }
}

int visit_read(struct visit *visit, struct fetch_stream *stream, struct buf *out, struct error *err)
{
    int64_t end_ms = clock_mono_ms() + DOCUMENT_MS;
    char piece[16 * 1024];
    ssize_t got;

    while ((got = visit_next(visit, stream, piece, sizeof(piece), err)) > 0) {
        if (clock_mono_ms() > end_ms)
            return error_set(err, ERROR_TIMEOUT, "the registry is too slow");
        if (!buf_add(out, piece, (size_t)got))
            return error_set(err, ERROR_LIMIT, "the registry's answer is longer than %zu bytes",
                             out->max);
    }
    return got < 0 ? -1 : 0;
}
