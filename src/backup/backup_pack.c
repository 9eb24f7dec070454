#include "backup/backup_pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "host/disk/tree_walk.h"

enum {
    PIECE = 1 << 18,
    LIST_SIZE = 65536,
    PATH_SIZE_MAX = 1 << 20, /* of a tree that is as deep as a walk goes */
    LINKED_MAX = 1 << 20,    /* files with several names, in one tree */
};

struct backup_pack {
    struct archive *archive;
    struct archive_entry *entry;
    struct backup_file *file;
    bool (*stopped)(void);
    struct error failed; /* of writing the file */
    struct buf path;     /* of what the walk is at */
    struct map linked;   /* the first path of a file with several names, by its number */
    char *piece, *list;
    uint64_t entries;
};

static la_ssize_t on_write(struct archive *archive, void *arg, const void *p, size_t len)
{
    struct backup_pack *pack = arg;

    if (backup_file_write(pack->file, p, len, &pack->failed) == 0)
        return (la_ssize_t)len;
    archive_set_error(archive, EIO, "write");
    return -1;
}

struct backup_pack *backup_pack_new(struct backup_file *file, bool (*stopped)(void))
{
    struct backup_pack *pack = xcalloc(1, sizeof(*pack));

    pack->file = file;
    pack->stopped = stopped;
    pack->entry = archive_entry_new();
    pack->archive = archive_write_new();
    pack->piece = xmalloc(PIECE);
    pack->list = xmalloc(LIST_SIZE);
    buf_init(&pack->path, PATH_SIZE_MAX);
    map_init(&pack->linked);
    (void)archive_write_set_format_pax(pack->archive);
    (void)archive_write_add_filter_zstd(pack->archive);
    /* Names are bytes. */
    (void)archive_write_set_options(pack->archive,
                                    "pax:hdrcharset=BINARY,zstd:compression-level=3");
    (void)archive_write_set_bytes_in_last_block(pack->archive, 1);
    (void)archive_write_open(pack->archive, pack, NULL, on_write, NULL);
    return pack;
}

static void forget_links(struct backup_pack *pack)
{
    struct map_entry *at;

    map_for_each (&pack->linked, at)
        free(at->value);
    map_done(&pack->linked);
    map_init(&pack->linked);
}

void backup_pack_free(struct backup_pack *pack)
{
    if (!pack)
        return;
    (void)archive_write_free(pack->archive);
    archive_entry_free(pack->entry);
    forget_links(pack);
    map_done(&pack->linked);
    buf_done(&pack->path);
    free(pack->piece);
    free(pack->list);
    free(pack);
}

static int fail(const struct backup_pack *pack, struct error *err)
{
    const char *why = archive_error_string(pack->archive);

    if (pack->failed.code)
        *err = pack->failed;
    else
        (void)error_set(err, ERROR_INTERNAL, "write the backup: %s", why ? why : "unknown");
    return -1;
}

static int put_head(struct backup_pack *pack, struct error *err)
{
    pack->entries++;
    return archive_write_header(pack->archive, pack->entry) < ARCHIVE_WARN ? fail(pack, err) : 0;
}

static int put(const struct backup_pack *pack, const void *p, size_t len, struct error *err)
{
    return archive_write_data(pack->archive, p, len) != (la_ssize_t)len ? fail(pack, err) : 0;
}

int backup_pack_text(struct backup_pack *pack, const char *name, struct str text, struct error *err)
{
    (void)archive_entry_clear(pack->entry);
    archive_entry_set_pathname(pack->entry, name);
    archive_entry_set_mode(pack->entry, S_IFREG | 0600);
    archive_entry_set_size(pack->entry, (la_int64_t)text.len);
    return put_head(pack, err) < 0 ? -1 : put(pack, text.p, text.len, err);
}

/* ---- files ---- */

static int add_attributes(struct backup_pack *pack, int fd, struct error *err)
{
    ssize_t len = flistxattr(fd, pack->list, LIST_SIZE);

    if (len < 0)
        return error_set_errno(err, errno, "list attributes");
    for (const char *name = pack->list; name < pack->list + len; name += strlen(name) + 1) {
        ssize_t size;

        if (!tree_keeps_attribute(name))
            continue;
        size = fgetxattr(fd, name, pack->piece, PIECE);
        if (size < 0)
            return error_set_errno(err, errno, "read attribute '%.40s'", name);
        archive_entry_xattr_add_entry(pack->entry, name, pack->piece, (size_t)size);
    }
    return 0;
}

static void begin_entry(struct backup_pack *pack, const struct stat *st)
{
    struct archive_entry *entry = pack->entry;

    (void)archive_entry_clear(entry);
    archive_entry_copy_pathname(entry, pack->path.p);
    archive_entry_set_mode(entry, st->st_mode);
    archive_entry_set_uid(entry, st->st_uid);
    archive_entry_set_gid(entry, st->st_gid);
    archive_entry_set_atime(entry, st->st_atim.tv_sec, st->st_atim.tv_nsec);
    archive_entry_set_mtime(entry, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
    archive_entry_set_size(entry, 0);
}

/* The next piece of data at or behind `at`; false when only a hole is left. */
static bool next_data(int fd, off_t at, off_t size, off_t *out_from, off_t *out_end)
{
    off_t from = at < size ? lseek(fd, at, SEEK_DATA) : -1;
    off_t end = from < 0 ? -1 : lseek(fd, from, SEEK_HOLE);

    if (end <= from || from >= size)
        return false;
    *out_from = from;
    *out_end = end < size ? end : size;
    return true;
}

static int put_range(const struct backup_pack *pack, int fd, off_t at, off_t end, struct error *err)
{
    while (at < end) {
        off_t rest = end - at;
        ssize_t n = pread(fd, pack->piece, rest < PIECE ? (size_t)rest : PIECE, at);

        if (n < 0)
            return error_set_errno(err, errno, "read a file");
        if (n == 0)
            return error_set(err, ERROR_CONFLICT, "a file changed while it was read");
        if (put(pack, pack->piece, (size_t)n, err) < 0)
            return -1;
        at += n;
    }
    return 0;
}

static int put_piece_head(const struct backup_pack *pack, off_t from, off_t len, struct error *err)
{
    unsigned char head[16];

    for (int i = 0; i < 8; i++) {
        head[i] = (unsigned char)((uint64_t)from >> (8 * i));
        head[8 + i] = (unsigned char)((uint64_t)len >> (8 * i));
    }
    return put(pack, head, sizeof(head), err);
}

static int pack_sparse(struct backup_pack *pack, int fd, off_t size, struct error *err)
{
    la_int64_t total = 16;
    off_t from = 0, end = 0;

    for (off_t at = 0; next_data(fd, at, size, &from, &end); at = end)
        total += 16 + (end - from);
    archive_entry_set_size(pack->entry, total);
    archive_entry_xattr_add_entry(pack->entry, BACKUP_SPARSE, "1", 1);
    if (put_head(pack, err) < 0)
        return -1;
    for (off_t at = 0; next_data(fd, at, size, &from, &end); at = end)
        if (put_piece_head(pack, from, end - from, err) < 0 ||
            put_range(pack, fd, from, end, err) < 0)
            return -1;
    return put_piece_head(pack, size, 0, err);
}

static int pack_file(struct backup_pack *pack, const struct tree_entry *at, struct error *err)
{
    auto_close int fd =
        openat(at->dir_fd, at->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOATIME | O_CLOEXEC);
    struct stat st;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set_errno(err, errno, "open a file");
    if (!S_ISREG(st.st_mode))
        return error_set(err, ERROR_CONFLICT, "a file changed while it was read");
    begin_entry(pack, &st);
    if (add_attributes(pack, fd, err) < 0)
        return -1;
    if (st.st_blocks * 512 < st.st_size) {
        r = pack_sparse(pack, fd, st.st_size, err);
    } else {
        archive_entry_set_size(pack->entry, st.st_size);
        r = put_head(pack, err) < 0 ? -1 : put_range(pack, fd, 0, st.st_size, err);
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return r;
}

/* Another name of a file that is in the backup already: 1. */
static int pack_link(struct backup_pack *pack, const struct tree_entry *at, struct error *err)
{
    char number[24];
    const char *first;

    (void)snprintf(number, sizeof(number), "%" PRIu64, (uint64_t)at->st.st_ino);
    first = map_get(&pack->linked, str_of(number));
    if (!first) {
        if (pack->linked.count >= LINKED_MAX)
            return error_set(err, ERROR_LIMIT, "more than %d files with several names", LINKED_MAX);
        (void)map_put(&pack->linked, str_of(number), xstrdup(pack->path.p));
        return 0;
    }
    begin_entry(pack, &at->st);
    archive_entry_copy_hardlink(pack->entry, first);
    return put_head(pack, err) < 0 ? -1 : 1;
}

static int pack_regular(struct backup_pack *pack, const struct tree_entry *at, struct error *err)
{
    int known = at->st.st_nlink > 1 ? pack_link(pack, at, err) : 0;

    return known < 0 ? -1 : known ? 0 : pack_file(pack, at, err);
}

static int pack_symlink(struct backup_pack *pack, const struct tree_entry *at, struct error *err)
{
    char target[PATH_MAX];
    ssize_t len = readlinkat(at->dir_fd, at->name, target, sizeof(target) - 1);

    if (len < 0)
        return error_set_errno(err, errno, "read a link");
    target[len] = '\0';
    begin_entry(pack, &at->st);
    archive_entry_copy_symlink(pack->entry, target);
    return put_head(pack, err);
}

static int pack_special(struct backup_pack *pack, const struct tree_entry *at, struct error *err)
{
    bool hides = S_ISCHR(at->st.st_mode) && at->st.st_rdev == 0;

    if (!hides && !S_ISFIFO(at->st.st_mode))
        return 0;
    begin_entry(pack, &at->st);
    return put_head(pack, err);
}

/* ---- the walk ---- */

static int leaf(void *arg, const struct tree_entry *at, struct error *err)
{
    struct backup_pack *pack = arg;
    size_t len = pack->path.len;
    int r;

    if (pack->stopped && pack->stopped())
        return error_set(err, ERROR_UNAVAILABLE, "it was interrupted");
    if (!buf_printf(&pack->path, "/%s", at->name))
        return error_set(err, ERROR_LIMIT, "a path is longer than %d bytes", PATH_SIZE_MAX);
    r = S_ISREG(at->st.st_mode)   ? pack_regular(pack, at, err)
        : S_ISLNK(at->st.st_mode) ? pack_symlink(pack, at, err)
                                  : pack_special(pack, at, err);
    if (r < 0)
        (void)error_prefix(err, "'%.120s'", pack->path.p);
    pack->path.len = len;
    return r;
}

/* The note is the length of the path around it. */
static int enter(void *arg, const struct tree_entry *at, uint64_t *out_note, struct error *err)
{
    struct backup_pack *pack = arg;

    *out_note = pack->path.len;
    if (at->name && !buf_printf(&pack->path, "/%s", at->name))
        return error_set(err, ERROR_LIMIT, "a path is longer than %d bytes", PATH_SIZE_MAX);
    begin_entry(pack, &at->st);
    return add_attributes(pack, at->fd, err) < 0 ? -1 : put_head(pack, err);
}

static int leave(void *arg, const struct tree_entry *at, uint64_t note, struct error *err)
{
    struct backup_pack *pack = arg;

    (void)at;
    (void)err;
    pack->path.len = (size_t)note;
    return 0;
}

int backup_pack_tree(struct backup_pack *pack, const char *prefix, int dir_fd, struct error *err)
{
    const struct tree_walk walk = {.arg = pack, .enter = enter, .leave = leave, .leaf = leaf};

    buf_clear(&pack->path);
    (void)buf_printf(&pack->path, "%s", prefix);
    forget_links(pack);
    return tree_walk(&walk, dir_fd, err) < 0 ? error_prefix(err, "'%s'", prefix) : 0;
}

uint64_t backup_pack_entries(const struct backup_pack *pack)
{
    return pack->entries;
}

int backup_pack_end(struct backup_pack *pack, struct error *err)
{
    return archive_write_close(pack->archive) != ARCHIVE_OK ? fail(pack, err) : 0;
}
