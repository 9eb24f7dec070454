/* An image to a registry: its blobs, unless they are there, then its manifest. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "image/registry/registry_internal.h"

enum { SHORT_MS = 60 * 1000, LONG_MS = 6 * 3600 * 1000, ANSWER_MAX = 64 * 1024 };

/* What is sent: a file from its begin, or text. */
struct content {
    int fd; /* -1 = text */
    int64_t length, at;
    struct str text;
    const char *type;
};

static ssize_t read_content(void *arg, void *p, size_t size)
{
    struct content *content = arg;
    size_t left = (size_t)(content->length - content->at), n = left < size ? left : size;
    ssize_t got = pread(content->fd, p, n, content->at);

    if (got < 0 || (got == 0 && n > 0))
        return -1;
    content->at += got;
    return got;
}

static void on_header(void *arg, struct str name, struct str value)
{
    struct answer *answer = arg;
    struct challenge challenge;

    if (str_eq_nocase(name, STR("location"))) {
        if (!str_copy(value, answer->location, sizeof(answer->location)))
            answer->location[0] = '\0';
    } else if (str_eq_nocase(name, STR("www-authenticate"))) {
        challenge_parse(value, &challenge);
        if (challenge.kind > answer->challenge.kind)
            answer->challenge = challenge;
    }
}

static int send_once(struct visit *visit, const char *method, const char *url,
                     struct content *content, struct answer *answer, struct error *err)
{
    struct pair headers[2];
    auto_response struct fetch_response response = {0};
    struct fetch_request request = {.method = method,
                                    .url = url,
                                    .headers = headers,
                                    .timeout_ms = content && content->fd >= 0 ? LONG_MS : SHORT_MS,
                                    .idle_ms = visit->registry->stall_ms,
                                    .response_max = ANSWER_MAX,
                                    .repeatable = true,
                                    .on_header = on_header,
                                    .header_arg = answer};

    *answer = (struct answer){.range_from = -1};
    if (registry_reach(visit, url, &request.reach, err) < 0)
        return -1;
    if (visit->authorization[0] && registry_same_origin(url, visit->base))
        headers[request.header_count++] =
            (struct pair){.name = STR("Authorization"), .value = str_of(visit->authorization)};
    if (content)
        headers[request.header_count++] =
            (struct pair){.name = STR("Content-Type"), .value = str_of(content->type)};
    if (content && content->fd >= 0) {
        content->at = 0;
        request.source = read_content;
        request.source_arg = content;
        request.source_length = content->length;
    } else if (content) {
        request.body = content->text;
    }
    if (fetch_call(visit->registry->fetch, &request, &response, err) < 0)
        return -1;
    answer->status = response.status;
    return 0;
}

/* The status of the answer, after it was told who asks when that was wanted. */
static int send_it(struct visit *visit, const char *method, const char *url,
                   struct content *content, struct answer *answer, struct error *err)
{
    if (send_once(visit, method, url, content, answer, err) < 0)
        return -1;
    if (answer->status != 401)
        return 0;
    if (visit_authorize(visit, &answer->challenge, err) < 0)
        return -1;
    return send_once(visit, method, url, content, answer, err);
}

static int refused(const struct answer *answer, const char *what, struct error *err)
{
    return error_set(err,
                     answer->status == 401 || answer->status == 403 ? ERROR_UNAUTHORIZED
                                                                    : ERROR_UNAVAILABLE,
                     "the registry does not take %s (%d)", what, answer->status);
}

static int push_blob(struct visit *visit, const struct registry_part *part, struct error *err)
{
    struct content content = {
        .fd = part->fd, .length = part->bytes, .type = "application/octet-stream"};
    char url[REGISTRY_URL_SIZE], place[REGISTRY_URL_SIZE];
    struct answer answer;

    (void)snprintf(url, sizeof(url), "%s/v2/%s/blobs/%s", visit->base, visit->reference->repository,
                   part->digest);
    if (send_it(visit, "HEAD", url, NULL, &answer, err) < 0)
        return -1;
    if (answer.status == 200)
        return 0;
    (void)snprintf(url, sizeof(url), "%s/v2/%s/blobs/uploads/", visit->base,
                   visit->reference->repository);
    if (send_it(visit, "POST", url, NULL, &answer, err) < 0)
        return -1;
    if (answer.status != 202)
        return refused(&answer, "a blob", err);
    if (!fetch_url_follow(url, answer.location, place, sizeof(place)) ||
        snprintf(url, sizeof(url), "%s%cdigest=%s", place, strchr(place, '?') ? '&' : '?',
                 part->digest) >= (int)sizeof(url))
        return error_set(err, ERROR_INVALID, "the registry leads nowhere");
    if (send_it(visit, "PUT", url, &content, &answer, err) < 0)
        return -1;
    return answer.status == 201 ? 0 : refused(&answer, "a blob", err);
}

static int push_manifest(struct visit *visit, struct str manifest, const char *type,
                         struct error *err)
{
    struct content content = {.fd = -1, .text = manifest, .type = type};
    char url[REGISTRY_URL_SIZE];
    struct answer answer;

    (void)snprintf(url, sizeof(url), "%s/v2/%s/manifests/%s", visit->base,
                   visit->reference->repository, visit->reference->tag);
    if (send_it(visit, "PUT", url, &content, &answer, err) < 0)
        return -1;
    return answer.status == 201 ? 0 : refused(&answer, "the manifest", err);
}

int registry_push(struct registry *registry, const struct reference *reference,
                  const struct registry_login_words *login, const struct registry_part *parts,
                  size_t count, struct str manifest, const char *type, struct error *err)
{
    struct visit visit;
    int r = 0;

    if (!reference->tag[0])
        return error_set(err, ERROR_INVALID, "an image is pushed under a tag, not a digest");
    visit_open(&visit, registry, reference, login, NULL);
    for (size_t i = 0; i < count && r == 0; i++)
        r = push_blob(&visit, &parts[i], err);
    if (r == 0)
        r = push_manifest(&visit, manifest, type, err);
    visit_close(&visit);
    return r;
}
