#include "cli/command/cli_cp_pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/core/cli_progress.h"
#include "cli/core/cli_table.h"

enum { CHUNK_SIZE = 256 * 1024, DEPTH_MAX = 256, LINK_MAX_BYTES = PATH_MAX };

static int archive_fault(struct archive *archive, const char *name, struct error *err)
{
    const char *text = archive_error_string(archive);
    int errnum = archive_errno(archive);

    if (errnum == EPIPE)
        return error_set_errno(err, EPIPE, "'%s'", name);
    return error_set(err, ERROR_INTERNAL, "'%s': %s", name, text ? text : "it failed");
}

static void warn_skipped(const char *path)
{
    auto_free char *shown = cli_defuse(xstrdup(path), false);

    (void)fprintf(stderr, "quicksand: '%s' is neither a file, a directory nor a link: left out\n",
                  shown);
}

/* ---- to an archive ---- */

struct writer {
    struct cli_cp_pack *pack;
    struct archive *out;
    struct archive_entry *head;
    char *bytes;
};

static int write_head(struct writer *writer, const struct stat *st, const char *name,
                      const char *link, struct error *err)
{
    struct archive_entry *head = archive_entry_clear(writer->head);

    archive_entry_set_pathname(head, name);
    archive_entry_set_mode(head, st->st_mode);
    archive_entry_set_size(head, S_ISREG(st->st_mode) ? st->st_size : 0);
    archive_entry_set_mtime(head, st->st_mtim.tv_sec, 0);
    if (link)
        archive_entry_set_symlink(head, link);
    return archive_write_header(writer->out, head) < ARCHIVE_WARN
               ? archive_fault(writer->out, name, err)
               : 0;
}

static int write_file(struct writer *writer, int fd, const struct stat *st, const char *name,
                      struct error *err)
{
    int64_t left = st->st_size;

    if (write_head(writer, st, name, NULL, err) < 0)
        return -1;
    while (left > 0) {
        ssize_t n = read(fd, writer->bytes, left < CHUNK_SIZE ? (size_t)left : CHUNK_SIZE);

        if (n <= 0)
            return error_set(err, ERROR_CONFLICT, "'%s' changed while it was read", name);
        if (archive_write_data(writer->out, writer->bytes, (size_t)n) < 0)
            return archive_fault(writer->out, name, err);
        cli_progress_add(writer->pack->progress, 0, (uint64_t)n);
        left -= n;
    }
    writer->pack->files++;
    writer->pack->bytes += (uint64_t)st->st_size;
    cli_progress_add(writer->pack->progress, 1, 0);
    return 0;
}

static int write_link(struct writer *writer, int dir, const char *path, const struct stat *st,
                      const char *name, struct error *err)
{
    char text[LINK_MAX_BYTES + 1];
    ssize_t len = readlinkat(dir, path, text, LINK_MAX_BYTES);

    if (len < 0)
        return error_set_errno(err, errno, "'%s'", name);
    text[len] = 0;
    return write_head(writer, st, name, text, err);
}

static int write_any(struct writer *writer, int dir, const char *path, const char *name,
                     unsigned depth, struct error *err);

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Consumes fd. */
static int write_dir(struct writer *writer, int fd, const struct stat *st, const char *name,
                     unsigned depth, struct error *err)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    int rc;

    if (!dir) {
        (void)close(fd);
        return error_set_errno(err, errno, "'%s'", name);
    }
    rc = depth < DEPTH_MAX ? write_head(writer, st, name, NULL, err)
                           : error_set(err, ERROR_LIMIT, "'%s' is too deep", name);
    while (rc == 0 && (entry = readdir(dir))) {
        auto_free char *inner = NULL;

        if (is_dots(entry->d_name))
            continue;
        inner = xasprintf("%s/%s", name, entry->d_name);
        rc = write_any(writer, dirfd(dir), entry->d_name, inner, depth + 1, err);
    }
    (void)closedir(dir);
    return rc;
}

/* Links are followed when they were named themselves (depth 0). What is no file is not even opened: that could wait. */
static int write_any(struct writer *writer, int dir, const char *path, const char *name,
                     unsigned depth, struct error *err)
{
    int follow = depth ? O_NOFOLLOW : 0;
    auto_close int fd = -1;
    struct stat st;

    if (fstatat(dir, path, &st, depth ? AT_SYMLINK_NOFOLLOW : 0) < 0)
        return error_set_errno(err, errno, "'%s'", name);
    if (S_ISLNK(st.st_mode))
        return write_link(writer, dir, path, &st, name, err);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        warn_skipped(name);
        return 0;
    }
    fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | follow);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set_errno(err, errno, "'%s'", name);
    return S_ISDIR(st.st_mode) ? write_dir(writer, take_fd(&fd), &st, name, depth, err)
                               : write_file(writer, fd, &st, name, err);
}

static char *entry_name(const char *path)
{
    struct str rest = str_of(path);

    while (rest.len > 1 && rest.p[rest.len - 1] == '/')
        rest.len--;
    for (size_t i = rest.len; i > 0; i--)
        if (rest.p[i - 1] == '/' && rest.len > 1)
            return str_dup(str_n(rest.p + i, rest.len - i));
    return str_is(rest, "/") ? xstrdup(".") : str_dup(rest);
}

static struct archive *open_writer(int fd, struct error *err)
{
    struct archive *out = archive_write_new();

    (void)archive_write_set_format_gnutar(
        out); /* long names, and no header that some tar does not know */
    (void)archive_write_add_filter_none(out);
    (void)archive_write_set_bytes_per_block(out, CHUNK_SIZE);
    (void)archive_write_set_bytes_in_last_block(out, 1);
    if (archive_write_open_fd(out, fd) == ARCHIVE_OK)
        return out;
    (void)archive_fault(out, "the archive", err);
    (void)archive_write_free(out);
    return NULL;
}

int cli_cp_pack_write(struct cli_cp_pack *pack, const char *const *paths, size_t count, int fd,
                      struct error *err)
{
    struct archive *out = open_writer(fd, err);
    struct writer writer = {
        .pack = pack, .out = out, .head = archive_entry_new(), .bytes = xmalloc(CHUNK_SIZE)};
    int rc = out ? 0 : -1;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        auto_free char *name = entry_name(paths[i]);

        rc = write_any(&writer, AT_FDCWD, paths[i], name, 0, err);
    }
    if (rc == 0 && archive_write_close(out) != ARCHIVE_OK)
        rc = archive_fault(out, "the archive", err);
    /* An archive that is not whole has no end: the other side sees that. */
    if (out && rc < 0)
        (void)archive_write_fail(out);
    if (out)
        (void)archive_write_free(out);
    archive_entry_free(writer.head);
    free(writer.bytes);
    return rc;
}

static uint64_t size_of(int dir, const char *path, unsigned depth)
{
    auto_close int fd = -1;
    struct dirent *entry;
    uint64_t size = 0;
    struct stat st;
    DIR *list;

    if (fstatat(dir, path, &st, depth ? AT_SYMLINK_NOFOLLOW : 0) < 0 || depth > DEPTH_MAX)
        return 0;
    if (!S_ISDIR(st.st_mode))
        return S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    list = fd < 0 ? NULL : fdopendir(fd);
    if (!list)
        return 0;
    (void)take_fd(&fd);
    while ((entry = readdir(list)))
        if (!is_dots(entry->d_name))
            size += size_of(dirfd(list), entry->d_name, depth + 1);
    (void)closedir(list);
    return size;
}

uint64_t cli_cp_pack_size(const char *const *paths, size_t count)
{
    uint64_t size = 0;

    for (size_t i = 0; i < count; i++)
        size += size_of(AT_FDCWD, paths[i], 0);
    return size;
}

/* ---- from an archive ---- */

static struct archive *open_reader(int fd, struct error *err)
{
    struct archive *in = archive_read_new();

    (void)archive_read_support_format_tar(in);
    if (archive_read_open_fd(in, fd, CHUNK_SIZE) == ARCHIVE_OK)
        return in;
    (void)archive_fault(in, "the archive", err);
    (void)archive_read_free(in);
    return NULL;
}

static struct archive *open_disk(void)
{
    struct archive *out = archive_write_disk_new();

    (void)archive_write_disk_set_options(
        out, ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_UNLINK |
                 ARCHIVE_EXTRACT_SECURE_SYMLINKS | ARCHIVE_EXTRACT_SECURE_NODOTDOT |
                 ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
    return out;
}

static int copy_blocks(struct cli_cp_pack *pack, struct archive *in, struct archive *out,
                       const char *name, struct error *err)
{
    const void *bytes;
    size_t size;
    la_int64_t offset;

    for (;;) {
        int rc = archive_read_data_block(in, &bytes, &size, &offset);

        if (rc == ARCHIVE_EOF)
            return 0;
        if (rc < ARCHIVE_WARN)
            return archive_fault(in, name, err);
        if (archive_write_data_block(out, bytes, size, offset) < ARCHIVE_WARN)
            return archive_fault(out, name, err);
        pack->bytes += size;
        cli_progress_add(pack->progress, 0, size);
    }
}

/* Its name here, and what it may be. */
static int admit(struct archive_entry *entry, char *(*name)(void *arg, const char *entry),
                 void *arg, bool *out_skip, struct error *err)
{
    const char *given = archive_entry_pathname(entry), *link = archive_entry_hardlink(entry);
    auto_free char *here = given ? name(arg, given) : NULL;
    auto_free char *linked = link ? name(arg, link) : NULL;
    mode_t type = archive_entry_filetype(entry);

    if (!here || (link && !linked))
        return error_set(err, ERROR_FORBIDDEN, "the sandbox sent '%s', which was not asked for",
                         given ? given : "");
    *out_skip = !link && type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK;
    archive_entry_set_pathname(entry, here);
    if (linked)
        archive_entry_set_hardlink(entry, linked);
    archive_entry_set_perm(entry, archive_entry_perm(entry) & 0777);
    return 0;
}

static int read_entry(struct cli_cp_pack *pack, struct archive *in, struct archive *out,
                      struct archive_entry *entry, struct error *err)
{
    const char *name = archive_entry_pathname(entry);

    if (archive_write_header(out, entry) < ARCHIVE_WARN)
        return archive_fault(out, name, err);
    if (archive_entry_size(entry) > 0 && copy_blocks(pack, in, out, name, err) < 0)
        return -1;
    if (archive_write_finish_entry(out) < ARCHIVE_WARN)
        return archive_fault(out, name, err);
    if (archive_entry_filetype(entry) == AE_IFREG) {
        pack->files++;
        cli_progress_add(pack->progress, 1, 0);
    }
    return 0;
}

/* What is behind the end: whoever writes it shall not be told that nobody reads. */
static void drain(int fd)
{
    auto_free char *bytes = xmalloc(CHUNK_SIZE);
    ssize_t n;

    do
        n = read(fd, bytes, CHUNK_SIZE);
    while (n > 0 || (n < 0 && errno == EINTR));
}

int cli_cp_pack_read(struct cli_cp_pack *pack, int fd, char *(*name)(void *arg, const char *entry),
                     void *arg, struct error *err)
{
    struct archive *in = open_reader(fd, err), *out = in ? open_disk() : NULL;
    struct archive_entry *entry;
    int rc = in ? 0 : -1, r = ARCHIVE_OK;

    while (rc == 0 && (r = archive_read_next_header(in, &entry)) >= ARCHIVE_WARN &&
           r != ARCHIVE_EOF) {
        bool skip = false;

        rc = admit(entry, name, arg, &skip, err);
        if (rc == 0 && skip)
            warn_skipped(archive_entry_pathname(entry));
        else if (rc == 0)
            rc = read_entry(pack, in, out, entry, err);
    }
    if (rc == 0 && r != ARCHIVE_EOF)
        rc = archive_fault(in, "the archive", err);
    if (out && archive_write_close(out) < ARCHIVE_WARN && rc == 0) /* times of directories */
        rc = archive_fault(out, "the archive", err);
    if (out)
        (void)archive_write_free(out);
    if (in)
        (void)archive_read_free(in);
    if (rc == 0)
        drain(fd);
    return rc;
}
