/* The root file system of a box, made by the warden and handed to the child as a descriptor.
 *
 * Layers and the writable directory hold files with the ids they have inside (0 is root). They are
 * cloned as detached mounts whose ids are mapped through the box's user namespace, and an overlay
 * is put on top (box_overlay.c). */
#include "host/native/box.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "host/disk/disk.h"
#include "host/native/box_syscalls.h"

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
    for (uint32_t i = stacked; i < spec->layer_count; i++) {
        if (is_stacked(all, spec->layers[i]))
            return error_set(err, ERROR_INVALID, "layer '%s' cannot lie on a snapshot",
                             spec->layers[i]);
        /* One that is gone must not pass for a snapshot that need not be there. */
        if (layer_is_tree(spec->layers[i]))
            return error_set(err, ERROR_NOT_FOUND, "no layer '%s'", spec->layers[i]);
    }
    /* A kept disk has its layer's files already. */
    if (*out_top && !spec->keep_disk && !disk_layer_exists(all->disk, *out_top))
        return error_set(err, ERROR_NOT_FOUND, "no layer '%s'", *out_top);
    if (stacked == 0)
        return error_set(err, ERROR_NOT_FOUND, "no base layer '%s'", spec->layers[0]);
    return 0;
}

static int stack(const struct boxes *all, const int *lowers, size_t count, int box_tree,
                 const struct box_place *place, int *out_mount_fd, struct error *err)
{
    auto_close int upper = openat(box_tree, "upper", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int work = openat(box_tree, "work", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (upper < 0 || work < 0)
        return error_set_errno(err, errno, "open the overlay's parts");
    return box_overlay_make(
        &(struct box_overlay){.lowers = lowers,
                              .lower_count = count,
                              .box_fd = box_tree,
                              .upper_fd = upper,
                              .work_fd = work,
                              .base = BOX_UID_FIRST + place->slot * BOX_IDS_PER_SLOT,
                              .mntns_fd = place->mntns_fd},
        all->attach_layers, out_mount_fd, err);
}

int box_mount_root(const struct boxes *all, const struct box_spec *spec,
                   const struct box_place *place, int *out_mount_fd, struct error *err)
{
    uint32_t stacked = stacked_count(all, spec);
    int lowers[BOX_LAYERS_MAX] = {0};
    int box_tree = -1;
    size_t opened = 0;
    int r = 0;

    if (stacked == 0)
        return error_set(err, ERROR_NOT_FOUND, "no base layer '%s'", spec->layers[0]);
    for (; r == 0 && opened < stacked; opened += r == 0)
        r = box_overlay_map(all->layers_fd, spec->layers[opened], place->userns_fd,
                            MOUNT_ATTR_RDONLY, &lowers[opened], err);
    if (r < 0)
        (void)error_prefix(err, "layer '%s'", spec->layers[opened]);
    else
        r = box_overlay_map(place->disk_fd, "", place->userns_fd, 0, &box_tree, err);
    if (r == 0)
        r = stack(all, lowers, opened, box_tree, place, out_mount_fd, err);
    /* The overlay has its own. */
    box_close_later(box_tree);
    while (opened)
        box_close_later(lowers[--opened]);
    return r;
}

int box_mount_volume(const struct boxes *all, const char *name, int userns_fd, int *out_mount_fd,
                     struct error *err)
{
    auto_close int dir = -1;

    if (disk_volume_open(all->disk, name, &dir, err) < 0)
        return -1;
    if (box_overlay_map(dir, "", userns_fd, MOUNT_ATTR_NOSUID, out_mount_fd, err) < 0)
        return error_prefix(err, "volume '%s'", name);
    return 0;
}

/* Whatever the server made there: no link, and nothing that is not its own. Its files look like those of a user inside
 * (its id is below 65536), so root inside may read them whatever their mode. */
static int open_feed(const struct boxes *all, const char *id, int *out_fd, struct error *err)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
    auto_close int fd = sys_openat2(all->feeds_fd, id, &how);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set_errno(err, errno, "open the feed of box '%s'", id);
    if (st.st_uid != all->server_uid)
        return error_set(err, ERROR_FORBIDDEN, "the feed of box '%s' is not the server's", id);
    *out_fd = take_fd(&fd);
    return 0;
}

int box_mount_feed(const struct boxes *all, const char *id, int userns_fd, int *out_mount_fd,
                   struct error *err)
{
    auto_close int fd = -1;

    if (open_feed(all, id, &fd, err) < 0)
        return -1;
    if (box_overlay_map(fd, "", userns_fd, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, out_mount_fd,
                        err) < 0)
        return error_prefix(err, "feed");
    return 0;
}

int box_mount_fill(int tree_fd, int userns_fd, int *out_mount_fd, struct error *err)
{
    if (box_overlay_map(tree_fd, "", userns_fd, MOUNT_ATTR_NOSUID, out_mount_fd, err) < 0)
        return error_prefix(err, "tree");
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

/* A tmpfs with mode 0755, detached. */
static int new_tmpfs(int *out_fd, struct error *err)
{
    auto_close int fs = sys_fsopen("tmpfs", FSOPEN_CLOEXEC);
    int mount_fd;

    if (fs < 0 || sys_fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
        sys_fsconfig(fs, FSCONFIG_SET_STRING, "size", "64k", 0) < 0 ||
        sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return error_set_errno(err, errno, "make the device tree");
    mount_fd = sys_fsmount(fs, FSMOUNT_CLOEXEC, 0);
    if (mount_fd < 0)
        return error_set_errno(err, errno, "mount the device tree");
    *out_fd = mount_fd;
    return 0;
}

static int seal(int mount_fd, struct error *err)
{
    struct mount_attr attr = {.attr_set =
                                  MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC};

    if (sys_mount_setattr(mount_fd, "", AT_EMPTY_PATH, &attr) < 0)
        return error_set_errno(err, errno, "seal the device tree");
    return 0;
}

/* Places to mount on: in the root of a blank box, and for v1 cgroups. */
static const char *const blank_places[] = {"proc", "sys", "dev", "run", NULL};
static const char *const cgroup_places[] = {"memory", "cpu", "unified", NULL};

static int fill_places(int dir, const char *const *names, struct error *err)
{
    for (; *names; names++)
        if (make_directory(dir, *names, 0755, err) < 0)
            return -1;
    return 0;
}

static int make_places(int tree, const char *name, const char *const *places, struct error *err)
{
    auto_close int dir = -1;

    if (make_directory(tree, name, 0755, err) < 0)
        return -1;
    dir = openat(tree, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 ? error_set_errno(err, errno, "open the device tree")
                   : fill_places(dir, places, err);
}

/* One tmpfs with real device nodes, made in the host's user namespace (nodes made in a box's own
 * would not open), then read-only for good. Boxes get clones of its directories `dev` and `cgroup`, blank ones also of
 * `blank`; `fuse` beside them is opened once by a box's first process and never seen inside. */
int box_make_dev_tree(int *out_fd, struct error *err)
{
    auto_close int mount_fd = -1, dir = -1;

    if (new_tmpfs(&mount_fd, err) < 0 || make_directory(mount_fd, "dev", 0755, err) < 0 ||
        make_places(mount_fd, "blank", blank_places, err) < 0 ||
        make_places(mount_fd, "cgroup", cgroup_places, err) < 0)
        return -1;
    dir = openat(mount_fd, "dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || fill_dev(dir, err) < 0)
        return -1;
    if (make_device(mount_fd, "fuse", 10, 229, err) < 0 || seal(mount_fd, err) < 0)
        return -1;
    *out_fd = take_fd(&mount_fd);
    return 0;
}

/* A kernel that wants layers attached does not clone what is attached nowhere either: each box then
 * has a tmpfs of its own. */
static int clone_part(const struct boxes *all, const char *name,
                      int (*fill)(int dir, struct error *err), int *out_mount_fd, struct error *err)
{
    auto_close int mount_fd = -1;

    if (!all->attach_layers) {
        *out_mount_fd = sys_open_tree(all->dev_tree_fd, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        return *out_mount_fd < 0 ? error_set_errno(err, errno, "clone the device tree") : 0;
    }
    if (new_tmpfs(&mount_fd, err) < 0 || fill(mount_fd, err) < 0 || seal(mount_fd, err) < 0)
        return -1;
    *out_mount_fd = take_fd(&mount_fd);
    return 0;
}

int box_mount_dev(const struct boxes *all, int *out_mount_fd, struct error *err)
{
    return clone_part(all, "dev", fill_dev, out_mount_fd, err);
}

static int fill_cgroup(int dir, struct error *err)
{
    return fill_places(dir, cgroup_places, err);
}

int box_mount_cgroup(const struct boxes *all, int *out_mount_fd, struct error *err)
{
    return clone_part(all, "cgroup", fill_cgroup, out_mount_fd, err);
}

static int clone_cgroup(const char *hierarchy, const char *name, int *out_fd, struct error *err)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                          MOUNT_ATTR_NOEXEC,
                              .propagation = MS_PRIVATE};
    auto_close int tree = -1;
    char path[192];

    (void)snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", hierarchy, name);
    tree = sys_open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0 || sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr) < 0)
        return error_set_errno(err, errno, "clone the cgroup's directory");
    *out_fd = take_fd(&tree);
    return 0;
}

int box_mount_cgroup_trees(const struct boxes *all, const char *id, int out_fds[BOX_CGROUP_TREES],
                           size_t *out_count, struct error *err)
{
    static const char *const v1[BOX_CGROUP_TREES] = {"/memory", "/cpu", "/unified"};
    bool v2 = box_cgroup_version(all->cgroups) == 2;
    size_t count = v2 ? 1 : BOX_CGROUP_TREES;
    char name[96];

    box_cgroup_path(all->cgroups, id, name, sizeof(name));
    for (*out_count = 0; *out_count < count; ++*out_count)
        if (clone_cgroup(v2 ? "" : v1[*out_count], name, &out_fds[*out_count], err) < 0)
            return -1;
    return 0;
}

static int fill_blank(int dir, struct error *err)
{
    return fill_places(dir, blank_places, err);
}

int box_mount_blank(const struct boxes *all, int *out_mount_fd, struct error *err)
{
    return clone_part(all, "blank", fill_blank, out_mount_fd, err);
}
