#include "cli/build/pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/path.h"

enum { CHUNK_SIZE = 256 * 1024, HASH_SIZE = 32 };

/* What is hashed, and how it is packed, may change: other names then. */
#define VERSION "quicksand files 1\n"

static struct archive *open_reader(int fd)
{
    struct archive *in = archive_read_new();

    (void)archive_read_support_filter_gzip(in);
    (void)archive_read_support_filter_bzip2(in);
    (void)archive_read_support_filter_xz(in);
    (void)archive_read_support_filter_zstd(in);
    (void)archive_read_support_format_tar(in);
    if (archive_read_open_fd(in, fd, CHUNK_SIZE) == ARCHIVE_OK)
        return in;
    (void)archive_read_free(in);
    return NULL;
}

bool pack_is_archive(int fd)
{
    struct archive *in = open_reader(fd);
    struct archive_entry *entry;
    bool is = in && archive_read_next_header(in, &entry) == ARCHIVE_OK;

    if (in)
        (void)archive_read_free(in);
    (void)lseek(fd, 0, SEEK_SET);
    return is;
}

/* ---- hash ---- */

static int open_entry(struct context *context, const struct pack_entry *entry, struct error *err)
{
    int fd = path_open_in_root(context->dir, entry->path, O_RDONLY, 0);

    return fd < 0 ? error_set_errno(err, -fd, "'%s'", entry->path) : fd;
}

static int hash_file(EVP_MD_CTX *hash, struct context *context, const struct pack_entry *entry,
                     char *bytes, struct error *err)
{
    auto_close int fd = open_entry(context, entry, err);
    int64_t left = entry->size;

    if (fd < 0)
        return -1;
    while (left > 0) {
        ssize_t n = read(fd, bytes, left < CHUNK_SIZE ? (size_t)left : CHUNK_SIZE);

        if (n <= 0)
            return error_set(err, ERROR_CONFLICT, "'%s' changed while it was read", entry->path);
        (void)EVP_DigestUpdate(hash, bytes, (size_t)n);
        left -= n;
    }
    return 0;
}

static int hash_entry(EVP_MD_CTX *hash, struct context *context, const struct pack_entry *entry,
                      char *bytes, struct error *err)
{
    bool is_file = S_ISREG(entry->mode);
    char head[96];
    int len = snprintf(head, sizeof(head), "%o %d %lld ", entry->mode, entry->unpack,
                       is_file ? (long long)entry->size : 0);

    (void)EVP_DigestUpdate(hash, head, (size_t)len);
    (void)EVP_DigestUpdate(hash, entry->name, strlen(entry->name) + 1);
    if (entry->text.p)
        (void)EVP_DigestUpdate(hash, entry->text.p, entry->text.len + 1);
    return entry->path && is_file ? hash_file(hash, context, entry, bytes, err) : 0;
}

int pack_hash(struct context *context, struct pack *pack, struct error *err)
{
    auto_free char *bytes = xmalloc(CHUNK_SIZE);
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    unsigned char digest[HASH_SIZE];
    int rc = 0;

    (void)EVP_DigestInit_ex(hash, EVP_sha256(), NULL);
    (void)EVP_DigestUpdate(hash, VERSION, sizeof(VERSION) - 1);
    for (size_t i = 0; rc == 0 && i < pack->count; i++)
        rc = hash_entry(hash, context, &pack->entries[i], bytes, err);
    (void)EVP_DigestFinal_ex(hash, digest, NULL);
    EVP_MD_CTX_free(hash);
    hex_encode(pack->hash, digest, sizeof(digest));
    return rc;
}

/* ---- archive ---- */

static int archive_fault(struct archive *archive, const char *what, struct error *err)
{
    const char *text = archive_error_string(archive);

    return error_set(err, ERROR_INTERNAL, "%s: %s", what, text ? text : "it failed");
}

static int copy_bytes(struct archive *out, int fd, int64_t left, const char *name, char *bytes,
                      struct error *err)
{
    while (left > 0) {
        ssize_t n = read(fd, bytes, left < CHUNK_SIZE ? (size_t)left : CHUNK_SIZE);

        if (n <= 0)
            return error_set(err, ERROR_CONFLICT, "'%s' changed while it was read", name);
        if (archive_write_data(out, bytes, (size_t)n) < 0)
            return archive_fault(out, name, err);
        left -= n;
    }
    return 0;
}

static int write_plain(struct context *context, struct archive *out, const struct pack_entry *entry,
                       char *bytes, struct error *err)
{
    struct archive_entry *head = archive_entry_new();
    auto_close int fd = entry->path && S_ISREG(entry->mode) ? open_entry(context, entry, err) : -1;
    int rc;

    archive_entry_set_pathname(head, entry->name);
    archive_entry_set_mode(head, entry->mode);
    archive_entry_set_size(head, S_ISREG(entry->mode) ? entry->size : 0);
    archive_entry_set_mtime(head, entry->mtime_s, 0);
    if (S_ISLNK(entry->mode))
        archive_entry_set_symlink(head, entry->text.p);
    rc = archive_write_header(out, head);
    archive_entry_free(head);
    if (rc < ARCHIVE_WARN)
        return archive_fault(out, entry->name, err);
    if (!S_ISREG(entry->mode))
        return 0;
    if (entry->path)
        return fd < 0 ? -1 : copy_bytes(out, fd, entry->size, entry->name, bytes, err);
    if (archive_write_data(out, entry->text.p, entry->text.len) < 0)
        return archive_fault(out, entry->name, err);
    return 0;
}

/* The data of the entry read last. */
static int copy_data(struct archive *in, struct archive *out, const char *name, char *bytes,
                     struct error *err)
{
    for (;;) {
        ssize_t n = archive_read_data(in, bytes, CHUNK_SIZE);

        if (n == 0)
            return 0;
        if (n < 0)
            return archive_fault(in, name, err);
        if (archive_write_data(out, bytes, (size_t)n) < 0)
            return archive_fault(out, name, err);
    }
}

static int write_inner(struct archive *in, struct archive *out, struct archive_entry *inner,
                       const char *name, char *bytes, struct error *err)
{
    /* Names of users are those of another machine. */
    archive_entry_set_uname(inner, NULL);
    archive_entry_set_gname(inner, NULL);
    if (archive_write_header(out, inner) < ARCHIVE_WARN)
        return archive_fault(out, name, err);
    return archive_entry_size(inner) > 0 ? copy_data(in, out, name, bytes, err) : 0;
}

/* What is in an archive instead of itself. */
static int write_unpacked(struct context *context, struct archive *out,
                          const struct pack_entry *entry, char *bytes, struct error *err)
{
    auto_close int fd = open_entry(context, entry, err);
    struct archive *in = fd < 0 ? NULL : open_reader(fd);
    struct archive_entry *inner;
    int rc = 0, r = ARCHIVE_OK;

    if (!in)
        return fd < 0 ? -1 : error_set(err, ERROR_INVALID, "'%s' is no archive", entry->path);
    while (rc == 0 && (r = archive_read_next_header(in, &inner)) >= ARCHIVE_WARN &&
           r != ARCHIVE_EOF)
        rc = write_inner(in, out, inner, entry->path, bytes, err);
    if (rc == 0 && r != ARCHIVE_EOF)
        rc = archive_fault(in, entry->path, err);
    (void)archive_read_free(in);
    return rc;
}

/* The format of long names and large numbers, with nothing in it that depends on the clock. */
static struct archive *open_writer(int fd, struct error *err)
{
    struct archive *out = archive_write_new();

    (void)archive_write_set_format_pax_restricted(out);
    (void)archive_write_add_filter_gzip(out);
    (void)archive_write_set_bytes_in_last_block(out, 1);
    if (archive_write_set_options(out, "hdrcharset=BINARY,gzip:compression-level=1,"
                                       "gzip:!timestamp") == ARCHIVE_OK &&
        archive_write_open_fd(out, fd) == ARCHIVE_OK)
        return out;
    (void)archive_fault(out, "the archive", err);
    (void)archive_write_free(out);
    return NULL;
}

int pack_write(struct context *context, const struct pack *pack, int fd, struct error *err)
{
    auto_free char *bytes = xmalloc(CHUNK_SIZE);
    struct archive *out = open_writer(fd, err);
    int rc = out ? 0 : -1;

    for (size_t i = 0; rc == 0 && i < pack->count; i++)
        rc = (pack->entries[i].unpack ? write_unpacked
                                      : write_plain)(context, out, &pack->entries[i], bytes, err);
    if (rc == 0 && archive_write_close(out) != ARCHIVE_OK)
        rc = archive_fault(out, "the archive", err);
    if (out)
        (void)archive_write_free(out);
    return rc;
}
