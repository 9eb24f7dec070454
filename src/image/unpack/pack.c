/* A tar archive of paths beneath a root: for COPY out of another root, and for images made of templates. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "image/unpack/entry.h"
#include "image/unpack/unpack.h"

enum { NAMES_SIZE = 64 * 1024, VALUE_SIZE = 64 * 1024, OUT_SIZE = 256 * 1024 };

struct pack {
    const struct pack_wanted *wanted;
    struct tree tree;
    dev_t dev;
    struct archive *archive;
    struct archive_entry_linkresolver *links;
    z_stream z;
    unsigned char *out;
    unsigned count; /* of paths that matched */
    char piece[64 * 1024];
    char path[TREE_PATH_SIZE];
};

/* ---- out ---- */

static int deflate_some(struct pack *pack, const void *p, size_t len, int flush)
{
    z_stream *z = &pack->z;
    int r = 0;

    z->next_in = (unsigned char *)(uintptr_t)p;
    z->avail_in = (unsigned)len;
    do {
        z->next_out = pack->out;
        z->avail_out = OUT_SIZE;
        (void)deflate(z, flush);
        r = fd_write_full(pack->wanted->fd, pack->out, OUT_SIZE - z->avail_out);
    } while (r == 0 && z->avail_out == 0);
    return r;
}

static la_ssize_t write_out(struct archive *archive, void *arg, const void *p, size_t len)
{
    struct pack *pack = arg;
    int r = pack->wanted->gzip ? deflate_some(pack, p, len, Z_NO_FLUSH)
                               : fd_write_full(pack->wanted->fd, p, len);

    if (r < 0) {
        archive_set_error(archive, -r, "%s", strerror(-r));
        return -1;
    }
    return (la_ssize_t)len;
}

static int fail(struct pack *pack, const char *path, struct error *err)
{
    return error_set(err, ERROR_INTERNAL, "cannot write '%.160s' to the archive: %s", path,
                     archive_error_string(pack->archive));
}

/* ---- one file ---- */

static void add_attributes(struct archive_entry *entry, int fd)
{
    auto_free char *names = xmalloc(NAMES_SIZE), *value = xmalloc(VALUE_SIZE);
    ssize_t len = flistxattr(fd, names, NAMES_SIZE);

    for (ssize_t at = 0; at < len; at += (ssize_t)strlen(names + at) + 1) {
        ssize_t size;

        if (!entry_wanted_attribute(names + at))
            continue;
        size = fgetxattr(fd, names + at, value, VALUE_SIZE);
        if (size >= 0)
            archive_entry_xattr_add_entry(entry, names + at, value, (size_t)size);
    }
}

static int write_range(struct pack *pack, int fd, int64_t from, int64_t to)
{
    while (from < to) {
        size_t want =
            (size_t)(to - from < (int64_t)sizeof(pack->piece) ? to - from
                                                              : (int64_t)sizeof(pack->piece));
        ssize_t got = pread(fd, pack->piece, want, from);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            /* It became shorter while it was read: the header has promised this much. */
            memset(pack->piece, 0, want);
            got = (ssize_t)want;
        }
        if (archive_write_data(pack->archive, pack->piece, (size_t)got) < 0)
            return -1;
        from += got;
    }
    return 0;
}

/* Holes stay holes. */
static void add_holes(struct archive_entry *entry, int fd, int64_t size)
{
    int64_t at = 0;

    while (at < size) {
        int64_t data = lseek(fd, at, SEEK_DATA), hole;

        if (data < 0 || data >= size)
            break;
        hole = lseek(fd, data, SEEK_HOLE);
        if (hole < 0 || hole > size)
            hole = size;
        archive_entry_sparse_add_entry(entry, data, hole - data);
        at = hole;
    }
    if (archive_entry_sparse_count(entry) == 0)
        archive_entry_sparse_add_entry(entry, size, 0);
}

static int write_content(struct pack *pack, struct archive_entry *entry, int fd)
{
    int64_t from, len, size = archive_entry_size(entry);

    if (archive_entry_sparse_reset(entry) == 0)
        return write_range(pack, fd, 0, size);
    /* The writer takes all of the file and leaves out what the list does not name. */
    for (int64_t at = 0; archive_entry_sparse_next(entry, &from, &len) == ARCHIVE_OK;
         at = from + len) {
        static const char zeros[64 * 1024];

        while (at < from) {
            size_t n = from - at < (int64_t)sizeof(zeros) ? (size_t)(from - at) : sizeof(zeros);

            if (archive_write_data(pack->archive, zeros, n) < 0)
                return -1;
            at += (int64_t)n;
        }
        if (write_range(pack, fd, from, from + len) < 0)
            return -1;
    }
    return 0;
}

static int write_entry(struct pack *pack, struct archive_entry *entry, int fd, const char *path,
                       struct error *err)
{
    struct archive_entry *spare = NULL;

    archive_entry_linkify(pack->links, &entry, &spare);
    if (archive_write_header(pack->archive, entry) < ARCHIVE_WARN)
        return fail(pack, path, err);
    if (archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry) &&
        write_content(pack, entry, fd) < 0)
        return fail(pack, path, err);
    return 0;
}

/* fd: of a file or directory, else -1; target: of a symbolic link, else NULL. */
static int pack_one(struct pack *pack, int fd, const char *target, const struct stat *st,
                    const char *path, struct error *err)
{
    struct archive_entry *entry = archive_entry_new();
    int r;

    archive_entry_copy_stat(entry, st);
    archive_entry_set_pathname(entry, path);
    if (target)
        archive_entry_set_symlink(entry, target);
    if (fd >= 0)
        add_attributes(entry, fd);
    if (S_ISREG(st->st_mode) && st->st_blocks * 512 < st->st_size)
        add_holes(entry, fd, st->st_size);
    r = write_entry(pack, entry, fd, path, err);
    archive_entry_free(entry);
    return r;
}

/* ---- trees ---- */

static bool left_out(const struct pack *pack, const char *path)
{
    static const char *const own[] = {"proc/", "sys/", "dev/", "run/", "tmp/"};

    for (size_t i = 0; pack->wanted->image && i < sizeof(own) / sizeof(own[0]); i++)
        if (strncmp(path, own[i], strlen(own[i])) == 0)
            return true;
    return false;
}

static int pack_tree(struct pack *pack, int dir, const char *name, size_t path_len,
                     struct error *err);

static int pack_dir(struct pack *pack, int fd, size_t path_len, struct error *err)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;
    int r = 0;

    if (!dir) {
        (void)close(fd);
        return error_set_errno(err, errno, "cannot read '/%.200s'", pack->path);
    }
    while (r == 0 && (entry = readdir(dir))) {
        size_t len = path_len + (path_len > 0) + strlen(entry->d_name);

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (len >= sizeof(pack->path)) {
            r = error_set(err, ERROR_LIMIT, "'/%.60s…' is too deep", pack->path);
            break;
        }
        (void)snprintf(pack->path + path_len, sizeof(pack->path) - path_len, "%s%s",
                       path_len > 0 ? "/" : "", entry->d_name);
        if (!left_out(pack, pack->path))
            r = pack_tree(pack, fd, entry->d_name, len, err);
        pack->path[path_len] = '\0';
    }
    (void)closedir(dir);
    return r;
}

static int pack_link(struct pack *pack, int dir, const char *name, const struct stat *st,
                     struct error *err)
{
    char target[TREE_PATH_SIZE];
    ssize_t len = readlinkat(dir, name, target, sizeof(target) - 1);

    if (len < 0)
        return error_set_errno(err, errno, "cannot read the link '/%.200s'", pack->path);
    target[len] = '\0';
    return pack_one(pack, -1, target, st, pack->path, err);
}

static int pack_tree(struct pack *pack, int dir, const char *name, size_t path_len,
                     struct error *err)
{
    auto_close int fd = -1;
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT
                   ? 0
                   : error_set_errno(err, errno, "cannot look at '/%.200s'", pack->path);
    if (S_ISLNK(st.st_mode))
        return pack_link(pack, dir, name, &st, err);
    if (S_ISFIFO(st.st_mode))
        return pack_one(pack, -1, NULL, &st, pack->path, err);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return 0;
    fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "cannot open '/%.200s'", pack->path);
    if (pack_one(pack, fd, NULL, &st, pack->path, err) < 0)
        return -1;
    /* What is mounted there belongs to somebody else. */
    if (!S_ISDIR(st.st_mode) || st.st_dev != pack->dev)
        return 0;
    return pack_dir(pack, take_fd(&fd), path_len, err);
}

/* A path as it was asked for: what it leads to, under its own name. */
static int pack_path(struct pack *pack, const char *path, struct error *err)
{
    auto_close int fd = tree_find(&pack->tree, path, O_RDONLY | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(err, ERROR_NOT_FOUND, "source path does not exist: '/%.200s'", path);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return error_set(err, ERROR_INVALID, "'/%.200s' is neither file nor directory", path);
    pack->count++;
    pack->dev = st.st_dev;
    (void)snprintf(pack->path, sizeof(pack->path), "%s", path);
    if (pack_one(pack, fd, NULL, &st, *path ? path : ".", err) < 0)
        return -1;
    return S_ISDIR(st.st_mode) ? pack_dir(pack, take_fd(&fd), strlen(path), err) : 0;
}

/* ---- patterns ---- */

static int expand(struct pack *pack, const char *done, const char *rest, struct error *err);

static int expand_in(struct pack *pack, DIR *dir, const char *done, const char *pattern,
                     const char *rest, struct error *err)
{
    struct dirent *entry;
    int r = 0;

    while (r == 0 && (entry = readdir(dir))) {
        auto_free char *path = NULL;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fnmatch(pattern, entry->d_name, 0) != 0)
            continue;
        path = xasprintf("%s%s%s", done, *done ? "/" : "", entry->d_name);
        r = expand(pack, path, rest, err);
    }
    return r;
}

/* done is settled; what is left of the pattern begins with rest. */
static int expand(struct pack *pack, const char *done, const char *rest, struct error *err)
{
    size_t len = strcspn(rest, "/");
    auto_free char *part = xstrndup(rest, len), *path = NULL;
    int fd, r;
    DIR *dir;

    rest += len + (rest[len] == '/');
    if (len == 0)
        return pack_path(pack, done, err);
    if (strpbrk(part, "*?[") == NULL) {
        path = xasprintf("%s%s%s", done, *done ? "/" : "", part);
        return expand(pack, path, rest, err);
    }
    fd = tree_find(&pack->tree, done, O_RDONLY | O_DIRECTORY);
    dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            (void)close(fd);
        return 0;
    }
    r = expand_in(pack, dir, done, part, rest, err);
    (void)closedir(dir);
    return r;
}

/* ---- all of it ---- */

static int pack_all(struct pack *pack, struct error *err)
{
    char clean[TREE_PATH_SIZE];

    for (size_t i = 0; i < pack->wanted->count; i++) {
        unsigned before = pack->count;

        if (tree_clean(pack->wanted->paths[i], clean, err) < 0 || expand(pack, "", clean, err) < 0)
            return -1;
        if (pack->count == before)
            return error_set(err, ERROR_NOT_FOUND, "source path does not exist: '%.200s'",
                             pack->wanted->paths[i]);
    }
    return 0;
}

static int finish(struct pack *pack, struct error *err)
{
    int r;

    if (archive_write_close(pack->archive) != ARCHIVE_OK)
        return fail(pack, "the end", err);
    r = pack->wanted->gzip ? deflate_some(pack, "", 0, Z_FINISH) : 0;
    return r == 0 ? 0 : error_set_errno(err, -r, "cannot write the archive");
}

int unpack_pack(const struct pack_wanted *wanted, struct error *err)
{
    struct pack *pack = xcalloc(1, sizeof(*pack));
    int r;

    pack->wanted = wanted;
    if (tree_open(&pack->tree, wanted->root, err) < 0) {
        free(pack);
        return -1;
    }
    pack->out = xmalloc(OUT_SIZE);
    (void)deflateInit2(&pack->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    pack->archive = archive_write_new();
    (void)archive_write_set_format_pax_restricted(pack->archive);
    (void)archive_write_set_bytes_in_last_block(pack->archive, 1);
    pack->links = archive_entry_linkresolver_new();
    archive_entry_linkresolver_set_strategy(pack->links, ARCHIVE_FORMAT_TAR);
    (void)archive_write_open(pack->archive, pack, NULL, write_out, NULL);
    r = pack_all(pack, err);
    if (r == 0)
        r = finish(pack, err);
    archive_entry_linkresolver_free(pack->links);
    (void)archive_write_free(pack->archive);
    (void)deflateEnd(&pack->z);
    tree_close(&pack->tree);
    free(pack->out);
    free(pack);
    return r;
}
