/* Entries of a backup into directories. The backup may be hostile: each entry lies in a directory that came before it and is
 * still open, nothing is replaced, no link is followed, and there are no devices but the one that hides files from an
 * overlay. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backup/backup_file.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

struct backup_unpack;

struct backup_unpack *backup_unpack_new(struct backup_file *file);
void backup_unpack_free(struct backup_unpack *unpack); /* NULL is none */
/* 1 = there is another entry, 0 = none. Its path is valid until the next call. */
int backup_unpack_next(struct backup_unpack *unpack, struct str *out_path, struct error *err);
/* The content of the entry, which must be a file; ERROR_LIMIT when it is longer than the buffer may be. */
int backup_unpack_text(struct backup_unpack *unpack, struct buf *out, struct error *err);

/* A directory that is being filled. */
struct backup_fill;

struct backup_filling {
    int root_fd;          /* an empty directory, which stays the caller's */
    size_t skip;          /* so long is the path of the directory's own entry, which is the first */
    bool plain;           /* only files and directories, without attributes */
    uint32_t plain_owner; /* of those */
    bool overlay; /* a layer of an overlay: directories may be opaque or have been renamed */
    /* Called as so many bytes have been written. Or NULL. */
    void (*wrote)(void *arg, uint64_t bytes);
    void *arg;
};

struct backup_fill *backup_fill_new(struct backup_unpack *unpack,
                                    const struct backup_filling *filling);
/* The entry that backup_unpack_next() gave. */
int backup_fill_entry(struct backup_fill *fill, struct str path, struct error *err);
/* Sets what can be set only when all is there. */
int backup_fill_end(struct backup_fill *fill, struct error *err);
void backup_fill_free(struct backup_fill *fill); /* NULL is none */
