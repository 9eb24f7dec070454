/* Directories as entries of a tar, in the order of a walk. What is no tar's: a file with holes has the attribute
 * BACKUP_SPARSE, and its content is pieces: where, how long (both 64 bits, little-endian), bytes. The last one is empty and
 * lies where the file ends. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backup/backup_file.h"
#include "base/error.h"
#include "base/str.h"

#define BACKUP_SPARSE "trusted.quicksand.sparse"

struct backup_pack;

/* stopped: asked for each file; true ends a walk. Or NULL. */
struct backup_pack *backup_pack_new(struct backup_file *file, bool (*stopped)(void));
/* A file with this text. */
int backup_pack_text(struct backup_pack *pack, const char *name, struct str text,
                     struct error *err);
/* All in a directory, beneath PREFIX/. Sockets and devices are left out. */
int backup_pack_tree(struct backup_pack *pack, const char *prefix, int dir_fd, struct error *err);
uint64_t backup_pack_entries(const struct backup_pack *pack);
/* Writes what is left. */
int backup_pack_end(struct backup_pack *pack, struct error *err);
void backup_pack_free(struct backup_pack *pack); /* NULL is none */
