#include "backup/backup_file.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/fd.h"

enum {
    SUM_SIZE = 32,
    TEXT_SIZE = 96,            /* of the frame's content */
    TAIL_SIZE = 8 + TEXT_SIZE, /* with its head */
    PIECE = 1 << 20,
};

struct backup_file {
    int fd;
    EVP_MD_CTX *hash;
    off_t size, at; /* of the bytes in front of the checksum */
    char *path, *part;
    bool unfinished;
};

static struct backup_file *file_new(int fd, const char *path)
{
    struct backup_file *file = xcalloc(1, sizeof(*file));

    file->fd = fd;
    file->path = xstrdup(path);
    file->hash = EVP_MD_CTX_new();
    (void)EVP_DigestInit_ex(file->hash, EVP_sha256(), NULL);
    return file;
}

void backup_file_close(struct backup_file *file)
{
    if (!file)
        return;
    if (file->unfinished)
        (void)unlink(file->part);
    close_fd(&file->fd);
    EVP_MD_CTX_free(file->hash);
    free(file->path);
    free(file->part);
    free(file);
}

static void file_cleanup(struct backup_file **file)
{
    backup_file_close(*file);
}

/* Frame of zstd that readers skip: its magic number, the length of its content, little-endian. */
static void make_tail(struct backup_file *file, unsigned char out[TAIL_SIZE])
{
    static const unsigned char head[8] = {0x5a, 0x2a, 0x4d, 0x18, TEXT_SIZE};
    static const char says[] = "quicksand backup sha256 ";
    unsigned char sum[SUM_SIZE];
    char hex[2 * SUM_SIZE + 1];

    (void)EVP_DigestFinal_ex(file->hash, sum, NULL);
    hex_encode(hex, sum, sizeof(sum));
    memset(out, '\n', TAIL_SIZE);
    memcpy(out, head, sizeof(head));
    memcpy(out + sizeof(head), says, sizeof(says) - 1);
    memcpy(out + sizeof(head) + sizeof(says) - 1, hex, sizeof(hex) - 1);
}

int backup_file_create(const char *path, struct backup_file **out, struct error *err)
{
    __attribute__((cleanup(file_cleanup))) struct backup_file *file = file_new(-1, path);

    file->part = xasprintf("%s.part", path);
    if (access(path, F_OK) == 0)
        return error_set(err, ERROR_EXISTS, "'%s' exists: name another file, or remove it", path);
    (void)unlink(file->part);
    file->fd = open(file->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file->fd < 0)
        return error_set_errno(err, errno, "make '%s'", file->part);
    file->unfinished = true;
    *out = take_ptr(&file);
    return 0;
}

int backup_file_write(struct backup_file *file, const void *p, size_t len, struct error *err)
{
    int r = fd_write_full(file->fd, p, len);

    if (r < 0)
        return error_set_errno(err, -r, "write '%s'", file->part);
    (void)EVP_DigestUpdate(file->hash, p, len);
    file->size += (off_t)len;
    return 0;
}

int backup_file_finish(struct backup_file *file, struct error *err)
{
    unsigned char tail[TAIL_SIZE];
    int r;

    make_tail(file, tail);
    r = fd_write_full(file->fd, tail, sizeof(tail));
    if (r < 0 || fsync(file->fd) < 0 || rename(file->part, file->path) < 0)
        return error_set_errno(err, r < 0 ? -r : errno, "finish '%s'", file->path);
    file->unfinished = false;
    return 0;
}

static int check(struct backup_file *file, struct error *err)
{
    auto_free char *piece = xmalloc(PIECE);
    unsigned char wanted[TAIL_SIZE], tail[TAIL_SIZE];
    ssize_t n;

    while ((n = backup_file_read(file, piece, PIECE, err)) > 0)
        (void)EVP_DigestUpdate(file->hash, piece, (size_t)n);
    if (n < 0)
        return -1;
    make_tail(file, wanted);
    if (pread(file->fd, tail, sizeof(tail), file->size) != (ssize_t)sizeof(tail) ||
        memcmp(tail, wanted, sizeof(tail)) != 0)
        return error_set(err, ERROR_INVALID,
                         "'%s' is no backup, or it was cut or damaged: its checksum is not that of "
                         "its bytes",
                         file->path);
    file->at = 0;
    return 0;
}

int backup_file_open(const char *path, struct backup_file **out, struct error *err)
{
    __attribute__((cleanup(file_cleanup))) struct backup_file *file =
        file_new(open(path, O_RDONLY | O_CLOEXEC), path);
    struct stat st;

    if (file->fd < 0 || fstat(file->fd, &st) < 0)
        return error_set_errno(err, errno, "open '%s'", path);
    if (!S_ISREG(st.st_mode) || st.st_size < TAIL_SIZE)
        return error_set(err, ERROR_INVALID, "'%s' is no backup", path);
    file->size = st.st_size - TAIL_SIZE;
    if (check(file, err) < 0)
        return -1;
    *out = take_ptr(&file);
    return 0;
}

ssize_t backup_file_read(struct backup_file *file, void *p, size_t len, struct error *err)
{
    off_t rest = file->size - file->at;
    ssize_t n = pread(file->fd, p, rest < (off_t)len ? (size_t)rest : len, file->at);

    if (n < 0)
        return error_set_errno(err, errno, "read '%s'", file->path);
    if (n == 0 && rest > 0)
        return error_set(err, ERROR_INVALID, "'%s' became shorter while it was read", file->path);
    file->at += n;
    return n;
}

off_t backup_file_size(const struct backup_file *file)
{
    return file->size + TAIL_SIZE;
}
