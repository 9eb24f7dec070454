/* The directories a watcher watches: each knows its parent and its name, so that renaming one
 * renames everything beneath it. Found again by the watch descriptor the kernel gave. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "base/str.h"

struct watch_node {
    struct watch_node *parent; /* NULL: the root, or cut off */
    struct list sibling, children;
    struct list work; /* in the watcher's list of directories to look into */
    int wd;
    bool quiet;      /* being looked into for the first time: what is there is not news */
    uint32_t cookie; /* of the move that cut it off; 0: in its place */
    uint64_t mount;
    char name[]; /* "" for the root */
};

struct watch_tree {
    struct map by_wd, by_name; /* the latter: parent's descriptor and name */
    struct watch_node *root;
};

void watch_tree_init(struct watch_tree *tree);
void watch_tree_done(struct watch_tree *tree);
/* Name is copied. The first one added is the root (parent NULL). */
struct watch_node *watch_tree_add(struct watch_tree *tree, struct watch_node *parent, int wd,
                                  struct str name);
struct watch_node *watch_tree_find(const struct watch_tree *tree, int wd);
/* The directory of that name beneath parent, or NULL. */
struct watch_node *watch_tree_child(const struct watch_tree *tree, const struct watch_node *parent,
                                    struct str name);
/* Puts it under another name; the node moves in memory. */
struct watch_node *watch_tree_move(struct watch_tree *tree, struct watch_node *node,
                                   struct watch_node *parent, struct str name);
/* Takes it out of its parent's children. */
void watch_tree_cut(struct watch_tree *tree, struct watch_node *node, uint32_t cookie);
/* With everything beneath it; each one's descriptor is given to the kernel back when fd >= 0. */
void watch_tree_remove(struct watch_tree *tree, struct watch_node *node, int fd);
/* "a/b/name" as seen from the root; an empty name is the directory itself. False when it is too long
 * or cut off from the root. */
bool watch_tree_path(const struct watch_node *node, struct str name, char out[PATH_MAX]);
