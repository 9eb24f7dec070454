#include "host/disk/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "host/disk/tree_internal.h"

enum { REMOVE_MS = 50 };

int trees_open(int layers_fd, struct trees **out, struct error *err)
{
    struct trees *trees = xcalloc(1, sizeof(*trees));

    (void)err;
    trees->layers_fd = layers_fd;
    (void)pthread_mutex_init(&trees->lock, NULL);
    list_init(&trees->fills);
    tree_find_old(trees);
    *out = trees;
    return 0;
}

void trees_stop(struct trees *trees)
{
    __atomic_store_n(&trees->stop, true, __ATOMIC_RELAXED);
}

void trees_close(struct trees *trees)
{
    struct list *node;

    while ((node = list_pop_front(&trees->fills)))
        free(container_of(node, struct tree_fill, link));
    (void)pthread_mutex_destroy(&trees->lock);
    free(trees);
}

int tree_open_entry(const struct trees *trees, const char *entry, int *out_fd, struct error *err)
{
    int fd = openat(trees->layers_fd, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return error_set_errno(err, errno, "open layer '%s'", entry);
    *out_fd = fd;
    return 0;
}

static void new_name(const char *name, char out[TREE_NAME_SIZE])
{
    (void)snprintf(out, TREE_NAME_SIZE, TREE_NEW "%s", name);
}

int tree_make_new(const struct trees *trees, const char *name, struct error *err)
{
    char new[TREE_NAME_SIZE];

    new_name(name, new);
    if (faccessat(trees->layers_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return error_set(err, ERROR_EXISTS, "layer '%s' exists", name);
    /* The mode is set again because of the umask. */
    if (mkdirat(trees->layers_fd, new, 0755) < 0 || fchmodat(trees->layers_fd, new, 0755, 0) < 0)
        return error_set_errno(err, errno, "make layer '%s'", name);
    return 0;
}

int tree_begin(struct trees *trees, const char *name, uint64_t limit_bytes, int *out_fd,
               struct error *err)
{
    char new[TREE_NAME_SIZE];
    int fd;

    new_name(name, new);
    if (tree_check_space(trees, err) < 0 || tree_make_new(trees, name, err) < 0)
        return -1;
    fd = openat(trees->layers_fd, new, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "open layer '%s'", name);
    tree_watch_add(trees, name, limit_bytes);
    *out_fd = fd;
    return 0;
}

/* The stamp is the last that is written, and the name the last that is made: whatever has both is whole. Asking for the
 * whole file system is the one way that does not wait for the disk once per file. */
int tree_finish(struct trees *trees, const char *name, int root_fd, const struct tree_stamp *stamp,
                struct error *err)
{
    char new[TREE_NAME_SIZE];

    new_name(name, new);
    if (tree_stamp_write(root_fd, stamp, err) < 0)
        return -1;
    if (syncfs(root_fd) < 0)
        return error_set_errno(err, errno, "bring layer '%s' to disk", name);
    if (renameat2(trees->layers_fd, new, trees->layers_fd, name, RENAME_NOREPLACE) < 0)
        return error_set_errno(err, errno, "name layer '%s'", name);
    if (fsync(trees->layers_fd) < 0)
        return error_set_errno(err, errno, "bring the name of layer '%s' to disk", name);
    return 0;
}

static int seal(struct trees *trees, const struct tree_fill *fill, struct tree_info *out,
                struct error *err)
{
    char new[TREE_NAME_SIZE];
    auto_close int fd = -1;
    struct tree_stamp stamp;

    new_name(fill->name, new);
    if (tree_open_entry(trees, new, &fd, err) < 0 || tree_stamp_make(trees, fd, &stamp, err) < 0)
        return -1;
    if (fill->over || (fill->limit && stamp.info.bytes > fill->limit))
        return error_set(err, ERROR_LIMIT,
                         "it is larger than it may be (%" PRIu64 " MiB), or the disk is full",
                         fill->limit >> 20);
    *out = stamp.info;
    return tree_finish(trees, fill->name, fd, &stamp, err);
}

int tree_seal(struct trees *trees, const char *name, struct tree_info *out, struct error *err)
{
    struct tree_fill fill;
    struct error ignored;
    char new[TREE_NAME_SIZE];

    /* Of one that is sealed, the answer may have got lost. */
    if (!tree_watch_take(trees, name, &fill))
        return tree_stat(trees, name, out, err);
    if (seal(trees, &fill, out, err) == 0)
        return 0;
    new_name(name, new);
    (void)tree_set_aside(trees, new, &ignored);
    return error_prefix(err, "seal layer '%s'", name);
}

int tree_check(struct trees *trees, const char *name, struct error *err)
{
    auto_close int fd = -1;
    struct tree_stamp noted, found;

    if (tree_open_entry(trees, name, &fd, err) < 0)
        return -1;
    if (tree_stamp_read(fd, &noted, err) < 0)
        return error_set(err, ERROR_INTERNAL, "layer '%s' has no stamp", name);
    if (tree_stamp_make(trees, fd, &found, err) < 0)
        return error_prefix(err, "layer '%s'", name);
    if (noted.info.entries != found.info.entries ||
        memcmp(noted.digest, found.digest, sizeof(noted.digest)) != 0)
        return error_set(err, ERROR_INTERNAL,
                         "layer '%s' is damaged: %" PRIu64 " files were made, %" PRIu64
                         " are there, or some of them changed",
                         name, noted.info.entries, found.info.entries);
    return 0;
}

int tree_delete(struct trees *trees, const char *name, struct error *err)
{
    char new[TREE_NAME_SIZE];
    struct tree_fill fill;
    struct tree_info info;
    struct error stat_err;

    new_name(name, new);
    if (tree_watch_take(trees, name, &fill))
        return tree_set_aside(trees, new, err);
    /* What the operator installed is not ours to remove. */
    if (tree_stat(trees, name, &info, &stat_err) < 0 && stat_err.code == ERROR_NOT_FOUND)
        return 0;
    return tree_set_aside(trees, name, err);
}

int tree_stat(struct trees *trees, const char *name, struct tree_info *out, struct error *err)
{
    auto_close int fd =
        openat(trees->layers_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC);
    struct tree_stamp stamp;

    if (fd < 0 || tree_stamp_read(fd, &stamp, err) < 0)
        return error_set(err, ERROR_NOT_FOUND, "no layer '%s'", name);
    *out = stamp.info;
    return 0;
}

int trees_list(struct trees *trees, char ***out, size_t *out_count, struct error *err)
{
    DIR *dir = path_open_dir(trees->layers_fd, ".");
    struct dirent *entry;
    char **names = NULL;
    size_t count = 0;

    if (!dir)
        return error_set_errno(err, errno, "list the layers");
    while ((entry = readdir(dir))) {
        struct tree_info info;
        struct error ignored;

        if (entry->d_name[0] == '.' || tree_stat(trees, entry->d_name, &info, &ignored) < 0)
            continue;
        names = xrealloc(names, (count + 1) * sizeof(*names));
        names[count++] = xstrdup(entry->d_name);
    }
    (void)closedir(dir);
    *out = names;
    *out_count = count;
    return 0;
}

void trees_tend(struct trees *trees, const struct trees_tending *tending)
{
    tree_watch_tend(trees, tending);
    (void)tree_remove_old(trees, REMOVE_MS);
}
