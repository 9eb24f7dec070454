#include "envd/watch/watch_tree.h"

#include <sys/inotify.h>

#include "base/alloc.h"

static struct str key_of(const int *wd)
{
    return str_n(wd, sizeof(*wd));
}

struct name_key {
    char bytes[sizeof(int) + NAME_MAX];
};

static struct str name_key(struct name_key *key, const struct watch_node *parent, struct str name)
{
    size_t len = name.len < NAME_MAX ? name.len : NAME_MAX;

    memcpy(key->bytes, &parent->wd, sizeof(parent->wd));
    memcpy(key->bytes + sizeof(parent->wd), name.p, len);
    return str_n(key->bytes, sizeof(parent->wd) + len);
}

static void attach(struct watch_tree *tree, struct watch_node *node, struct watch_node *parent)
{
    struct name_key key;

    node->parent = parent;
    list_push_back(&parent->children, &node->sibling);
    (void)map_put(&tree->by_name, name_key(&key, parent, str_of(node->name)), node);
}

/* The name may have been taken over by another one. */
static void detach(struct watch_tree *tree, struct watch_node *node)
{
    struct name_key key;
    struct str text;

    list_remove(&node->sibling);
    if (!node->parent)
        return;
    text = name_key(&key, node->parent, str_of(node->name));
    if (map_get(&tree->by_name, text) == node)
        (void)map_remove(&tree->by_name, text);
    node->parent = NULL;
}

void watch_tree_init(struct watch_tree *tree)
{
    *tree = (struct watch_tree){0};
    map_init(&tree->by_wd);
    map_init(&tree->by_name);
}

void watch_tree_done(struct watch_tree *tree)
{
    struct map_entry *entry;

    map_for_each (&tree->by_wd, entry)
        free(entry->value);
    map_done(&tree->by_wd);
    map_done(&tree->by_name);
    *tree = (struct watch_tree){0};
}

struct watch_node *watch_tree_add(struct watch_tree *tree, struct watch_node *parent, int wd,
                                  struct str name)
{
    struct watch_node *node = xcalloc(1, sizeof(*node) + name.len + 1);

    node->wd = wd;
    list_init(&node->children);
    if (name.len)
        memcpy(node->name, name.p, name.len);
    if (parent)
        attach(tree, node, parent);
    else
        tree->root = node;
    (void)map_put(&tree->by_wd, key_of(&wd), node);
    return node;
}

struct watch_node *watch_tree_find(const struct watch_tree *tree, int wd)
{
    return map_get(&tree->by_wd, key_of(&wd));
}

struct watch_node *watch_tree_child(const struct watch_tree *tree, const struct watch_node *parent,
                                    struct str name)
{
    struct name_key key;

    return map_get(&tree->by_name, name_key(&key, parent, name));
}

/* A list head or node that has moved in memory. */
static void relink(struct list *at, const struct list *before)
{
    if (!at->next)
        return;
    if (at->next == before) {
        list_init(at);
        return;
    }
    at->next->prev = at;
    at->prev->next = at;
}

struct watch_node *watch_tree_move(struct watch_tree *tree, struct watch_node *node,
                                   struct watch_node *parent, struct str name)
{
    struct watch_node *moved = xcalloc(1, sizeof(*moved) + name.len + 1);
    struct list *pos;

    detach(tree, node);
    *moved = *node;
    memcpy(moved->name, name.p, name.len);
    relink(&moved->children, &node->children);
    relink(&moved->work, &node->work);
    list_for_each (pos, &moved->children)
        container_of(pos, struct watch_node, sibling)->parent = moved;
    moved->cookie = 0;
    attach(tree, moved, parent);
    (void)map_put(&tree->by_wd, key_of(&moved->wd), moved);
    free(node);
    return moved;
}

void watch_tree_cut(struct watch_tree *tree, struct watch_node *node, uint32_t cookie)
{
    detach(tree, node);
    node->cookie = cookie;
}

/* No recursion: a hostile tree may be deeper than the stack. Always removes a leaf of it. */
void watch_tree_remove(struct watch_tree *tree, struct watch_node *node, int fd)
{
    struct watch_node *at = node;

    for (;;) {
        struct watch_node *up = at->parent;
        bool last = at == node;

        if (!list_empty(&at->children)) {
            at = container_of(at->children.next, struct watch_node, sibling);
            continue;
        }
        if (fd >= 0)
            (void)inotify_rm_watch(fd, at->wd);
        (void)map_remove(&tree->by_wd, key_of(&at->wd));
        if (at == tree->root)
            tree->root = NULL;
        detach(tree, at);
        list_remove(&at->work);
        free(at);
        if (last)
            return;
        at = up;
    }
}

bool watch_tree_path(const struct watch_node *node, struct str name, char out[PATH_MAX])
{
    size_t len = name.len, at;

    for (const struct watch_node *up = node; up->name[0] != '\0'; up = up->parent) {
        if (!up->parent)
            return false;
        len += strlen(up->name) + (len > 0);
    }
    if (len >= PATH_MAX)
        return false;
    out[len] = '\0';
    at = len - name.len;
    if (name.len)
        memcpy(out + at, name.p, name.len);
    for (const struct watch_node *up = node; up->name[0] != '\0'; up = up->parent) {
        size_t part = strlen(up->name);

        if (at < len)
            out[--at] = '/';
        at -= part;
        memcpy(out + at, up->name, part);
    }
    return true;
}
