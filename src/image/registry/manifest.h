/* Manifests, indexes and settings of images: JSON of OCI's and Docker's kind. */
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/pair.h"
#include "base/str.h"

enum {
    MANIFEST_MAX = 4 * 1024 * 1024, /* bytes of one JSON document */
    MANIFEST_LAYERS_MAX = 512,
    MANIFEST_TEXTS_MAX = 4096, /* strings of one list */
};

extern const char manifest_accept[]; /* the media types we read, for the header Accept */

struct descriptor {
    struct str digest;
    int64_t bytes;
    struct str
        owner; /* of the blob that is kept: who else may not have it (BLOB_OWNER_LEN); STR_NONE = everybody may */
    struct str
        source; /* the registry that it is fetched from: what is not whole is kept apart by it */
};

struct manifest {
    bool is_index;            /* then only `chosen` is set */
    struct descriptor chosen; /* the manifest of this machine's platform */
    struct descriptor config;
    struct descriptor *layers; /* lowest first */
    size_t layer_count;
};

/* architecture: "amd64", "arm64"; STR_NONE = this machine's. ERROR_NOT_FOUND when an index has no manifest for
 * it, ERROR_UNSUPPORTED for kinds of documents and layers that we do not unpack, ERROR_INVALID for the rest. */
int manifest_parse(struct str json, struct str architecture, struct arena *arena,
                   struct manifest *out, struct error *err);

struct image_settings {
    const struct str *env, *entrypoint, *cmd, *shell;
    size_t env_count, entrypoint_count, cmd_count, shell_count;
    struct str user, workdir; /* "" = none */
    struct pair *labels;
    size_t label_count;
};

/* layer_count: of the manifest, which must have as many. */
int image_settings_parse(struct str json, struct str architecture, size_t layer_count,
                         struct arena *arena, struct image_settings *out, struct error *err);

struct str manifest_architecture(void); /* of this machine, as images name it */
