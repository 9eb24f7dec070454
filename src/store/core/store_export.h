/* A store that another process may be using, as a backup sees it: nothing is migrated or changed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

struct store_export;

/* The newest schema that this program knows. */
int64_t store_schema_known(void);
/* The store's; checks the file. ERROR_NOT_FOUND when there is no store. */
int store_schema(const char *path, int64_t *out_version, struct error *err);

/* ERROR_UNSUPPORTED when its schema is not one that this program can back up. */
int store_export_open(const char *path, struct store_export **out, struct error *err);
void store_export_close(struct store_export *store); /* NULL is none */
/* Between them nobody writes to the store: whoever wants to waits, for seconds. */
int store_export_hold(struct store_export *store, struct error *err);
void store_export_release(struct store_export *store);

struct store_export_name {
    struct str name;
    struct str mark; /* another one when it may have been written to since */
};
struct store_export_names {
    struct store_export_name *list;
    size_t count;
};
enum store_export_kind {
    STORE_EXPORT_BOXES, /* sandboxes whose files are to be kept: paused ones, and those that would be at their end */
    STORE_EXPORT_VOLUMES,
    STORE_EXPORT_LAYERS,
};
int store_export_list(struct store_export *store, enum store_export_kind kind, struct arena *arena,
                      struct store_export_names *out, struct error *err);
/* A copy in a new file, without what can be had again: caches of builds and what only they use. */
int store_export_copy(const struct store_export *store, const char *path, struct error *err);
