/* A look at everything in a directory that may be hostile (tree_walk.c), and what of a file is worth keeping. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/error.h"

struct trees;

enum {
    TREE_DEPTH_MAX = 512,       /* directories within each other */
    TREE_ENTRIES_MAX = 8 << 20, /* files and directories */
};

struct tree_entry {
    int dir_fd;     /* where it lies */
    uint64_t above; /* the note of that directory */
    const char *name;
    int fd; /* of a directory: its own */
    struct stat st;
};

struct tree_walk {
    const struct trees *trees; /* NULL: nobody can stop it */
    uint64_t entries_max;      /* 0 = TREE_ENTRIES_MAX */
    void *arg;
    bool moving; /* somebody writes to it meanwhile: what vanishes is left out */
    /* A directory before what is in it; *out_note is kept for leave() and the entries. The first one is the tree itself,
     * without a name. */
    int (*enter)(void *arg, const struct tree_entry *entry, uint64_t *out_note, struct error *err);
    /* Or NULL. */
    int (*leave)(void *arg, const struct tree_entry *entry, uint64_t note, struct error *err);
    /* After a failure, instead of leave() for each directory that was entered. Or NULL. */
    void (*drop)(void *arg, uint64_t note);
    int (*leaf)(void *arg, const struct tree_entry *entry, struct error *err);
};

int tree_walk(const struct tree_walk *walk, int root_fd, struct error *err);

/* Whether a copy of a file that a box wrote has this attribute (tree_copy.c). */
bool tree_keeps_attribute(const char *name);
