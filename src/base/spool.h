/* Space for temporary files on the server's disk: bodies of uploads, exports, layers of images.
 *
 * Every such file is charged to a team before its bytes are written, in small steps that grow with the file, and the
 * charge is released when the file is gone. Limits: one team may hold half of what all teams may hold together, half of
 * the space that is free on the file system, and its own limit of disk. Nothing is stored: after a restart the files
 * are gone (they have no names, or the start removes them), and so are the charges. Any thread; calls may wait for the
 * store, so they are not for loops. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

enum { SPOOL_TEAM_SIZE = 64 };

struct spool;

/* A team's limit of disk (0 = none) and what it keeps there: sandboxes, volumes, snapshots, builds, files. */
struct spool_disk {
    int64_t limit_bytes, kept_bytes;
};

struct spool_config {
    const char *directory; /* on the file system that is asked for its free space */
    int64_t max_bytes;     /* of all teams together */
    int (*disk_of)(void *arg, struct str team_id, struct spool_disk *out, struct error *err);
    void *arg;
};

struct spool *spool_new(const struct spool_config *config);
/* Nothing may be charged any more. NULL is fine. */
void spool_free(struct spool *spool);
/* Bytes that all teams hold now. */
int64_t spool_held(struct spool *spool);

/* What one file, or the files of one build, hold. Zeroed, it belongs to nobody, and nothing is counted. Several
 * threads may add to one charge. */
struct spool_charge {
    struct spool *spool;
    char team_id[SPOOL_TEAM_SIZE];
    bool kept;          /* the file will stay, so what the team keeps already counts too */
    int64_t used, held; /* private */
};
void spool_charge_open(struct spool_charge *charge, struct spool *spool, struct str team_id);
/* Could the charge take so many bytes more now? Takes nothing. ERROR_QUOTA: a limit of the team; ERROR_UNAVAILABLE:
 * the limit of all; ERROR_NO_SPACE: the disk. */
int spool_check(const struct spool_charge *charge, int64_t bytes, struct error *err);
/* Before that many more bytes are written. Errors as above; the charge stays as it was. */
int spool_add(struct spool_charge *charge, int64_t bytes, struct error *err);
/* The files are gone. The charge can be used again. */
void spool_release(struct spool_charge *charge);
