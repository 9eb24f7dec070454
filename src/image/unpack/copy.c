/* A client's archive into a root: the rules of COPY and ADD.
 *
 * Names in the archive are relative to the client's context. What `src` names is copied: of a directory its content, into the
 * directory `to`; a file or link becomes `to`, or is put into it when that is a directory or ends with a slash. */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "image/unpack/entry.h"
#include "image/unpack/owner.h"
#include "image/unpack/unpack.h"

struct copy {
    const struct copy_wanted *wanted;
    struct writer writer;
    struct owner owner;
    char src[TREE_PATH_SIZE], to[TREE_PATH_SIZE];
    bool to_is_dir;   /* said, or found */
    bool to_is_there; /* as a directory */
    bool found;
};

/* ---- what is left out ---- */

/* A pattern matches a name, or any directory above it; "**" and a slash at its beginning stand for any directories. */
static bool matches(const char *pattern, const char *path)
{
    char part[TREE_PATH_SIZE];
    bool anywhere = strncmp(pattern, "**/", 3) == 0;

    for (const char *begin = path; begin; begin = strchr(begin, '/')) {
        begin += *begin == '/';
        for (const char *end = begin; end; end = strchr(end + 1, '/')) {
            size_t len = strlen(begin) - (end == begin ? 0 : strlen(end));

            (void)snprintf(part, sizeof(part), "%.*s", (int)len, begin);
            if (fnmatch(pattern + (anywhere ? 3 : 0), part, FNM_PATHNAME) == 0)
                return true;
        }
        if (!anywhere)
            return false;
    }
    return false;
}

static bool excluded(const struct copy_wanted *wanted, const char *path)
{
    for (size_t i = 0; i < wanted->exclude_count; i++)
        if (matches(wanted->exclude[i], path))
            return true;
    return false;
}

/* ---- where it goes ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int join(char out[TREE_PATH_SIZE], const char *dir, const char *name, struct error *err)
{
    int len = snprintf(out, TREE_PATH_SIZE, "%s%s%s", dir, *dir && *name ? "/" : "", name);

    return len < TREE_PATH_SIZE ? 0 : error_set(err, ERROR_LIMIT, "'%.60s…' is too long", out);
}

/* What follows src in a name of the archive: "" when it is src itself, NULL when it is neither that nor beneath. */
static const char *beneath_src(const struct copy *copy, const char *path)
{
    size_t len = strlen(copy->src);

    if (len == 0)
        return path;
    if (strncmp(path, copy->src, len) != 0 || (path[len] != '\0' && path[len] != '/'))
        return NULL;
    return path + len + (path[len] == '/');
}

/* 1: out is where it goes, 0: it is not wanted, -1. */
static int place(const struct copy *copy, const char *path, bool is_dir, char out[TREE_PATH_SIZE],
                 struct error *err)
{
    const char *rest = beneath_src(copy, path);

    if (!rest || (*rest && excluded(copy->wanted, rest)))
        return 0;
    if (*rest == '\0' && !is_dir && copy->to_is_dir)
        rest = base_name(path);
    return join(out, copy->to, rest, err) < 0 ? -1 : 1;
}

/* ---- archives inside ---- */

static int extract_entries(struct copy *copy, int fd, const char *dir, bool *is_archive,
                           struct error *err)
{
    struct writer *writer = &copy->writer;
    struct archive_entry *entry;
    struct reading reading;
    struct archive *archive = reading_open(&reading, fd, "the archive", err);
    char path[TREE_PATH_SIZE], clean[TREE_PATH_SIZE], link[TREE_PATH_SIZE], target[TREE_PATH_SIZE];
    int r;

    if (!archive)
        return 0;
    while ((r = reading_next(&reading, archive, &entry, "the archive", err)) > 0) {
        const char *hard = archive_entry_hardlink(entry), *name = archive_entry_pathname(entry);

        *is_archive = true;
        r = -1;
        if (!name || tree_count_entry(&writer->tree, err) < 0 || tree_clean(name, clean, err) < 0 ||
            join(path, dir, clean, err) < 0 || (hard && tree_clean(hard, target, err) < 0) ||
            (hard && join(link, dir, target, err) < 0))
            break;
        if (clean[0] != '\0' &&
            entry_write(writer, archive, entry, path, hard ? link : NULL, err) < 0)
            break;
    }
    reading_close(&reading, archive);
    return *is_archive ? r : 0;
}

/* A file without a name that holds the entry's data. */
static int spool(struct copy *copy, struct archive *archive, struct error *err)
{
    auto_close int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    const void *block;
    int64_t offset;
    size_t len;
    int r = 0;

    if (fd < 0)
        return error_set_errno(err, errno, "cannot make a file in /tmp");
    while (r == 0 && archive_read_data_block(archive, &block, &len, &offset) == ARCHIVE_OK) {
        if (tree_count_bytes(&copy->writer.tree, len, err) < 0)
            return -1;
        r = lseek(fd, offset, SEEK_SET) < 0 ? -errno : fd_write_full(fd, block, len);
    }
    if (r < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return error_set_errno(err, r < 0 ? -r : errno, "cannot write to /tmp");
    return take_fd(&fd);
}

/* What is no archive is put in place as it is. */
static int put_spooled(struct copy *copy, int fd, struct archive_entry *entry, const char *path,
                       struct error *err)
{
    struct writer *writer = &copy->writer;
    const struct owner root = {0, 0}, *owner = writer->owner;
    int r;

    if (!owner)
        writer->owner = &root;
    r = entry_write_from(writer, fd, entry, path, err);
    writer->owner = owner;
    return r;
}

static int add_file(struct copy *copy, struct archive *archive, struct archive_entry *entry,
                    const char *path, struct error *err)
{
    auto_close int fd = spool(copy, archive, err);
    struct error why = {0};
    bool is_archive = false;
    char dir[TREE_PATH_SIZE];

    if (fd < 0)
        return -1;
    memcpy(dir, copy->to, sizeof(dir));
    if (extract_entries(copy, fd, dir, &is_archive, &why) < 0) {
        *err = why;
        return -1;
    }
    if (is_archive)
        return 0;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return error_set_errno(err, errno, "cannot read from /tmp");
    return put_spooled(copy, fd, entry, path, err);
}

/* ---- entries ---- */

/* The directory itself is made as others on the way are: with the owner of what is copied, and nothing else of the archive's. */
static int copy_top(struct copy *copy, struct error *err)
{
    auto_close int there = tree_find(&copy->writer.tree, copy->to, O_PATH);
    char inside[TREE_PATH_SIZE];
    const char *name;

    if (there >= 0 && !copy->to_is_there)
        return error_set(err, ERROR_INVALID, "'/%.200s' is no directory", copy->to);
    if (join(inside, copy->to, "x", err) < 0 ||
        tree_parent(&copy->writer.tree, inside, &name, err) < 0)
        return -1;
    copy->to_is_there = true;
    return 0;
}

static int copy_entry(struct copy *copy, struct archive *archive, struct archive_entry *entry,
                      struct error *err)
{
    const char *name = archive_entry_pathname(entry), *hard = archive_entry_hardlink(entry);
    char clean[TREE_PATH_SIZE], path[TREE_PATH_SIZE], link[TREE_PATH_SIZE];
    bool is_dir = archive_entry_filetype(entry) == AE_IFDIR && !hard;
    int r;

    if (!name || tree_count_entry(&copy->writer.tree, err) < 0 || tree_clean(name, clean, err) < 0)
        return name ? -1 : error_set(err, ERROR_INVALID, "an entry has no name");
    r = place(copy, clean, is_dir, path, err);
    if (r <= 0)
        return r;
    copy->found = true;
    if (strcmp(path, copy->to) == 0 && is_dir)
        return copy_top(copy, err);
    if (hard) {
        if (tree_clean(hard, clean, err) < 0)
            return -1;
        r = place(copy, clean, false, link, err);
        if (r <= 0)
            return r < 0 ? -1
                         : error_set(err, ERROR_INVALID, "'%.200s' is a link to what is not copied",
                                     name);
    }
    if (copy->wanted->extract && !hard && archive_entry_filetype(entry) == AE_IFREG)
        return add_file(copy, archive, entry, path, err);
    return entry_write(&copy->writer, archive, entry, path, hard ? link : NULL, err);
}

static int copy_all(struct copy *copy, int fd, struct error *err)
{
    struct archive_entry *entry;
    struct reading reading;
    struct archive *archive = reading_open(&reading, fd, copy->wanted->from, err);
    int r;

    if (!archive)
        return -1;
    while ((r = reading_next(&reading, archive, &entry, copy->wanted->from, err)) > 0)
        if (copy_entry(copy, archive, entry, err) < 0) {
            r = -1;
            break;
        }
    tree_late_set(&copy->writer.tree);
    reading_close(&reading, archive);
    return r;
}

static int prepare(struct copy *copy, struct error *err)
{
    const struct copy_wanted *wanted = copy->wanted;
    struct tree *tree = &copy->writer.tree;
    size_t to_len = strlen(wanted->to);
    auto_close int fd = -1;
    char *end;

    if (tree_clean(wanted->src, copy->src, err) < 0 || tree_clean(wanted->to, copy->to, err) < 0)
        return -1;
    fd = tree_find(tree, copy->to, O_PATH | O_DIRECTORY);
    copy->to_is_there = fd >= 0;
    copy->to_is_dir = wanted->into_dir || fd >= 0 || (to_len > 0 && wanted->to[to_len - 1] == '/');
    copy->writer.mode = -1;
    if (wanted->mode) {
        unsigned long mode = strtoul(wanted->mode, &end, 8);

        if (*wanted->mode == '\0' || *end || mode > 07777)
            return error_set(err, ERROR_INVALID, "'%.40s' is no mode", wanted->mode);
        copy->writer.mode = (int)mode;
    }
    if (!wanted->owner)
        return 0;
    if (owner_find(tree->root, wanted->owner, &copy->owner, err) < 0)
        return -1;
    copy->writer.owner = &copy->owner;
    tree->new_owner = copy->owner;
    return 0;
}

int unpack_copy(const struct copy_wanted *wanted, struct error *err)
{
    struct copy copy = {.wanted = wanted};
    auto_close int fd = open(wanted->from, O_RDONLY | O_CLOEXEC);
    int r;

    if (fd < 0)
        return error_set_errno(err, errno, "cannot open '%s'", wanted->from);
    if (tree_open(&copy.writer.tree, wanted->root, err) < 0)
        return -1;
    r = prepare(&copy, err);
    if (r == 0)
        r = copy_all(&copy, fd, err);
    if (r == 0 && !copy.found)
        r = error_set(err, ERROR_NOT_FOUND, "source path does not exist: '%s'", wanted->src);
    tree_close(&copy.writer.tree);
    return r;
}
