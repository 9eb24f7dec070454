/* Files made beneath one directory descriptor, whatever the names are that an archive gives them: nothing is opened, made or
 * removed outside of it. Links on the way are followed as if that directory were the root; the last part of a name never is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "base/error.h"

enum {
    TREE_PATH_SIZE = 4096,
    TREE_DEPTH_MAX = 256, /* parts of a name */
    TREE_ENTRIES_MAX = 4 * 1000 * 1000,
};

struct owner {
    uid_t uid;
    gid_t gid;
};

/* Which names were made since tree_made_clear(): by their directory's inode and their last part. */
struct tree_made {
    uint64_t *keys; /* 0 = free */
    size_t size, count;
};

struct tree_late { /* a directory's times, which what is made in it changes */
    char *path;
    struct timespec mtime;
};

struct tree {
    int root;
    struct owner new_owner; /* of directories that nobody named but that had to be made */
    uint64_t bytes_max;     /* of all files' data; 0 = no limit */
    uint64_t bytes, entries;
    struct tree_made made;
    struct tree_late *late;
    size_t late_count, late_size;
    int parent; /* the directory of the last name, or -1 */
    bool stale; /* something was removed: its path may lead elsewhere now */
    uint64_t parent_inode;
    char parent_path[TREE_PATH_SIZE];
};

int tree_open(struct tree *tree, const char *path, struct error *err);
void tree_close(struct tree *tree);

/* "/a//./b/" becomes "a/b"; the top itself "". A part ".." is refused, and so is what is too long or too deep. */
int tree_clean(const char *name, char out[TREE_PATH_SIZE], struct error *err);

/* A clean path's directory is opened, made if it is not there, and kept in tree->parent; *name becomes the last part. */
int tree_parent(struct tree *tree, const char *path, const char **name, struct error *err);
/* The same, but -1 with ERROR_NOT_FOUND when it is not there. */
int tree_parent_find(struct tree *tree, const char *path, const char **name, struct error *err);
/* Opens a directory, or what else, following links inside the tree. -errno. */
int tree_find(const struct tree *tree, const char *path, int flags);
/* Removes what is at the name in tree->parent, with all that is in it. Missing is fine. */
int tree_remove(struct tree *tree, const char *name, struct error *err);
/* Removes what is at the name in tree->parent (or, with only_inside, in it), but for what was made since
 * tree_made_clear() and the directories that lead there. */
int tree_prune(struct tree *tree, const char *name, bool only_inside, struct error *err);

void tree_made_add(struct tree *tree, const char *name); /* in tree->parent */
void tree_made_clear(struct tree *tree);

void tree_late_add(struct tree *tree, const char *path, struct timespec mtime);
void tree_late_set(struct tree *tree);

/* Counts an entry, and data that is about to be written. */
int tree_count_entry(struct tree *tree, struct error *err);
int tree_count_bytes(struct tree *tree, uint64_t bytes, struct error *err);
