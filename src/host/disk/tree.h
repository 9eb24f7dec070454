/* Trees: layers that are directories on the host's own file system, in DATA/layers beside those the operator
 * installed. Boxes are stacked on them, so all boxes that have one share its page cache; a snapshot's clone
 * has a cache of its own.
 *
 *   layers/<name>        a tree, with its stamp: an attribute of its directory that says what is in it
 *   layers/.new-<name>   one that is being filled by a box, or copied
 *   layers/.links-<name> while it is copied: files with several names, by their number
 *   layers/.old-<n>      what was deleted, until it is gone
 *
 * Files have the ids they have inside. A tree appears by one rename, when all of it is on disk; whatever else
 * begins with a dot is of no use after a crash.
 *
 * What is in a tree was made by guests. Nothing here follows a link, leaves the directory, or goes deeper or on
 * for longer than a bound; file contents are copied and never looked at.
 *
 * The host's file system has no quotas, so a box that fills a tree is watched (trees_tend(), tree_watch.c). A copy
 * watches itself.
 *
 * All functions are thread-safe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct trees;

struct tree_info {
    uint64_t entries;
    uint64_t bytes; /* on disk */
};

/* layers_fd: DATA/layers, which stays the caller's. What an earlier process left unfinished is removed by
 * trees_tend(). */
int trees_open(int layers_fd, struct trees **out, struct error *err);
/* Calls that are under way end soon, with ERROR_UNAVAILABLE. */
void trees_stop(struct trees *trees);
void trees_close(struct trees *trees);

/* A new directory for a box to write to; an O_PATH descriptor of it. limit: bytes on disk, 0 = none. */
int tree_begin(struct trees *trees, const char *name, uint64_t limit_bytes, int *out_fd,
               struct error *err);
/* What was written to it is a layer from now on, and on disk. Nobody may write any more. ERROR_LIMIT when it is larger
 * than it may be: then it is removed. */
int tree_seal(struct trees *trees, const char *name, struct tree_info *out, struct error *err);
/* A copy of a directory, which nobody changes meanwhile. source_fd: O_PATH will do. limit: bytes that are written,
 * 0 = none; ERROR_LIMIT. */
int tree_copy(struct trees *trees, int source_fd, const char *name, uint64_t limit_bytes,
              struct tree_info *out, struct error *err);
/* Are all its files there, as they were when it was made? By their names, sizes, owners, modes and times.
 * ERROR_NOT_FOUND; ERROR_INTERNAL when one is not. */
int tree_check(struct trees *trees, const char *name, struct error *err);
/* Also one that is being filled. Missing is success. The space comes back by and by. */
int tree_delete(struct trees *trees, const char *name, struct error *err);
/* Names of all finished ones; *out is an array of strings, free each and the array. */
int trees_list(struct trees *trees, char ***out, size_t *out_count, struct error *err);
/* As noted when it was made. ERROR_NOT_FOUND also for a layer without a stamp. */
int tree_stat(struct trees *trees, const char *name, struct tree_info *out, struct error *err);

/* Call it every TREES_TEND_MS: removes what was deleted, for a moment, and looks after those that are being filled.
 * One that is nobody's for long is deleted: `used` says whether a box has it. */
enum { TREES_TEND_MS = 200 };
struct trees_tending {
    bool (*used)(const char *name, void *arg);
    /* It is too large, or the host has too little space left: whoever fills it must end. */
    void (*overfull)(const char *name, void *arg);
    void *arg;
};
void trees_tend(struct trees *trees, const struct trees_tending *tending);
