/* One connection, one mutex, and a cache of prepared statements keyed by their SQL text. A single
 * connection is enough: the statements take microseconds, and SQLite has one writer anyway. */
#include "store/core/store.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/map.h"
#include "store/driver/migrate.h"
#include "store/driver/query.h"

struct store {
    const struct store_driver *driver;
    struct store_conn *conn;
    pthread_mutex_t lock; /* guards conn, statements and transactions */
    struct map statements;
    char *where;
};

struct store *store_lock(struct store *store)
{
    (void)pthread_mutex_lock(&store->lock);
    return store;
}

void store_unlock(struct store **store)
{
    (void)pthread_mutex_unlock(&(*store)->lock);
}

int store_exec(struct store *store, const char *sql, struct error *err)
{
    return store->driver->exec(store->conn, sql, err);
}

int store_begin(struct store *store, enum store_durability durability, struct error *err)
{
    return store->driver->begin(store->conn, durability, err);
}

int store_commit(struct store *store, struct error *err)
{
    return store->driver->commit(store->conn, err);
}

void store_rollback(struct store *store)
{
    store->driver->rollback(store->conn);
}

int query_open(struct query *query, struct store *store, const char *sql, struct error *err)
{
    struct store_stmt *stmt = map_get(&store->statements, str_of(sql));

    if (!stmt) {
        if (store->driver->prepare(store->conn, sql, &stmt, err) < 0)
            return -1;
        (void)map_put(&store->statements, str_of(sql), stmt);
    }
    *query = (struct query){.driver = store->driver, .stmt = stmt};
    return 0;
}

void query_done(struct query *query)
{
    if (query->stmt)
        query->driver->reset(query->stmt);
    query->stmt = NULL;
}

void bind_text(struct query *query, struct str text)
{
    if (query->driver->bind_text(query->stmt, ++query->bound, text) < 0)
        query->bad = true;
}

void bind_int(struct query *query, int64_t value)
{
    if (query->driver->bind_int(query->stmt, ++query->bound, value) < 0)
        query->bad = true;
}

int query_step(struct query *query, struct error *err)
{
    if (query->bad)
        return error_set(err, ERROR_INTERNAL, "store: a value could not be bound");
    return query->driver->step(query->stmt, err);
}

int query_one(struct query *query, const char *what, struct str name, struct error *err)
{
    int found = query_step(query, err);

    if (found)
        return found < 0 ? -1 : 0;
    return name.p ? error_set(err, ERROR_NOT_FOUND, "%s '%.*s' not found", what,
                              (int)(name.len < 128 ? name.len : 128), name.p)
                  : error_set(err, ERROR_NOT_FOUND, "%s not found", what);
}

int query_count(struct query *query, size_t *out_count, struct error *err)
{
    int more;

    *out_count = 0;
    while ((more = query_step(query, err)) > 0)
        (*out_count)++;
    return more;
}

int store_prune(struct store *store, const char *sql, int64_t before_us, int64_t keep, size_t max,
                size_t *out_count, struct error *err)
{
    auto_unlock struct store *locked = store_lock(store);
    auto_query struct query query = {0};

    if (query_open(&query, locked, sql, err) < 0)
        return -1;
    bind_int(&query, before_us);
    bind_int(&query, keep);
    bind_int(&query, (int64_t)max);
    return query_count(&query, out_count, err);
}

int query_run(struct query *query, struct error *err)
{
    int more;

    do {
        more = query_step(query, err);
    } while (more > 0);
    return more;
}

int query_run_durable(struct query *query, struct store *store, struct error *err)
{
    if (store_begin(store, STORE_DURABLE, err) < 0)
        return -1;
    if (query_run(query, err) < 0) {
        query_done(query); /* an open statement would keep the transaction */
        store_rollback(store);
        return -1;
    }
    query_done(query);
    return store_commit(store, err);
}

int64_t query_int(const struct query *query, int column)
{
    return query->driver->column_int(query->stmt, column);
}

struct str query_peek(const struct query *query, int column)
{
    return query->driver->column_text(query->stmt, column);
}

struct str query_text(const struct query *query, int column, struct arena *arena)
{
    struct str text = query->driver->column_text(query->stmt, column);

    return text.p ? arena_str(arena, text) : STR_NONE;
}

static int prune_history(struct store *store, struct error *err)
{
    int64_t week_us = (int64_t)STORE_HISTORY_DAYS * 24 * 3600 * 1000000;
    size_t count = 0;

    do {
        if (store_sandbox_prune(store, clock_wall_us() - week_us, 10000, &count, err) < 0)
            return -1;
    } while (count > 0);
    return 0;
}

int store_open_driver(const struct store_driver *driver, const char *where, struct store **out,
                      struct error *err)
{
    auto_store struct store *store = xcalloc(1, sizeof(*store));

    store->driver = driver;
    store->where = xstrdup(where);
    (void)pthread_mutex_init(&store->lock, NULL);
    map_init(&store->statements);
    if (driver->open(where, &store->conn, err) < 0 || migrate_store(store, where, err) < 0 ||
        prune_history(store, err) < 0)
        return -1;
    *out = take_ptr(&store);
    return 0;
}

int store_open(const char *where, struct store **out, struct error *err)
{
    return store_open_driver(&driver_sqlite, where, out, err);
}

const char *store_where(const struct store *store)
{
    return store->where;
}

/* The connection is only asked for its file's name, so the lock is not needed. */
int store_copy(struct store *store, const char *path, struct error *err)
{
    return store->driver->backup(store->conn, path, err);
}

void store_close(struct store *store)
{
    struct map_entry *entry;

    if (!store)
        return;
    map_for_each (&store->statements, entry)
        store->driver->finalize(entry->value);
    map_done(&store->statements);
    if (store->conn)
        store->driver->close(store->conn);
    (void)pthread_mutex_destroy(&store->lock);
    free(store->where);
    free(store);
}
