/* The seam to a database: what a driver must do, and nothing of what is stored. SQL is written
 * once, in the subset that SQLite and PostgreSQL share, with placeholders ?1, ?2, ...; a driver
 * translates the placeholders when its database wants another style.
 *
 * A connection and its statements are used by one thread at a time (store.c has the lock). */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

struct store_conn;
struct store_stmt;

enum store_durability {
    STORE_EPHEMERAL, /* survives the end of our process; may be lost when the host dies */
    STORE_DURABLE,   /* on disk when commit returns */
};

struct store_driver {
    const char *name;
    int (*open)(const char *where, struct store_conn **out, struct error *err);
    void (*close)(struct store_conn *conn);
    /* Any number of statements, without parameters or rows. */
    int (*exec)(struct store_conn *conn, const char *sql, struct error *err);
    /* A complete, consistent copy in a new file; from any thread. */
    int (*backup)(struct store_conn *conn, const char *path, struct error *err);
    int (*begin)(struct store_conn *conn, enum store_durability durability, struct error *err);
    int (*commit)(struct store_conn *conn, struct error *err);
    void (*rollback)(struct store_conn *conn);
    int (*prepare)(struct store_conn *conn, const char *sql, struct store_stmt **out,
                   struct error *err);
    /* Index from 1. The bytes are copied; STR_NONE is NULL. */
    int (*bind_text)(struct store_stmt *stmt, int index, struct str text);
    int (*bind_int)(struct store_stmt *stmt, int index, int64_t value);
    /* 1 = a row, 0 = done, -1 = failed: ERROR_EXISTS for a broken uniqueness, ERROR_NO_SPACE,
     * ERROR_UNAVAILABLE when locked by others for too long, ... */
    int (*step)(struct store_stmt *stmt, struct error *err);
    /* Column from 0; valid until the next step or reset. NULL is STR_NONE. */
    struct str (*column_text)(struct store_stmt *stmt, int column);
    int64_t (*column_int)(struct store_stmt *stmt, int column);
    /* Ready to be bound again; forgets bound values. */
    void (*reset)(struct store_stmt *stmt);
    void (*finalize)(struct store_stmt *stmt);
};

/* What the name of a copy ends in, after the store's; older ones have .1 and .2 behind it. */
#define STORE_BACKUP ".backup"

/* `where` is a file's path or ":memory:". */
extern const struct store_driver driver_sqlite;
