/* The store's inside: connections, transactions, and cached statements. Private to this folder.
 *
 *   auto_conn struct conn *conn = store_read(store);
 *   auto_query struct query query = {0};
 *
 *   if (query_open(&query, conn, "SELECT a FROM t WHERE b = ?1", err) < 0)
 *       return -1;
 *   bind_text(&query, b);
 *   while ((more = query_step(&query, err)) > 0)
 *       ... query_int(&query, 0) ...
 *
 * SQL is a string literal: its address is the key of the statement cache. */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"
#include "store/driver/store_driver.h"

struct store;
struct conn;

struct query {
    const struct store_driver *driver;
    struct store_stmt *stmt;
    int bound;
    bool bad; /* a bind failed; reported by the next step */
};

#define auto_query __attribute__((cleanup(query_done)))
#define auto_conn  __attribute__((cleanup(conn_give_back)))

/* Lends a connection, after a wait for its turn when need be; whoever has one does not ask for another.
 * store_read() is for a row or two, store_read_many() for what may take longer: nobody who wants to write
 * waits for that. */
struct conn *store_write(struct store *store);
struct conn *store_read(struct store *store);
struct conn *store_read_many(struct store *store);
void conn_give_back(struct conn **conn);

const char *store_where(const struct store *store);
/* ERROR_UNSUPPORTED when the database is copied by its own tools. */
int store_copy(struct store *store, const char *path, struct error *err);

/* The driver's mark (store_aside.c). True where the database has none. */
int store_marked(struct conn *conn, bool *out, struct error *err);

/* ---- with a connection that writes ---- */

int store_mark(struct conn *conn, struct error *err);
int store_exec(struct conn *conn, const char *sql, struct error *err);
int store_begin(struct conn *conn, enum store_durability durability, struct error *err);
/* Commits, or rolls back when the result so far is -1. */
int store_end(struct conn *conn, int result, struct error *err);

int query_open(struct query *query, struct conn *conn, const char *sql, struct error *err);
void query_done(struct query *query);
/* Binds the next placeholder. */
void bind_text(struct query *query, struct str text);
void bind_int(struct query *query, int64_t value);
/* 1 = row, 0 = done, -1 = failed. */
int query_step(struct query *query, struct error *err);
/* 0 = a row; ERROR_NOT_FOUND: "WHAT 'NAME' not found", without the name when it is STR_NONE. */
int query_one(struct query *query, const char *what, struct str name, struct error *err);
/* For statements whose rows do not matter. */
int query_run(struct query *query, struct error *err);
int64_t query_int(const struct query *query, int column);
/* Valid until the next step. */
struct str query_peek(const struct query *query, int column);
/* Copied into the arena. */
struct str query_text(const struct query *query, int column, struct arena *arena);
/* Counts the rows that a statement returns. */
int query_count(struct query *query, size_t *out_count, struct error *err);
/* Runs a statement that is a transaction of its own, on disk when it returns 0. */
int query_run_durable(struct query *query, struct conn *conn, struct error *err);

/* Of a table with seq and at_us: what is older than before_us, and all but the newest `keep`; the
 * oldest, which are the first by seq, and at most max of them. */
#define STORE_PRUNE(table)                                                               \
    "DELETE FROM " table " WHERE seq IN (SELECT seq FROM (SELECT seq, at_us FROM " table \
    " ORDER BY seq LIMIT ?3) AS oldest WHERE at_us < ?1"                                 \
    " OR seq <= (SELECT coalesce(max(seq), 0) FROM " table ") - ?2) RETURNING seq"
int store_prune(struct store *store, const char *sql, int64_t before_us, int64_t keep, size_t max,
                size_t *out_count, struct error *err);

/* ---- pieces of transactions ---- */

/* The next number of a row of counters. */
int counter_next(struct conn *conn, const char *name, int64_t *out, struct error *err);
/* The first number of the row that a statement finds, or 0. */
int query_number(struct query *query, int64_t *out, struct error *err);
