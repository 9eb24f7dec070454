/* What the warden does inside a blank box that becomes somebody's, in the mount namespace of the box and in no other
 * namespace of it.
 *
 * envd runs there already, but nothing else has ever run. The new root may hold what guests wrote, so places in it
 * are reached without following any link, from a descriptor of it. What is made there is made with the ids of the
 * box's root.
 *
 * The new root covers the blank one, whose mounts move over, and envd enters it by itself when it is told. From then on
 * the blank root is what the kernel's first one, beneath it, is in every box: out of sight and out of reach of all that
 * start in the new one, since nothing but a mount upon its top leads out of it. pivot_root() and an unmount would be the
 * obvious way; the one looks at all processes of the host, for the other the kernel waits until all processors have
 * done something else, together as long as everything else. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "host/native/box.h"
#include "host/native/box_syscalls.h"

#ifndef SYS_fspick
#define SYS_fspick 433
#endif

/* A directory beneath another, made with all above it where they are missing. */
static int open_place(int root_fd, const char *path, int *out_fd, struct error *err)
{
    struct open_how how = {
        .flags = O_PATH | O_CLOEXEC | O_NOFOLLOW | O_DIRECTORY,
        .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH,
    };
    auto_close int dir = sys_openat2(root_fd, ".", &how);

    while (dir >= 0 && *path == '/') {
        size_t len = strcspn(++path, "/");
        char name[VOLUME_PATH_SIZE];
        int next;

        if (len >= sizeof(name))
            return error_set(err, ERROR_INVALID, "a path is too long");
        memcpy(name, path, len);
        name[len] = '\0';
        next = sys_openat2(dir, name, &how);
        if (next < 0 && errno == ENOENT && mkdirat(dir, name, 0755) == 0)
            next = sys_openat2(dir, name, &how);
        close_fd(&dir);
        dir = next;
        path += len;
    }
    if (dir < 0)
        return error_set_errno(err, errno, "open a place to mount on");
    *out_fd = take_fd(&dir);
    return 0;
}

/* From: a detached mount (path ""), or the path of one that is there. */
static int move(int from_fd, const char *from, int root_fd, const char *path, struct error *err)
{
    auto_close int place = -1;

    if (open_place(root_fd, path, &place, err) < 0)
        return error_prefix(err, "%s", path);
    if (sys_move_mount(from_fd, from, place, "",
                       MOVE_MOUNT_T_EMPTY_PATH | (from[0] ? 0 : MOVE_MOUNT_F_EMPTY_PATH)) < 0)
        return error_set_errno(err, errno, "mount %s", path);
    return 0;
}

static int change_root(int root_fd, struct error *err)
{
    static const char *const paths[] = {"/proc", "/sys", "/dev", "/run"};

    if (sys_move_mount(root_fd, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return error_set_errno(err, errno, "attach the root");
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        if (move(AT_FDCWD, paths[i], root_fd, paths[i], err) < 0)
            return -1;
    if (fchdir(root_fd) < 0 || chroot(".") < 0)
        return error_set_errno(err, errno, "enter the root");
    return 0;
}

/* Of the file system in memory, which it has at /run and /dev/shm. */
static int resize(const char *path, uint64_t bytes, struct error *err)
{
    auto_close int fs = (int)syscall(SYS_fspick, AT_FDCWD, path, 1 /* FSPICK_CLOEXEC */);
    char size[32];

    (void)snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
    if (fs < 0 || sys_fsconfig(fs, FSCONFIG_SET_STRING, "size", size, 0) < 0 ||
        sys_fsconfig(fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0) < 0)
        return error_set_errno(err, errno, "set the size of %s", path);
    return 0;
}

static int set_sizes(const struct box_move *to, struct error *err)
{
    uint64_t bytes = to->spec->limits.mem_bytes;

    if (bytes == to->box->limits.mem_bytes)
        return 0;
    return resize("/run", bytes / 2, err);
}

static const char own_file[] = "/run/.own";

static int put_over(const char *path)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    auto_close int tree = sys_open_tree(AT_FDCWD, own_file, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (tree < 0 || sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr) < 0 ||
        sys_move_mount(tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return -errno;
    return 0;
}

/* Covers a file of /proc or /sys with one of the box's own, as box_child.c does. It loses its name last: what has none
 * is not mounted. */
static int cover(const struct box_child *cpus, const char *path,
                 int (*write_text)(const struct box_child *cpus, int fd), struct error *err)
{
    auto_close int fd = open(own_file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    int r = fd < 0 ? -errno : write_text(cpus, fd);

    if (r == 0)
        r = put_over(path);
    if (fd >= 0 && unlink(own_file) < 0 && r == 0)
        r = -errno;
    return r < 0 ? error_set_errno(err, -r, "cover %s", path) : 0;
}

static int show(const struct box_child *before, const struct box_child *cpus, const char *path,
                int (*write_text)(const struct box_child *cpus, int fd), struct error *err)
{
    if (!box_cpus_all(before) && umount2(path, MNT_DETACH) < 0 && errno != EINVAL)
        return error_set_errno(err, errno, "uncover %s", path);
    return box_cpus_all(cpus) || access(path, R_OK) < 0 ? 0 : cover(cpus, path, write_text, err);
}

static int show_cpus(const struct box_move *to, struct error *err)
{
    uint32_t had = to->box->limits.cpu_count, has = to->spec->limits.cpu_count;
    struct box_child before = {.cpu_count = had,
                               .cpu_first = to->box->slot * had,
                               .host_cpus = to->all->host_cpus,
                               .cpuinfo = to->all->cpuinfo},
                     cpus = before;

    cpus.cpu_count = has;
    cpus.cpu_first = to->box->slot * has;
    if (had == has)
        return 0;
    if (show(&before, &cpus, "/sys/devices/system/cpu/online", box_cpus_write_list, err) < 0)
        return -1;
    return before.cpuinfo ? show(&before, &cpus, "/proc/cpuinfo", box_cpus_write_info, err) : 0;
}

static int move_in(const struct box_move *to, struct error *err)
{
    int r;

    if (box_ids_enter(BOX_UID_FIRST + to->box->slot * BOX_IDS_PER_SLOT, err) < 0)
        return -1;
    r = change_root(to->root_fd, err);
    for (size_t i = 0; r == 0 && i < to->places->count; i++)
        r = move(to->place_fds[i], "", AT_FDCWD, to->places->at[i].path, err);
    if (r == 0)
        r = set_sizes(to, err);
    if (r == 0)
        r = show_cpus(to, err);
    box_ids_leave();
    return r;
}

int box_inside_move(const struct box_move *to, struct error *err)
{
    struct box_visit visit;
    int r;

    if (box_namespace_visit(to->mntns_fd, &visit, err) < 0)
        return -1;
    r = move_in(to, err);
    box_namespace_leave(&visit);
    return r;
}
