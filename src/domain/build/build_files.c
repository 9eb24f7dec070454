/* Files that clients upload, and those that only pass through. A body lies once in DATA/store/uploads, under the
 * SHA-256 of its bytes, which is made here: what a client says about it is only the name by which its team finds it.
 * The row comes after the file and goes before it, so that a crash leaves at most a file without a row, which the
 * next start removes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "domain/build/build_internal.h"
#include "domain/sandbox/sandbox_room.h"

enum { PIECE = 256 * 1024, PRUNE_MAX = 256, SPARE_PATH = 64 };
#define DAY_US (INT64_C(86400) * 1000000)

static bool hash_ok(struct str hash)
{
    for (size_t i = 0; i < hash.len; i++)
        if (!((hash.p[i] >= '0' && hash.p[i] <= '9') || (hash.p[i] >= 'a' && hash.p[i] <= 'f')))
            return false;
    return hash.len == KEY_SIZE - 1;
}

static int check_hash(struct str hash, struct error *err)
{
    return hash_ok(hash) ? 0 : error_set(err, ERROR_INVALID, "a hash of files has 64 hex digits");
}

/* Its file goes, unless somebody names it. */
static void drop_body(struct builds *all, struct str body)
{
    auto_free char *path = xasprintf("%s/%.*s", all->uploads, STR_ARG(body));
    struct error err = {0};
    bool has = true;

    if (store_build_file_has_body(all->config.store, body, &has, &err) == 0 && !has)
        (void)unlink(path);
}

/* ---- putting in ---- */

int files_hash(int fd, char out[KEY_SIZE], int64_t *out_length, struct error *err)
{
    EVP_MD_CTX *digest = EVP_MD_CTX_new();
    auto_free char *piece = xcalloc(1, PIECE);
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    ssize_t n = 0;

    *out_length = 0;
    (void)EVP_DigestInit_ex(digest, EVP_sha256(), NULL);
    while ((n = pread(fd, piece, PIECE, *out_length)) > 0) {
        (void)EVP_DigestUpdate(digest, piece, (size_t)n);
        *out_length += n;
    }
    (void)EVP_DigestFinal_ex(digest, sum, &len);
    EVP_MD_CTX_free(digest);
    if (n < 0)
        return error_set_errno(err, errno, "read a file");
    hex_encode(out, sum, len);
    return 0;
}

int files_link_fd(int fd, const char *path, struct error *err)
{
    char from[64];

    (void)snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "keep the uploaded file");
    return 0;
}

/* What a team uploaded counts as what it keeps, also where another team uploaded the same: either may go. */
static int put_row(struct builds *all, const struct store_build_file *file, struct error *err)
{
    int r;

    if (room_take(all->config.sandboxes, file->team_id, file->bytes, err) < 0)
        return -1;
    r = store_build_file_put(all->config.store, file, err);
    room_taken(all->config.sandboxes);
    return r;
}

int build_file_add(struct builds *all, struct str team_id, struct str hash, int fd, int64_t length,
                   struct error *err)
{
    int64_t now_us = clock_wall_us(), bytes;
    struct store_build_file file;
    auto_free char *path = NULL;
    char body[KEY_SIZE];

    if (check_hash(hash, err) < 0 || files_hash(fd, body, &bytes, err) < 0)
        return -1;
    if (length >= 0 && bytes != length)
        return error_set(err, ERROR_INVALID, "the upload has %lld bytes, not %lld",
                         (long long)bytes, (long long)length);
    path = xasprintf("%s/%s", all->uploads, body);
    if (fsync(fd) < 0)
        return error_set_errno(err, errno, "keep the uploaded file");
    if (files_link_fd(fd, path, err) < 0)
        return -1;
    file = (struct store_build_file){.team_id = team_id,
                                     .hash = hash,
                                     .body = str_of(body),
                                     .bytes = bytes,
                                     .made_at_us = now_us,
                                     .used_at_us = now_us};
    if (put_row(all, &file, err) < 0) {
        drop_body(all, file.body);
        return -1;
    }
    return 0;
}

/* ---- finding ---- */

int files_path(struct builds *all, struct str team_id, struct str hash, struct arena *arena,
               struct str *out_body, char **out_path, struct error *err)
{
    struct store_build_file file;
    struct stat st;

    if (check_hash(hash, err) < 0 || store_build_file_find(all->config.store, team_id, hash,
                                                           clock_wall_us(), arena, &file, err) < 0)
        return -1;
    *out_body = file.body;
    *out_path = arena_printf(arena, "%s/%.*s", all->uploads, STR_ARG(file.body));
    if (stat(*out_path, &st) < 0 || st.st_size != file.bytes)
        return error_set(err, ERROR_NOT_FOUND, "the uploaded file '%.*s' is gone", STR_ARG(hash));
    return 0;
}

int build_file_find(struct builds *all, struct str team_id, struct str hash, bool *out_present,
                    struct error *err)
{
    auto_arena struct arena arena = {0};
    struct str body;
    char *path;

    *out_present = files_path(all, team_id, hash, &arena, &body, &path, err) == 0;
    return *out_present || err->code == ERROR_NOT_FOUND ? 0 : -1;
}

int files_spool(struct builds *all, struct error *err)
{
    int fd = open(all->spool_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);

    return fd < 0 ? error_set_errno(err, errno, "make a file") : fd;
}

/* ---- what goes ---- */

void files_prune(struct builds *all)
{
    auto_arena struct arena arena = {0};
    struct error err = {0};
    struct str *bodies;
    size_t count = 0;

    if (store_build_file_prune(all->config.store, clock_wall_us() - all->config.cache_days * DAY_US,
                               PRUNE_MAX, &arena, &bodies, &count, &err) < 0)
        return;
    for (size_t i = 0; i < count; i++)
        drop_body(all, bodies[i]);
}

/* Left by a server that ended in the middle. */
static void drop_strays(struct builds *all)
{
    DIR *dir = opendir(all->uploads);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        if (hash_ok(str_of(entry->d_name)))
            drop_body(all, str_of(entry->d_name));
    if (dir)
        (void)closedir(dir);
}

static void drop_feeds(struct builds *all)
{
    DIR *dir = opendir(all->feeds);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, "unpack") != 0)
            (void)path_remove_tree(dirfd(dir), entry->d_name);
    if (dir)
        (void)closedir(dir);
}

static bool same_content(int a, int b)
{
    auto_free char *of_a = xcalloc(2, PIECE);
    char *of_b = of_a + PIECE;
    ssize_t n;

    do {
        n = fd_read_full(a, of_a, PIECE);
        if (n < 0 || fd_read_full(b, of_b, PIECE) != n || memcmp(of_a, of_b, (size_t)n) != 0)
            return false;
    } while (n == PIECE);
    return true;
}

static int copy_file(int from, const char *path, struct error *err)
{
    auto_free char *piece = xcalloc(1, PIECE);
    auto_close int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    ssize_t n;
    int r;

    if (to < 0)
        return error_set_errno(err, errno, "make '%s'", path);
    while ((n = read(from, piece, PIECE)) > 0) {
        r = fd_write_full(to, piece, (size_t)n);
        if (r < 0)
            return error_set_errno(err, -r, "write '%s'", path);
    }
    return n < 0 || fchmod(to, 0755) < 0 ? error_set_errno(err, errno, "make '%s'", path) : 0;
}

/* Boxes get it by a link, which must not leave the file system. What is there from before is left alone: the disk may be
 * full, and a server starts all the same. */
int files_unpack(struct builds *all, struct error *err)
{
    auto_free char *path = xasprintf("%s/unpack", all->feeds);
    auto_close int from = open(all->config.unpack, O_RDONLY | O_CLOEXEC);
    auto_close int there = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int r;

    if (from < 0)
        return error_set_errno(err, errno, "open '%s'", all->config.unpack);
    if (there >= 0 && same_content(from, there))
        return 0;
    (void)unlink(path);
    if (lseek(from, 0, SEEK_SET) < 0)
        return error_set_errno(err, errno, "read '%s'", all->config.unpack);
    r = copy_file(from, path, err);
    if (r < 0)
        (void)unlink(path);
    return r;
}

int files_open(struct builds *all, struct error *err)
{
    int r = path_make_dirs(all->uploads, 0700);

    if (r == 0)
        r = path_make_dirs(all->feeds, 0700);
    if (r < 0)
        return error_set_errno(err, -r, "make the directories of builds");
    drop_strays(all);
    drop_feeds(all);
    if (all->config.unpack && files_unpack(all, err) < 0)
        log_warn("build", "%s; it is tried again by builds that need it", err->message);
    return bootstrap_open(all, err);
}
