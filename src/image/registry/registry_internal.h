/* Shared by the files of this folder. */
#pragma once

#include <pthread.h>

#include "image/registry/challenge.h"
#include "image/registry/registry.h"
#include "protocol/fetch/fetch.h"

enum {
    REGISTRY_URL_SIZE = 2048,
    REGISTRY_TOKEN_SIZE = 16 * 1024,
    REGISTRY_MIRRORS_MAX = 64,
    REGISTRY_REDIRECTS_MAX = 5,
    REGISTRY_PLACES_MAX = 4, /* of one mirror */
};

struct registry_mirror {
    char host[REFERENCE_HOST_SIZE];
    char urls[REGISTRY_PLACES_MAX]
             [256]; /* without a slash at their end; where it is, where it may lead */
    size_t url_count;
};

struct registry {
    struct fetch *fetch;
    struct blobs *blobs;
    uint32_t stall_ms;
    struct registry_mirror mirrors[REGISTRY_MIRRORS_MAX];
    size_t mirror_count;
};

/* One image at one registry: where it is asked, and as whom. */
struct visit {
    struct registry *registry;
    const struct registry_mirror *mirror; /* NULL = the registry itself is asked */
    const struct reference *reference;
    const struct registry_login_words *login;
    const struct registry_watch *watch;
    char base[512];                               /* "https://host" */
    pthread_mutex_t lock;                         /* guards authorization */
    char authorization[REGISTRY_TOKEN_SIZE + 16]; /* "" = none yet */
};

struct answer {
    int status;
    int64_t retry_after_s;
    char location[REGISTRY_URL_SIZE];
    int64_t range_from; /* of Content-Range; -1 = none */
    struct challenge challenge;
};

void visit_open(struct visit *visit, struct registry *registry, const struct reference *reference,
                const struct registry_login_words *login, const struct registry_watch *watch);
void visit_close(struct visit *visit);
bool visit_stopped(const struct visit *visit);

/* GET of a path beneath /v2/REPOSITORY, with authentication and redirects; an answer of any other status than 200 and 206 is an
 * error. from: first byte wanted. */
int visit_get(struct visit *visit, const char *path, const char *accept, int64_t from,
              struct fetch_stream **out, struct answer *answer, struct error *err);
/* As fetch_read(), but it waits until something comes: ERROR_TIMEOUT when the registry stalls, ERROR_CONFLICT when stopped. */
ssize_t visit_next(struct visit *visit, struct fetch_stream *stream, void *p, size_t size,
                   struct error *err);
/* All of a body, as far as out takes it. */
int visit_read(struct visit *visit, struct fetch_stream *stream, struct buf *out,
               struct error *err);

/* registry_reach.c */
int registry_reach(const struct visit *visit, const char *url, enum fetch_reach *out,
                   struct error *err);
bool registry_same_origin(const char *a, const char *b);

/* registry_auth.c: what the header Authorization has to be after this answer. */
int visit_authorize(struct visit *visit, const struct challenge *challenge, struct error *err);
