/* The directory that a Dockerfile copies from: which of its files a step wants, what they are together (a hash, so that
 * what the server has is not sent again), and the archive that is sent. */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "dockerfile/pattern.h"
#include "dockerfile/translate.h"

enum { CONTEXT_HASH_SIZE = 65, CONTEXT_ENTRIES_MAX = 500 * 1000 };

struct context {
    const char *path;       /* for messages */
    const char *dockerfile; /* for messages: "FILE:LINE: …" */
    int dir;
    struct ignore ignore;
    const char *ignore_file; /* "" = none */
    struct arena arena;
};

/* dockerfile: its path; FILE.dockerignore beside it is preferred to the directory's .dockerignore. Neither needs to be
 * there. context_done() also after a failure. */
int context_open(struct context *context, const char *path, const char *dockerfile,
                 struct error *err);
void context_done(struct context *context);

struct pack_entry {
    char *name;      /* in the archive */
    char *path;      /* in the context; NULL: the content is `text` */
    struct str text; /* of a file, or where a link leads */
    unsigned mode;   /* with its type */
    int64_t size, mtime_s;
    bool unpack; /* an archive whose entries are wanted instead of itself */
};

struct pack {
    struct pack_entry *entries;
    size_t count, room;
    struct str src;               /* what of the archive is copied: "." or one file's name */
    bool keeps_owners;            /* of an archive that is unpacked */
    char hash[CONTEXT_HASH_SIZE]; /* over names, modes and contents */
};

/* Which files, in an order that depends on their names alone, and their hash. pack_done() also after a failure. */
int pack_gather(struct context *context, const struct dockerfile_files *files, struct pack *out,
                struct error *err);
/* Tells the step of the recipe what its files are called. */
void pack_name(const struct dockerfile_files *files, const struct pack *pack);
/* A tar of them, compressed by gzip, is written to fd. */
int pack_write(struct context *context, const struct pack *pack, int fd, struct error *err);
void pack_done(struct pack *pack);
