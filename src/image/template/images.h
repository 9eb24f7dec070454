/* Images for builds: from registries, as the team that builds, or of blobs that a client uploaded. */
#pragma once

#include "base/error.h"
#include "domain/build/build.h"

struct images;
struct secrets;
struct store;

struct images_config {
    struct store *store;
    const struct secrets *secrets;
    const char *store_dir; /* DATA/store: blobs are in it, and uploads */
    const char *mirrors;   /* registry_config */
    uint32_t stall_ms;
    int64_t keep_days, keep_mb; /* of blobs that nobody uses; 0 = 30, 20480 */
};

int images_open(const struct images_config *config, struct images **out, struct error *err);
void images_close(struct images *images); /* NULL is fine */
const struct build_images *images_for_builds(struct images *images);
