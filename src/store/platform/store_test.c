#include "store/core/store.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/test.h"
#include "store/core/test/store_env.h"
#include "store/platform/store_event.h"
#include "store/platform/store_sandbox.h"
#include "store/platform/store_team.h"
#include "store/platform/store_template.h"
#include "store/platform/store_webhook.h"

static bool freed; /* what most tests do not look at */

static void add_team(struct store *store, const char *id)
{
    OK(store_team_insert(
        store, &(struct store_team){.id = str_of(id), .name = STR("n"), .created_at_us = 1}, &err));
}

static struct store_sandbox row_of(const char *id, const char *team, int64_t started)
{
    return (struct store_sandbox){
        .id = str_of(id),
        .team_id = str_of(team),
        .template_id = STR("t1"),
        .alias = STR("base"),
        .started_at_us = started,
        .life = {.state = SANDBOX_RUNNING, .end_at_us = started + 1000},
        .cpu_count = 2,
        .mem_mb = 512,
        .disk_mb = 1024,
        .metadata = STR("{\"a\":\"b\"}"),
        .access_token = STR("ea_x"),
        .traffic_token = STR("ta_x"),
        .ingress = STR("mask a\n"),
        .internet = true,
        .secure = true,
    };
}

static void add_sandbox(struct store *store, const char *id, const char *team, int64_t started)
{
    struct store_sandbox row = row_of(id, team, started);

    OK(store_sandbox_insert(store, &row, &err));
}

TEST(newer_schema_is_refused)
{
    auto_store_env struct store_env env = {0};
    struct store *store = NULL;
    struct error refusal = {0};

    store_env_make(&env);
    store = store_env_open(&env);
    store_close(store);
    store_env_exec(&env, "INSERT INTO schema_migrations VALUES (99, 'later', 0)");
    CHECK_INT(store_env_try(&env, &store, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_UNSUPPORTED);
    CHECK(strstr(refusal.message, env.where) && strstr(refusal.message, "99"));
}

TEST(keys)
{
    auto_store struct store *store = store_env_new();
    auto_arena struct arena arena = {0};
    struct store_key key = {.id = STR("k1"),
                            .team_id = STR("team1"),
                            .name = STR("first"),
                            .hash = STR("aa"),
                            .mask = STR("e2b_..x"),
                            .created_at_us = 5};
    struct store_key found, *list;
    size_t count = 7;

    FAILS(store_key_insert(store, &key, 0, &err), ERROR_INTERNAL); /* no such team */
    add_team(store, "team1");
    OK(store_key_count(store, &count, &err));
    CHECK_INT(count, 0);
    OK(store_key_insert(store, &key, 0, &err));
    key.id = STR("k2");
    FAILS(store_key_insert(store, &key, 0, &err), ERROR_EXISTS);
    OK(store_key_find(store, STR("aa"), &arena, &found, &err));
    CHECK_STR(found.id, "k1");
    CHECK_INT(found.last_used_at_us, 0);
    OK(store_key_used(store, STR("k1"), 77, &err));
    OK(store_key_used(store, STR("k1"), 50, &err)); /* never goes back */
    OK(store_key_list(store, STR("team1"), &arena, &list, &count, &err));
    CHECK_INT(count, 1);
    CHECK_INT(list[0].last_used_at_us, 77);
    FAILS(store_key_delete(store, STR("team2"), STR("k1"), &err), ERROR_NOT_FOUND);
    OK(store_key_delete(store, STR("team1"), STR("k1"), &err));
    FAILS(store_key_find(store, STR("aa"), &arena, &found, &err), ERROR_NOT_FOUND);
    FAILS(store_key_delete(store, STR("team1"), STR("k1"), &err), ERROR_NOT_FOUND);
}

TEST(templates)
{
    auto_store struct store *store = store_env_new();
    auto_arena struct arena arena = {0};
    struct store_template t = {.id = STR("t1"),
                               .team_id = STR(""),
                               .alias = STR("base"),
                               .layers = STR("l1"),
                               .cpu_count = 2,
                               .mem_mb = 512,
                               .disk_mb = 1024,
                               .is_public = true,
                               .created_at_us = 1,
                               .updated_at_us = 1};
    struct store_template found, *list;
    struct str id;
    size_t count;

    OK(store_template_put(store, &t, &arena, &id, &err));
    CHECK_STR(id, "t1");
    t.id = STR("t2");
    t.layers = STR("l2");
    t.created_at_us = t.updated_at_us = 9;
    OK(store_template_put(store, &t, &arena, &id, &err));
    CHECK_STR(id, "t1");
    OK(store_template_find(store, STR("x"), STR("base:default"), &arena, &found, &err));
    CHECK_STR(found.layers, "l2");
    CHECK_INT(found.created_at_us, 1);
    CHECK_INT(found.updated_at_us, 9);
    OK(store_template_find(store, STR("x"), STR("t1"), &arena, &found, &err));
    FAILS(store_template_find(store, STR("x"), STR("base:v2"), &arena, &found, &err),
          ERROR_NOT_FOUND);
    FAILS(store_template_find(store, STR("x"), STR("base:"), &arena, &found, &err),
          ERROR_NOT_FOUND);
    FAILS(store_template_find(store, STR("x"), STR(""), &arena, &found, &err), ERROR_NOT_FOUND);
    FAILS(store_template_find(store, STR("x"), STR("' OR 1=1"), &arena, &found, &err),
          ERROR_NOT_FOUND);

    /* Somebody else's name, and a private one. */
    t.team_id = STR("team1");
    FAILS(store_template_put(store, &t, &arena, &id, &err), ERROR_EXISTS);
    t.alias = STR("mine");
    t.is_public = false;
    OK(store_template_put(store, &t, &arena, &id, &err));
    CHECK_STR(id, "t2");
    FAILS(store_template_find(store, STR("team2"), STR("mine"), &arena, &found, &err),
          ERROR_NOT_FOUND);
    OK(store_template_find(store, STR("team1"), STR("mine"), &arena, &found, &err));
    OK(store_template_list(store, STR("team2"), &arena, &list, &count, &err));
    CHECK_INT(count, 1);
    OK(store_template_list(store, STR("team1"), &arena, &list, &count, &err));
    CHECK_INT(count, 2);
    CHECK_STR(list[1].alias, "mine");
}

TEST(sandbox_row_life)
{
    auto_store struct store *store = store_env_new();
    auto_arena struct arena arena = {0};
    struct store_sandbox row, *rows;
    int64_t end = 0, revision = 0;
    size_t count = 0;

    add_team(store, "team1");
    add_sandbox(store, "a", "team1", 100);
    row = row_of("a", "team1", 100);
    FAILS(store_sandbox_insert(store, &row, &err), ERROR_EXISTS);
    row = row_of("b", "nobody", 100);
    FAILS(store_sandbox_insert(store, &row, &err), ERROR_INTERNAL);
    OK(store_sandbox_get(store, STR("a"), &arena, &row, &err));
    CHECK_STR(row.metadata, "{\"a\":\"b\"}");
    CHECK_STR(row.access_token, "ea_x");
    CHECK_STR(row.traffic_token, "ta_x");
    CHECK_STR(row.ingress, "mask a\n");
    CHECK(row.internet && row.secure && !row.internet_given);

    OK(store_sandbox_set_end(store, STR("a"),
                             &(struct store_sandbox_end){.end_at_us = 500, .only_later = true},
                             &end, &revision, &err));
    CHECK_INT(end, 1100);
    CHECK_INT(revision, 1);
    OK(store_sandbox_set_end(store, STR("a"),
                             &(struct store_sandbox_end){.end_at_us = 500, .only_later = false},
                             &end, &revision, &err));
    CHECK_INT(end, 500);
    CHECK_INT(revision, 2);

    OK(store_sandbox_killing(store, STR("a"), STR("kill"), &err));
    FAILS(store_sandbox_set_end(store, STR("a"),
                                &(struct store_sandbox_end){.end_at_us = 900, .only_later = false},
                                &end, &revision, &err),
          ERROR_NOT_FOUND);
    OK(store_sandbox_live(store, &arena, &rows, &count, &err));
    CHECK_INT(count, 1);
    CHECK_INT(rows[0].life.state, SANDBOX_KILLING);
    CHECK_STR(rows[0].end_reason, "kill");
    OK(store_sandbox_ended(store, STR("a"), STR("kill"), NULL, 600, &freed, &err));
    OK(store_sandbox_ended(store, STR("a"), STR("again"), NULL, 700, &freed, &err));
    OK(store_sandbox_ended(store, STR("unknown"), STR("kill"), NULL, 600, &freed, &err));
    OK(store_sandbox_get(store, STR("a"), &arena, &row, &err));
    CHECK_INT(row.life.state, SANDBOX_ENDED);
    CHECK_STR(row.end_reason, "kill");
    CHECK_STR(row.access_token, "");
    CHECK_STR(row.traffic_token, "");
    OK(store_sandbox_live(store, &arena, &rows, &count, &err));
    CHECK_INT(count, 0);

    OK(store_sandbox_prune(store, 600, 10, &count, &err));
    CHECK_INT(count, 0);
    OK(store_sandbox_prune(store, 601, 10, &count, &err));
    CHECK_INT(count, 1);
    FAILS(store_sandbox_get(store, STR("a"), &arena, &row, &err), ERROR_NOT_FOUND);
}

TEST(sandbox_row_paused_and_resumed)
{
    auto_store struct store *store = store_env_new();
    auto_arena struct arena arena = {0};
    struct store_sandbox_query query = {.team_id = STR("t"), .limit = 10};
    struct store_sandbox row, *rows;
    struct store_sandbox_life life;
    int64_t end = 0, revision = 0;
    size_t count = 0;

    add_team(store, "t");
    add_sandbox(store, "a", "t", 100);
    add_sandbox(store, "b", "t", 200);
    add_sandbox(store, "c", "t", 300);
    OK(store_sandbox_get(store, STR("b"), &arena, &row, &err));
    CHECK(row.life.state == SANDBOX_RUNNING && row.life.listed == SANDBOX_RUNNING);
    life = row.life;
    life.state = life.listed = SANDBOX_PAUSED;
    life.state = SANDBOX_RESUMING; /* of one that runs */
    FAILS(store_sandbox_set_life(store, STR("b"), &life, NULL, false, &revision, &err),
          ERROR_NOT_FOUND);
    life.state = SANDBOX_PAUSING;
    life.end_at_us = 777;
    life.memory = true;
    OK(store_sandbox_set_life(store, STR("b"), &life, NULL, false, &revision, &err));
    CHECK_INT(revision, 1);
    OK(store_sandbox_live(store, &arena, &rows, &count, &err));
    CHECK_INT(count, 3);
    FAILS(store_sandbox_set_end(store, STR("b"), &(struct store_sandbox_end){.end_at_us = 5}, &end,
                                &revision, &err),
          ERROR_NOT_FOUND);
    life.state = SANDBOX_PAUSED;
    OK(store_sandbox_set_life(store, STR("b"), &life, NULL, true, &revision, &err));
    OK(store_sandbox_get(store, STR("b"), &arena, &row, &err));
    CHECK(row.life.state == SANDBOX_PAUSED && row.life.memory);
    CHECK_INT(row.life.end_at_us, 777);

    /* One state, the other, both in order. */
    query.paused = true;
    OK(store_sandbox_page(store, &query, &arena, &rows, &count, &err));
    CHECK_INT(count, 1);
    CHECK_STR(rows[0].id, "b");
    query.running = true;
    OK(store_sandbox_page(store, &query, &arena, &rows, &count, &err));
    CHECK_INT(count, 3);
    CHECK_STR(rows[0].id, "c");
    CHECK_STR(rows[1].id, "b");
    query.ascending = true;
    query.limit = 2;
    OK(store_sandbox_page(store, &query, &arena, &rows, &count, &err));
    CHECK_INT(count, 2);
    CHECK_STR(rows[0].id, "a");
    query.after_id = STR("b");
    query.after_us = 200;
    OK(store_sandbox_page(store, &query, &arena, &rows, &count, &err));
    CHECK_INT(count, 1);
    CHECK_STR(rows[0].id, "c");

    life.state = life.listed = SANDBOX_RUNNING;
    life.resumed_from = STORE_RESUMED_DISK;
    life.running_since_us = 1000;
    OK(store_sandbox_set_life(store, STR("b"), &life, NULL, false, &revision, &err));
    OK(store_sandbox_set_end(store, STR("b"),
                             &(struct store_sandbox_end){.end_at_us = 9000, .max_life_us = 500},
                             &end, &revision, &err));
    CHECK_INT(end, 1500);
    OK(store_sandbox_get(store, STR("b"), &arena, &row, &err));
    CHECK_INT(row.life.resumed_from, STORE_RESUMED_DISK);
    OK(store_sandbox_killing(store, STR("b"), STR("kill"), &err));
    FAILS(store_sandbox_set_life(store, STR("b"), &life, NULL, false, &revision, &err),
          ERROR_NOT_FOUND);
}

TEST(pages)
{
    auto_store struct store *store = store_env_new();
    auto_arena struct arena arena = {0};
    struct store_sandbox_query query = {.team_id = STR("t"), .running = true, .limit = 2};
    struct store_sandbox *rows;
    size_t count;

    add_team(store, "t");
    add_team(store, "u");
    add_sandbox(store, "a", "t", 10);
    add_sandbox(store, "b", "t", 20);
    add_sandbox(store, "c", "t", 20);
    add_sandbox(store, "d", "t", 30);
    add_sandbox(store, "e", "u", 40);
    add_sandbox(store, "f", "t", 50);
    OK(store_sandbox_ended(store, STR("f"), STR("kill"), NULL, 60, &freed, &err));

    OK(store_sandbox_page(store, &query, &arena, &rows, &count, &err));
    CHECK_INT(count, 2);
    CHECK_STR(rows[0].id, "d");
    CHECK_STR(rows[1].id, "c");
    query.after_id = STR("c");
    query.after_us = 20;
    OK(store_sandbox_page(store, &query, &arena, &rows, &count, &err));
    CHECK_INT(count, 2);
    CHECK_STR(rows[0].id, "b");
    CHECK_STR(rows[1].id, "a");
    query.started_after_us = 20;
    OK(store_sandbox_page(store, &query, &arena, &rows, &count, &err));
    CHECK_INT(count, 1);
    query.template_id = STR("other");
    OK(store_sandbox_page(store, &query, &arena, &rows, &count, &err));
    CHECK_INT(count, 0);
    query = (struct store_sandbox_query){
        .team_id = STR("t"), .running = true, .limit = 3, .ascending = true};
    OK(store_sandbox_page(store, &query, &arena, &rows, &count, &err));
    CHECK_STR(rows[0].id, "a");
    CHECK_STR(rows[1].id, "b");
    CHECK_STR(rows[2].id, "c");
    query.after_id = rows[2].id;
    query.after_us = 20;
    OK(store_sandbox_page(store, &query, &arena, &rows, &count, &err));
    CHECK_INT(count, 1);
    CHECK_STR(rows[0].id, "d");
}

TEST(another_connection_is_seen)
{
    auto_store_env struct store_env env = {0};
    struct store *server = NULL, *tool = NULL;
    auto_arena struct arena arena = {0};
    struct store_key found;
    struct store_key key = {.id = STR("k1"),
                            .team_id = STR("t"),
                            .name = STR("n"),
                            .hash = STR("aa"),
                            .mask = STR("m"),
                            .created_at_us = 5};

    store_env_make(&env);
    server = store_env_open(&env);
    add_team(server, "t");
    tool = store_env_open(&env);
    FAILS(store_key_find(server, STR("aa"), &arena, &found, &err), ERROR_NOT_FOUND);
    OK(store_key_insert(tool, &key, 0, &err));
    store_close(tool);
    OK(store_key_find(server, STR("aa"), &arena, &found, &err));
    store_close(server);
}

static int64_t last_seq(struct store *store)
{
    auto_arena struct arena arena = {0};
    struct store_event_query query = {.team_id = STR("team"), .limit = 1};
    struct store_event *events;
    size_t count;

    OK(store_event_page(store, &query, &arena, &events, &count, &err));
    return count ? events[0].seq : 0;
}

/* An event's number is never given again, and what waits to be told does not wait for a clock. */
TEST(events_and_deliveries)
{
    auto_store struct store *store = store_env_new();
    struct store_event event = {.type = STR("updated"), .message = STR("m"), .at_us = 1000};
    struct store_webhook webhook = {.id = STR("w"),
                                    .team_id = STR("team"),
                                    .name = STR("n"),
                                    .url = STR("u"),
                                    .secret = STR("s"),
                                    .events = STR(",updated,"),
                                    .enabled = true};
    int64_t hour_us = (int64_t)3600 * 1000000, first, ignored = 0;
    auto_arena struct arena arena = {0};
    struct store_delivery next;
    int64_t waiting = 0, waiting_us = 0;
    size_t count;

    add_team(store, "team");
    add_sandbox(store, "a", "team", 100);
    OK(store_webhook_put(store, &webhook, &err));
    OK(store_event_add(store, STR("a"), &event, &err));
    first = last_seq(store);
    OK(store_event_prune(store, 10 * hour_us, 100, 100, &count, &err));
    OK(store_event_add(store, STR("a"), &event, &err));
    CHECK(last_seq(store) > first);
    OK(store_delivery_later(store, STR("w"), first, 10 * hour_us, &err));
    OK(store_delivery_waiting(store, STR("w"), &waiting, &waiting_us, &err));
    CHECK(waiting > 0 && waiting_us > 0);
    OK(store_delivery_waiting(store, STR("other"), &waiting, &waiting_us, &err));
    CHECK(waiting == 0 && waiting_us == 0);
    OK(store_delivery_next(store, STR(",other,"), &arena, &next, &err));
    CHECK_INT(next.next_at_us, 10 * hour_us);
    CHECK_INT(next.event_seq, first);
    FAILS(store_delivery_next(store, STR(",w,"), &arena, &next, &err), ERROR_NOT_FOUND);
    FAILS(store_delivery_next(store, STR(",x,team,"), &arena, &next, &err), ERROR_NOT_FOUND);
    OK(store_clock_get(store, STR("boot"), &ignored, &err));
    OK(store_clock_set(store, STR("boot"), 0, -3 * hour_us, &err));
    OK(store_delivery_next(store, STR(","), &arena, &next, &err));
    CHECK_INT(next.next_at_us, 7 * hour_us);
}

TEST(no_state_follows_where_the_lifecycle_has_no_way)
{
    char sources[SANDBOX_SOURCES_SIZE];

    CHECK(sandbox_state_may(SANDBOX_CREATING, SANDBOX_RUNNING));
    CHECK(sandbox_state_may(SANDBOX_LOST, SANDBOX_CREATING)); /* its key brings it back */
    CHECK(!sandbox_state_may(SANDBOX_RUNNING, SANDBOX_CREATING));
    CHECK(!sandbox_state_may(SANDBOX_RUNNING, SANDBOX_RESUMING));
    CHECK(!sandbox_state_may(SANDBOX_PAUSED, SANDBOX_SEALING));
    for (unsigned to = 0; to < SANDBOX_STATE_COUNT; to++) {
        CHECK(!sandbox_state_may(SANDBOX_ENDED, to));
        CHECK(to == SANDBOX_ENDED || to == SANDBOX_LOST || to == SANDBOX_KILLING ||
              !sandbox_state_may(SANDBOX_KILLING, to));
    }
    sandbox_state_sources(SANDBOX_RESUMING, sources);
    CHECK_STR(str_of(sources), ",paused,resuming,");
    sandbox_state_sources(SANDBOX_ENDED, sources);
    CHECK(strstr(sources, ",killing,") && !strstr(sources, ",ended,"));
}
