/* The store of a test: an SQLite file of its own. */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/path.h"
#include "base/test.h"
#include "store/core/store.h"
#include "store/core/test/store_env.h"

struct store *store_env_new(void)
{
    struct store *store = NULL;

    OK(store_open(":memory:", &store, &err));
    return store;
}

void store_env_make(struct store_env *env)
{
    (void)snprintf(env->folder, sizeof(env->folder), "/tmp/store_test.XXXXXX");
    CHECK(mkdtemp(env->folder) != NULL);
    (void)snprintf(env->where, sizeof(env->where), "%s/store.db", env->folder);
}

int store_env_try(const struct store_env *env, struct store **out, struct error *err)
{
    return store_open(env->where, out, err);
}

struct store *store_env_open(const struct store_env *env)
{
    struct store *store = NULL;

    OK(store_env_try(env, &store, &err));
    return store;
}

void store_env_exec(const struct store_env *env, const char *sql)
{
    sqlite3 *db = NULL;
    char *message = NULL;

    CHECK_INT(sqlite3_open(env->where, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, message);
    CHECK_INT(sqlite3_close(db), SQLITE_OK);
}

void store_env_done(struct store_env *env)
{
    CHECK_INT(path_remove_tree(AT_FDCWD, env->folder), 0);
}
