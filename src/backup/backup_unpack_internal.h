/* Shared by backup_unpack.c and backup_fill.c. */
#pragma once

#include "backup/backup_unpack.h"

struct archive;
struct archive_entry;

struct backup_unpack {
    struct archive *archive;
    struct archive_entry *entry; /* the archive's */
    struct backup_file *file;
    struct error failed; /* of reading the file */
    bool broken;
    char *in;
};

/* What the archive says, or the file. */
int unpack_fail(const struct backup_unpack *unpack, struct error *err);
