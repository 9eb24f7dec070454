/* What we use of libarchive. */
#include <archive.h>
#include <archive_entry.h>
#include <stdarg.h>
#include <stdio.h>

#include "late/late.h"

const struct late_library late_archive = {"libarchive.so.13", "libarchive13"};

/* It takes the parameters for products. */
/* clang-format off */
#define VALUE(type, name, parameters, arguments) \
    LATE_VALUE(late_archive, type, name, parameters, arguments)
#define VOID(name, parameters, arguments) LATE_VOID(late_archive, name, parameters, arguments)
#define MAKE(type, name)                  VALUE(type, name, (void), ())
#define ARCHIVE_DO(name)                  VALUE(int, name, (struct archive *archive), (archive))
#define ENTRY_GET(type, name)             VALUE(type, name, (struct archive_entry *entry), (entry))
#define ENTRY_SET(type, name)             VOID(name, (struct archive_entry *entry, type value), (entry, value))
#define ENTRY_SET_TIME(name)                                                     \
    VOID(name, (struct archive_entry *entry, time_t seconds, long nanoseconds), \
         (entry, seconds, nanoseconds))

MAKE(struct archive_entry *, archive_entry_new)
MAKE(struct archive *, archive_read_new)
MAKE(struct archive *, archive_write_disk_new)
MAKE(struct archive *, archive_write_new)

ARCHIVE_DO(archive_errno)
ARCHIVE_DO(archive_read_free)
ARCHIVE_DO(archive_read_support_filter_all)
ARCHIVE_DO(archive_read_support_filter_bzip2)
ARCHIVE_DO(archive_read_support_filter_gzip)
ARCHIVE_DO(archive_read_support_filter_xz)
ARCHIVE_DO(archive_read_support_filter_zstd)
ARCHIVE_DO(archive_read_support_format_tar)
ARCHIVE_DO(archive_write_add_filter_gzip)
ARCHIVE_DO(archive_write_add_filter_none)
ARCHIVE_DO(archive_write_add_filter_zstd)
ARCHIVE_DO(archive_write_close)
ARCHIVE_DO(archive_write_fail)
ARCHIVE_DO(archive_write_finish_entry)
ARCHIVE_DO(archive_write_free)
ARCHIVE_DO(archive_write_set_format_gnutar)
ARCHIVE_DO(archive_write_set_format_pax)
ARCHIVE_DO(archive_write_set_format_pax_restricted)

ENTRY_GET(time_t, archive_entry_atime)
ENTRY_GET(long, archive_entry_atime_nsec)
ENTRY_GET(struct archive_entry *, archive_entry_clear)
ENTRY_GET(mode_t, archive_entry_filetype)
ENTRY_GET(la_int64_t, archive_entry_gid)
ENTRY_GET(const char *, archive_entry_hardlink)
ENTRY_GET(time_t, archive_entry_mtime)
ENTRY_GET(long, archive_entry_mtime_nsec)
ENTRY_GET(const char *, archive_entry_pathname)
ENTRY_GET(mode_t, archive_entry_perm)
ENTRY_GET(dev_t, archive_entry_rdev)
ENTRY_GET(la_int64_t, archive_entry_size)
ENTRY_GET(const char *, archive_entry_symlink)
ENTRY_GET(la_int64_t, archive_entry_uid)
ENTRY_GET(int, archive_entry_xattr_reset)

ENTRY_SET(const char *, archive_entry_copy_hardlink)
ENTRY_SET(const char *, archive_entry_copy_pathname)
ENTRY_SET(const char *, archive_entry_copy_symlink)
ENTRY_SET(unsigned int, archive_entry_set_filetype)
ENTRY_SET(la_int64_t, archive_entry_set_gid)
ENTRY_SET(const char *, archive_entry_set_gname)
ENTRY_SET(const char *, archive_entry_set_hardlink)
ENTRY_SET(mode_t, archive_entry_set_mode)
ENTRY_SET(const char *, archive_entry_set_pathname)
ENTRY_SET(mode_t, archive_entry_set_perm)
ENTRY_SET(la_int64_t, archive_entry_set_size)
ENTRY_SET(const char *, archive_entry_set_symlink)
ENTRY_SET(la_int64_t, archive_entry_set_uid)
ENTRY_SET(const char *, archive_entry_set_uname)

ENTRY_SET_TIME(archive_entry_set_atime)
ENTRY_SET_TIME(archive_entry_set_mtime)

VOID(archive_entry_free, (struct archive_entry *entry), (entry))
VOID(archive_entry_xattr_add_entry,
     (struct archive_entry *entry, const char *text, const void *data, size_t length),
     (entry, text, data, length))
VALUE(int, archive_entry_xattr_next,
      (struct archive_entry *entry, const char **text, const void **data, size_t *length),
      (entry, text, data, length))
VALUE(const char *, archive_error_string, (struct archive *archive), (archive))
VALUE(la_ssize_t, archive_read_data, (struct archive *archive, void *data, size_t length),
      (archive, data, length))
VALUE(int, archive_read_data_block,
      (struct archive *archive, const void **buff, size_t *size, la_int64_t *offset),
      (archive, buff, size, offset))
VALUE(int, archive_read_data_into_fd, (struct archive *archive, int fd), (archive, fd))
VALUE(int, archive_read_next_header, (struct archive *archive, struct archive_entry **entry),
      (archive, entry))
VALUE(int, archive_read_open,
      (struct archive *archive, void *data, archive_open_callback *open,
       archive_read_callback *read, archive_close_callback *close),
      (archive, data, open, read, close))
VALUE(int, archive_read_open_fd, (struct archive *archive, int fd, size_t block_size),
      (archive, fd, block_size))
VALUE(int, archive_read_open_filename,
      (struct archive *archive, const char *filename, size_t block_size),
      (archive, filename, block_size))
VALUE(la_ssize_t, archive_write_data, (struct archive *archive, const void *data, size_t length),
      (archive, data, length))
VALUE(la_ssize_t, archive_write_data_block,
      (struct archive *archive, const void *data, size_t length, la_int64_t value),
      (archive, data, length, value))
VALUE(int, archive_write_disk_set_options, (struct archive *archive, int flags), (archive, flags))
VALUE(int, archive_write_header, (struct archive *archive, struct archive_entry *entry),
      (archive, entry))
VALUE(int, archive_write_open,
      (struct archive *archive, void *data, archive_open_callback *open,
       archive_write_callback *write, archive_close_callback *close),
      (archive, data, open, write, close))
VALUE(int, archive_write_open_fd, (struct archive *archive, int fd), (archive, fd))
VALUE(int, archive_write_open_filename, (struct archive *archive, const char *file),
      (archive, file))
VALUE(int, archive_write_set_bytes_in_last_block, (struct archive *archive, int bytes),
      (archive, bytes))
VALUE(int, archive_write_set_bytes_per_block, (struct archive *archive, int bytes),
      (archive, bytes))
VALUE(int, archive_write_set_options, (struct archive *a, const char *opts), (a, opts))
/* clang-format on */

void archive_set_error(struct archive *archive, int err, const char *fmt, ...)
{
    char text[512];
    va_list rest;

    va_start(rest, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, rest);
    va_end(rest);
    LATE(late_archive, archive_set_error)(archive, err, "%s", text);
}
