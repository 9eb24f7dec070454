/* A copy of a directory that a box wrote: what is in it, with owners, modes, times, holes, several names of one file,
 * access lists, attributes of users, capabilities, and what the overlay notes about layers below it (hidden, replaced and
 * renamed entries). What the overlay notes about the box that wrote it stays behind, unless the copy is to be exact.
 *
 * Capabilities of files are on the disk as those of the box's root (or of a user inside who is root of a namespace of
 * his own), so they mean the same in every box.
 *
 * An exact copy is for a directory of a few files that somebody waits for: what it has not learnt to copy is refused, and
 * contents go through memory. To let the kernel copy, or share, what is not on disk yet would mean to wait for that. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "host/disk/tree_internal.h"

enum {
    LIST_SIZE = 65536,
    VALUE_SIZE = 65536,
    CHUNK = 8 << 20,
    BIG = 1 << 20, /* writing it out begins at once */
};

struct copy {
    const struct tree_copying *of;
    bool by_hand;      /* the kernel does not copy between these file systems by itself */
    uint64_t bytes;    /* written */
    uint64_t unlooked; /* since the last look at the free space */
    char *list, *value;
};

static const char *const kept[] = {
    "security.capability",    "system.posix_acl_access",  "system.posix_acl_default",
    "trusted.overlay.opaque", "trusted.overlay.redirect",
};

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

bool tree_keeps_attribute(const char *name)
{
    for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
        if (strcmp(name, kept[i]) == 0)
            return true;
    return starts(name, "user.");
}

static bool is_kept(const struct copy *copy, const char *attribute)
{
    return tree_keeps_attribute(attribute) ||
           (copy->of->exact && starts(attribute, "trusted.overlay."));
}

static int copy_attribute(struct copy *copy, int from, int to, const char *name, struct error *err)
{
    ssize_t len = fgetxattr(from, name, copy->value, VALUE_SIZE);

    if (len < 0 || fsetxattr(to, name, copy->value, (size_t)len, 0) < 0)
        return error_set_errno(err, errno, "copy attribute '%.40s'", name);
    return 0;
}

static int copy_attributes(struct copy *copy, int from, int to, struct error *err)
{
    ssize_t len = flistxattr(from, copy->list, LIST_SIZE);

    if (len < 0)
        return error_set_errno(err, errno, "list attributes");
    for (const char *name = copy->list; name < copy->list + len; name += strlen(name) + 1) {
        bool keep = is_kept(copy, name);

        if (!keep && copy->of->exact)
            return error_set(err, ERROR_UNSUPPORTED, "attribute '%.40s'", name);
        if (keep && copy_attribute(copy, from, to, name, err) < 0)
            return -1;
    }
    return 0;
}

/* Such as those that chattr sets. */
static unsigned flags_of(int fd)
{
    int flags = 0; /* the kernel writes an int, whatever its headers say */

    return ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 ? 0 : (unsigned)flags;
}

/* In this order: another owner takes away modes and capabilities, anything takes away times. */
static int copy_facts(struct copy *copy, int from, int to, const struct stat *st, struct error *err)
{
    const struct timespec times[] = {st->st_atim, st->st_mtim};
    bool same = copy->of->exact && st->st_uid == 0 && st->st_gid == 0; /* as it was made */

    if ((!same && fchown(to, st->st_uid, st->st_gid) < 0) || fchmod(to, st->st_mode & 07777) < 0)
        return error_set_errno(err, errno, "set owner and mode");
    if (copy_attributes(copy, from, to, err) < 0)
        return -1;
    if (copy->of->exact && flags_of(from) != flags_of(to))
        return error_set(err, ERROR_UNSUPPORTED, "its flags");
    if (futimens(to, times) < 0)
        return error_set_errno(err, errno, "set times");
    return 0;
}

/* Of what cannot be opened. */
static int copy_outer_facts(int dir_fd, const char *name, const struct stat *st, struct error *err)
{
    const struct timespec times[] = {st->st_atim, st->st_mtim};

    if (fchownat(dir_fd, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        (!S_ISLNK(st->st_mode) && fchmodat(dir_fd, name, st->st_mode & 07777, 0) < 0) ||
        utimensat(dir_fd, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set_errno(err, errno, "set owner, mode and times");
    return 0;
}

/* ---- contents ---- */

static int account(struct copy *copy, uint64_t bytes, struct error *err)
{
    const struct trees *trees = copy->of->trees;
    uint64_t limit = copy->of->bytes_max;

    copy->bytes += bytes;
    copy->unlooked += bytes;
    if (limit && copy->bytes > limit)
        return error_set(err, ERROR_LIMIT, "more than %" PRIu64 " MiB", limit >> 20);
    if (!trees)
        return 0;
    if (trees_stopped(trees))
        return error_set(err, ERROR_UNAVAILABLE, "the server is stopping");
    if (copy->unlooked < TREE_LOOK_BYTES)
        return 0;
    copy->unlooked = 0;
    return tree_check_space(trees, err);
}

static bool cannot_copy(int errnum)
{
    return errnum == EXDEV || errnum == EINVAL || errnum == EOPNOTSUPP || errnum == ENOSYS;
}

static ssize_t copy_little(const struct copy *copy, int from, int to, off_t *at, size_t len)
{
    ssize_t n = pread(from, copy->value, len < VALUE_SIZE ? len : VALUE_SIZE, *at);

    if (n > 0)
        n = pwrite(to, copy->value, (size_t)n, *at);
    *at += n > 0 ? n : 0;
    return n;
}

static ssize_t copy_some(struct copy *copy, int from, int to, off_t *at, size_t len)
{
    off_t out = *at;
    ssize_t n = -1;

    if (copy->of->exact)
        return copy_little(copy, from, to, at, len);
    if (!copy->by_hand) {
        n = copy_file_range(from, at, to, &out, len, 0);
        copy->by_hand = n < 0 && cannot_copy(errno);
    }
    if (!copy->by_hand)
        return n;
    return lseek(to, *at, SEEK_SET) < 0 ? -1 : sendfile(to, from, at, len);
}

static int copy_range(struct copy *copy, int from, int to, off_t at, off_t end, struct error *err)
{
    while (at < end) {
        ssize_t n = copy_some(copy, from, to, &at, end - at < CHUNK ? (size_t)(end - at) : CHUNK);

        if (n < 0)
            return error_set_errno(err, errno, "copy a file");
        if (n == 0)
            return error_set(err, ERROR_INTERNAL, "a file is shorter than it says");
        if (account(copy, (uint64_t)n, err) < 0)
            return -1;
    }
    return 0;
}

/* Holes stay holes. */
static int copy_contents(struct copy *copy, int from, int to, const struct stat *st,
                         struct error *err)
{
    off_t at = 0, end = 0, size = st->st_size;

    if (copy->of->exact && st->st_blocks * 512 >= size)
        return copy_range(copy, from, to, 0, size, err);
    while (at < size && (at = lseek(from, at, SEEK_DATA)) >= 0) {
        end = lseek(from, at, SEEK_HOLE);
        if (end < 0)
            return error_set_errno(err, errno, "look for holes");
        if (copy_range(copy, from, to, at, end < size ? end : size, err) < 0)
            return -1;
        at = end;
    }
    if (at < 0 && errno != ENXIO)
        return error_set_errno(err, errno, "look for data");
    /* Where nothing is missing, btrfs would write the last block out and wait for it. */
    if (end < size && ftruncate(to, size) < 0)
        return error_set_errno(err, errno, "size a file");
    return 0;
}

/* Of a copy that nobody waits for. */
static void put_away(int from, int to, off_t size)
{
    if (size >= BIG)
        (void)sync_file_range(to, 0, 0, SYNC_FILE_RANGE_WRITE);
    (void)posix_fadvise(from, 0, 0, POSIX_FADV_DONTNEED); /* boxes read the copy */
}

static int copy_file(struct copy *copy, const struct tree_entry *entry, struct error *err)
{
    auto_close int from = openat(entry->dir_fd, entry->name,
                                 O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOATIME | O_CLOEXEC);
    auto_close int to = openat((int)entry->above, entry->name,
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct stat st;

    if (from < 0 || to < 0 || fstat(from, &st) < 0)
        return error_set_errno(err, errno, "open a file");
    if (!S_ISREG(st.st_mode))
        return error_set(err, ERROR_INTERNAL, "a file changed while it was copied");
    if (account(copy, 4096, err) < 0 || copy_contents(copy, from, to, &st, err) < 0)
        return -1;
    if (!copy->of->exact)
        put_away(from, to, st.st_size);
    return copy_facts(copy, from, to, &st, err);
}

/* Returns 1 when it was another name of one that is there already. */
static int link_known(struct copy *copy, const struct tree_entry *entry, char number[24],
                      struct error *err)
{
    (void)snprintf(number, 24, "%" PRIu64, (uint64_t)entry->st.st_ino);
    if (linkat(copy->of->links_fd, number, (int)entry->above, entry->name, 0) == 0)
        return 1;
    if (errno == EMLINK && unlinkat(copy->of->links_fd, number, 0) == 0)
        return 0;
    return errno == ENOENT ? 0 : error_set_errno(err, errno, "link a file");
}

static int copy_regular(struct copy *copy, const struct tree_entry *entry, struct error *err)
{
    char number[24];
    int known = 0;

    if (entry->st.st_nlink > 1)
        known = link_known(copy, entry, number, err);
    if (known)
        return known < 0 ? -1 : 0;
    if (copy_file(copy, entry, err) < 0)
        return -1;
    if (entry->st.st_nlink > 1 &&
        linkat((int)entry->above, entry->name, copy->of->links_fd, number, 0) < 0)
        return error_set_errno(err, errno, "remember a file");
    return 0;
}

static int copy_symlink(const struct tree_entry *entry, struct error *err)
{
    char target[PATH_MAX];
    ssize_t len = readlinkat(entry->dir_fd, entry->name, target, sizeof(target) - 1);

    if (len < 0 || len == (ssize_t)sizeof(target) - 1)
        return error_set_errno(err, len < 0 ? errno : ENAMETOOLONG, "read a link");
    target[len] = '\0';
    if (symlinkat(target, (int)entry->above, entry->name) < 0)
        return error_set_errno(err, errno, "make a link");
    return copy_outer_facts((int)entry->above, entry->name, &entry->st, err);
}

/* Pipes, sockets, and the device that is none and hides what lies below. */
static int copy_special(const struct tree_entry *entry, struct error *err)
{
    mode_t kind = entry->st.st_mode & S_IFMT;

    if (kind == S_IFBLK || (kind == S_IFCHR && entry->st.st_rdev != 0))
        return error_set(err, ERROR_INVALID, "a device is in it");
    if (mknodat((int)entry->above, entry->name, kind | 0600, 0) < 0)
        return error_set_errno(err, errno, "make a special file");
    return copy_outer_facts((int)entry->above, entry->name, &entry->st, err);
}

/* ---- the walk ---- */

/* What hides something is made by the overlay, which gives one such file many names. */
bool tree_entry_is_alone(const struct tree_entry *entry)
{
    return entry->st.st_nlink <= 1 || (S_ISCHR(entry->st.st_mode) && entry->st.st_rdev == 0);
}

static int leaf(void *arg, const struct tree_entry *entry, struct error *err)
{
    const struct copy *copy = arg;
    int r;

    if (copy->of->exact && !tree_entry_is_alone(entry))
        return error_set(err, ERROR_UNSUPPORTED, "'%.60s' has several names", entry->name);
    r = S_ISREG(entry->st.st_mode)   ? copy_regular(arg, entry, err)
        : S_ISLNK(entry->st.st_mode) ? copy_symlink(entry, err)
                                     : copy_special(entry, err);

    return r < 0 ? error_prefix(err, "'%.60s'", entry->name) : 0;
}

/* The note is the descriptor of the copy. */
static int enter(void *arg, const struct tree_entry *entry, uint64_t *out_note, struct error *err)
{
    struct copy *copy = arg;
    int above = entry->name ? (int)entry->above : copy->of->root_fd, fd;

    if (account(copy, 4096, err) < 0)
        return -1;
    if (entry->name && mkdirat(above, entry->name, 0700) < 0)
        return error_set_errno(err, errno, "make directory '%.60s'", entry->name);
    fd = openat(above, entry->name ? entry->name : ".",
                O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "open a directory");
    *out_note = (uint64_t)fd;
    return 0;
}

static int leave(void *arg, const struct tree_entry *entry, uint64_t note, struct error *err)
{
    int r = copy_facts(arg, entry->fd, (int)note, &entry->st, err);

    (void)close((int)note);
    return r < 0 ? error_prefix(err, "a directory") : 0;
}

static void drop(void *arg, uint64_t note)
{
    (void)arg;
    (void)close((int)note);
}

int tree_copy_into(const struct tree_copying *of, int source_fd, struct error *err)
{
    struct copy copy = {.of = of};
    struct tree_walk walk = {.trees = of->trees,
                             .entries_max = of->entries_max,
                             .arg = &copy,
                             .enter = enter,
                             .leave = leave,
                             .drop = drop,
                             .leaf = leaf};
    auto_free char *list = xmalloc(LIST_SIZE), *value = xmalloc(VALUE_SIZE);

    copy.list = list;
    copy.value = value;
    return tree_walk(&walk, source_fd, err);
}
