#include "image/unpack/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/size.h"

int tree_open(struct tree *tree, const char *path, struct error *err)
{
    *tree = (struct tree){.parent = -1};
    tree->root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tree->root < 0)
        return error_set_errno(err, errno, "cannot open '%s'", path);
    return 0;
}

static void forget_parent(struct tree *tree)
{
    close_fd(&tree->parent);
}

void tree_close(struct tree *tree)
{
    forget_parent(tree);
    close_fd(&tree->root);
    free(tree->made.keys);
    for (size_t i = 0; i < tree->late_count; i++)
        free(tree->late[i].path);
    free(tree->late);
    tree->late = NULL;
    tree->late_count = 0;
}

int tree_clean(const char *name, char out[TREE_PATH_SIZE], struct error *err)
{
    size_t len = 0, depth = 0;

    for (const char *p = name; *p;) {
        size_t part = strcspn(p, "/");

        if (part == 2 && memcmp(p, "..", 2) == 0)
            return error_set(err, ERROR_INVALID, "the name '%.200s' leads outside", name);
        if (part > NAME_MAX || ++depth > TREE_DEPTH_MAX || len + part + 2 > TREE_PATH_SIZE)
            return error_set(err, ERROR_LIMIT, "the name '%.60s…' is too long or too deep", name);
        if (part > 0 && !(part == 1 && *p == '.')) {
            if (len > 0)
                out[len++] = '/';
            memcpy(out + len, p, part);
            len += part;
        } else {
            depth--;
        }
        p += part + (p[part] == '/');
    }
    out[len] = '\0';
    return 0;
}

int tree_find(const struct tree *tree, const char *path, int flags)
{
    return path_open_in_root(tree->root, *path ? path : ".", flags, 0);
}

/* Keeps fd as the parent of what comes next. */
static int keep_parent(struct tree *tree, int fd, const char *path, size_t len, struct error *err)
{
    struct stat st;

    forget_parent(tree);
    if (fstat(fd, &st) < 0) {
        (void)close(fd);
        return error_set_errno(err, errno, "cannot look at '%.*s'", (int)len, path);
    }
    tree->parent = fd;
    tree->stale = false;
    tree->parent_inode = st.st_ino;
    memcpy(tree->parent_path, path, len);
    tree->parent_path[len] = '\0';
    return 0;
}

static int open_dir(struct tree *tree, const char *path, size_t len)
{
    char copy[TREE_PATH_SIZE];

    memcpy(copy, path, len);
    copy[len] = '\0';
    return tree_find(tree, copy, O_RDONLY | O_DIRECTORY);
}

/* mkdir -p of the first len bytes of a clean path; the descriptor or -errno. */
static int make_dirs(struct tree *tree, const char *path, size_t len)
{
    auto_close int dir = open_dir(tree, "", 0);
    size_t at = 0;

    if (dir < 0)
        return dir;
    while (at < len) {
        size_t end = at + strcspn(path + at, "/");
        char name[NAME_MAX + 1];
        int fd = open_dir(tree, path, end);

        if (fd == -ENOENT) {
            memcpy(name, path + at, end - at);
            name[end - at] = '\0';
            if (mkdirat(dir, name, 0755) < 0)
                return -errno;
            fd = open_dir(tree, path, end);
            if (fd >= 0 && fchown(fd, tree->new_owner.uid, tree->new_owner.gid) < 0) {
                (void)close(fd);
                return -errno;
            }
        }
        if (fd < 0)
            return fd;
        (void)close(dir);
        dir = fd;
        at = end + 1;
    }
    return take_fd(&dir);
}

static const char *last_part(const char *path, size_t *dir_len)
{
    const char *slash = strrchr(path, '/');

    *dir_len = slash ? (size_t)(slash - path) : 0;
    return slash ? slash + 1 : path;
}

static int to_parent(struct tree *tree, const char *path, const char **name, bool make,
                     struct error *err)
{
    size_t len;
    int fd;

    *name = last_part(path, &len);
    if (tree->parent >= 0 && !tree->stale && strncmp(tree->parent_path, path, len) == 0 &&
        tree->parent_path[len] == '\0')
        return 0;
    fd = open_dir(tree, path, len);
    if (fd == -ENOENT && make)
        fd = make_dirs(tree, path, len);
    if (fd < 0)
        return error_set_errno(err, -fd, "cannot open the directory of '%.200s'", path);
    return keep_parent(tree, fd, path, len, err);
}

int tree_parent(struct tree *tree, const char *path, const char **name, struct error *err)
{
    return to_parent(tree, path, name, true, err);
}

int tree_parent_find(struct tree *tree, const char *path, const char **name, struct error *err)
{
    return to_parent(tree, path, name, false, err);
}

int tree_remove(struct tree *tree, const char *name, struct error *err)
{
    int r = path_remove_tree(tree->parent, name);

    tree->stale = true;
    if (r < 0)
        return error_set_errno(err, -r, "cannot remove '%.200s'", name);
    return 0;
}

/* ---- what was made ---- */

static uint64_t made_key(uint64_t inode, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u ^ (inode * 0x9e3779b97f4a7c15u);

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash | 1;
}

static bool made_has(const struct tree_made *made, uint64_t key)
{
    if (made->size == 0)
        return false;
    for (size_t i = key >> 1;; i++) {
        uint64_t there = made->keys[i & (made->size - 1)];

        if (there == key || there == 0)
            return there == key;
    }
}

static void made_put(struct tree_made *made, uint64_t key)
{
    size_t i = key >> 1;

    while (made->keys[i & (made->size - 1)] != 0)
        i++;
    made->keys[i & (made->size - 1)] = key;
}

static void made_grow(struct tree_made *made)
{
    struct tree_made old = *made;

    made->size = old.size ? old.size * 2 : 4096;
    made->keys = xcalloc(made->size, sizeof(*made->keys));
    for (size_t i = 0; i < old.size; i++)
        if (old.keys[i] != 0)
            made_put(made, old.keys[i]);
    free(old.keys);
}

void tree_made_add(struct tree *tree, const char *name)
{
    struct tree_made *made = &tree->made;
    uint64_t key = made_key(tree->parent_inode, name);

    if (made_has(made, key))
        return;
    if ((made->count + 1) * 2 > made->size)
        made_grow(made);
    made_put(made, key);
    made->count++;
}

void tree_made_clear(struct tree *tree)
{
    free(tree->made.keys);
    tree->made = (struct tree_made){0};
}

static int prune_dir(struct tree *tree, int dir_fd, const char *name, int depth);

/* One name: gone, or what it holds pruned. -errno. */
static int prune_name(struct tree *tree, int dir_fd, uint64_t dir_inode, const char *name,
                      int depth)
{
    bool keep = made_has(&tree->made, made_key(dir_inode, name));
    struct stat st;
    int r;

    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISDIR(st.st_mode))
        return keep || unlinkat(dir_fd, name, 0) == 0 ? 0 : -errno;
    r = prune_dir(tree, dir_fd, name, depth + 1);
    if (r < 0 || keep || unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
        return r;
    return errno == ENOTEMPTY || errno == EEXIST ? 0 : -errno;
}

static int prune_dir(struct tree *tree, int dir_fd, const char *name, int depth)
{
    DIR *dir = path_open_dir(dir_fd, name);
    struct dirent *entry;
    struct stat st;
    int r = 0;

    if (!dir || depth > 2 * TREE_DEPTH_MAX || fstat(dirfd(dir), &st) < 0) {
        r = depth > 2 * TREE_DEPTH_MAX ? -ELOOP : -errno;
        if (dir)
            (void)closedir(dir);
        return r;
    }
    while (r == 0 && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            r = prune_name(tree, dirfd(dir), st.st_ino, entry->d_name, depth);
    (void)closedir(dir);
    return r;
}

int tree_prune(struct tree *tree, const char *name, bool only_inside, struct error *err)
{
    int r = only_inside ? prune_dir(tree, tree->parent, name, 0)
                        : prune_name(tree, tree->parent, tree->parent_inode, name, 0);

    tree->stale = true;
    if (r < 0 && r != -ENOENT && r != -ENOTDIR)
        return error_set_errno(err, -r, "cannot remove '%.200s'", name);
    return 0;
}

/* ---- times of directories ---- */

void tree_late_add(struct tree *tree, const char *path, struct timespec mtime)
{
    if (tree->late_count == tree->late_size) {
        tree->late_size = tree->late_size ? tree->late_size * 2 : 256;
        tree->late = xrealloc(tree->late, tree->late_size * sizeof(*tree->late));
    }
    tree->late[tree->late_count++] = (struct tree_late){xstrdup(path), mtime};
}

static void set_late(struct tree *tree, const struct tree_late *late)
{
    struct timespec times[2] = {late->mtime, late->mtime};
    auto_close int fd = tree_find(tree, late->path, O_RDONLY | O_DIRECTORY);

    /* It may have been replaced since. */
    if (fd >= 0)
        (void)futimens(fd, times);
}

void tree_late_set(struct tree *tree)
{
    for (size_t i = 0; i < tree->late_count; i++) {
        set_late(tree, &tree->late[i]);
        free(tree->late[i].path);
    }
    tree->late_count = 0;
}

/* ---- limits ---- */

int tree_count_entry(struct tree *tree, struct error *err)
{
    if (++tree->entries > TREE_ENTRIES_MAX)
        return error_set(err, ERROR_LIMIT, "more than %d files", TREE_ENTRIES_MAX);
    return 0;
}

int tree_count_bytes(struct tree *tree, uint64_t bytes, struct error *err)
{
    char size[SIZE_TEXT];

    tree->bytes += bytes;
    if (tree->bytes_max > 0 && tree->bytes > tree->bytes_max)
        return error_set(err, ERROR_LIMIT, "more than %s of files",
                         size_text(tree->bytes_max, size));
    return 0;
}
