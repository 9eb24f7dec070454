/* Connections and their prepared statements. One connection writes, a few read beside it; without readers
 * (a store in memory) the one serves for both. The pool's lock is held only to take a connection out of it.
 *
 * A short read uses the writer's connection when nobody writes: SQLite keeps the pages that a connection
 * has written itself, and forgets all that it has read before somebody else's commit. */
#include "store/core/store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "store/core/migrate.h"
#include "store/core/query.h"
#include "store/migrations/migrations.h"

enum { STATEMENT_BUCKETS = 256 };

struct statement {
    struct statement *next;
    const char *sql;
    struct store_stmt *stmt;
};

struct conn {
    struct store *store;
    const struct store_driver *driver;
    struct store_conn *base;
    struct statement *statements[STATEMENT_BUCKETS];
    bool reads;             /* whoever has it now does not write */
    struct conn *next_free; /* readers */
};

struct store {
    const struct store_driver *driver;
    struct store_db *db;
    char *where;
    struct conn *writer;
    pthread_mutex_t writing; /* whoever has the writer has this */
    struct conn **readers;
    size_t reader_count;
    pthread_mutex_t lock; /* guards free_readers */
    pthread_cond_t given_back;
    struct conn *free_readers;
};

struct conn *store_write(struct store *store)
{
    (void)pthread_mutex_lock(&store->writing);
    store->writer->reads = false;
    return store->writer;
}

struct conn *store_read_many(struct store *store)
{
    struct conn *conn;

    if (!store->reader_count) {
        conn = store_write(store);
        conn->reads = true;
        return conn;
    }
    (void)pthread_mutex_lock(&store->lock);
    while (!store->free_readers)
        (void)pthread_cond_wait(&store->given_back, &store->lock);
    conn = store->free_readers;
    store->free_readers = conn->next_free;
    (void)pthread_mutex_unlock(&store->lock);
    return conn;
}

struct conn *store_read(struct store *store)
{
    if (pthread_mutex_trylock(&store->writing) != 0)
        return store_read_many(store);
    store->writer->reads = true;
    return store->writer;
}

static void reader_free(struct conn *conn)
{
    struct store *store = conn->store;

    (void)pthread_mutex_lock(&store->lock);
    conn->next_free = store->free_readers;
    store->free_readers = conn;
    (void)pthread_cond_signal(&store->given_back);
    (void)pthread_mutex_unlock(&store->lock);
}

void conn_give_back(struct conn **conn)
{
    struct store *store = (*conn)->store;

    if (*conn == store->writer)
        (void)pthread_mutex_unlock(&store->writing);
    else
        reader_free(*conn);
}

int store_exec(struct conn *conn, const char *sql, struct error *err)
{
    return conn->driver->exec(conn->base, sql, err);
}

int store_marked(struct conn *conn, bool *out, struct error *err)
{
    *out = true;
    return conn->driver->marked ? conn->driver->marked(conn->base, out, err) : 0;
}

int store_mark(struct conn *conn, struct error *err)
{
    return conn->driver->mark ? conn->driver->mark(conn->base, err) : 0;
}

int store_begin(struct conn *conn, enum store_durability durability, struct error *err)
{
    return conn->driver->begin(conn->base, durability, err);
}

int store_end(struct conn *conn, int result, struct error *err)
{
    if (result >= 0)
        return conn->driver->commit(conn->base, err);
    conn->driver->rollback(conn->base);
    return -1;
}

static struct statement **bucket_of(struct conn *conn, const char *sql)
{
    return &conn->statements[((uintptr_t)sql >> 4) % STATEMENT_BUCKETS];
}

int query_open(struct query *query, struct conn *conn, const char *sql, struct error *err)
{
    struct statement **bucket = bucket_of(conn, sql), *found = *bucket;
    struct store_stmt *stmt = NULL;

    if (conn->reads && strncmp(sql, "SELECT", 6) != 0)
        return error_set(err, ERROR_INTERNAL, "store: '%.40s...' where only reading was meant",
                         sql);
    while (found && found->sql != sql)
        found = found->next;
    if (!found) {
        if (conn->driver->prepare(conn->base, sql, &stmt, err) < 0)
            return -1;
        found = xcalloc(1, sizeof(*found));
        *found = (struct statement){.next = *bucket, .sql = sql, .stmt = stmt};
        *bucket = found;
    }
    *query = (struct query){.driver = conn->driver, .stmt = found->stmt};
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

int query_number(struct query *query, int64_t *out, struct error *err)
{
    int found = query_step(query, err);

    *out = found > 0 ? query_int(query, 0) : 0;
    return found < 0 ? -1 : 0;
}

int counter_next(struct conn *conn, const char *name, int64_t *out, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE counters SET value = value + 1 WHERE name = ?1 RETURNING value",
                   err) < 0)
        return -1;
    bind_text(&query, str_of(name));
    if (query_one(&query, "counter", str_of(name), err) < 0)
        return -1;
    *out = query_int(&query, 0);
    return 0;
}

int store_prune(struct store *store, const char *sql, int64_t before_us, int64_t keep, size_t max,
                size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, sql, err) < 0)
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

int query_run_durable(struct query *query, struct conn *conn, struct error *err)
{
    int result;

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    result = query_run(query, err);
    query_done(query); /* an open statement would keep the transaction */
    return store_end(conn, result, err);
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

static int conn_open(struct store *store, enum store_role role, struct conn **out,
                     struct error *err)
{
    struct store_conn *base = NULL;

    if (store->driver->connect(store->db, role, &base, err) < 0)
        return -1;
    *out = xcalloc(1, sizeof(**out));
    **out = (struct conn){
        .store = store, .driver = store->driver, .base = base, .reads = role == STORE_READER};
    return 0;
}

static void conn_close(struct conn *conn)
{
    if (!conn)
        return;
    for (size_t i = 0; i < STATEMENT_BUCKETS; i++)
        for (struct statement *next, *each = conn->statements[i]; each; each = next) {
            next = each->next;
            conn->driver->finalize(each->stmt);
            free(each);
        }
    conn->driver->disconnect(conn->base);
    free(conn);
}

/* All at once, so that lending one cannot fail. */
static int open_readers(struct store *store, struct error *err)
{
    size_t count = store->driver->readers(store->db);

    store->readers = xcalloc(count + 1, sizeof(*store->readers));
    for (size_t i = 0; i < count; i++) {
        if (conn_open(store, STORE_READER, &store->readers[i], err) < 0)
            return -1;
        store->reader_count++;
        reader_free(store->readers[i]);
    }
    return 0;
}

int store_open_driver(const struct store_driver *driver, const char *where, struct store **out,
                      struct error *err)
{
    auto_store struct store *store = xcalloc(1, sizeof(*store));

    store->driver = driver;
    store->where = xstrdup(where);
    (void)pthread_mutex_init(&store->writing, NULL);
    (void)pthread_mutex_init(&store->lock, NULL);
    (void)pthread_cond_init(&store->given_back, NULL);
    if (driver->open(where, &store->db, err) < 0 ||
        conn_open(store, STORE_WRITER, &store->writer, err) < 0 ||
        migrate_store(store, where, driver->whole, err) < 0 || open_readers(store, err) < 0)
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

int store_copy(struct store *store, const char *path, struct error *err)
{
    if (!store->driver->backup)
        return error_set(err, ERROR_UNSUPPORTED, "%s makes copies by its own tools",
                         store->driver->name);
    return store->driver->backup(store->db, path, err);
}

/* The writer last: whoever closes last writes to the file. */
void store_close(struct store *store)
{
    if (!store)
        return;
    for (size_t i = 0; i < store->reader_count; i++)
        conn_close(store->readers[i]);
    conn_close(store->writer);
    if (store->db)
        store->driver->close(store->db);
    (void)pthread_mutex_destroy(&store->writing);
    (void)pthread_mutex_destroy(&store->lock);
    (void)pthread_cond_destroy(&store->given_back);
    free(store->readers);
    free(store->where);
    free(store);
}
