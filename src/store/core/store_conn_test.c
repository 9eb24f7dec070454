/* Connections: who waits for whom, and what becomes of transactions. */
#include <pthread.h>
#include <stdlib.h>

#include "base/test.h"
#include "store/core/query.h"
#include "store/core/store.h"
#include "store/core/test/store_env.h"
#include "store/platform/store_audit.h"
#include "store/platform/store_sandbox.h"
#include "store/platform/store_team.h"
#include "store/runtime/store_runtime_sandbox.h"
#include "store/runtime/store_session.h"

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
    auto_store_env struct store_env env = {0};
    struct store *store;
    struct conn *conn;

    store_env_make(&env);
    store = store_env_open(&env);
    conn = store_write(store);
    OK(store_begin(conn, STORE_EPHEMERAL, &err));
    run(conn, add_team);
    CHECK_INT(teams(store), 0);
    OK(store_end(conn, 0, &err));
    CHECK_INT(teams(store), 1);
    conn_give_back(&conn);
    store_close(store);
}

TEST(what_failed_is_undone)
{
    struct store *store = store_env_new();
    struct conn *conn = store_write(store);

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
    auto_store_env struct store_env env = {0};
    struct store *store;
    struct conn *conn;

    store_env_make(&env);
    store = store_env_open(&env);
    check_refused(store_read(store));
    check_refused(store_read_many(store));
    conn = store_write(store);
    run(conn, add_team);
    conn_give_back(&conn);
    CHECK_INT(teams(store), 1);
    store_close(store);
}

enum { THREADS = 12, ROUNDS = 40 };

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
    auto_store_env struct store_env env = {0};
    struct store *store;
    pthread_t threads[THREADS];

    store_env_make(&env);
    store = store_env_open(&env);
    OK(store_team_insert(store, &(struct store_team){.id = STR("t"), .name = STR("n")}, &err));
    for (size_t i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, read_and_write, store), 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    store_close(store);
}

/* ---- as two processes do it: two stores on the same place ---- */

enum { EACH = 30, MESSAGES_MAX = 50 };

static void *add_audit(void *store)
{
    for (int i = 0; i < EACH; i++)
        OK(store_audit_add(store,
                           &(struct store_audit){.at_us = 1,
                                                 .team_id = STR("t"),
                                                 .key_id = STR(""),
                                                 .method = STR("POST"),
                                                 .path = STR("/"),
                                                 .request_id = STR("r")},
                           &err));
    return NULL;
}

static void *add_messages(void *store)
{
    struct error err;

    for (int i = 0; i < EACH; i++)
        if (store_message_add(store, STR("s"), STR("text"), MESSAGES_MAX, &err) < 0 &&
            err.code != ERROR_QUOTA)
            test_fail(__FILE__, __LINE__, "message: %s", err.message);
    return NULL;
}

static void on_both(struct store *stores[2], void *(*add)(void *))
{
    pthread_t threads[4];

    for (size_t i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, add, stores[i % 2]), 0);
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
}

static void open_both(struct store_env *env, struct store *stores[2])
{
    store_env_make(env);
    stores[0] = store_env_open(env);
    stores[1] = store_env_open(env);
    OK(store_team_insert(stores[0], &(struct store_team){.id = STR("t"), .name = STR("n")}, &err));
}

TEST(numbers_are_given_once)
{
    auto_store_env struct store_env env = {0};
    auto_arena struct arena arena = {0};
    struct store *stores[2];
    struct store_audit *entries;
    size_t count = 0;

    open_both(&env, stores);
    on_both(stores, add_audit);
    OK(store_audit_page(stores[0], STR("t"), 0, 1000, &arena, &entries, &count, &err));
    CHECK_INT(count, 4 * EACH);
    for (size_t i = 0; i < count; i++)
        CHECK_INT(entries[i].seq, count - i);
    OK(store_audit_prune(stores[0], INT64_MAX, 0, 1000, &count, &err));
    CHECK_INT(count, 4 * EACH);
    (void)add_audit(stores[1]);
    OK(store_audit_page(stores[0], STR_NONE, 0, 1, &arena, &entries, &count, &err));
    CHECK_INT(entries[0].seq, 5 * EACH);
    store_close(stores[1]);
    store_close(stores[0]);
}

enum { BEFORE_COUNTERS = 17 };

TEST(numbers_go_on_after_an_upgrade)
{
    auto_store_env struct store_env env = {0};
    auto_arena struct arena arena = {0};
    struct store_audit *entries;
    struct store *store;
    size_t count = 0;

    store_env_make_old(&env, BEFORE_COUNTERS);
    store_env_exec(&env, "INSERT INTO audit (seq, at_us, team_id, key_id, method, path, status,"
                         " request_id) VALUES (41, 1, 't', '', 'POST', '/', 200, 'r')");
    store = store_env_open(&env);
    (void)add_audit(store);
    OK(store_audit_page(store, STR("t"), 0, 1000, &arena, &entries, &count, &err));
    CHECK_INT(count, EACH + 1);
    CHECK_INT(entries[0].seq, 41 + EACH);
    store_close(store);
}

enum { BEFORE_KEEP = 26, BEFORE_LIFECYCLE = 28 };

#define BEFORE_KEEP_ROW(id, key, profile, lifetime)                                              \
    "INSERT INTO runtime_sandboxes (id, team_id, sandbox_key, spec_hash, provider, external_id," \
    " token, address, cdp_url, image, profile, settings, metadata, state, error, agent_id,"      \
    " task_id, snapshot_id, idle_s, max_lifetime_s, persistent, cpu, created_at_us,"             \
    " last_used_at_us, running_since_us, destroyed_at_us, ran_us, commands, jobs, create_ms)"    \
    " VALUES ('" id "', 't', '" key "', '', 'e2b', 'm', '', '', '', 'base', '" profile           \
    "', '', '', 'paused', '', '', '', '', 600, " lifetime ", 0, 1, 1, 1, 0, 0, 1, 0, 0, 1)"

/* Built-in profiles had a lifetime of seven days that nobody had asked for (0027_keep.sql). */
TEST(an_upgrade_takes_the_lifetime_from_keys)
{
    static const struct {
        const char *id;
        int64_t lifetime_s;
    } expected[] = {
        {"key", 0}, {"desktop", 0}, {"asked", 86400}, {"own", 604800}, {"keyless", 604800}};
    auto_store_env struct store_env env = {0};
    auto_arena struct arena arena = {0};
    struct store *store;

    store_env_make_old(&env, BEFORE_KEEP);
    store_env_exec(&env, BEFORE_KEEP_ROW("key", "a", "default", "604800"));
    store_env_exec(&env, BEFORE_KEEP_ROW("desktop", "b", "desktop", "604800"));
    store_env_exec(&env, BEFORE_KEEP_ROW("asked", "c", "default", "86400"));
    store_env_exec(&env, BEFORE_KEEP_ROW("own", "d", "mine", "604800"));
    store_env_exec(&env, BEFORE_KEEP_ROW("keyless", "", "default", "604800"));
    store = store_env_open(&env);
    for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
        struct store_runtime_sandbox row;

        OK(store_runtime_sandbox_get(store, STR("t"), str_of(expected[i].id), &arena, &row, &err));
        CHECK_INT(row.max_lifetime_s, expected[i].lifetime_s);
    }
    store_close(store);
}

/* A comment in front of a statement of an old schema: driver_postgres_test.c leaves it out. */
#define BEFORE_LIFECYCLE_ROW(id, state, step)                                                    \
    "/* old */ INSERT INTO sandboxes (id, team_id, template_id, alias, state, step, revision,"   \
    " started_at_us, end_at_us, cpu_count, mem_mb, disk_mb, metadata, env, access_token,"        \
    " internet, internet_given, secure, ended_at_us, end_reason) VALUES ('" id "', 't', 'base'," \
    " '', '" state "', '" step                                                                   \
    "', 0, 1, 2, 1, 1, 1, '{}', '{}', '', 1, 0, 0, 9000000000000000, '')"

/* The states and steps of old rows are one lifecycle (0029_lifecycle.sql). */
TEST(an_upgrade_keeps_the_states_of_sandboxes)
{
    static const struct {
        const char *id;
        enum sandbox_state state, listed;
    } expected[] = {
        {"runs", SANDBOX_RUNNING, SANDBOX_RUNNING},  {"ends", SANDBOX_PAUSING, SANDBOX_RUNNING},
        {"pauses", SANDBOX_PAUSING, SANDBOX_PAUSED}, {"paused", SANDBOX_PAUSED, SANDBOX_PAUSED},
        {"wakes", SANDBOX_RESUMING, SANDBOX_PAUSED}, {"dies", SANDBOX_KILLING, SANDBOX_KILLING},
        {"dead", SANDBOX_ENDED, SANDBOX_ENDED}};
    auto_store_env struct store_env env = {0};
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox lost;
    struct store *store;

    store_env_make_old(&env, BEFORE_LIFECYCLE);
    store_env_exec(&env, "INSERT INTO teams (id, name, created_at_us) VALUES ('t', 'n', 1)");
    store_env_exec(&env, BEFORE_LIFECYCLE_ROW("runs", "running", ""));
    store_env_exec(&env, BEFORE_LIFECYCLE_ROW("ends", "running", "pausing"));
    store_env_exec(&env, BEFORE_LIFECYCLE_ROW("pauses", "paused", "pausing"));
    store_env_exec(&env, BEFORE_LIFECYCLE_ROW("paused", "paused", ""));
    store_env_exec(&env, BEFORE_LIFECYCLE_ROW("wakes", "paused", "resuming"));
    store_env_exec(&env, BEFORE_LIFECYCLE_ROW("dies", "killing", "pausing"));
    store_env_exec(&env, BEFORE_LIFECYCLE_ROW("dead", "ended", ""));
    store_env_exec(&env, BEFORE_KEEP_ROW("key", "a", "default", "0"));
    store_env_exec(&env, "UPDATE runtime_sandboxes SET state = 'error'");
    store = store_env_open(&env);
    for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++) {
        struct store_sandbox row;

        OK(store_sandbox_get(store, str_of(expected[i].id), &arena, &row, &err));
        CHECK_INT(row.life.state, expected[i].state);
        CHECK_INT(row.life.listed, expected[i].listed);
    }
    OK(store_runtime_sandbox_get(store, STR("t"), STR("key"), &arena, &lost, &err));
    CHECK_INT(lost.state, SANDBOX_LOST);
    store_close(store);
}

TEST(what_was_counted_still_holds)
{
    auto_store_env struct store_env env = {0};
    auto_arena struct arena arena = {0};
    struct store *stores[2];
    struct str text;
    int64_t seq = 0, count = 0;

    open_both(&env, stores);
    OK(store_session_put(stores[0], &(struct store_session){.id = STR("s"), .team_id = STR("t")},
                         &err));
    on_both(stores, add_messages);
    for (;; count++) {
        OK(store_message_next(stores[1], STR("s"), &arena, &seq, &text, &err));
        if (!seq)
            break;
        CHECK_INT(seq, count + 1);
        OK(store_message_remove(stores[1], STR("s"), seq, &err));
    }
    CHECK_INT(count, MESSAGES_MAX);
    store_close(stores[1]);
    store_close(stores[0]);
}
