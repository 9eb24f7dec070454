#include "store/core/store_export.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "store/driver/store_driver.h"
#include "store/migrations/migrations.h"

enum {
    SCHEMA_MIN = 23, /* the first whose tables are read here */
    LIFECYCLE =
        29, /* from then on the state of a sandbox is one column, and how lists show it another */
    NAMES_MAX = 1 << 20,
};

struct store_export {
    const struct store_driver *driver;
    struct store_db *db;
    struct store_conn *conn;
    int64_t version;
    bool held;
};

void store_export_close(struct store_export *store)
{
    if (!store)
        return;
    store_export_release(store);
    if (store->conn)
        store->driver->disconnect(store->conn);
    if (store->db)
        store->driver->close(store->db);
    free(store);
}

static void export_cleanup(struct store_export **store)
{
    store_export_close(*store);
}

static int connect_to(const char *path, struct store_export **out, struct error *err)
{
    __attribute__((cleanup(export_cleanup))) struct store_export *store =
        xcalloc(1, sizeof(*store));

    store->driver = &driver_sqlite;
    if (access(path, F_OK) < 0) /* the driver would make one */
        return error_set_errno(err, errno, "open store file '%s'", path);
    if (store->driver->open(path, &store->db, err) < 0 ||
        store->driver->connect(store->db, STORE_WRITER, &store->conn, err) < 0)
        return -1;
    *out = take_ptr(&store);
    return 0;
}

static int read_version(const struct store_export *store, int64_t *out, struct error *err)
{
    struct store_stmt *stmt = NULL;
    int r;

    if (store->driver->prepare(
            store->conn, "SELECT coalesce(max(version), 0) FROM schema_migrations", &stmt, err) < 0)
        return -1;
    r = store->driver->step(stmt, err);
    if (r > 0)
        *out = store->driver->column_int(stmt, 0);
    store->driver->finalize(stmt);
    return r < 0 ? -1 : 0;
}

int64_t store_schema_known(void)
{
    return (int64_t)migration_count;
}

int store_schema(const char *path, int64_t *out_version, struct error *err)
{
    __attribute__((cleanup(export_cleanup))) struct store_export *store = NULL;

    *out_version = 0;
    if (connect_to(path, &store, err) < 0)
        return -1;
    return read_version(store, out_version, err);
}

int store_export_open(const char *path, struct store_export **out, struct error *err)
{
    __attribute__((cleanup(export_cleanup))) struct store_export *store = NULL;
    int64_t version;

    if (connect_to(path, &store, err) < 0 || read_version(store, &store->version, err) < 0)
        return -1;
    version = store->version;
    if (version < SCHEMA_MIN || version > (int64_t)migration_count)
        return error_set(err, ERROR_UNSUPPORTED,
                         "store '%s' has schema version %" PRId64
                         ", this program copies %d to %zu: %s",
                         path, version, SCHEMA_MIN, migration_count,
                         version < SCHEMA_MIN ? "start the server of this program once"
                                              : "use the newer program that wrote it");
    *out = take_ptr(&store);
    return 0;
}

int store_export_hold(struct store_export *store, struct error *err)
{
    if (store->driver->begin(store->conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    store->held = true;
    return 0;
}

void store_export_release(struct store_export *store)
{
    if (store->held)
        store->driver->rollback(store->conn);
    store->held = false;
}

/* clang-format off */
#define BOXES(listed, state)                                                                                  \
    "SELECT id, " listed " || ' ' || " state " || ' ' || running_since_us || ' ' || resumed_from FROM sandboxes" \
    " WHERE " listed " = 'paused' OR (" listed " = 'running' AND auto_pause = 1) ORDER BY id"
/* clang-format on */
static const char *const lists[] = {
    [STORE_EXPORT_BOXES] = BOXES("listed", "state"),
    [STORE_EXPORT_VOLUMES] = "SELECT id, '' FROM volumes WHERE deleting = 0 ORDER BY id",
    [STORE_EXPORT_LAYERS] = "SELECT name, '' FROM layers WHERE EXISTS (SELECT 1 FROM layer_uses"
                            " WHERE layer = name AND user_kind <> 'cache') ORDER BY name",
};

/* An older store is read as it is. The comment keeps driver_postgres_test.c from trying the statement. */
static const char *list_sql(const struct store_export *store, enum store_export_kind kind)
{
    return kind == STORE_EXPORT_BOXES && store->version < LIFECYCLE
               ? "/* old */ " BOXES("state", "step")
               : lists[kind];
}

static void add_name(struct store_export_names *names, size_t *capacity,
                     struct store_export_name name, struct arena *arena)
{
    if (names->count == *capacity) {
        size_t more = *capacity ? 2 * *capacity : 64;
        struct store_export_name *list = arena_alloc(arena, more * sizeof(*list));

        if (names->count)
            memcpy(list, names->list, names->count * sizeof(*list));
        names->list = list;
        *capacity = more;
    }
    names->list[names->count++] = name;
}

int store_export_list(struct store_export *store, enum store_export_kind kind, struct arena *arena,
                      struct store_export_names *out, struct error *err)
{
    const struct store_driver *driver = store->driver;
    struct store_stmt *stmt = NULL;
    size_t capacity = 0;
    int r;

    *out = (struct store_export_names){0};
    if (driver->prepare(store->conn, list_sql(store, kind), &stmt, err) < 0)
        return -1;
    while ((r = driver->step(stmt, err)) > 0 && out->count < NAMES_MAX)
        add_name(out, &capacity,
                 (struct store_export_name){
                     .name = arena_str(arena, driver->column_text(stmt, 0)),
                     .mark = arena_str(arena, driver->column_text(stmt, 1)),
                 },
                 arena);
    driver->finalize(stmt);
    if (r > 0)
        return error_set(err, ERROR_LIMIT, "the store has more than %d rows of a kind", NAMES_MAX);
    return r;
}

static int forget_caches(const char *path, struct error *err)
{
    __attribute__((cleanup(export_cleanup))) struct store_export *copy = NULL;

    if (connect_to(path, &copy, err) < 0)
        return -1;
    return copy->driver->exec(copy->conn,
                              "DELETE FROM build_cache; DELETE FROM build_files;"
                              "DELETE FROM layer_uses WHERE user_kind = 'cache';"
                              "DELETE FROM layers WHERE NOT EXISTS"
                              " (SELECT 1 FROM layer_uses WHERE layer = name)",
                              err);
}

int store_export_copy(const struct store_export *store, const char *path, struct error *err)
{
    (void)unlink(path);
    if (store->driver->backup(store->db, path, err) < 0)
        return -1;
    if (forget_caches(path, err) == 0)
        return 0;
    (void)unlink(path);
    return error_prefix(err, "copy of the store");
}
