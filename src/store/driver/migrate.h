/* Numbered schema changes, embedded at build time from migrations/NNNN_name.sql. A released file is
 * never edited; a change is a new file. Private to this folder. */
#pragma once

#include <stddef.h>

#include "base/error.h"

struct store;

struct migration {
    int version;
    const char *name;
    const char *sql;
};

extern const struct migration migrations[];
extern const size_t migration_count;
/* What all of them make of an empty SQLite database, for a sixth of the time. */
extern const char whole_schema[];

/* Applies what is missing, each in a transaction of its own; to an empty store `whole`, if there is one, in their stead. A
 * schema newer than the last one known is ERROR_UNSUPPORTED. `where` names the store in messages. */
int migrate_store(struct store *store, const char *where, const char *whole, struct error *err);
