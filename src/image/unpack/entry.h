/* One entry of an archive becomes a file. */
#pragma once

#include <archive.h>
#include <archive_entry.h>

#include "image/unpack/source.h"
#include "image/unpack/tree.h"

struct writer {
    struct tree tree;
    /* What is there already and of another kind is replaced, and directories take the entry's owner, mode and times. Else
     * directories stay as they are, also those behind a link, and other kinds are errors. */
    bool replace;
    const struct owner *owner; /* of all that is made; NULL = the archive's */
    int mode;                  /* of all that is made; -1 = the archive's */
    unsigned notes;            /* told so far */
    int data; /* where the data of the next file is instead of in the archive; 0 = nowhere else */
};

/* path is clean and not ""; link is the clean path of what a hard link leads to, or NULL. */
int entry_write(struct writer *writer, struct archive *archive, struct archive_entry *entry,
                const char *path, const char *link, struct error *err);
/* The same of a regular file whose data is what fd has from where it stands. */
int entry_write_from(struct writer *writer, int fd, struct archive_entry *entry, const char *path,
                     struct error *err);
/* Owner, mode, attributes and times of a directory that is there. */
int entry_set_dir(struct writer *writer, int fd, struct archive_entry *entry, const char *path,
                  struct error *err);

/* Whether an extended attribute of this name is kept. */
bool entry_wanted_attribute(const char *name);

/* An archive whose bytes come from a source; struct reading outlives it. */
struct reading {
    struct source *source;
    struct error failure;
};
struct archive *reading_open(struct reading *reading, int fd, const char *name, struct error *err);
/* 1: an entry, 0: the end, -1. */
int reading_next(struct reading *reading, struct archive *archive, struct archive_entry **entry,
                 const char *name, struct error *err);
void reading_close(struct reading *reading, struct archive *archive);
