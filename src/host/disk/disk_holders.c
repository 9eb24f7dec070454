/* Copies of the pool's mount in the mount namespaces of others.
 *
 * Whoever made a namespace of its own while the pool was mounted (a container's monitor, a service with private
 * mounts) has a copy that unmounting here does not reach, and that keeps the file system and its loop device
 * alive. It is found by the device's name in /proc/PID/mountinfo and taken away there: it is our pool, and nobody
 * else has any use for it. Volumes inside sandboxes are other directories of the file system, and stay. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/str.h"
#include "host/disk/disk_internal.h"

enum { MOUNTS_MAX = 4 << 20, ROOT_FIELD = 3 };

/* "ID PARENT DEVICE ROOT PLACE OPTIONS [MORE...] - TYPE SOURCE OPTIONS" */
static bool is_copy(struct str line, const char *device)
{
    ptrdiff_t dash = str_find_str(line, STR(" - "));
    struct str end;

    if (dash < 0)
        return false;
    end = str_skip(line, (size_t)dash + 3);
    for (int i = 0; i < ROOT_FIELD; i++)
        (void)str_split(&line, ' ');
    return str_is(str_split(&line, ' '), "/") && str_is(str_split(&end, ' '), "btrfs") &&
           str_is(str_split(&end, ' '), device);
}

static bool has_copy(int proc_fd, const char *device)
{
    auto_buf struct buf text = {0};
    struct str rest;

    buf_init(&text, MOUNTS_MAX);
    if (fd_read_file_at(proc_fd, "mountinfo", &text) < 0)
        return false;
    rest = buf_str(&text);
    while (rest.len)
        if (is_copy(str_split(&rest, '\n'), device))
            return true;
    return false;
}

static bool is_known(struct disk_holders *holders, ino_t mounts)
{
    for (size_t i = 0; i < holders->count; i++)
        if (holders->mounts[i] == mounts)
            return true;
    return false;
}

static void add_name(struct disk_holders *holders, int proc_fd, const char *pid)
{
    size_t used = strlen(holders->names);
    auto_buf struct buf name = {0};

    buf_init(&name, 64);
    if (fd_read_file_at(proc_fd, "comm", &name) < 0)
        return;
    (void)snprintf(holders->names + used, sizeof(holders->names) - used, "%s%s (%.*s)",
                   used ? ", " : "", pid, STR_ARG(str_trim(buf_str(&name))));
}

struct detach {
    int mounts_fd;
    const char *place;
};

/* A thread cannot change its mount namespace while it shares its directories with others: a child does. */
static int detach(void *arg)
{
    const struct detach *at = arg;

    return setns(at->mounts_fd, CLONE_NEWNS) < 0 ||
           umount2(at->place, MNT_DETACH | UMOUNT_NOFOLLOW) < 0;
}

static void look_at(struct disk_holders *holders, int proc_fd, const char *pid, const char *place)
{
    auto_close int mounts_fd = openat(proc_fd, "ns/mnt", O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (mounts_fd < 0 || fstat(mounts_fd, &st) < 0 || is_known(holders, st.st_ino))
        return;
    if (holders->count == DISK_HOLDERS_MAX)
        return;
    if (!has_copy(proc_fd, holders->device))
        return;
    holders->mounts[holders->count++] = st.st_ino;
    add_name(holders, proc_fd, pid);
    (void)process_run(
        &(struct process_spec){.run = detach, .arg = &(struct detach){mounts_fd, place}}, 0);
}

void disk_holders_detach(struct disk_holders *holders, const char *device, const char *place)
{
    DIR *dir = opendir("/proc");
    const struct dirent *entry;

    *holders = (struct disk_holders){.device = device};
    if (!dir)
        return;
    while ((entry = readdir(dir))) {
        auto_close int proc_fd = -1;
        uint64_t pid;

        if (!str_to_u64(str_of(entry->d_name), &pid))
            continue;
        proc_fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (proc_fd >= 0)
            look_at(holders, proc_fd, entry->d_name, place);
    }
    (void)closedir(dir);
}
