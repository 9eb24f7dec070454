/* Connections: who waits for whom, and what becomes of transactions. */
#include <pthread.h>
#include <stdlib.h>

#include "base/test.h"
#include "store/core/store.h"
#include "store/driver/query.h"

struct folder {
    char path[64];
    char file[96];
};

static struct store *open_file(struct folder *folder)
{
    struct store *store = NULL;

    (void)snprintf(folder->path, sizeof(folder->path), "/tmp/store_test.XXXXXX");
    CHECK(mkdtemp(folder->path) != NULL);
    (void)snprintf(folder->file, sizeof(folder->file), "%s/store.db", folder->path);
    OK(store_open(folder->file, &store, &err));
    return store;
}

static void remove_file(const struct folder *folder)
{
    static const char *const names[] = {"", "-wal", "-shm"};

    for (size_t i = 0; i < 3; i++) {
        char path[128];

        (void)snprintf(path, sizeof(path), "%s%s", folder->file, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder->path);
}

static void run(struct conn *conn, const char *sql)
{
    auto_query struct query query = {0};

    OK(query_open(&query, conn, sql, &err));
    OK(query_run(&query, &err));
}

static size_t teams(struct store *store)
{
    auto_arena struct arena arena = {0};
    struct store_team *list;
    size_t count = 0;

    OK(store_team_list(store, &arena, &list, &count, &err));
    return count;
}

static const char add_team[] = "INSERT INTO teams (id, name, created_at_us) VALUES ('t', 'n', 1)";

/* On one connection the reads would wait for this very thread. */
TEST(readers_do_not_wait_for_a_transaction)
{
    struct folder folder;
    struct store *store = open_file(&folder);
    struct conn *conn = store_write(store);

    OK(store_begin(conn, STORE_EPHEMERAL, &err));
    run(conn, add_team);
    CHECK_INT(teams(store), 0);
    OK(store_end(conn, 0, &err));
    CHECK_INT(teams(store), 1);
    conn_give_back(&conn);
    store_close(store);
    remove_file(&folder);
}

TEST(what_failed_is_undone)
{
    struct store *store = NULL;
    struct conn *conn;

    OK(store_open(":memory:", &store, &err));
    conn = store_write(store);
    OK(store_begin(conn, STORE_DURABLE, &err));
    run(conn, add_team);
    CHECK_INT(store_end(conn, -1, &(struct error){0}), -1);
    conn_give_back(&conn);
    CHECK_INT(teams(store), 0);
    store_close(store);
}

static void check_refused(struct conn *conn)
{
    struct query query = {0};

    FAILS(query_open(&query, conn, add_team, &err), ERROR_INTERNAL, "only reading");
    conn_give_back(&conn);
}

TEST(a_reader_does_not_write)
{
    struct folder folder;
    struct store *store = open_file(&folder);
    struct conn *conn;

    check_refused(store_read(store));
    check_refused(store_read_many(store));
    conn = store_write(store);
    run(conn, add_team);
    conn_give_back(&conn);
    CHECK_INT(teams(store), 1);
    store_close(store);
    remove_file(&folder);
}

enum { THREADS = 12, ROUNDS = 200 };

static void *read_and_write(void *store)
{
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_INT(teams(store), 1);
        OK(store_key_used(store, STR("none"), i, &err));
    }
    return NULL;
}

TEST(more_threads_than_connections)
{
    struct folder folder;
    struct store *store = open_file(&folder);
    pthread_t threads[THREADS];

    OK(store_team_insert(store, &(struct store_team){.id = STR("t"), .name = STR("n")}, &err));
    for (size_t i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, read_and_write, store), 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    store_close(store);
    remove_file(&folder);
}
