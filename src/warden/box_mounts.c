/* The root file system of a box, made by the warden and handed to the child as a descriptor.
 *
 * Layers and the writable directory hold files with the ids they have inside (0 is root). They are
 * cloned as detached mounts whose ids are mapped through the box's user namespace, and an overlay
 * is put on top. The overlay acts with the credentials of whoever made it, so it is made with the
 * file system ids of the box's root: with host root's, which the mapping does not contain, the kernel
 * would silently give a read-only overlay. */
#include "warden/box.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "disk/disk.h"
#include "warden/box_syscalls.h"

/* A detached copy of a directory's mount with ids mapped. */
static int clone_mapped(int dir_fd, const char *path, int userns_fd, uint64_t attrs,
                        struct error *err)
{
    struct mount_attr attr = {
        .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NODEV | attrs,
        .userns_fd = (uint64_t)userns_fd,
    };
    auto_close int tree =
        sys_open_tree(dir_fd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    if (tree < 0)
        return error_set_errno(err, errno, "clone the mount of '%s'", path);
    if (sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr) < 0)
        return error_set_errno(err, errno, "map the ids of '%s'", path);
    return take_fd(&tree);
}

static int set_option(int fs, const char *key, const char *value, struct error *err)
{
    if (sys_fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0) < 0)
        return error_set_errno(err, errno, "overlay: set %s", key);
    return 0;
}

/* Descriptors where the kernel takes them (6.13), else their names under /proc. */
static int set_layers(int fs, const int *lowers, size_t count, int upper, int work,
                      struct error *err)
{
    char list[BOX_LAYERS_MAX * 24], path[32];
    size_t used = 0;

    if (sys_fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, lowers[count - 1]) == 0) {
        for (size_t i = count - 1; i-- > 0;)
            if (sys_fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, lowers[i]) < 0)
                return error_set_errno(err, errno, "overlay: add layer %zu", i);
        if (sys_fsconfig(fs, FSCONFIG_SET_FD, "upperdir", NULL, upper) < 0 ||
            sys_fsconfig(fs, FSCONFIG_SET_FD, "workdir", NULL, work) < 0)
            return error_set_errno(err, errno, "overlay: set the writable directories");
        return 0;
    }
    for (size_t i = count; i-- > 0;)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s/proc/self/fd/%d",
                                 used ? ":" : "", lowers[i]);
    if (set_option(fs, "lowerdir", list, err) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", upper);
    if (set_option(fs, "upperdir", path, err) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", work);
    return set_option(fs, "workdir", path, err);
}

/* Whatever the host's defaults are: renaming a directory of a layer works; the upper directory holds
 * everything of a file that is in it, and may be put on layers that were copied elsewhere. What the
 * overlay notes there (whiteouts, opaque and renamed directories) is in attributes that nothing inside
 * can write: they need rights on the host. */
static int set_features(int fs, struct error *err)
{
    if (set_option(fs, "redirect_dir", "on", err) < 0 || set_option(fs, "index", "off", err) < 0)
        return -1;
    return set_option(fs, "metacopy", "off", err);
}

static int get_effective(struct __user_cap_data_struct caps[2])
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};

    return (int)syscall(SYS_capget, &head, caps);
}

static int set_effective(const struct __user_cap_data_struct caps[2])
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};

    return (int)syscall(SYS_capset, &head, caps);
}

/* FSCONFIG_CMD_CREATE with the box's file system ids. Leaving fsuid 0 drops the file capabilities
 * from the effective set; they are put back for the call. Ids and capabilities are per thread. */
static int create_as(int fs, uid_t base)
{
    struct __user_cap_data_struct caps[2];
    int r, saved;

    if (get_effective(caps) < 0)
        return -errno;
    (void)syscall(SYS_setfsgid, base);
    (void)syscall(SYS_setfsuid, base);
    r = set_effective(caps);
    if (r == 0)
        r = sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
    saved = errno;
    (void)syscall(SYS_setfsuid, 0);
    (void)syscall(SYS_setfsgid, 0);
    (void)set_effective(caps);
    return r < 0 ? -saved : 0;
}

static int make_overlay(const int *lowers, size_t count, int box_tree, uid_t base,
                        struct error *err)
{
    auto_close int upper = openat(box_tree, "upper", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int work = openat(box_tree, "work", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int fs = sys_fsopen("overlay", FSOPEN_CLOEXEC);
    int mount_fd, r;

    if (upper < 0 || work < 0 || fs < 0)
        return error_set_errno(err, errno, "open the overlay's parts");
    if (set_option(fs, "source", "quicksand", err) < 0 || set_features(fs, err) < 0 ||
        set_layers(fs, lowers, count, upper, work, err) < 0)
        return -1;
    r = create_as(fs, base);
    if (r < 0)
        return error_set_errno(err, -r, "make the overlay");
    mount_fd = sys_fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
    if (mount_fd < 0)
        return error_set_errno(err, errno, "mount the overlay");
    return mount_fd;
}

static bool is_stacked(const struct boxes *all, const char *layer)
{
    return faccessat(all->layers_fd, layer, F_OK, 0) == 0;
}

/* How many of the spec's layers lie in DATA/layers. */
static uint32_t stacked_count(const struct boxes *all, const struct box_spec *spec)
{
    uint32_t count = 0;

    while (count < spec->layer_count && is_stacked(all, spec->layers[count]))
        count++;
    return count;
}

int box_layers_check(const struct boxes *all, const struct box_spec *spec, const char **out_top,
                     struct error *err)
{
    uint32_t stacked = stacked_count(all, spec);

    *out_top = stacked < spec->layer_count ? spec->layers[spec->layer_count - 1] : NULL;
    for (uint32_t i = stacked; i < spec->layer_count; i++)
        if (is_stacked(all, spec->layers[i]))
            return error_set(err, ERROR_INVALID, "layer '%s' cannot lie on a snapshot",
                             spec->layers[i]);
    /* A kept disk has its layer's files already. */
    if (*out_top && !spec->keep_disk && !disk_layer_exists(all->disk, *out_top))
        return error_set(err, ERROR_NOT_FOUND, "no layer '%s'", *out_top);
    if (stacked == 0)
        return error_set(err, ERROR_NOT_FOUND, "no base layer '%s'", spec->layers[0]);
    return 0;
}

int box_mount_root(const struct boxes *all, const struct box_spec *spec, uint32_t slot,
                   int userns_fd, int box_dir_fd, int *out_mount_fd, struct error *err)
{
    uid_t base = BOX_UID_FIRST + slot * BOX_IDS_PER_SLOT;
    uint32_t stacked = stacked_count(all, spec);
    int lowers[BOX_LAYERS_MAX] = {0};
    auto_close int box_tree = -1;
    size_t opened = 0;
    int mount_fd = -1;

    if (stacked == 0)
        return error_set(err, ERROR_NOT_FOUND, "no base layer '%s'", spec->layers[0]);
    for (; opened < stacked; opened++) {
        lowers[opened] =
            clone_mapped(all->layers_fd, spec->layers[opened], userns_fd, MOUNT_ATTR_RDONLY, err);
        if (lowers[opened] < 0) {
            (void)error_prefix(err, "layer '%s'", spec->layers[opened]);
            goto out;
        }
    }
    box_tree = clone_mapped(box_dir_fd, "", userns_fd, 0, err);
    if (box_tree >= 0)
        mount_fd = make_overlay(lowers, opened, box_tree, base, err);
out:
    while (opened)
        (void)close(lowers[--opened]);
    if (mount_fd < 0)
        return -1;
    *out_mount_fd = mount_fd;
    return 0;
}

int box_mount_volume(const struct boxes *all, const char *name, int userns_fd, int *out_mount_fd,
                     struct error *err)
{
    auto_close int dir = -1;
    int mount_fd;

    if (disk_volume_open(all->disk, name, &dir, err) < 0)
        return -1;
    mount_fd = clone_mapped(dir, "", userns_fd, MOUNT_ATTR_NOSUID, err);
    if (mount_fd < 0)
        return error_prefix(err, "volume '%s'", name);
    *out_mount_fd = mount_fd;
    return 0;
}

struct device {
    const char *name;
    unsigned major, minor;
};

static const struct device devices[] = {
    {"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
    {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
};

static const char *const links[][2] = {
    {"/proc/self/fd", "fd"},       {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
    {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
};

static int make_device(int dir, const char *name, unsigned major, unsigned minor, struct error *err)
{
    if (mknodat(dir, name, S_IFCHR | 0666, makedev(major, minor)) < 0 ||
        fchmodat(dir, name, 0666, 0) < 0)
        return error_set_errno(err, errno, "make device '%s'", name);
    return 0;
}

static int make_directory(int dir, const char *name, mode_t mode, struct error *err)
{
    if (mkdirat(dir, name, mode) < 0 || fchmodat(dir, name, mode, 0) < 0)
        return error_set_errno(err, errno, "make /dev/%s", name);
    return 0;
}

static int fill_dev(int dir, struct error *err)
{
    for (size_t i = 0; i < sizeof(devices) / sizeof(*devices); i++)
        if (make_device(dir, devices[i].name, devices[i].major, devices[i].minor, err) < 0)
            return -1;
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
        if (symlinkat(links[i][0], dir, links[i][1]) < 0)
            return error_set_errno(err, errno, "make /dev/%s", links[i][1]);
    if (make_directory(dir, "pts", 0755, err) < 0 || make_directory(dir, "shm", 01777, err) < 0)
        return -1;
    return make_directory(dir, "mqueue", 0755, err);
}

/* One tmpfs with real device nodes, made in the host's user namespace (nodes made in a box's own
 * would not open), then read-only for good. Boxes get clones of its directory `dev`; `fuse` beside it
 * is opened once by a box's first process and never seen inside. */
int box_make_dev_tree(int *out_fd, struct error *err)
{
    struct mount_attr attr = {.attr_set =
                                  MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC};
    auto_close int fs = sys_fsopen("tmpfs", FSOPEN_CLOEXEC);
    auto_close int mount_fd = -1, dir = -1;

    if (fs < 0 || sys_fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
        sys_fsconfig(fs, FSCONFIG_SET_STRING, "size", "64k", 0) < 0 ||
        sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return error_set_errno(err, errno, "make the device tree");
    mount_fd = sys_fsmount(fs, FSMOUNT_CLOEXEC, 0);
    if (mount_fd < 0)
        return error_set_errno(err, errno, "mount the device tree");
    if (make_directory(mount_fd, "dev", 0755, err) < 0)
        return -1;
    dir = openat(mount_fd, "dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || fill_dev(dir, err) < 0)
        return -1;
    if (make_device(mount_fd, "fuse", 10, 229, err) < 0)
        return -1;
    if (sys_mount_setattr(mount_fd, "", AT_EMPTY_PATH, &attr) < 0)
        return error_set_errno(err, errno, "seal the device tree");
    *out_fd = take_fd(&mount_fd);
    return 0;
}
