/* All of a data directory that is worth keeping, in one file: the store and its key, certificates, layers of templates and
 * snapshots, volumes, and the files of paused sandboxes. Used by root, on the host of the data directory.
 *
 * A backup is made beside a running server. What changes is seen through snapshots of the pool, and the store is copied
 * while nobody can write to it, so that both say the same. It has what the host would have after losing its power at that
 * moment: no processes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct backup_config {
    const char *data_dir, *path;
    uid_t server_uid;      /* who gets the store when it is restored */
    bool (*stopped)(void); /* true: give up; or NULL */
};

struct backup_result {
    size_t sandboxes, layers, volumes;
    uint64_t entries, bytes;
};

int backup_make(const struct backup_config *config, struct backup_result *out, struct error *err);
/* Into a data directory that is not there or empty. Nothing stays when it fails. */
int backup_restore(const struct backup_config *config, struct backup_result *out,
                   struct error *err);
/* ERROR_CONFLICT when a restore into the data directory did not end. */
int backup_check_restored(const char *data_dir, struct error *err);
