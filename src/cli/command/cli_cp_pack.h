/* Files of this machine as a tar, and the other way round (libarchive). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct cli_progress;

struct cli_cp_pack {
    uint64_t files, bytes;
    uint64_t expected;             /* bytes; 0: not known */
    struct cli_progress *progress; /* may be NULL */
};

/* Bytes of all files beneath; what cannot be read counts as nothing. */
uint64_t cli_cp_pack_size(const char *const *paths, size_t count);
/* Each path as an entry with its last part as the name, and all beneath it. */
int cli_cp_pack_write(struct cli_cp_pack *pack, const char *const *paths, size_t count, int fd,
                      struct error *err);
/* Into the current directory. name() gives what an entry is called here (malloc()ed), or NULL for one that was not asked
 * for, which ends it. Nothing is put outside, through a link either; no devices, no bits that give rights. */
int cli_cp_pack_read(struct cli_cp_pack *pack, int fd, char *(*name)(void *arg, const char *entry),
                     void *arg, struct error *err);
