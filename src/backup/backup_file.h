/* The file of a backup: compressed bytes and, behind them, their checksum. It is a frame that zstd skips, so that
 * `zstd -dc FILE | tar -t` shows what is inside.
 *
 * A file that is being written has ".part" behind its name. One that is read is checked as a whole before its first byte is
 * given out: a copy that was cut or damaged changes nothing. The checksum says nothing about who wrote it. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

struct backup_file;

/* ERROR_EXISTS when there is one of that name. */
int backup_file_create(const char *path, struct backup_file **out, struct error *err);
int backup_file_write(struct backup_file *file, const void *p, size_t len, struct error *err);
/* On disk, under its name. */
int backup_file_finish(struct backup_file *file, struct error *err);

/* ERROR_INVALID when it is no backup, or a damaged one. */
int backup_file_open(const char *path, struct backup_file **out, struct error *err);
/* Bytes without the checksum; 0 at their end. */
ssize_t backup_file_read(struct backup_file *file, void *p, size_t len, struct error *err);

off_t backup_file_size(const struct backup_file *file);
/* One that was not finished is removed. NULL is none. */
void backup_file_close(struct backup_file *file);
