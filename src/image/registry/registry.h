/* Client of registries: Docker's HTTP API, version 2.
 *
 * A registry may lie, stall, send without an end and lead elsewhere: documents are bounded, blobs are what their digests say, what
 * stands still is given up and taken up again where it ended, and no answer leads to an address that is not public unless
 * the operator has named it for this registry. All calls block; any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "image/registry/blobs.h"
#include "image/registry/manifest.h"
#include "image/registry/reference.h"

struct registry;

struct registry_config {
    const char *blobs; /* directory */
    /* "docker.io=http://127.0.0.1:5000,private.example=http://10.0.0.5:5000 http://10.0.0.6:9000": where images of a
     * registry are asked for instead, and after a space where that one may lead: its storage, its token server. The last
     * one of a name counts. Only these may be plain HTTP or at addresses that are not public, and each only for images
     * of its own name. */
    const char *mirrors;
    uint32_t stall_ms; /* nothing comes for so long; 0 = 30 s */
};

/* ERROR_INVALID: a mirror is not well-formed. */
int registry_open(const struct registry_config *config, struct registry **out, struct error *err);
void registry_close(struct registry *registry); /* NULL is fine */
struct blobs *registry_blobs(const struct registry *registry);
/* Faults of the list of mirrors, for who reads it first. */
int registry_mirrors_check(const char *mirrors, struct error *err);

struct registry_login_words {
    struct str username, password; /* STR_NONE = none */
};

struct registry_watch {
    void *arg;
    void (*line)(void *arg, struct str line); /* NULL = nobody listens */
    bool (*stopped)(void *arg);
    /* So many bytes are about to be written to the disk; -1 = they must not. NULL = any may. Any thread. */
    int (*grow)(void *arg, int64_t bytes, struct error *err);
};

struct registry_image {
    struct str digest; /* of the manifest of this machine's platform */
    struct manifest manifest;
    struct image_settings settings;
};

/* Messages name the image. ERROR_NOT_FOUND, ERROR_UNAUTHORIZED, ERROR_UNAVAILABLE, ERROR_TIMEOUT, ERROR_FORBIDDEN (not a public
 * address), ERROR_INVALID (the registry lies), ERROR_UNSUPPORTED, ERROR_LIMIT, ERROR_CONFLICT (stopped). */
int registry_resolve(struct registry *registry, const struct reference *reference,
                     const struct registry_login_words *login, const struct registry_watch *watch,
                     struct arena *arena, struct registry_image *out, struct error *err);
/* Blobs that are not there yet, some at a time. */
int registry_fetch(struct registry *registry, const struct reference *reference,
                   const struct registry_login_words *login, const struct registry_watch *watch,
                   const struct descriptor *blobs, size_t count, struct error *err);

struct registry_part { /* a blob to push */
    char digest[DIGEST_SIZE];
    int fd; /* a file that is it */
    int64_t bytes;
};

/* Under the reference's tag; type: the manifest's media type. */
int registry_push(struct registry *registry, const struct reference *reference,
                  const struct registry_login_words *login, const struct registry_part *parts,
                  size_t count, struct str manifest, const char *type, struct error *err);
