/* The commands of the program `unpack`, which runs as root inside a box. Each prints what people should know to stdout. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Layers of an image, lowest first, into the directory `into`. bytes_max: of all files; 0 = 64 GB. */
int unpack_apply(const char *into, const char *const *files, size_t count, uint64_t bytes_max,
                 struct error *err);

enum { COPY_EXCLUDES_MAX = 64 };

struct copy_wanted {
    const char *from; /* the archive */
    const char *root; /* "/", another one in tests */
    const char *to;   /* absolute, inside root */
    const char *src;  /* what of the archive: "" = all */
    const char *owner;
    const char *mode; /* octal; either NULL = as in the archive */
    bool into_dir;    /* `to` is a directory, though it does not end with a slash */
    bool extract;     /* what is an archive itself is unpacked there */
    const char *exclude[COPY_EXCLUDES_MAX];
    size_t exclude_count;
};
int unpack_copy(const struct copy_wanted *wanted, struct error *err);

/* A tar archive of these paths to fd. A path that is a link is what it leads to; "*", "?" and "[" match. */
struct pack_wanted {
    const char *root;
    const char *const *paths;
    size_t count;
    bool gzip;
    bool
        image; /* leaves out what a box puts into every root: /proc, /sys, /dev, /run and /tmp are empty */
    int fd;
};
int unpack_pack(const struct pack_wanted *wanted, struct error *err);

/* bash: a static one to be /bin/bash when the root has none, or NULL. */
int unpack_provision(const char *root, const char *bash, struct error *err);
