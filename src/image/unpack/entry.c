#include "image/unpack/entry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"

enum {
    NOTES_MAX = 20,
    BIG = 1 << 20, /* a file whose data is sent to the disk while the next ones are unpacked */
};
/* Of one file, holes included. */
static const int64_t file_max = (int64_t)1 << 40;

static void note(struct writer *writer, const char *what, const char *path)
{
    if (++writer->notes <= NOTES_MAX)
        printf("note: %s '%s'\n", what, path);
    else if (writer->notes == NOTES_MAX + 1)
        printf("note: there is more of this kind\n");
}

/* ---- attributes ---- */

static struct owner owner_of(const struct writer *writer, struct archive_entry *entry)
{
    if (writer->owner)
        return *writer->owner;
    return (struct owner){(uid_t)archive_entry_uid(entry), (gid_t)archive_entry_gid(entry)};
}

static mode_t mode_of(const struct writer *writer, struct archive_entry *entry)
{
    return writer->mode >= 0 ? (mode_t)writer->mode : archive_entry_perm(entry) & 07777;
}

static struct timespec mtime_of(struct archive_entry *entry)
{
    return (struct timespec){archive_entry_mtime(entry), archive_entry_mtime_nsec(entry)};
}

/* Attributes of an overlay would be taken for its own by the one that is stacked on this. */
bool entry_wanted_attribute(const char *name)
{
    static const char user[] = "user.", overlay[] = "user.overlay.";

    if (strcmp(name, "security.capability") == 0)
        return true;
    return strncmp(name, user, sizeof(user) - 1) == 0 &&
           strncmp(name, overlay, sizeof(overlay) - 1) != 0;
}

static void set_attributes(struct writer *writer, int fd, struct archive_entry *entry,
                           const char *path)
{
    const char *name;
    const void *value;
    size_t size;

    if (archive_entry_xattr_reset(entry) == 0)
        return;
    while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK)
        if (entry_wanted_attribute(name) && fsetxattr(fd, name, value, size, 0) < 0)
            note(writer, "left out an attribute of", path);
}

/* chown takes away what chmod and the attributes give. */
static int set_owner_and_mode(struct writer *writer, int fd, struct archive_entry *entry,
                              const char *path, struct error *err)
{
    struct owner owner = owner_of(writer, entry);
    mode_t mode = mode_of(writer, entry);
    struct stat st;

    if (fstat(fd, &st) < 0)
        return error_set_errno(err, errno, "cannot look at '%.200s'", path);
    if ((st.st_uid != owner.uid || st.st_gid != owner.gid) && fchown(fd, owner.uid, owner.gid) < 0)
        return error_set_errno(err, errno, "cannot give '%.200s' to %u:%u", path, owner.uid,
                               owner.gid);
    if (((st.st_mode & 07777) != mode || mode & 07000) && fchmod(fd, mode) < 0)
        return error_set_errno(err, errno, "cannot set the mode of '%.200s'", path);
    set_attributes(writer, fd, entry, path);
    return 0;
}

int entry_set_dir(struct writer *writer, int fd, struct archive_entry *entry, const char *path,
                  struct error *err)
{
    if (set_owner_and_mode(writer, fd, entry, path, err) < 0)
        return -1;
    tree_late_add(&writer->tree, path, mtime_of(entry));
    return 0;
}

/* ---- kinds ---- */

/* Room for a new entry where another one is; then it is tried again. */
static int make_room(struct writer *writer, const char *name, const char *path, struct error *err)
{
    struct stat st;

    if (!writer->replace && fstatat(writer->tree.parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(st.st_mode))
        return error_set(err, ERROR_INVALID, "'/%.200s' is a directory", path);
    return tree_remove(&writer->tree, name, err);
}

static int write_at(int fd, const void *p, size_t len, int64_t offset)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(fd, (const char *)p + done, len - done, offset + (int64_t)done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (size_t)n;
    }
    return 0;
}

static int write_blocks(struct writer *writer, struct archive *archive, int fd, int64_t size,
                        const char *path, struct error *err)
{
    const void *block;
    int64_t offset, end = 0;
    size_t len;
    int r;

    while ((r = archive_read_data_block(archive, &block, &len, &offset)) == ARCHIVE_OK) {
        int written;

        if (tree_count_bytes(&writer->tree, len, err) < 0)
            return -1;
        written = write_at(fd, block, len, offset);
        if (written < 0)
            return error_set_errno(err, -written, "cannot write '%.200s'", path);
        end = offset + (int64_t)len;
    }
    if (r != ARCHIVE_EOF)
        return error_set(err, ERROR_INVALID, "'%.100s' is not whole in the archive: %.150s", path,
                         archive_error_string(archive) ? archive_error_string(archive)
                                                       : "it ends too early");
    if (end < size && ftruncate(fd, size) < 0)
        return error_set_errno(err, errno, "cannot write '%.200s'", path);
    return 0;
}

static int write_copy(int from, int fd, const char *path, struct error *err)
{
    char piece[64 * 1024];
    ssize_t got;
    int r = 0;

    while ((got = fd_read_full(from, piece, sizeof(piece))) > 0 && r == 0)
        r = fd_write_full(fd, piece, (size_t)got);
    if (got < 0)
        r = (int)got;
    return r == 0 ? 0 : error_set_errno(err, -r, "cannot write '%.200s'", path);
}

static int write_data(struct writer *writer, struct archive *archive, int fd, int64_t size,
                      const char *path, struct error *err)
{
    if (writer->data > 0)
        return write_copy(writer->data, fd, path, err);
    return write_blocks(writer, archive, fd, size, path, err);
}

static int write_file(struct writer *writer, struct archive *archive, struct archive_entry *entry,
                      const char *name, const char *path, struct error *err)
{
    static const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    mode_t mode = mode_of(writer, entry) & 0777;
    struct timespec times[2] = {mtime_of(entry), mtime_of(entry)};
    int64_t size = archive_entry_size(entry);
    auto_close int fd = -1;

    if (size > file_max)
        return error_set(err, ERROR_LIMIT, "'%.200s' is too large", path);
    fd = openat(writer->tree.parent, name, flags, mode);
    if (fd < 0 && errno == EEXIST) {
        if (make_room(writer, name, path, err) < 0)
            return -1;
        fd = openat(writer->tree.parent, name, flags, mode);
    }
    if (fd < 0)
        return error_set_errno(err, errno, "cannot make '%.200s'", path);
    if (write_data(writer, archive, fd, size, path, err) < 0 ||
        set_owner_and_mode(writer, fd, entry, path, err) < 0)
        return -1;
    (void)futimens(fd, times);
    /* Whoever asks for all of it to be on the disk waits for less then. */
    if (size >= BIG)
        (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    return 0;
}

static int write_dir(struct writer *writer, struct archive_entry *entry, const char *name,
                     const char *path, struct error *err)
{
    auto_close int fd = -1;
    bool made = mkdirat(writer->tree.parent, name, 0755) == 0;

    if (!made && errno != EEXIST)
        return error_set_errno(err, errno, "cannot make '%.200s'", path);
    if (!made && !writer->replace) {
        fd = tree_find(&writer->tree, path, O_RDONLY | O_DIRECTORY);
        return fd >= 0 ? 0 : error_set(err, ERROR_INVALID, "'/%.200s' is no directory", path);
    }
    fd = openat(writer->tree.parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (tree_remove(&writer->tree, name, err) < 0)
            return -1;
        if (mkdirat(writer->tree.parent, name, 0755) < 0)
            return error_set_errno(err, errno, "cannot make '%.200s'", path);
        fd = openat(writer->tree.parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (fd < 0)
        return error_set_errno(err, errno, "cannot open '%.200s'", path);
    return entry_set_dir(writer, fd, entry, path, err);
}

/* Makes it, or says why not with errno: what has no descriptor of its own. */
static int make_plain(struct writer *writer, struct archive_entry *entry, const char *name)
{
    const char *target = archive_entry_symlink(entry);

    if (archive_entry_filetype(entry) == AE_IFLNK)
        return symlinkat(target ? target : "", writer->tree.parent, name);
    return mkfifoat(writer->tree.parent, name, mode_of(writer, entry) & 0777);
}

static int write_plain(struct writer *writer, struct archive_entry *entry, const char *name,
                       const char *path, struct error *err)
{
    struct timespec times[2] = {mtime_of(entry), mtime_of(entry)};
    struct owner owner = owner_of(writer, entry);
    int r = make_plain(writer, entry, name);

    if (r < 0 && errno == EEXIST) {
        if (make_room(writer, name, path, err) < 0)
            return -1;
        r = make_plain(writer, entry, name);
    }
    if (r < 0)
        return error_set_errno(err, errno, "cannot make '%.200s'", path);
    if (fchownat(writer->tree.parent, name, owner.uid, owner.gid, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set_errno(err, errno, "cannot give '%.200s' to %u:%u", path, owner.uid,
                               owner.gid);
    (void)utimensat(writer->tree.parent, name, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

/* The target's own last part is not followed: a link to a symbolic link is one to the same. */
static int write_link(struct writer *writer, const char *name, const char *path, const char *link,
                      struct error *err)
{
    struct tree *tree = &writer->tree;
    struct error why = {0};
    const char *target;
    auto_close int here = dup(tree->parent);
    struct stat from, to;
    int r;

    if (here < 0 || tree_parent_find(tree, link, &target, &why) < 0 ||
        fstatat(tree->parent, target, &from, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set(err, ERROR_INVALID, "'%.120s' is a link to '%.120s', which is not there",
                         path, link);
    if (S_ISDIR(from.st_mode))
        return error_set(err, ERROR_INVALID, "'%.120s' is a link to a directory", path);
    if (fstatat(here, name, &to, AT_SYMLINK_NOFOLLOW) == 0) {
        if (to.st_ino == from.st_ino && to.st_dev == from.st_dev)
            return 0;
        tree->stale = true;
        if (S_ISDIR(to.st_mode) && !writer->replace)
            return error_set(err, ERROR_INVALID, "'/%.200s' is a directory", path);
        r = path_remove_tree(here, name);
        if (r < 0)
            return error_set_errno(err, -r, "cannot replace '%.200s'", path);
    }
    r = linkat(tree->parent, target, here, name, 0);
    return r == 0 ? 0 : error_set_errno(err, errno, "cannot link '%.200s'", path);
}

static int write_kind(struct writer *writer, struct archive *archive, struct archive_entry *entry,
                      const char *name, const char *path, struct error *err)
{
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        return write_file(writer, archive, entry, name, path, err);
    case AE_IFDIR:
        return write_dir(writer, entry, name, path, err);
    case AE_IFLNK:
    case AE_IFIFO:
        return write_plain(writer, entry, name, path, err);
    default:
        note(writer, "left out the device node or socket", path);
        return 0;
    }
}

int entry_write(struct writer *writer, struct archive *archive, struct archive_entry *entry,
                const char *path, const char *link, struct error *err)
{
    const char *name;

    if (tree_parent(&writer->tree, path, &name, err) < 0)
        return -1;
    tree_made_add(&writer->tree, name);
    if (link)
        return write_link(writer, name, path, link, err);
    return write_kind(writer, archive, entry, name, path, err);
}

int entry_write_from(struct writer *writer, int fd, struct archive_entry *entry, const char *path,
                     struct error *err)
{
    int r;

    writer->data = fd;
    r = entry_write(writer, NULL, entry, path, NULL, err);
    writer->data = 0;
    return r;
}

/* ---- reading ---- */

static la_ssize_t read_source(struct archive *archive, void *arg, const void **piece)
{
    struct reading *reading = arg;
    ssize_t got = source_next(reading->source, piece, &reading->failure);

    if (got < 0)
        archive_set_error(archive, EIO, "%s", reading->failure.message);
    return got;
}

struct archive *reading_open(struct reading *reading, int fd, const char *name, struct error *err)
{
    struct archive *archive;

    *reading = (struct reading){0};
    if (source_open(fd, name, &reading->source, err) < 0)
        return NULL;
    archive = archive_read_new();
    (void)archive_read_support_format_tar(archive);
    (void)archive_read_support_format_empty(archive);
    if (archive_read_open(archive, reading, NULL, read_source, NULL) != ARCHIVE_OK) {
        (void)error_set(err, ERROR_INVALID, "'%s' is no tar archive", name);
        if (reading->failure.code != ERROR_NONE)
            *err = reading->failure;
        reading_close(reading, archive);
        return NULL;
    }
    return archive;
}

int reading_next(struct reading *reading, struct archive *archive, struct archive_entry **entry,
                 const char *name, struct error *err)
{
    int r = archive_read_next_header(archive, entry);

    if (r == ARCHIVE_OK || r == ARCHIVE_WARN)
        return 1;
    if (r == ARCHIVE_EOF)
        return 0;
    if (reading->failure.code != ERROR_NONE) {
        *err = reading->failure;
        return -1;
    }
    return error_set(err, ERROR_INVALID, "'%s' is no whole tar archive: %s", name,
                     archive_error_string(archive));
}

void reading_close(struct reading *reading, struct archive *archive)
{
    (void)archive_read_free(archive);
    source_close(reading->source);
    reading->source = NULL;
}
