/* That the speed of a page does not depend on the number of rows. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/test.h"
#include "store/core/store.h"
#include "store/core/test/store_env.h"
#include "store/platform/store_sandbox.h"
#include "store/platform/store_team.h"

static size_t count_page(struct store *store, const struct store_sandbox_query *query)
{
    auto_arena struct arena arena = {0};
    struct store_sandbox *rows;
    size_t count;

    OK(store_sandbox_page(store, query, &arena, &rows, &count, &err));
    return count;
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
    "INSERT INTO sandboxes (id, team_id, template_id, alias, listed, state, revision, "          \
    "started_at_us,"                                                                             \
    " end_at_us, cpu_count, mem_mb, disk_mb, metadata, env, access_token, internet,"             \
    " internet_given, secure, ended_at_us, end_reason) SELECT 'i' || x, 't',"                    \
    " CASE WHEN x <= 1000 OR x % 1000 = 1 THEN 't2' ELSE 't1' END, 'base', CASE"                 \
    " WHEN x > 100 AND x % 10 = 9 THEN 'ended' WHEN x > 100 AND x % 10 = 8 THEN 'paused'"        \
    " ELSE 'running' END, 'running', 0, x, x + 5, 2, 512, 1024, '{}', '{}', '', 1, 0, 1, 0, '' " \
    "FROM "                                                                                      \
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
    auto_store_env struct store_env env = {0};
    struct store *store;
    int64_t few[5];

    both.paused = true;
    template.template_id = STR("t2");
    tag.tags[0] = STR("red");
    tag.tag_count = 1;
    store_env_make(&env);
    store = store_env_open(&env);
    OK(store_team_insert(store, &(struct store_team){.id = STR("t"), .name = STR("n")}, &err));
    store_env_exec(&env, FILL(1, 100));
    for (size_t i = 0; i < 5; i++)
        few[i] = time_pages(store, queries[i]);
    store_env_exec(&env, FILL(101, 100000));
    deep.after_id = STR("i50000");
    deep.after_us = 50000;
    for (size_t i = 0; i < 5; i++)
        check_time(names[i], few[i], time_pages(store, queries[i]));
    store_close(store);
}
