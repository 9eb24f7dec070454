/* What a box sees of /proc and /sys. Between clone and exec, as in box_child.c: only system calls. */
#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "host/native/box_child.h"
#include "host/native/box_syscalls.h"

/* Parts of /proc and /sys that speak of the host, or act on it. What the box's root cannot open
 * anyway, because it belongs to the host's, needs no cover: each mount costs time. */
static const char *const read_only_paths[] = {"/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs",
                                              "/proc/sysrq-trigger"};
static const char *const hidden_files[] = {
    "/proc/kcore",       "/proc/keys",          "/proc/key-users",   "/proc/timer_list",
    "/proc/sched_debug", "/proc/latency_stats", "/proc/timer_stats", "/proc/kallsyms",
    "/proc/modules",     "/proc/kmsg",          "/proc/kpagecount",  "/proc/kpageflags",
    "/proc/kpagecgroup", "/proc/vmallocinfo",   "/proc/slabinfo",    "/proc/iomem",
    "/proc/ioports",     "/proc/interrupts",    "/proc/config.gz",   "/proc/mtrr"};
static const char *const hidden_dirs[] = {
    "/proc/acpi",
    "/proc/scsi",
    "/proc/asound",
    "/sys/firmware",
    "/sys/fs/btrfs", /* what each box of the host has written */
    "/sys/devices/virtual/powercap",
    "/sys/kernel/security",
    "/sys/kernel/debug",
    "/sys/kernel/tracing"};

static bool reachable(const char *path)
{
    return access(path, R_OK) == 0 || access(path, W_OK) == 0 || access(path, X_OK) == 0;
}

/* Puts a read-only copy of `what` over `path`. */
static void cover(const struct box_child *child, const char *path, const char *what, bool directory)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    int tree = sys_open_tree(AT_FDCWD, what, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    MUST(tree, what);
    MUST(sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr), what);
    box_child_attach(child, tree, path, directory);
}

/* While /dev/mqueue is still the empty directory of the device tree. */
static void seal_proc(const struct box_child *child)
{
    for (size_t i = 0; i < sizeof(read_only_paths) / sizeof(*read_only_paths); i++)
        if (reachable(read_only_paths[i]))
            cover(child, read_only_paths[i], read_only_paths[i], false);
    for (size_t i = 0; i < sizeof(hidden_files) / sizeof(*hidden_files); i++)
        if (reachable(hidden_files[i]))
            cover(child, hidden_files[i], "/dev/null", false);
    for (size_t i = 0; i < sizeof(hidden_dirs) / sizeof(*hidden_dirs); i++)
        if (reachable(hidden_dirs[i]))
            cover(child, hidden_dirs[i], "/dev/mqueue", true);
}

/* A file of the box's own goes over another: it lives on the box's /run, without a name there. */
static const char own_file[] = "/run/.own";

static int begin_own_file(const struct box_child *child)
{
    int fd = open(own_file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);

    MUST(fd, "make a file of its own");
    return fd;
}

static void cover_with_own_file(const struct box_child *child, int fd, const char *path)
{
    (void)close(fd);
    cover(child, path, own_file, false);
    MUST(unlink(own_file), "hide a file of its own");
}

/* Each start is a boot of its own: programs tell by this id whether what they left in memory or in
 * temporary files can still hold. */
static void renew_boot_id(const struct box_child *child)
{
    char text[64];
    int from = open("/proc/sys/kernel/random/uuid", O_RDONLY | O_CLOEXEC), to;
    ssize_t len;

    MUST(from, "make a boot id");
    len = read(from, text, sizeof(text));
    MUST((int)len, "make a boot id");
    (void)close(from);
    to = begin_own_file(child);
    MUST(fd_write_full(to, text, (size_t)len), "write the boot id");
    cover_with_own_file(child, to, "/proc/sys/kernel/random/boot_id");
}

/* The C library and others count processors by these files, not by what a process may run on. */
static void show_cpus(const struct box_child *child)
{
    static const char online[] = "/sys/devices/system/cpu/online", info[] = "/proc/cpuinfo";
    int fd;

    if (box_cpus_all(child))
        return;
    if (reachable(online)) {
        fd = begin_own_file(child);
        MUST(box_cpus_write_list(child, fd), "write the processors");
        cover_with_own_file(child, fd, online);
    }
    if (child->cpuinfo && reachable(info)) {
        fd = begin_own_file(child);
        MUST(box_cpus_write_info(child, fd), "write the processors");
        cover_with_own_file(child, fd, info);
    }
}

void box_child_hide(const struct box_child *child)
{
    seal_proc(child);
    renew_boot_id(child);
    show_cpus(child);
}
