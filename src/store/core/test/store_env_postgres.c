/* The store of a test: a schema of its own in a PostgreSQL of the tests. */
#include <libpq-fe.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/test.h"
#include "store/core/store.h"
#include "store/core/test/store_env.h"
#include "store/driver/driver_postgres.h"

static void run(const char *where, const char *sql)
{
    PGconn *pg = PQconnectdb(where);
    PGresult *result = PQexec(pg, sql);
    ExecStatusType status = PQresultStatus(result);

    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, PQerrorMessage(pg));
    PQclear(result);
    PQfinish(pg);
}

static const char *database(void)
{
    const char *where = getenv("QUICKSAND_TEST_POSTGRES");

    if (!where)
        test_skip("QUICKSAND_TEST_POSTGRES is not set: run it by tests/harness/postgres.sh");
    return where;
}

/* The database goes with its cluster, so nothing is cleaned up here. */
void store_env_make(struct store_env *env)
{
    static int made;
    char name[32], sql[64];

    (void)snprintf(name, sizeof(name), "t%d_%d", (int)getpid(), ++made);
    (void)snprintf(sql, sizeof(sql), "CREATE SCHEMA %s", name);
    run(database(), sql);
    (void)snprintf(env->where, sizeof(env->where),
                   "%s options='-c search_path=%s -c client_min_messages=warning'", database(),
                   name);
}

int store_env_try(const struct store_env *env, struct store **out, struct error *err)
{
    return store_open_driver(&driver_postgres, env->where, out, err);
}

struct store *store_env_open(const struct store_env *env)
{
    struct store *store = NULL;

    OK(store_env_try(env, &store, &err));
    return store;
}

struct store *store_env_new(void)
{
    struct store_env env = {0};

    store_env_make(&env);
    return store_env_open(&env);
}

void store_env_exec(const struct store_env *env, const char *sql)
{
    run(env->where, sql);
}

void store_env_done(struct store_env *env)
{
    (void)env;
}
