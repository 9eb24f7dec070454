/* An OCI image on disk: a layout directory, an archive of one (oci-archive), or what `docker save` writes. Its blobs are
 * uploaded by their own digests; the server knows the image by that of its manifest. */
#pragma once

#include "base/arena.h"
#include "cli/core/cli_command.h"

enum { IMAGE_BLOBS_MAX = 2000, IMAGE_JSON_MAX = 4 * 1024 * 1024 };

struct image_blob {
    char hash[65];    /* SHA-256, hex */
    const char *path; /* in the directory; NULL: `text` is it */
    struct str text;
};

struct image {
    struct arena arena;
    int dir;       /* the layout's */
    char *scratch; /* where an archive was unpacked to; NULL = nowhere */
    struct image_blob *blobs;
    size_t count;
    char digest[80]; /* of the manifest: "sha256:…" */
};

/* image_done() also after a failure; it does nothing to a zeroed one. */
int image_open(struct image *image, const char *path, struct error *err);
/* One without a file: what `FROM scratch` means. */
int image_empty(struct image *image, struct error *err);
int image_send(struct image *image, const struct cli *cli, const char *template_id,
               struct error *err);
void image_done(struct image *image);
