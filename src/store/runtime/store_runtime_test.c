#include "store/runtime/store_runtime.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/test.h"
#include "store/core/store.h"
#include "store/core/test/store_env.h"

TEST(runtime_profiles)
{
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct store_profile *list, got;
    size_t count;

    store = store_env_new();
    OK(store_profile_put(
        store, &(struct store_profile){STR("t1"), STR("web"), STR("{\"a\":1}"), 5, 5}, 10, &err));
    OK(store_profile_put(
        store, &(struct store_profile){STR("t1"), STR("web"), STR("{\"a\":2}"), 9, 9}, 10, &err));
    OK(store_profile_put(store, &(struct store_profile){STR("t2"), STR("web"), STR("{}"), 1, 1}, 10,
                         &err));
    OK(store_profile_get(store, STR("t1"), STR("web"), &arena, &got, &err));
    CHECK_STR(got.record, "{\"a\":2}");
    CHECK_INT(got.created_at_us, 5);
    CHECK_INT(got.updated_at_us, 9);
    OK(store_profile_list(store, STR("t1"), 10, &arena, &list, &count, &err));
    CHECK_INT(count, 1);
    FAILS(store_profile_put(store, &(struct store_profile){STR("t1"), STR("one"), STR("{}"), 1, 1},
                            1, &err),
          ERROR_QUOTA);
    OK(store_profile_put(store, &(struct store_profile){STR("t1"), STR("web"), STR("{}"), 1, 1}, 1,
                         &err));
    OK(store_profile_delete(store, STR("t1"), STR("web"), &err));
    FAILS(store_profile_delete(store, STR("t1"), STR("web"), &err), ERROR_NOT_FOUND);
    FAILS(store_profile_get(store, STR("t1"), STR("web"), &arena, &got, &err), ERROR_NOT_FOUND);
    OK(store_profile_get(store, STR("t2"), STR("web"), &arena, &got, &err));
}

TEST(runtime_runners)
{
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct store_runner *list;
    size_t count;
    struct store_runner runner = {STR("t1"), STR("r1"), STR("http://h:1"), STR("secret"), 2, 0,
                                  100,       100};

    store = store_env_new();
    OK(store_runner_put(store, &runner, &err));
    runner.name = STR("r2");
    runner.heartbeat_at_us = 200;
    OK(store_runner_put(store, &runner, &err));
    OK(store_runner_heartbeat(store, STR("t1"), STR("r1"), 1, 300, &err));
    FAILS(store_runner_heartbeat(store, STR("t2"), STR("r1"), 1, 300, &err), ERROR_NOT_FOUND);
    OK(store_runner_list(store, 10, &arena, &list, &count, &err));
    CHECK_INT(count, 2);
    CHECK_STR(list[0].name, "r1");
    CHECK_INT(list[0].active_sessions, 1);
    CHECK_INT(list[0].created_at_us, 100);
    OK(store_runner_delete(store, STR("t1"), STR("r1"), &err));
    FAILS(store_runner_delete(store, STR("t1"), STR("r1"), &err), ERROR_NOT_FOUND);
}

static void add(struct store *store, int64_t id, const char *team, const char *type,
                const char *sandbox, const char *session)
{
    OK(store_runtime_event_insert(store,
                                  &(struct store_runtime_event){.id = id,
                                                                .team_id = str_of(team),
                                                                .type = str_of(type),
                                                                .sandbox_id = str_of(sandbox),
                                                                .session_id = str_of(session),
                                                                .json = STR("{}")},
                                  1, &err));
}

static size_t find(struct store *store, struct store_runtime_query query, int64_t *first)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_event *list;
    size_t count;

    if (!query.upto_id)
        query.upto_id = INT64_MAX;
    query.limit = query.limit ? query.limit : 100;
    query.team_id = query.team_id.p ? query.team_id : STR("t1");
    OK(store_runtime_event_list(store, &query, &arena, &list, &count, &err));
    *first = count ? list[0].id : 0;
    return count;
}

TEST(runtime_events)
{
    auto_store struct store *store = NULL;
    int64_t first, last, rows;
    size_t pruned;

    store = store_env_new();
    OK(store_runtime_event_last(store, &last, &rows, &err));
    CHECK_INT(last, 0);
    add(store, 1, "t1", "sandbox.created", "s1", NULL);
    add(store, 2, "t1", "sandbox.paused", "s1", "x1");
    add(store, 3, "t2", "sandbox.created", "s1", NULL);
    add(store, 4, "t1", "sandboxes", "s2", "x1");
    /* All of them or none. */
    FAILS(store_runtime_event_insert(
              store,
              (struct store_runtime_event[]){
                  {.id = 5, .team_id = STR("t1"), .type = STR("x"), .json = STR("{}")},
                  {.id = 4, .team_id = STR("t1"), .type = STR("x"), .json = STR("{}")}},
              2, &err),
          ERROR_EXISTS);
    CHECK_INT(find(store, (struct store_runtime_query){0}, &first), 3);
    CHECK_INT(first, 1);
    CHECK_INT(find(store, (struct store_runtime_query){.newest = true, .limit = 1}, &first), 1);
    CHECK_INT(first, 4);
    CHECK_INT(find(store, (struct store_runtime_query){.sandbox_id = STR("s1")}, &first), 2);
    CHECK_INT(find(store, (struct store_runtime_query){.session_id = STR("x1")}, &first), 2);
    CHECK_INT(find(store,
                   (struct store_runtime_query){.sandbox_id = STR("s2"), .session_id = STR("x1")},
                   &first),
              1);
    CHECK_INT(find(store, (struct store_runtime_query){.type = STR("sandbox.")}, &first), 2);
    CHECK_INT(find(store, (struct store_runtime_query){.type = STR("sandbox.paused")}, &first), 1);
    CHECK_INT(find(store, (struct store_runtime_query){.type = STR("sandbox")}, &first), 0);
    CHECK_INT(find(store, (struct store_runtime_query){.after_id = 1, .upto_id = 2}, &first), 1);
    CHECK_INT(find(store, (struct store_runtime_query){.agent_id = STR("a")}, &first), 0);
    OK(store_runtime_event_prune(store, 0, 1, 10, &pruned, &err));
    CHECK_INT(pruned, 1);
    OK(store_runtime_event_prune(store, 4, 0, 10, &pruned, &err));
    CHECK_INT(pruned, 2);
    OK(store_runtime_event_last(store, &last, &rows, &err));
    CHECK_INT(last, 4);
    CHECK_INT(rows, 1);
}

TEST(runtime_events_of_use)
{
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct store_runtime_event *events = NULL;
    size_t count;

    store = store_env_new();
    add(store, 1, "t1", "usage", "s1", NULL);
    add(store, 2, "t1", "usage.other", "s1", NULL);
    add(store, 3, "t2", "usage", "s2", NULL);
    add(store, 4, "t1", "usage", "s1", NULL);
    OK(store_runtime_event_usage(store, STR("t1"), 10, &arena, &events, &count, &err));
    CHECK_INT(count, 2);
    CHECK_INT(events[0].id, 4);
    CHECK_INT(events[1].id, 1);
    OK(store_runtime_event_usage(store, STR_NONE, 2, &arena, &events, &count, &err));
    CHECK_INT(count, 2);
    CHECK_STR(events[1].team_id, "t2");
    CHECK_STR(events[1].sandbox_id, "s2");
}

TEST(runtime_events_of_a_quiet_team_stay)
{
    auto_store struct store *store = NULL;
    int64_t first;
    size_t pruned;

    store = store_env_new();
    for (int i = 1; i <= 20; i++) {
        struct store_runtime_event event = {.id = i,
                                            .team_id = i <= 3 ? STR("quiet") : STR("loud"),
                                            .type = STR("a.b"),
                                            .json = STR("{}")};

        OK(store_runtime_event_insert(store, &event, 1, &err));
    }
    OK(store_runtime_event_prune(store, 0, 10, 100, &pruned, &err));
    CHECK_INT(pruned, 10);
    CHECK_INT(find(store, (struct store_runtime_query){.team_id = STR("quiet")}, &first), 3);
    CHECK_INT(find(store, (struct store_runtime_query){.team_id = STR("loud")}, &first), 7);
}
