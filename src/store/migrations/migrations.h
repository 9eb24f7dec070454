/* Numbered schema changes, embedded at build time from migrations/NNNN_name.sql. A released file is
 * never edited; a change is a new file. */
#pragma once

#include <stddef.h>

struct migration {
    int version;
    const char *name;
    const char *sql;
};

extern const struct migration migrations[];
extern const size_t migration_count;
/* What all of them make of an empty SQLite database, for a sixth of the time. */
extern const char whole_schema[];
