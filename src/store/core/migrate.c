#include "store/migrations/migrations.h"

#include <inttypes.h>

#include "base/clock.h"
#include "store/core/migrate.h"
#include "store/core/query.h"

static int current_version(struct conn *conn, int64_t *out, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, "SELECT coalesce(max(version), 0) FROM schema_migrations", err) <
            0 ||
        query_step(&query, err) < 0)
        return -1;
    *out = query_int(&query, 0);
    return 0;
}

static int record(struct conn *conn, const struct migration *migration, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO schema_migrations (version, name, applied_at_us)"
                   " VALUES (?1, ?2, ?3)",
                   err) < 0)
        return -1;
    bind_int(&query, migration->version);
    bind_text(&query, str_of(migration->name));
    bind_int(&query, clock_wall_us());
    return query_run(&query, err);
}

/* Reads the version inside the transaction too: another process may be migrating the same file. */
static int apply(struct conn *conn, const struct migration *migration, struct error *err)
{
    int64_t version = 0;
    int result;

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    result = current_version(conn, &version, err);
    if (result == 0 && version < migration->version &&
        (store_exec(conn, migration->sql, err) < 0 || record(conn, migration, err) < 0))
        result = -1;
    if (store_end(conn, result, err) == 0)
        return 0;
    return error_prefix(err, "migration %d '%s'", migration->version, migration->name);
}

static int apply_whole(struct conn *conn, const char *whole, struct error *err)
{
    int64_t version = 0;
    int result;

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    result = current_version(conn, &version, err);
    if (result == 0 && version == 0) {
        result = store_exec(conn, whole, err);
        for (size_t i = 0; i < migration_count && result == 0; i++)
            result = record(conn, &migrations[i], err);
    }
    if (store_end(conn, result, err) == 0)
        return 0;
    return error_prefix(err, "make the schema");
}

int migrate_store(struct store *store, const char *where, const char *whole, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    int64_t version = 0;

    if (store_exec(
            conn,
            "CREATE TABLE IF NOT EXISTS schema_migrations ("
            " version BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at_us BIGINT NOT NULL)",
            err) < 0 ||
        current_version(conn, &version, err) < 0)
        return -1;
    if (version > (int64_t)migration_count)
        return error_set(err, ERROR_UNSUPPORTED,
                         "store '%s' has schema version %" PRId64
                         ", this program knows only up to %zu: install the newer program again,"
                         " or restore a copy of the file made before it was upgraded",
                         where, version, migration_count);
    if (version == 0 && whole &&
        (apply_whole(conn, whole, err) < 0 || current_version(conn, &version, err) < 0))
        return -1;
    for (size_t i = 0; i < migration_count; i++)
        if (version < migrations[i].version && apply(conn, &migrations[i], err) < 0)
            return -1;
    return 0;
}
