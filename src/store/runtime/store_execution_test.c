#include "base/test.h"
#include "store/core/store.h"
#include "store/core/test/store_env.h"
#include "store/runtime/store_execution.h"

static const struct store_execution_bounds wide = {100, 1000};

static int add(struct store *store, const char *id, const char *team, const char *sandbox,
               int64_t ended_at_us, const struct store_execution_bounds *bounds)
{
    struct store_execution row = {
        .id = str_of(id),
        .team_id = str_of(team),
        .sandbox_id = str_of(sandbox),
        .command = STR("true"),
        .ended_at_us = ended_at_us,
        .out = STR("out"),
    };
    struct error err;

    return store_execution_add(store, &row, bounds, &err);
}

/* The ids of a sandbox's rows, in their order, joined. */
static struct str ids_of(struct store *store, const char *team, const char *sandbox,
                         int64_t before_us, size_t limit, struct arena *arena)
{
    struct store_execution *rows = NULL;
    const char *text = "";
    size_t count = 0;
    struct error err;

    if (store_execution_list(store, str_of(team), str_of(sandbox),
                             &(struct store_execution_page){before_us, limit}, arena, &rows, &count,
                             &err) < 0)
        return STR_NONE;
    for (size_t i = 0; i < count; i++)
        text = arena_printf(arena, "%s%.*s", text, STR_ARG(rows[i].id));
    return str_of(text);
}

TEST(executions_are_read_back)
{
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct store_execution row = {
        .id = STR("e"),
        .team_id = STR("t"),
        .sandbox_id = STR("s"),
        .agent_id = STR("a"),
        .task_id = STR("k"),
        .actor = STR("key"),
        .command = STR("make"),
        .exit_code = 2,
        .duration_ms = 30,
        .started_at_us = 4,
        .ended_at_us = 5,
        .timed_out = true,
        .truncated = true,
        .out = STR("o"),
    };
    struct store_execution got;

    store = store_env_new();
    OK(store_execution_add(store, &row, &wide, &err));
    FAILS(store_execution_get(store, STR("other"), STR("e"), &arena, &got, &err), ERROR_NOT_FOUND);
    OK(store_execution_get(store, STR("t"), STR("e"), &arena, &got, &err));
    CHECK_STR(got.agent_id, "a");
    CHECK_STR(got.task_id, "k");
    CHECK_STR(got.command, "make");
    CHECK_STR(got.out, "o");
    CHECK(got.err.p && !got.err.len);
    CHECK_STR(got.err, "");
    CHECK(!got.error.p && got.timed_out && got.truncated);
    CHECK_INT(got.exit_code, 2);
    CHECK_INT(got.duration_ms, 30);
    CHECK_INT(got.started_at_us, 4);
    CHECK_STR(ids_of(store, "t", "s", 0, 10, &arena), "e");
    CHECK_STR(ids_of(store, "other", "s", 0, 10, &arena), "");
}

TEST(executions_of_a_sandbox_are_bounded)
{
    const struct store_execution_bounds three = {3, 100};
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};

    store = store_env_new();
    for (int i = 0; i < 5; i++)
        CHECK_INT(add(store, (char[]){(char)('a' + i), 0}, "t", "s", 10 + i, &three), 0);
    CHECK_INT(add(store, "x", "t", "neighbour", 1, &three), 0);
    CHECK_STR(ids_of(store, "t", "s", 0, 10, &arena), "edc");
    CHECK_STR(ids_of(store, "t", "s", 0, 2, &arena), "ed");
    CHECK_STR(ids_of(store, "t", "s", 13, 10, &arena), "c");
    CHECK_STR(ids_of(store, "t", "neighbour", 0, 10, &arena), "x");
}

TEST(executions_of_a_team_are_bounded)
{
    const struct store_execution_bounds two = {100, 2};
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};

    store = store_env_new();
    CHECK_INT(add(store, "o", "other", "of-other", 1, &two), 0);
    CHECK_INT(add(store, "a", "t", "s1", 10, &two), 0);
    CHECK_INT(add(store, "b", "t", "s2", 11, &two), 0);
    CHECK_INT(add(store, "c", "t", "s2", 12, &two), 0);
    CHECK_STR(ids_of(store, "t", "s1", 0, 10, &arena), "");
    CHECK_STR(ids_of(store, "t", "s2", 0, 10, &arena), "cb");
    CHECK_STR(ids_of(store, "other", "of-other", 0, 10, &arena), "o");
}

TEST(executions_grow_old)
{
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    size_t count = 0;

    store = store_env_new();
    for (int i = 0; i < 5; i++)
        CHECK_INT(add(store, (char[]){(char)('a' + i), 0}, "t", "s", 10 + i, &wide), 0);
    OK(store_execution_prune(store, 13, 2, &count, &err));
    CHECK_INT(count, 2);
    OK(store_execution_prune(store, 13, 2, &count, &err));
    CHECK_INT(count, 1);
    CHECK_STR(ids_of(store, "t", "s", 0, 10, &arena), "ed");
}
