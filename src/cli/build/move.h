/* Templates as images: what a template or snapshot holds is one layer, its settings are in labels "dev.quicksand.…", so that another
 * server makes the same of it, and other programs can run it too. */
#pragma once

#include <jansson.h>

#include "base/arena.h"
#include "base/buf.h"
#include "cli/core/cli_command.h"
#include "image/registry/registry.h"

#define MOVE_MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"

enum { MOVE_PARTS = 2 }; /* the layer and the settings */

struct moved {
    struct registry_part parts[MOVE_PARTS];
    char *manifest;
    char digest[DIGEST_SIZE]; /* of the manifest */
};

/* From the server; move_done() also after a failure. */
int move_get(const struct cli *cli, const char *name, struct moved *out, struct error *err);
/* An OCI archive of it. */
int move_write(const struct moved *moved, const char *path, struct error *err);
void move_done(struct moved *moved);

/* What of a recipe the labels of an image say, and the sizes; nothing of an image that is not ours. Labels: name and value. */
struct move_settings {
    json_t *recipe; /* the caller's */
    int64_t cpu, memory_mb, disk_mb;
};
void move_settings_read(const json_t *labels, struct move_settings *out);
/* The labels of an image on disk. */
int move_labels(const char *path, json_t **out, struct error *err);
