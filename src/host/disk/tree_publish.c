/* A tree as a copy of a directory that a box wrote.
 *
 * It gives way: nobody waits for it as for a box. */
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "host/disk/tree_internal.h"

enum {
    NICE = 10,
    IO_LEAST = (2 << 13) | 7, /* best effort, the lowest of its levels */
};

static void give_way(bool on)
{
    enum { WHO_PROCESS = 1 };

    (void)setpriority(PRIO_PROCESS, 0, on ? NICE : 0); /* of this thread only */
    (void)syscall(SYS_ioprio_set, WHO_PROCESS, 0, on ? IO_LEAST : 0);
}

static int copy_all(const struct tree_copying *copying, int source_fd, struct error *err)
{
    int r;

    give_way(true);
    r = tree_copy_into(copying, source_fd, err);
    give_way(false);
    return r;
}

static int copy_to(struct trees *trees, struct tree_copying *copying, int source_fd,
                   const char *name, const char *links, struct tree_info *out, struct error *err)
{
    char new[TREE_NAME_SIZE];
    auto_close int root = -1, links_fd = -1;
    struct tree_stamp stamp;

    (void)snprintf(new, sizeof(new), TREE_NEW "%s", name);
    if (tree_open_entry(trees, new, &root, err) < 0 ||
        tree_open_entry(trees, links, &links_fd, err) < 0)
        return -1;
    copying->root_fd = root;
    copying->links_fd = links_fd;
    if (copy_all(copying, source_fd, err) < 0)
        return -1;
    (void)path_remove_tree(trees->layers_fd, links); /* files have as many names as they had */
    if (tree_stamp_make(trees, root, &stamp, err) < 0)
        return -1;
    *out = stamp.info;
    return tree_finish(trees, name, root, &stamp, err);
}

int tree_copy(struct trees *trees, int source_fd, const char *name, uint64_t limit_bytes,
              struct tree_info *out, struct error *err)
{
    struct tree_copying copying = {.trees = trees, .bytes_max = limit_bytes};
    char new[TREE_NAME_SIZE], links[TREE_NAME_SIZE];
    struct error ignored;
    int r;

    (void)snprintf(new, sizeof(new), TREE_NEW "%s", name);
    (void)snprintf(links, sizeof(links), TREE_LINKS "%s", name);
    if (tree_check_space(trees, err) < 0 || tree_make_new(trees, name, err) < 0)
        return -1;
    r = mkdirat(trees->layers_fd, links, 0700) < 0
            ? error_set_errno(err, errno, "make '%s'", links)
            : copy_to(trees, &copying, source_fd, name, links, out, err);
    (void)tree_set_aside(trees, links, &ignored);
    if (r == 0)
        return 0;
    (void)tree_set_aside(trees, new, &ignored);
    return error_prefix(err, "copy to layer '%s'", name);
}
