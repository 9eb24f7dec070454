/* The door to a database: what a driver must do, and nothing of what is stored. SQL is written once, in the
 * dialect that SQLite and PostgreSQL share, with placeholders ?1, ?2, ... or ? for the next one; a driver
 * translates them when its database wants another style. A value has the type it was bound with.
 *
 * A connection and its statements are used by one thread at a time (store.c lends them).
 *
 * What goes wrong is told by its code:
 *   ERROR_EXISTS       a value that must be unique is there already
 *   ERROR_NO_SPACE     the disk is full
 *   ERROR_UNAVAILABLE  others had it locked for too long, or the database is gone: try later
 *   ERROR_FORBIDDEN    it may not be written
 *   ERROR_INTERNAL     anything else, such as a reference to what is not there, or a damaged file */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

struct store_db;
struct store_conn;
struct store_stmt;

enum store_durability {
    STORE_EPHEMERAL, /* survives the end of our process; may be lost when the host dies */
    STORE_DURABLE,   /* on disk when commit returns */
};

enum store_role {
    STORE_READER, /* sees what was committed before each statement, and waits for no writer */
    STORE_WRITER,
};

struct store_driver {
    const char *name;
    /* The schema that all migrations make, for an empty database. NULL: they are applied one by one. */
    const char *whole;
    /* Opens or makes the database, and checks it. */
    int (*open)(const char *where, struct store_db **out, struct error *err);
    /* After the last of its connections. */
    void (*close)(struct store_db *db);
    /* How many readers make sense beside a writer; 0: the writer's connection is the only one. */
    size_t (*readers)(const struct store_db *db);
    int (*connect)(struct store_db *db, enum store_role role, struct store_conn **out,
                   struct error *err);
    void (*disconnect)(struct store_conn *conn);
    /* A complete, consistent copy in a new file; from any thread, beside readers and writers. It has no mark.
     * NULL: this database is copied by its own tools. */
    int (*backup)(struct store_db *db, const char *path, struct error *err);
    /* The mark that a server has started with this database (store_aside.c). NULL where backup is. */
    int (*marked)(struct store_conn *conn, bool *out, struct error *err);
    int (*mark)(struct store_conn *conn, struct error *err);

    /* Any number of statements, without parameters or rows. */
    int (*exec)(struct store_conn *conn, const char *sql, struct error *err);
    /* Transactions are serial: begin waits until nobody else, in whatever process, is between begin and
     * commit. So what a transaction has counted still holds when it inserts. */
    int (*begin)(struct store_conn *conn, enum store_durability durability, struct error *err);
    int (*commit)(struct store_conn *conn, struct error *err);
    void (*rollback)(struct store_conn *conn);

    /* sql lives as long as the statement. */
    int (*prepare)(struct store_conn *conn, const char *sql, struct store_stmt **out,
                   struct error *err);
    /* Index from 1. The bytes are copied; STR_NONE is NULL. */
    int (*bind_text)(struct store_stmt *stmt, int index, struct str text);
    int (*bind_int)(struct store_stmt *stmt, int index, int64_t value);
    /* 1 = a row, 0 = done, -1 = failed. Outside of begin and commit a statement is a transaction of its
     * own, which is STORE_EPHEMERAL and ends with the last step or the reset. */
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
