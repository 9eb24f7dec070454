/* What a backup consists of. Each part is a directory; its entries are beneath KIND/NAME. The first entry of a backup is
 * the file BACKUP_LIST, which lists them, in order. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backup/backup.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#define BACKUP_LIST "quicksand.json"

enum {
    BACKUP_FORMAT = 1,
    BACKUP_NAME_SIZE = 65,
    BACKUP_PATH_SIZE = BACKUP_NAME_SIZE + 16,
    BACKUP_PARTS_MAX = 100000,
    BACKUP_LIST_MAX = 8 << 20,
};

enum backup_kind {
    BACKUP_STORE,     /* the store, its key */
    BACKUP_TLS,       /* certificates */
    BACKUP_INSTALLED, /* layers that the operator installed */
    BACKUP_TREES,
    BACKUP_LAYERS, /* of the pool, as the next two */
    BACKUP_VOLUMES,
    BACKUP_BOXES,
    BACKUP_KIND_COUNT,
};

struct backup_part {
    enum backup_kind kind;
    char name[BACKUP_NAME_SIZE];
    uint64_t bytes; /* as disk_kept_bytes() tells them; else 0 */
    /* while one is made */
    char as[32]; /* its snapshot's name; "" = none */
    char *mark;  /* as the store gave it */
    unsigned round;
};

struct backup_parts {
    struct backup_part *list;
    size_t count, capacity;
};

void backup_parts_done(struct backup_parts *parts);
struct backup_part *backup_parts_add(struct backup_parts *parts, enum backup_kind kind,
                                     struct str name);
/* KIND/NAME. */
void backup_part_path(const struct backup_part *part, char out[BACKUP_PATH_SIZE]);
void backup_parts_count(const struct backup_parts *parts, struct backup_result *out);
bool backup_kind_in_pool(enum backup_kind kind);

void backup_list_write(const struct backup_parts *parts, int64_t schema, struct buf *out);
/* ERROR_UNSUPPORTED when a newer program wrote it. known: the newest schema that this program knows. */
int backup_list_read(struct str text, int64_t known, struct backup_parts *out, struct error *err);
