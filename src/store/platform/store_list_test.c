/* Pages by state, template and tag: what they hold, and that their speed does not depend on the
 * number of rows. */
#include <sqlite3.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/test.h"
#include "store/core/store.h"

static void raw_exec(const char *file, const char *sql)
{
    sqlite3 *db = NULL;
    char *message = NULL;

    CHECK_INT(sqlite3_open(file, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        test_fail(__FILE__, __LINE__, "%s: %s", sql, message);
    CHECK_INT(sqlite3_close(db), SQLITE_OK);
}

static size_t count_page(struct store *store, const struct store_sandbox_query *query)
{
    auto_arena struct arena arena = {0};
    struct store_sandbox *rows;
    size_t count;

    OK(store_sandbox_page(store, query, &arena, &rows, &count, &err));
    return count;
}

static void add(struct store *store, const char *id, int64_t start, const char *template,
                const struct str *tags, size_t tag_count)
{
    struct store_sandbox row = {.id = str_of(id),
                                .team_id = STR("t"),
                                .template_id = str_of(template),
                                .started_at_us = start,
                                .tags = tags,
                                .tag_count = tag_count};

    OK(store_sandbox_insert(store, &row, &err));
}

TEST(pages_by_tag)
{
    static const struct str red = STR_INIT("red"), both[] = {STR_INIT("red"), STR_INIT("big")};
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct store_sandbox_query query = {
        .team_id = STR("t"), .running = true, .paused = true, .limit = 10, .tag_count = 1};
    struct store_sandbox_life life = {.state = STORE_SANDBOX_PAUSED};
    struct store_sandbox *rows;
    size_t count;
    int64_t revision;
    bool freed;

    OK(store_open(":memory:", &store, &err));
    OK(store_team_insert(store, &(struct store_team){.id = STR("t"), .name = STR("n")}, &err));
    add(store, "a", 10, "x", &red, 1);
    add(store, "b", 20, "x", both, 2);
    add(store, "c", 30, "y", both, 2);
    add(store, "d", 40, "y", NULL, 0);
    OK(store_sandbox_set_life(store, STR("b"), &life, NULL, false, &revision, &err));
    query.tags[0] = STR("red");
    OK(store_sandbox_page(store, &query, &arena, &rows, &count, &err));
    CHECK_INT(count, 3);
    CHECK_STR(rows[0].id, "c");
    CHECK_STR(rows[2].id, "a");
    query.paused = false;
    CHECK_INT(count_page(store, &query), 2);
    query.tags[1] = STR("big");
    query.tag_count = 2;
    CHECK_INT(count_page(store, &query), 1);
    OK(store_sandbox_count_running(store, &query, &count, &err));
    CHECK_INT(count, 1);
    query.paused = true;
    CHECK_INT(count_page(store, &query), 2);
    query.template_id = STR("x");
    CHECK_INT(count_page(store, &query), 1);
    query = (struct store_sandbox_query){.team_id = STR("t"),
                                         .running = true,
                                         .paused = true,
                                         .limit = 1,
                                         .ascending = true,
                                         .tags = {STR("red")},
                                         .tag_count = 1,
                                         .after_id = STR("a"),
                                         .after_us = 10};
    OK(store_sandbox_page(store, &query, &arena, &rows, &count, &err));
    CHECK_INT(count, 1);
    CHECK_STR(rows[0].id, "b");
    OK(store_sandbox_ended(store, STR("b"), STR("kill"), NULL, 50, &freed, &err));
    OK(store_sandbox_page(store, &query, &arena, &rows, &count, &err));
    CHECK_STR(rows[0].id, "c");
    query = (struct store_sandbox_query){.team_id = STR("t"), .template_id = STR("y")};
    OK(store_sandbox_count_running(store, &query, &count, &err));
    CHECK_INT(count, 2);
    query.template_id = STR_NONE;
    query.started_after_us = 30;
    OK(store_sandbox_count_running(store, &query, &count, &err));
    CHECK_INT(count, 2);
}

static int64_t time_pages(struct store *store, const struct store_sandbox_query *query)
{
    int64_t best = INT64_MAX;

    for (int i = 0; i < 50; i++) {
        int64_t from = clock_mono_us(), took;

        CHECK_INT(count_page(store, query), 50);
        took = clock_mono_us() - from;
        if (took < best)
            best = took;
    }
    return best;
}

/* One in ten ended, one in ten paused; half of template t2; one in a thousand (and all of the first
 * hundred) tagged. */
#define NUMBERS(first, last)                                                                       \
    "WITH RECURSIVE n(x) AS (SELECT " #first " UNION ALL SELECT x + 1 FROM n WHERE x < " #last ")" \
    " "
#define FILL(first, last)                                                                        \
    NUMBERS(first, last)                                                                         \
    "INSERT INTO sandboxes (id, team_id, template_id, alias, state, revision, started_at_us,"    \
    " end_at_us, cpu_count, mem_mb, disk_mb, metadata, env, access_token, internet,"             \
    " internet_given, secure, ended_at_us, end_reason) SELECT 'i' || x, 't',"                    \
    " CASE WHEN x <= 1000 OR x % 1000 = 1 THEN 't2' ELSE 't1' END, 'base', CASE"                 \
    " WHEN x > 100 AND x % 10 = 9 THEN 'ended' WHEN x > 100 AND x % 10 = 8 THEN 'paused'"        \
    " ELSE 'running' END, 0, x, x + 5, 2, 512, 1024, '{}', '{}', '', 1, 0, 1, 0, '' FROM "       \
    "n;" NUMBERS(                                                                                \
        first,                                                                                   \
        last) "INSERT INTO sandbox_tags SELECT 't', 'red', x, 'i' || x FROM n WHERE x <= 100 OR" \
              " x % 1000 = 1"

static void check_time(const char *what, int64_t few, int64_t many)
{
    if (many > 5 * few + 300)
        test_fail(__FILE__, __LINE__, "page of 50 %s: %lld us at 100 rows, %lld at 100000", what,
                  (long long)few, (long long)many);
    if (getenv("SHOW_TIMES"))
        (void)fprintf(stderr, "page of 50 %s: %lld us at 100 rows, %lld at 100000\n", what,
                      (long long)few, (long long)many);
}

TEST_TIMEOUT(page_speed_does_not_depend_on_the_number_of_rows, 60)
{
    struct store_sandbox_query plain = {.team_id = STR("t"), .running = true, .limit = 50};
    struct store_sandbox_query both = plain, deep = plain, template = plain, tag = plain;
    const struct store_sandbox_query *queries[] = {&plain, &both, &deep, &template, &tag};
    static const char *const names[] = {"running", "both states", "deep", "by template", "by tag"};
    char folder[] = "/tmp/store_test.XXXXXX", file[64], side[80];
    struct store *store = NULL;
    int64_t few[5];

    both.paused = true;
    template.template_id = STR("t2");
    tag.tags[0] = STR("red");
    tag.tag_count = 1;
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(file, sizeof(file), "%s/store.db", folder);
    OK(store_open(file, &store, &err));
    OK(store_team_insert(store, &(struct store_team){.id = STR("t"), .name = STR("n")}, &err));
    raw_exec(file, FILL(1, 100));
    for (size_t i = 0; i < 5; i++)
        few[i] = time_pages(store, queries[i]);
    raw_exec(file, FILL(101, 100000));
    deep.after_id = STR("i50000");
    deep.after_us = 50000;
    for (size_t i = 0; i < 5; i++)
        check_time(names[i], few[i], time_pages(store, queries[i]));
    store_close(store);
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(side, sizeof(side), "%s%s", file, i == 0 ? "" : i == 1 ? "-wal" : "-shm");
        (void)unlink(side);
    }
    (void)rmdir(folder);
}
