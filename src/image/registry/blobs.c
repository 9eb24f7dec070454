#include "image/registry/blobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/fd.h"
#include "base/path.h"
#include "image/registry/reference.h"

enum { NAME_SIZE = 128, SOURCE_LEN = 16, WAIT_US = 50 * 1000 };

struct blobs {
    int dir;
};

static const char *hex_of(struct str digest)
{
    return digest.p + sizeof("sha256:") - 1;
}

void sha256_hex(struct str bytes, char out[SHA256_HEX_SIZE])
{
    unsigned char sum[32];

    (void)EVP_Digest(bytes.p, bytes.len, sum, NULL, EVP_sha256(), NULL);
    hex_encode(out, sum, sizeof(sum));
}

bool digest_is_of(struct str digest, struct str bytes)
{
    char hex[SHA256_HEX_SIZE];

    sha256_hex(bytes, hex);
    return digest_ok(digest) && strncmp(hex_of(digest), hex, SHA256_HEX_SIZE - 1) == 0;
}

int blobs_open(const char *directory, struct blobs **out, struct error *err)
{
    int r = path_make_dirs(directory, 0700), dir;

    if (r < 0)
        return error_set_errno(err, -r, "cannot make '%s'", directory);
    dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return error_set_errno(err, errno, "cannot open '%s'", directory);
    *out = xcalloc(1, sizeof(**out));
    (*out)->dir = dir;
    return 0;
}

void blobs_close(struct blobs *blobs)
{
    if (!blobs)
        return;
    (void)close(blobs->dir);
    free(blobs);
}

static void whole_name(const struct descriptor *blob, char out[NAME_SIZE])
{
    (void)snprintf(out, NAME_SIZE, "%.64s%s%.*s", hex_of(blob->digest), blob->owner.len ? "-" : "",
                   (int)(blob->owner.len < BLOB_OWNER_LEN ? blob->owner.len : BLOB_OWNER_LEN),
                   blob->owner.p ? blob->owner.p : "");
}

/* Apart for each registry: one that stalls or lies must not hold up another that has the same blob. */
static void partial_name(const struct descriptor *blob, char out[NAME_SIZE])
{
    char hex[SHA256_HEX_SIZE];
    size_t len;

    whole_name(blob, out);
    len = strlen(out);
    sha256_hex(blob->source, hex);
    (void)snprintf(out + len, NAME_SIZE - len, "-%.*s.partial", SOURCE_LEN, hex);
}

bool blobs_has(const struct blobs *blobs, const struct descriptor *blob)
{
    char name[NAME_SIZE];
    struct stat st;

    whole_name(blob, name);
    return fstatat(blobs->dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size == blob->bytes;
}

int blobs_link(const struct blobs *blobs, const struct descriptor *blob, const char *path,
               struct error *err)
{
    char name[NAME_SIZE];

    whole_name(blob, name);
    if (linkat(blobs->dir, name, AT_FDCWD, path, 0) < 0)
        return error_set_errno(err, errno, "cannot link a blob to '%s'", path);
    (void)utimensat(blobs->dir, name, NULL, 0);
    return 0;
}

/* ---- writing ---- */

/* The file of what is not whole, which nobody else writes from now on; -1 with code 0 when it must be looked again. */
static int lock_partial(const struct blobs *blobs, const struct descriptor *blob, struct error *err)
{
    char name[NAME_SIZE];
    auto_close int fd = -1;
    struct stat st;

    partial_name(blob, name);
    fd = openat(blobs->dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set_errno(err, errno, "cannot make a file for a blob");
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        (void)usleep(WAIT_US);
        return -1;
    }
    /* Who wrote it before has made it whole, and it is no longer there. */
    if (fstat(fd, &st) < 0 || st.st_nlink == 0)
        return -1;
    return take_fd(&fd);
}

/* What is there counts: it is read once more for its sum. */
static int take_up(struct blob_writer *writer, struct error *err)
{
    auto_free char *piece = xmalloc(256 * 1024);
    ssize_t got;

    while ((got = fd_read_full(writer->fd, piece, 256 * 1024)) > 0) {
        (void)EVP_DigestUpdate(writer->hash, piece, (size_t)got);
        writer->at += got;
    }
    if (got < 0)
        return error_set_errno(err, (int)-got, "cannot read what is there of a blob");
    return writer->at > writer->blob.bytes ? blob_restart(writer, err) : 0;
}

int blob_begin(const struct blobs *blobs, const struct descriptor *blob, bool (*stopped)(void *arg),
               void *arg, struct blob_writer *out, struct error *err)
{
    *out = (struct blob_writer){.blobs = blobs, .blob = *blob, .fd = -1};
    for (;;) {
        struct error why = {0};

        if (blobs_has(blobs, blob))
            return 1;
        out->fd = lock_partial(blobs, blob, &why);
        if (out->fd >= 0)
            break;
        if (why.code != ERROR_NONE) {
            *err = why;
            return -1;
        }
        if (stopped && stopped(arg))
            return error_set(err, ERROR_CONFLICT, "stopped");
    }
    if (blobs_has(blobs, blob)) {
        char name[NAME_SIZE];

        partial_name(blob, name);
        (void)unlinkat(blobs->dir, name, 0);
        return 1;
    }
    out->hash = EVP_MD_CTX_new();
    (void)EVP_DigestInit_ex(out->hash, EVP_sha256(), NULL);
    return take_up(out, err);
}

int blob_write(struct blob_writer *writer, const void *p, size_t len, struct error *err)
{
    int r;

    if ((int64_t)len > writer->blob.bytes - writer->at)
        return error_set(err, ERROR_INVALID, "the registry sends more than the %lld bytes it told",
                         (long long)writer->blob.bytes);
    r = fd_write_full(writer->fd, p, len);
    if (r < 0)
        return error_set_errno(err, -r, "cannot write a blob");
    (void)EVP_DigestUpdate(writer->hash, p, len);
    writer->at += (int64_t)len;
    return 0;
}

int blob_restart(struct blob_writer *writer, struct error *err)
{
    writer->at = 0;
    (void)EVP_DigestInit_ex(writer->hash, EVP_sha256(), NULL);
    if (ftruncate(writer->fd, 0) < 0 || lseek(writer->fd, 0, SEEK_SET) < 0)
        return error_set_errno(err, errno, "cannot write a blob");
    return 0;
}

int blob_finish(struct blob_writer *writer, struct error *err)
{
    char whole[NAME_SIZE], partial[NAME_SIZE], hex[SHA256_HEX_SIZE];
    unsigned char sum[32];
    int dir = writer->blobs->dir;

    whole_name(&writer->blob, whole);
    partial_name(&writer->blob, partial);
    (void)EVP_DigestFinal_ex(writer->hash, sum, NULL);
    hex_encode(hex, sum, sizeof(sum));
    if (strncmp(hex, whole, SHA256_HEX_SIZE - 1) != 0 || writer->at != writer->blob.bytes) {
        (void)unlinkat(dir, partial, 0);
        return error_set(err, ERROR_INVALID, "what came is not what the digest %.*s says",
                         STR_ARG(writer->blob.digest));
    }
    if (fdatasync(writer->fd) < 0 || renameat(dir, partial, dir, whole) < 0)
        return error_set_errno(err, errno, "cannot keep a blob");
    return 0;
}

void blob_leave(struct blob_writer *writer)
{
    close_fd(&writer->fd);
    EVP_MD_CTX_free(writer->hash);
    writer->hash = NULL;
}

/* ---- pruning ---- */

struct kept {
    char name[NAME_SIZE];
    int64_t used_s, bytes;
    bool linked;
};

static int by_use(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;

    return x->used_s < y->used_s ? -1 : x->used_s > y->used_s;
}

static size_t list_all(const struct blobs *blobs, struct kept **out)
{
    DIR *dir = path_open_dir(blobs->dir, ".");
    size_t count = 0, size = 0;
    struct dirent *entry;

    *out = NULL;
    while (dir && (entry = readdir(dir))) {
        struct stat st;

        if (fstatat(blobs->dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode) || strlen(entry->d_name) >= NAME_SIZE)
            continue;
        if (count == size) {
            size = size ? size * 2 : 64;
            *out = xrealloc(*out, size * sizeof(**out));
        }
        (*out)[count] =
            (struct kept){.used_s = st.st_mtime, .bytes = st.st_size, .linked = st.st_nlink > 1};
        (void)snprintf((*out)[count++].name, NAME_SIZE, "%s", entry->d_name);
    }
    if (dir)
        (void)closedir(dir);
    return count;
}

/* So that on a small or nearly full disk images that were fetched once do not leave others without space. */
static int64_t bytes_allowed(const struct blobs *blobs, int64_t total, int64_t max_bytes)
{
    struct statvfs fs;
    int64_t quarter;

    if (fstatvfs(blobs->dir, &fs) < 0)
        return max_bytes;
    quarter = ((int64_t)(fs.f_bavail * fs.f_frsize) + total) / 4;
    return quarter < max_bytes ? quarter : max_bytes;
}

void blobs_prune(const struct blobs *blobs, int64_t max_age_s, int64_t max_bytes)
{
    auto_free struct kept *all = NULL;
    size_t count = list_all(blobs, &all);
    int64_t total = 0, now_s = clock_wall_us() / 1000000;

    if (count == 0)
        return;
    qsort(all, count, sizeof(*all), by_use);
    for (size_t i = 0; i < count; i++)
        total += all[i].bytes;
    max_bytes = bytes_allowed(blobs, total, max_bytes);
    for (size_t i = 0; i < count; i++) {
        bool old = now_s - all[i].used_s > max_age_s;

        if (all[i].linked || (!old && total <= max_bytes))
            continue;
        if (unlinkat(blobs->dir, all[i].name, 0) == 0)
            total -= all[i].bytes;
    }
}
