#include "backup/backup_unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>

#include "backup/backup_unpack_internal.h"
#include "base/alloc.h"

enum { PIECE = 1 << 18 };

static la_ssize_t on_read(struct archive *archive, void *arg, const void **out)
{
    struct backup_unpack *unpack = arg;
    ssize_t n = backup_file_read(unpack->file, unpack->in, PIECE, &unpack->failed);

    *out = unpack->in;
    if (n < 0)
        archive_set_error(archive, EIO, "read");
    return n;
}

struct backup_unpack *backup_unpack_new(struct backup_file *file)
{
    struct backup_unpack *unpack = xcalloc(1, sizeof(*unpack));

    unpack->file = file;
    unpack->in = xmalloc(PIECE);
    unpack->archive = archive_read_new();
    (void)archive_read_support_filter_zstd(unpack->archive);
    (void)archive_read_support_format_tar(unpack->archive);
    unpack->broken = archive_read_open(unpack->archive, unpack, NULL, on_read, NULL) != ARCHIVE_OK;
    return unpack;
}

void backup_unpack_free(struct backup_unpack *unpack)
{
    if (!unpack)
        return;
    (void)archive_read_free(unpack->archive);
    free(unpack->in);
    free(unpack);
}

int unpack_fail(const struct backup_unpack *unpack, struct error *err)
{
    const char *why = archive_error_string(unpack->archive);

    if (unpack->failed.code)
        *err = unpack->failed;
    else
        (void)error_set(err, ERROR_INVALID, "the backup cannot be read: %s", why ? why : "unknown");
    return -1;
}

int backup_unpack_next(struct backup_unpack *unpack, struct str *out_path, struct error *err)
{
    const char *path;
    int r =
        unpack->broken ? ARCHIVE_FATAL : archive_read_next_header(unpack->archive, &unpack->entry);

    if (r == ARCHIVE_EOF)
        return 0;
    path = r < ARCHIVE_WARN ? NULL : archive_entry_pathname(unpack->entry);
    if (!path)
        return unpack_fail(unpack, err);
    *out_path = str_of(path);
    while (out_path->len && out_path->p[out_path->len - 1] == '/')
        out_path->len--;
    return 1;
}

int backup_unpack_text(struct backup_unpack *unpack, struct buf *out, struct error *err)
{
    la_ssize_t n;
    char piece[4096];

    if (archive_entry_filetype(unpack->entry) != AE_IFREG)
        return error_set(err, ERROR_INVALID, "the backup has no list of what is in it");
    while ((n = archive_read_data(unpack->archive, piece, sizeof(piece))) > 0)
        if (!buf_add(out, piece, (size_t)n))
            return error_set(err, ERROR_LIMIT, "the list in the backup is longer than %zu bytes",
                             out->max);
    return n < 0 ? unpack_fail(unpack, err) : 0;
}
