/* The store as a file: its mode, its space, its copies, and what becomes of damage. */
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/test.h"
#include "store/core/store.h"
#include "store/core/store_export.h"
#include "store/core/test/store_env.h"
#include "store/driver/store_driver.h"
#include "store/platform/store_team.h"

static void add_team(struct store *store, const char *id)
{
    OK(store_team_insert(
        store, &(struct store_team){.id = str_of(id), .name = STR("n"), .created_at_us = 1}, &err));
}

TEST(file_is_private_and_reopens)
{
    auto_store_env struct store_env env = {0};
    struct store *store = NULL;
    struct store_team team;
    auto_arena struct arena arena = {0};
    struct stat st;

    store_env_make(&env);
    OK(store_open(env.where, &store, &err));
    add_team(store, "team1");
    CHECK(stat(env.where, &st) == 0);
    CHECK_INT(st.st_mode & 0777, 0600);
    store_close(store);
    OK(store_open(env.where, &store, &err));
    OK(store_team_get(store, STR("team1"), &arena, &team, &err));
    CHECK_STR(team.name, "n");
    FAILS(store_team_get(store, STR("team2"), &arena, &team, &err), ERROR_NOT_FOUND);
    store_close(store);
}

TEST(symlink_instead_of_file_is_refused)
{
    auto_store_env struct store_env env = {0};
    struct store *store = NULL;

    store_env_make(&env);
    CHECK_INT(symlink("/dev/null", env.where), 0);
    FAILS(store_open(env.where, &store, &err), ERROR_INTERNAL);
}

static void check_damaged(const char *file)
{
    struct store *store = NULL;
    struct error err = {0};

    CHECK_INT(store_open(file, &store, &err), -1);
    if (!strstr(err.message, "damaged") || !strstr(err.message, file))
        test_fail(__FILE__, __LINE__, "message: %s", err.message);
}

TEST(damaged_files_are_refused)
{
    auto_store_env struct store_env env = {0};
    struct store *store = NULL;
    char junk[4096];
    auto_close int fd = -1;

    store_env_make(&env);
    fd = open(env.where, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    memset(junk, 'x', sizeof(junk));
    CHECK(write(fd, junk, sizeof(junk)) == (ssize_t)sizeof(junk));
    check_damaged(env.where);

    CHECK_INT(ftruncate(fd, 0), 0);
    OK(store_open(env.where, &store, &err));
    for (int i = 0; i < 50; i++) {
        char id[32];

        (void)snprintf(id, sizeof(id), "team%d", i);
        add_team(store, id);
    }
    store_close(store);
    /* Pages in the middle overwritten. */
    CHECK(pwrite(fd, junk, sizeof(junk), 4096) == (ssize_t)sizeof(junk));
    CHECK(pwrite(fd, junk, sizeof(junk), 12288) == (ssize_t)sizeof(junk));
    check_damaged(env.where);
}

/* For a disk that others fill. */
TEST(space_is_reserved)
{
    auto_store_env struct store_env env = {0};
    struct store *store = NULL;
    auto_free char *log = NULL;
    auto_close int fd = -1;
    struct stat st;

    store_env_make(&env);
    log = xasprintf("%s-wal", env.where);
    fd = open(env.where, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1) < 0)
        test_lacks("the file system cannot reserve space");
    close_fd(&fd);
    for (int i = 0; i < 2; i++) {
        OK(store_open(env.where, &store, &err));
        add_team(store, i ? "again" : "first");
        CHECK(stat(env.where, &st) == 0);
        CHECK(st.st_blocks * 512 > st.st_size + (2 << 20));
        CHECK(i == 0 || (stat(log, &st) == 0 && st.st_blocks * 512 >= 8 << 20));
        store_close(store);
        /* Emptied, so that a file put in the place of the other is not mixed with it. */
        CHECK(stat(log, &st) == 0 && st.st_size == 0);
        CHECK(st.st_blocks * 512 >= 8 << 20);
    }
}

/* Hourly copies, of which three are kept; a copy is a store. */
TEST(backups)
{
    auto_store_env struct store_env env = {0};
    struct store *store = NULL;
    char copy[600];

    store_env_make(&env);
    OK(store_open(env.where, &store, &err));
    for (int i = 0; i < 5; i++) {
        char id[32];

        (void)snprintf(id, sizeof(id), "team%d", i);
        add_team(store, id);
        OK(store_backup(store, 0, &err));
        OK(store_backup(store, 3600 * (int64_t)1000000, &err)); /* there is a young one */
    }
    store_close(store);
    for (int nth = 0; nth < 3; nth++) {
        auto_arena struct arena arena = {0};
        struct store_team team;
        char id[32];

        (void)snprintf(copy, sizeof(copy), nth ? "%s.backup.%d" : "%s.backup", env.where, nth);
        (void)snprintf(id, sizeof(id), "team%d", 4 - nth);
        OK(store_open(copy, &store, &err));
        OK(store_team_get(store, str_of(id), &arena, &team, &err));
        store_close(store);
        (void)unlink(copy);
    }
    (void)snprintf(copy, sizeof(copy), "%s.backup.3", env.where);
    CHECK_INT(access(copy, F_OK), -1);
}

static bool is_strange(struct store *store)
{
    bool strange = false;

    OK(store_is_strange(store, &strange, &err));
    return strange;
}

TEST(a_copy_and_a_new_store_are_strange)
{
    auto_store_env struct store_env env = {0};
    auto_arena struct arena arena = {0};
    struct store *store = NULL;
    struct str list;
    char copy[600];

    store_env_make(&env);
    OK(store_open(env.where, &store, &err));
    CHECK(is_strange(store));
    OK(store_is_familiar(store, &err));
    OK(store_backup(store, 0, &err));
    CHECK(!is_strange(store));
    OK(store_aside_read(store, &arena, &list, &err));
    CHECK_STR(list, "");
    OK(store_aside_write(store, STR("box i1\n"), &err));
    store_close(store);
    (void)snprintf(copy, sizeof(copy), "%s.backup", env.where);
    CHECK(rename(copy, env.where) == 0);
    OK(store_open(env.where, &store, &err));
    CHECK(is_strange(store));
    OK(store_aside_read(store, &arena, &list, &err));
    CHECK_STR(list, "box i1\n");
    OK(store_aside_write(store, STR(""), &err));
    OK(store_is_familiar(store, &err));
    store_close(store);
    OK(store_open(env.where, &store, &err));
    CHECK(!is_strange(store));
    store_close(store);
}

TEST(a_copy_is_replaced_after_an_hour)
{
    const int64_t minute_us = 60 * INT64_C(1000000);
    auto_store_env struct store_env env = {0};
    struct store *store = NULL;
    char copies[2][600];

    store_env_make(&env);
    OK(store_open(env.where, &store, &err));
    (void)snprintf(copies[0], sizeof(copies[0]), "%s.backup", env.where);
    (void)snprintf(copies[1], sizeof(copies[1]), "%s.backup.1", env.where);
    OK(store_backup(store, 60 * minute_us, &err));
    clock_test_pass(59 * minute_us);
    OK(store_backup(store, 60 * minute_us, &err));
    CHECK_INT(access(copies[1], F_OK), -1);
    clock_test_pass(2 * minute_us);
    OK(store_backup(store, 60 * minute_us, &err));
    CHECK(access(copies[0], F_OK) == 0 && access(copies[1], F_OK) == 0);
    store_close(store);
    (void)unlink(copies[0]);
    (void)unlink(copies[1]);
}

/* Together less than what a commit copies by itself. */
TEST(the_log_is_copied_while_nobody_waits)
{
    auto_store_env struct store_env env = {0};
    static char name[400000];
    struct store *store;
    struct stat st;

    memset(name, 'x', sizeof(name));
    store_env_make(&env);
    store = store_env_open(&env);
    for (int i = 0; i < 14; i++)
        OK(store_team_insert(store,
                             &(struct store_team){.id = str_of((char[]){(char)('a' + i), '\0'}),
                                                  .name = str_n(name, sizeof(name))},
                             &err));
    WAIT_FOR(stat(env.where, &st) == 0 && st.st_size > (off_t)(9 * sizeof(name)));
    /* With the copy the file is cut where it ends, and what was reserved behind that is gone. */
    WAIT_FOR(stat(env.where, &st) == 0 && st.st_blocks * 512 > st.st_size + (2 << 20));
    store_close(store);
}

struct dump {
    sqlite3 *db;
    struct buf text;
};

static int add_row(void *arg, int count, char **values, char **names)
{
    struct dump *dump = arg;

    (void)names;
    for (int i = 0; i < count; i++)
        (void)buf_printf(&dump->text, "%s|", values[i] ? values[i] : "NULL");
    (void)buf_add_char(&dump->text, '\n');
    return 0;
}

static int add_table(void *arg, int count, char **values, char **names)
{
    struct dump *dump = arg;
    char sql[200];

    (void)count;
    (void)names;
    (void)snprintf(sql, sizeof(sql), "SELECT '%s', * FROM %s", values[0], values[0]);
    return sqlite3_exec(dump->db, sql, add_row, dump, NULL);
}

/* What a store's file is made of and what is in it, but for the times of its migrations. */
static void dump_file(const char *where, struct dump *dump)
{
    buf_init(&dump->text, 1 << 20);
    CHECK_INT(sqlite3_open(where, &dump->db), SQLITE_OK);
    CHECK_INT(sqlite3_exec(dump->db,
                           "SELECT type, name, sql FROM sqlite_master ORDER BY type, name;"
                           "SELECT version, name FROM schema_migrations ORDER BY version",
                           add_row, dump, NULL),
              SQLITE_OK);
    CHECK_INT(sqlite3_exec(dump->db,
                           "SELECT name FROM sqlite_master WHERE type = 'table'"
                           " AND name <> 'schema_migrations' ORDER BY name",
                           add_table, dump, NULL),
              SQLITE_OK);
    CHECK_INT(sqlite3_close(dump->db), SQLITE_OK);
    CHECK(!dump->text.overflowed);
}

/* The schema in one go is that of the migrations one by one. */
TEST(a_new_store_is_as_the_migrations_make_it)
{
    auto_store_env struct store_env at_once = {0}, in_steps = {0};
    struct store_driver steps = driver_sqlite;
    struct dump one = {0}, other = {0};
    struct store *store;

    steps.whole = NULL;
    store_env_make(&at_once);
    store_env_make(&in_steps);
    store_close(store_env_open(&at_once));
    OK(store_open_driver(&steps, in_steps.where, &store, &err));
    store_close(store);
    dump_file(at_once.where, &one);
    dump_file(in_steps.where, &other);
    CHECK(strstr(one.text.p, "counters|events|0|"));
    CHECK_STR(str_of(one.text.p), other.text.p);
    buf_done(&one.text);
    buf_done(&other.text);
    /* One that was there before goes on as it is. */
    OK(store_open(in_steps.where, &store, &err));
    store_close(store);
}

/* What a backup keeps of the store that an earlier version wrote, which it does before an upgrade. */
TEST(sandboxes_of_an_older_store_are_exported)
{
    auto_store_env struct store_env env = {0};
    auto_arena struct arena arena = {0};
    struct store_export_names names;
    struct store_export *store;

    store_env_make_old(&env, 26);
    store_env_exec(&env, "INSERT INTO teams (id, name, created_at_us) VALUES ('t', 'n', 1)");
    store_env_exec(
        &env, "INSERT INTO sandboxes (id, team_id, template_id, alias, state, step, revision,"
              " started_at_us, end_at_us, cpu_count, mem_mb, disk_mb, metadata, env, access_token,"
              " internet, internet_given, secure, ended_at_us, end_reason) VALUES"
              " ('kept', 't', 'base', '', 'paused', '', 0, 1, 2, 1, 1, 1, '{}', '{}', '', 1, 0, 0, "
              "0, ''),"
              " ('runs', 't', 'base', '', 'running', '', 0, 1, 2, 1, 1, 1, '{}', '{}', '', 1, 0, "
              "0, 0, '')");
    OK(store_export_open(env.where, &store, &err));
    OK(store_export_list(store, STORE_EXPORT_BOXES, &arena, &names, &err));
    CHECK_INT(names.count, 1);
    CHECK_STR(names.list[0].name, "kept");
    store_export_close(store);
}
