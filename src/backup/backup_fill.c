/* Fills a directory with entries of a backup. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backup/backup_pack.h"
#include "backup/backup_unpack_internal.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "host/disk/tree_walk.h"

enum { PIECE = 1 << 18, PATH_SIZE_MAX = 1 << 20, ATTRIBUTE_MAX = 65536 };

/* A directory that more may come into. */
struct open_dir {
    int fd;
    size_t len; /* of its path */
    struct timespec times[2];
};

struct backup_fill {
    struct backup_unpack *unpack;
    struct backup_filling how;
    struct open_dir dirs[TREE_DEPTH_MAX];
    size_t depth;
    struct buf path; /* of the innermost */
    uint64_t entries;
    char *piece;
};

struct backup_fill *backup_fill_new(struct backup_unpack *unpack,
                                    const struct backup_filling *filling)
{
    struct backup_fill *fill = xcalloc(1, sizeof(*fill));

    fill->unpack = unpack;
    fill->how = *filling;
    fill->piece = xmalloc(PIECE);
    buf_init(&fill->path, PATH_SIZE_MAX);
    return fill;
}

void backup_fill_free(struct backup_fill *fill)
{
    if (!fill)
        return;
    while (fill->depth)
        close_fd(&fill->dirs[--fill->depth].fd);
    buf_done(&fill->path);
    free(fill->piece);
    free(fill);
}

/* ---- what is known of a file ---- */

static void times_of(struct archive_entry *entry, struct timespec out[2])
{
    out[0] = (struct timespec){archive_entry_atime(entry), archive_entry_atime_nsec(entry)};
    out[1] = (struct timespec){archive_entry_mtime(entry), archive_entry_mtime_nsec(entry)};
}

static int owner_of(const struct backup_fill *fill, uid_t *out_uid, gid_t *out_gid,
                    struct error *err)
{
    la_int64_t uid = archive_entry_uid(fill->unpack->entry);
    la_int64_t gid = archive_entry_gid(fill->unpack->entry);

    if (uid < 0 || uid >= UINT32_MAX || gid < 0 || gid >= UINT32_MAX)
        return error_set(err, ERROR_INVALID, "nobody can be its owner");
    *out_uid = fill->how.plain ? fill->how.plain_owner : (uid_t)uid;
    *out_gid = fill->how.plain ? fill->how.plain_owner : (gid_t)gid;
    return 0;
}

/* What the kernel writes there: the name that the directory had in the layer below, beside this one, or its path from
 * the root of that layer. */
static bool redirect_ok(struct str value)
{
    bool whole = value.len > 0 && value.p[0] == '/';
    struct str rest = whole ? str_skip(value, 1) : value;

    if (value.len == 0 || value.len > PATH_MAX || memchr(value.p, '\0', value.len) ||
        (!whole && memchr(value.p, '/', value.len)))
        return false;
    while (rest.p) {
        struct str part = str_split(&rest, '/');

        if (part.len == 0 || part.len > NAME_MAX || str_is(part, ".") || str_is(part, ".."))
            return false;
    }
    return true;
}

/* Attributes of overlays decide what a sandbox sees of the layers below, so only the two that snapshots and paused
 * sandboxes need are taken, only of directories, and only with values that the kernel writes. */
static bool attribute_ok(const struct backup_fill *fill, const char *name, struct str value)
{
    static const char trusted[] = "trusted.";

    if (fill->how.plain || !tree_keeps_attribute(name) || value.len > ATTRIBUTE_MAX)
        return false;
    if (strncmp(name, trusted, sizeof(trusted) - 1) != 0)
        return true;
    if (!fill->how.overlay || archive_entry_filetype(fill->unpack->entry) != AE_IFDIR)
        return false;
    return strcmp(name, "trusted.overlay.opaque") == 0 ? str_is(value, "y") : redirect_ok(value);
}

static int set_attributes(const struct backup_fill *fill, int fd, struct error *err)
{
    struct archive_entry *entry = fill->unpack->entry;
    const char *name;
    const void *value;
    size_t len;

    (void)archive_entry_xattr_reset(entry);
    while (archive_entry_xattr_next(entry, &name, &value, &len) == ARCHIVE_OK) {
        if (strcmp(name, BACKUP_SPARSE) == 0)
            continue;
        if (!attribute_ok(fill, name, str_n(value, len)))
            return error_set(err, ERROR_INVALID,
                             "the attribute '%.60s' is not allowed here, or not with this value",
                             name);
        if (fsetxattr(fd, name, value, len, 0) < 0)
            return error_set_errno(err, errno, "set attribute '%.60s'", name);
    }
    return 0;
}

/* In this order: another owner takes away modes and capabilities. */
static int set_facts(const struct backup_fill *fill, int fd, struct error *err)
{
    mode_t mode = archive_entry_perm(fill->unpack->entry);
    uid_t uid = 0;
    gid_t gid = 0;

    if (owner_of(fill, &uid, &gid, err) < 0)
        return -1;
    if (fchown(fd, uid, gid) < 0 || fchmod(fd, mode & 07777) < 0)
        return error_set_errno(err, errno, "set owner and mode");
    return set_attributes(fill, fd, err);
}

static int set_outer_facts(const struct backup_fill *fill, int dir_fd, const char *name,
                           struct error *err)
{
    struct archive_entry *entry = fill->unpack->entry;
    struct timespec times[2];
    uid_t uid = 0;
    gid_t gid = 0;

    times_of(entry, times);
    if (owner_of(fill, &uid, &gid, err) < 0)
        return -1;
    if (fchownat(dir_fd, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        (archive_entry_filetype(entry) != AE_IFLNK &&
         fchmodat(dir_fd, name, archive_entry_perm(entry) & 07777, 0) < 0) ||
        utimensat(dir_fd, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set_errno(err, errno, "set owner, mode and times");
    return 0;
}

/* ---- directories ---- */

static int close_dir(struct backup_fill *fill, struct error *err)
{
    struct open_dir *dir = &fill->dirs[--fill->depth];
    int r = futimens(dir->fd, dir->times), errnum = errno;

    close_fd(&dir->fd);
    fill->path.len = fill->depth ? fill->dirs[fill->depth - 1].len : 0;
    return r < 0 ? error_set_errno(err, errnum, "set the times of a directory") : 0;
}

static int open_one(struct backup_fill *fill, int fd_consume, struct str path, struct error *err)
{
    auto_close int fd = fd_consume;
    struct open_dir *dir = &fill->dirs[fill->depth];

    if (fill->depth == TREE_DEPTH_MAX)
        return error_set(err, ERROR_LIMIT, "directories are more than %d deep", TREE_DEPTH_MAX);
    buf_clear(&fill->path);
    if (!buf_add_str(&fill->path, path))
        return error_set(err, ERROR_LIMIT, "a path is longer than %d bytes", PATH_SIZE_MAX);
    if (set_facts(fill, fd, err) < 0)
        return -1;
    dir->len = path.len;
    times_of(fill->unpack->entry, dir->times);
    dir->fd = take_fd(&fd);
    fill->depth++;
    return 0;
}

static int make_dir(struct backup_fill *fill, int above, const char *name, struct str path,
                    struct error *err)
{
    int fd;

    if (mkdirat(above, name, 0700) < 0)
        return error_set_errno(err, errno, "make a directory");
    fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "open a directory");
    return open_one(fill, fd, path, err);
}

static int open_root(struct backup_fill *fill, struct str path, struct error *err)
{
    int fd;

    if (archive_entry_filetype(fill->unpack->entry) != AE_IFDIR ||
        archive_entry_hardlink(fill->unpack->entry))
        return error_set(err, ERROR_INVALID, "it is no directory");
    fd = openat(fill->how.root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "open a directory");
    return open_one(fill, fd, path, err);
}

/* ---- files ---- */

static int put(const struct backup_fill *fill, int fd, const char *p, size_t len, off_t at,
               struct error *err)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, p, len, at);

        if (n < 0)
            return error_set_errno(err, errno, "write a file");
        p += n;
        at += n;
        len -= (size_t)n;
        if (fill->how.wrote)
            fill->how.wrote(fill->how.arg, (uint64_t)n);
    }
    return 0;
}

/* So many bytes of the entry to a place in the file. */
static int put_range(const struct backup_fill *fill, int fd, off_t at, uint64_t len,
                     struct error *err)
{
    while (len > 0) {
        la_ssize_t n = archive_read_data(fill->unpack->archive, fill->piece,
                                         len < PIECE ? (size_t)len : PIECE);

        if (n < 0)
            return unpack_fail(fill->unpack, err);
        if (n == 0)
            return error_set(err, ERROR_INVALID, "it is shorter than it says");
        if (put(fill, fd, fill->piece, (size_t)n, at, err) < 0)
            return -1;
        at += n;
        len -= (uint64_t)n;
    }
    return 0;
}

static int read_number(const struct backup_fill *fill, uint64_t *out, struct error *err)
{
    unsigned char bytes[8];
    size_t have = 0;

    while (have < sizeof(bytes)) {
        la_ssize_t n = archive_read_data(fill->unpack->archive, bytes + have, sizeof(bytes) - have);

        if (n <= 0)
            return n < 0 ? unpack_fail(fill->unpack, err)
                         : error_set(err, ERROR_INVALID, "its pieces end too early");
        have += (size_t)n;
    }
    *out = 0;
    for (int i = 7; i >= 0; i--)
        *out = *out << 8 | bytes[i];
    return 0;
}

static int fill_sparse(const struct backup_fill *fill, int fd, struct error *err)
{
    uint64_t at = 0, from = 0, len = 0;

    for (;;) {
        if (read_number(fill, &from, err) < 0 || read_number(fill, &len, err) < 0)
            return -1;
        if (from < at || from > INT64_MAX || len > INT64_MAX - from)
            return error_set(err, ERROR_INVALID, "its pieces are in no order");
        if (len == 0)
            break;
        if (put_range(fill, fd, (off_t)from, len, err) < 0)
            return -1;
        at = from + len;
    }
    return ftruncate(fd, (off_t)from) < 0 ? error_set_errno(err, errno, "size a file") : 0;
}

static bool is_sparse(struct archive_entry *entry)
{
    const char *name;
    const void *value;
    size_t len;

    (void)archive_entry_xattr_reset(entry);
    while (archive_entry_xattr_next(entry, &name, &value, &len) == ARCHIVE_OK)
        if (strcmp(name, BACKUP_SPARSE) == 0)
            return true;
    return false;
}

static int fill_file(const struct backup_fill *fill, int above, const char *name, struct error *err)
{
    struct archive_entry *entry = fill->unpack->entry;
    auto_close int fd =
        openat(above, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    la_int64_t size = archive_entry_size(entry);
    struct timespec times[2];

    if (fd < 0)
        return error_set_errno(err, errno, "make a file");
    if (size < 0)
        return error_set(err, ERROR_INVALID, "it has no size");
    if ((is_sparse(entry) ? fill_sparse(fill, fd, err)
                          : put_range(fill, fd, 0, (uint64_t)size, err)) < 0 ||
        set_facts(fill, fd, err) < 0)
        return -1;
    times_of(entry, times);
    return futimens(fd, times) < 0 ? error_set_errno(err, errno, "set times") : 0;
}

static int check_name(struct str name, char out[NAME_MAX + 1], struct error *err)
{
    if (name.len == 0 || str_is(name, ".") || str_is(name, "..") || memchr(name.p, '/', name.len) ||
        !str_copy(name, out, NAME_MAX + 1))
        return error_set(err, ERROR_INVALID, "that is no name of a file");
    return 0;
}

/* Step by step, so that no link leads elsewhere. */
static int fill_link(const struct backup_fill *fill, int above, const char *name, struct str target,
                     struct error *err)
{
    auto_close int dir = -1;
    char part[NAME_MAX + 1];
    struct stat st;

    if (target.len <= fill->how.skip || memcmp(target.p, fill->path.p, fill->how.skip) != 0 ||
        target.p[fill->how.skip] != '/')
        return error_set(err, ERROR_INVALID, "it is another name of a file elsewhere");
    target = str_skip(target, fill->how.skip + 1);
    dir = openat(fill->how.root_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    while (memchr(target.p, '/', target.len)) {
        int next;

        if (check_name(str_split(&target, '/'), part, err) < 0)
            return -1;
        next = openat(dir, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close_fd(&dir);
        dir = next;
    }
    if (check_name(target, part, err) < 0)
        return -1;
    if (dir < 0 || fstatat(dir, part, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return error_set(err, ERROR_INVALID, "it is another name of a file that is not there");
    return linkat(dir, part, above, name, 0) < 0 ? error_set_errno(err, errno, "link a file") : 0;
}

static int fill_other(const struct backup_fill *fill, int above, const char *name,
                      struct error *err)
{
    struct archive_entry *entry = fill->unpack->entry;
    const char *target = archive_entry_symlink(entry);
    mode_t kind = archive_entry_filetype(entry);
    int r;

    if (kind == AE_IFLNK && target)
        r = symlinkat(target, above, name);
    else if (kind == AE_IFIFO || (kind == AE_IFCHR && archive_entry_rdev(entry) == 0))
        r = mknodat(above, name, (kind == AE_IFIFO ? S_IFIFO : S_IFCHR) | 0600, 0);
    else
        return error_set(err, ERROR_INVALID, "it is a device, or of no kind that is known");
    if (r < 0)
        return error_set_errno(err, errno, "make a link or a special file");
    return set_outer_facts(fill, above, name, err);
}

static int fill_one(struct backup_fill *fill, struct str path, const char *name, struct error *err)
{
    struct archive_entry *entry = fill->unpack->entry;
    const char *link = archive_entry_hardlink(entry);
    int above = fill->dirs[fill->depth - 1].fd;

    if (fill->how.plain && (link || (archive_entry_filetype(entry) != AE_IFREG &&
                                     archive_entry_filetype(entry) != AE_IFDIR)))
        return error_set(err, ERROR_INVALID, "it is no plain file");
    if (link)
        return fill_link(fill, above, name, str_of(link), err);
    if (archive_entry_filetype(entry) == AE_IFDIR)
        return make_dir(fill, above, name, path, err);
    if (archive_entry_filetype(entry) == AE_IFREG)
        return fill_file(fill, above, name, err);
    return fill_other(fill, above, name, err);
}

/* The directory that it lies in is the innermost one that is open, then. */
static int find_dir(struct backup_fill *fill, struct str path, struct str *out_name,
                    struct error *err)
{
    const char *slash = memrchr(path.p, '/', path.len);
    size_t len = slash ? (size_t)(slash - path.p) : 0;

    while (fill->depth && (fill->path.len != len || memcmp(fill->path.p, path.p, len) != 0))
        if (close_dir(fill, err) < 0)
            return -1;
    if (!fill->depth || !slash)
        return error_set(err, ERROR_INVALID, "the directory that it lies in did not come before");
    *out_name = str_skip(path, len + 1);
    return 0;
}

int backup_fill_entry(struct backup_fill *fill, struct str path, struct error *err)
{
    char name[NAME_MAX + 1];
    struct str last;
    int r;

    if (++fill->entries > TREE_ENTRIES_MAX)
        return error_set(err, ERROR_LIMIT, "more than %d files", TREE_ENTRIES_MAX);
    if (fill->entries == 1)
        r = open_root(fill, path, err);
    else
        r = find_dir(fill, path, &last, err) < 0 || check_name(last, name, err) < 0
                ? -1
                : fill_one(fill, path, name, err);
    return r < 0 ? error_prefix(err, "entry '%.120s'", path.p) : 0;
}

int backup_fill_end(struct backup_fill *fill, struct error *err)
{
    while (fill->depth)
        if (close_dir(fill, err) < 0)
            return -1;
    return 0;
}
