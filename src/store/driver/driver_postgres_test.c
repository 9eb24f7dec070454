/* What is PostgreSQL's own: that it takes every statement of the store, and what becomes of its connections. */
#include "store/driver/driver_postgres.h"

#include <fcntl.h>
#include <libpq-fe.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/test.h"
#include "store/core/store.h"
#include "store/core/test/store_env.h"
#include "store/platform/store_team.h"

static const char *const beginnings[] = {"SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM "};

/* Not what only a test says, several at once. */
static bool is_statement(const char *text)
{
    if (strchr(text, ';'))
        return false;
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(beginnings[0]); i++)
        if (strncmp(text, beginnings[i], strlen(beginnings[i])) == 0)
            return strlen(text) > strlen(beginnings[i]);
    return false;
}

static bool is_understood(PGconn *pg, const char *sql)
{
    int count;
    char *text = postgres_translate(sql, &count);
    PGresult *result = PQprepare(pg, "", text, 0, NULL);
    bool good = PQresultStatus(result) == PGRES_COMMAND_OK;

    if (!good)
        (void)fprintf(stderr, "%s\n%s", sql, PQerrorMessage(pg));
    PQclear(result);
    free(text);
    return good;
}

/* All that the store can say is in this program: its strings are looked through, so that no statement is
 * left out because no test runs it. */
TEST(every_statement_is_understood)
{
    auto_store_env struct store_env env = {0};
    auto_close int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct store *store;
    struct stat st;
    const char *program;
    size_t found = 0, bad = 0;
    PGconn *pg;

    store_env_make(&env);
    store = store_env_open(&env);
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    program = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(program != MAP_FAILED);
    pg = PQconnectdb(env.where);
    for (const char *at = program, *end = program + st.st_size - 64; at < end; at++)
        if ((at[0] < ' ' || at[0] > '~') && is_statement(at + 1)) {
            bad += !is_understood(pg, at + 1);
            found++;
        }
    if (bad || found < 150)
        test_fail(__FILE__, __LINE__, "%zu of %zu statements are not understood", bad, found);
    PQfinish(pg);
    store_close(store);
}

static int read_one(struct store *store)
{
    auto_arena struct arena arena = {0};
    struct store_team team;
    struct error err;

    return store_team_get(store, STR("t"), &arena, &team, &err) == 0 ? 0 : (int)err.code;
}

TEST(a_lost_connection_is_made_again)
{
    auto_store_env struct store_env env = {0};
    struct store *store;
    int code, failures = 0;

    store_env_make(&env);
    store = store_env_open(&env);
    OK(store_team_insert(store, &(struct store_team){.id = STR("t"), .name = STR("n")}, &err));
    CHECK_INT(read_one(store), 0);
    store_env_exec(&env, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                         " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'");
    while ((code = read_one(store)) != 0) {
        CHECK_INT(code, ERROR_UNAVAILABLE);
        CHECK(++failures < 10);
    }
    CHECK(failures > 0);
    OK(store_team_update(store, &(struct store_team){.id = STR("t"), .name = STR("m")}, &err));
    store_close(store);
}
