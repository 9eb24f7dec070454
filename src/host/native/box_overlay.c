/* The overlay under a box, from layers whose ids are mapped.
 *
 * The overlay acts with the credentials of whoever made it, so it is made with the file system ids of
 * the box's root: with host root's, which the mapping does not contain, the kernel would silently give
 * a read-only overlay.
 *
 * Kernels since 6.15 stack mounts that are attached nowhere, and take them by descriptor. Older ones insist
 * that a layer be mounted somewhere in the caller's mount namespace. They get that in the namespace that
 * the box's first process has anyway: the layers are attached there, out of sight of the host, and go
 * with everything else of the host's tree when that process leaves it. They must be private for that: what
 * is mounted on a copy of a shared mount, as systemd makes them all, appears on the mount itself. The overlay
 * keeps clones of its own. Names are then numbers in /proc/self/fd, because options longer than 255 bytes are refused.
 * Which of the two a kernel does is tried once, when the warden starts. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "host/native/box.h"
#include "host/native/box_syscalls.h"

#define OLDEST "5.19"

static int set_option(int fs, const char *key, const char *value, struct error *err)
{
    if (sys_fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0) < 0)
        return error_set_errno(err, errno, "overlay: set %s", key);
    return 0;
}

/* The uppermost first. */
static int set_descriptors(int fs, const struct box_overlay *overlay, struct error *err)
{
    for (size_t i = overlay->lower_count; i-- > 0;)
        if (sys_fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, overlay->lowers[i]) < 0)
            return error_set_errno(err, errno, "overlay: add layer %zu", i);
    if (overlay->upper_fd < 0)
        return 0;
    if (sys_fsconfig(fs, FSCONFIG_SET_FD, "upperdir", NULL, overlay->upper_fd) < 0 ||
        sys_fsconfig(fs, FSCONFIG_SET_FD, "workdir", NULL, overlay->work_fd) < 0)
        return error_set_errno(err, errno, "overlay: set the writable directories");
    return 0;
}

static int set_number(int fs, const char *key, int fd, struct error *err)
{
    char name[16];

    (void)snprintf(name, sizeof(name), "%d", fd);
    return set_option(fs, key, name, err);
}

/* In a working directory where descriptors are names. */
static int set_names(int fs, const struct box_overlay *overlay, struct error *err)
{
    char list[BOX_LAYERS_MAX * 12];
    size_t used = 0;

    for (size_t i = overlay->lower_count; i-- > 0;)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d", used ? ":" : "",
                                 overlay->lowers[i]);
    if (set_option(fs, "lowerdir", list, err) < 0)
        return -1;
    if (overlay->upper_fd < 0)
        return 0;
    if (set_number(fs, "upperdir", overlay->upper_fd, err) < 0)
        return -1;
    return set_number(fs, "workdir", overlay->work_fd, err);
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

static int make(const struct box_overlay *overlay, bool by_name, int *out_mount_fd,
                struct error *err)
{
    auto_close int fs = sys_fsopen("overlay", FSOPEN_CLOEXEC);
    int mount_fd, r, saved;

    if (fs < 0)
        return error_set_errno(err, errno, "overlayfs");
    if (set_option(fs, "source", "quicksand", err) < 0 || set_features(fs, err) < 0)
        return -1;
    if ((by_name ? set_names : set_descriptors)(fs, overlay, err) < 0)
        return -1;
    if (box_ids_enter(overlay->base, err) < 0)
        return -1;
    r = sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
    saved = errno;
    box_ids_leave();
    if (r < 0)
        return error_set_errno(err, saved, "make the overlay");
    mount_fd = sys_fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
    if (mount_fd < 0)
        return error_set_errno(err, errno, "mount the overlay");
    *out_mount_fd = mount_fd;
    return 0;
}

/* Onto something that no path in use leads through: all of them on top of each other. */
static int attach(int mount_fd, struct error *err)
{
    if (sys_move_mount(mount_fd, "", AT_FDCWD, "/proc/sys", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return error_set_errno(err, errno, "attach a layer");
    return 0;
}

static int make_attached(const struct box_overlay *overlay, int *out_mount_fd, struct error *err)
{
    if (chdir("/proc/self/fd") < 0)
        return error_set_errno(err, errno, "enter '/proc/self/fd'");
    for (size_t i = 0; i < overlay->lower_count; i++)
        if (attach(overlay->lowers[i], err) < 0)
            return -1;
    if (overlay->box_fd >= 0 && attach(overlay->box_fd, err) < 0)
        return -1;
    return make(overlay, true, out_mount_fd, err);
}

static int visit_and_make(const struct box_overlay *overlay, int *out_mount_fd, struct error *err)
{
    struct box_visit visit;
    int r;

    if (box_namespace_visit(overlay->mntns_fd, &visit, err) < 0)
        return -1;
    r = make_attached(overlay, out_mount_fd, err);
    box_namespace_leave(&visit);
    return r;
}

int box_overlay_make(const struct box_overlay *overlay, bool attached, int *out_mount_fd,
                     struct error *err)
{
    return attached ? visit_and_make(overlay, out_mount_fd, err)
                    : make(overlay, false, out_mount_fd, err);
}

static int clone_private(int dir_fd, const char *path, struct mount_attr *attr, int *out_tree_fd,
                         struct error *err)
{
    auto_close int tree =
        sys_open_tree(dir_fd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    if (tree < 0)
        return error_set_errno(err, errno, "clone the mount of '%s'", path);
    attr->propagation = MS_PRIVATE;
    if (sys_mount_setattr(tree, "", AT_EMPTY_PATH, attr) < 0)
        return error_set_errno(err, errno, "map the ids of '%s'", path);
    *out_tree_fd = take_fd(&tree);
    return 0;
}

int box_overlay_map(int dir_fd, const char *path, int userns_fd, uint64_t attrs, int *out_tree_fd,
                    struct error *err)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NODEV | attrs,
                              .userns_fd = (uint64_t)userns_fd};

    return clone_private(dir_fd, path, &attr, out_tree_fd, err);
}

/* A process that does nothing in namespaces of its own, for others to use. */
static int start_idle(pid_t *out_pid, struct error *err)
{
    struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_NEWNS, .exit_signal = SIGCHLD};
    pid_t pid = sys_clone3(&args);

    if (pid == 0)
        for (;;)
            (void)pause();
    if (pid < 0)
        return error_set_errno(err, errno, "clone3 with new namespaces");
    *out_pid = pid;
    return 0;
}

static void end_idle(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static int try_one_way(const struct box_probe *probe, pid_t pid, bool attached, struct error *err)
{
    auto_close int userns = box_namespace_open(pid, "user", err);
    auto_close int mntns = userns < 0 ? -1 : box_namespace_open(pid, "mnt", err);
    auto_close int lower = -1, second = -1, mount_fd = -1;
    int lowers[2];

    if (mntns < 0 || box_overlay_map(probe->layers_fd, probe->layer, userns, 0, &lower, err) < 0)
        return -1;
    /* Without an upper directory there have to be two layers. */
    if (clone_private(probe->other_fd, "", &(struct mount_attr){0}, &second, err) < 0)
        return -1;
    lowers[0] = lower;
    lowers[1] = second;
    return box_overlay_make(&(struct box_overlay){.lowers = lowers,
                                                  .lower_count = 2,
                                                  .box_fd = -1,
                                                  .upper_fd = -1,
                                                  .work_fd = -1,
                                                  .base = BOX_UID_FIRST,
                                                  .mntns_fd = mntns},
                            attached, &mount_fd, err);
}

int box_overlay_probe(const struct box_probe *probe, bool *out_attach, struct error *err)
{
    struct error first;
    struct utsname name;
    pid_t pid = -1;
    int r;

    if (start_idle(&pid, err) < 0)
        return -1;
    r = box_namespace_map(pid, BOX_UID_FIRST, err);
    if (r == 0) {
        *out_attach = try_one_way(probe, pid, false, &first) < 0;
        if (*out_attach)
            r = try_one_way(probe, pid, true, err);
    }
    end_idle(pid);
    if (r == 0)
        return 0;
    (void)uname(&name);
    return error_prefix(err,
                        "this host (Linux %s) cannot make sandboxes: Linux " OLDEST
                        " is the least, and the base layer must be on ext4, xfs or btrfs",
                        name.release);
}
