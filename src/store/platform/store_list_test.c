/* Pages by state, template and tag: what they hold. */
#include <stdlib.h>

#include "base/cleanup.h"
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

static void add(struct store *store, const char *id, int64_t start, const char *template,
                const struct str *tags, size_t tag_count)
{
    struct store_sandbox row = {.id = str_of(id),
                                .team_id = STR("t"),
                                .template_id = str_of(template),
                                .started_at_us = start,
                                .life = {.state = SANDBOX_RUNNING},
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
    struct store_sandbox_life life = {.state = SANDBOX_PAUSED, .listed = SANDBOX_PAUSED};
    struct store_sandbox *rows;
    size_t count;
    int64_t revision;
    bool freed;

    store = store_env_new();
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
