/* What is told about sandboxes: events, logs, and what they use. */
#include "domain/sandbox/test/sandbox_test_env.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_metrics.h"
#include "store/platform/store_audit.h"

static struct event_page events(struct env *env, const struct event_filter *wanted,
                                struct arena *arena)
{
    struct event_filter filter = *wanted;
    struct event_page page;

    filter.team_id = TEAM;
    if (!filter.limit)
        filter.limit = 100;
    OK(sandbox_events(env->all, &filter, arena, &page, &err));
    return page;
}

static size_t audits(struct env *env)
{
    auto_arena struct arena arena = {0};
    struct store_audit *rows;
    size_t count = 0;

    OK(store_audit_page(env->store, TEAM, 0, 10, &arena, &rows, &count, &err));
    return count;
}

static size_t events_of(struct env *env, const char *id)
{
    auto_arena struct arena arena = {0};
    struct store_event_query query = {.team_id = TEAM, .sandbox_id = str_of(id), .limit = 10};
    struct store_event *found;
    size_t count = 0;

    OK(store_event_page(env->store, &query, &arena, &found, &count, &err));
    return count;
}

static bool row_exists(struct env *env, const char *id)
{
    auto_arena struct arena arena = {0};
    struct store_sandbox row;
    struct error ignored = {0};

    return store_sandbox_get(env->store, str_of(id), &arena, &row, &ignored) == 0;
}

/* Without waiting for the hour. */
TEST(a_start_forgets_old_history)
{
    auto_env struct env env;
    char ended[ID_SIZE];

    env_open(&env, 0);
    OK(env_create(&env, ended, &err));
    OK(sandbox_kill(env.all, TEAM, str_of(ended), &err));
    env_stop(&env);
    clock_test_pass(8 * 24 * 3600 * INT64_C(1000000));
    env_start(&env);
    WAIT_FOR(!row_exists(&env, ended));
}

/* The keeper, hourly: rows and events of what ended go after a week, the audit after 30 days. */
TEST(keeper_forgets_history)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct store_audit entry = {.at_us = clock_wall_us(),
                                .team_id = TEAM,
                                .key_id = STR("k"),
                                .method = STR("POST"),
                                .path = STR("/"),
                                .request_id = STR("r"),
                                .key_name = STR("n"),
                                .agent_id = STR(""),
                                .status = 200};
    char ended[ID_SIZE], paused[ID_SIZE];
    const int64_t day_us = 24 * 3600 * INT64_C(1000000);

    env_open(&env, 0);
    OK(env_create(&env, ended, &err));
    OK(env_create(&env, paused, &err));
    OK(sandbox_kill(env.all, TEAM, str_of(ended), &err));
    OK(sandbox_pause(env.all, TEAM, str_of(paused), &(struct sandbox_pause){0}, &err));
    OK(store_audit_add(env.store, &entry, &err));
    clock_test_pass(6 * day_us);
    env_keeper_works(&env);
    CHECK(row_exists(&env, ended) && events_of(&env, ended) > 0);
    clock_test_pass(2 * day_us);
    env_keeper_works(&env);
    CHECK(!row_exists(&env, ended) && events_of(&env, ended) == 0);
    clock_test_pass(21 * day_us);
    env_keeper_works(&env);
    CHECK_INT(audits(&env), 1);
    clock_test_pass(2 * day_us);
    env_keeper_works(&env);
    CHECK_INT(audits(&env), 0);
    CHECK(row_exists(&env, paused));
    OK(sandbox_resume(env.all, TEAM, str_of(paused), &(struct sandbox_resume){.timeout_s = 60},
                      &arena, &(struct sandbox_view){0}, &err));
}

TEST(events_of_a_life)
{
    static const char *const types[] = {"created", "updated", "paused",       "resumed",
                                        "paused",  "resumed", "checkpointed", "killed"};
    static const struct str some[] = {STR_INIT("paused"), STR_INIT("killed")};
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct snapshot_view snapshot;
    struct sandbox_view view;
    struct event_page page;
    char id[ID_SIZE], other[ID_SIZE];
    int64_t now;

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    OK(env_create(&env, other, &err));
    OK(sandbox_set_timeout(env.all, TEAM, str_of(id), 100, &err));
    for (int i = 0; i < 2; i++) {
        OK(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){.disk_only = i == 1},
                         &err));
        OK(sandbox_resume(env.all, TEAM, str_of(id), &(struct sandbox_resume){.timeout_s = 60},
                          &arena, &view, &err));
    }
    now = clock_wall_us();
    OK(sandbox_snapshot(env.all, TEAM, str_of(id), STR("s"), &arena, &snapshot, &err));
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));

    page =
        events(&env, &(struct event_filter){.sandbox_id = str_of(id), .ascending = true}, &arena);
    CHECK_INT(page.count, 8);
    for (size_t i = 0; i < 8; i++) {
        CHECK_STR(page.items[i].type, types[i]);
        CHECK_STR(page.items[i].sandbox_id, id);
        CHECK_STR(page.items[i].template_id, "tttttttttttttttttttt");
        CHECK_INT(page.items[i].id.len, 36);
        CHECK_INT(page.items[i].mem_mb, 512);
        CHECK(page.items[i].message.len > 0);
    }
    CHECK_STR(page.items[2].detail, "memory");
    CHECK_STR(page.items[5].detail, "disk");
    CHECK_STR(page.items[6].detail, "n/s:default");
    CHECK_STR(page.items[7].detail, "killed");
    CHECK(page.items[7].since_us > page.items[0].since_us);

    page = events(&env, &(struct event_filter){.sandbox_id = str_of(id)}, &arena);
    CHECK_STR(page.items[0].type, "killed");
    page = events(&env,
                  &(struct event_filter){.sandbox_id = str_of(id), .types = some, .type_count = 2},
                  &arena);
    CHECK_INT(page.count, 3);
    page = events(&env,
                  &(struct event_filter){
                      .sandbox_id = str_of(id), .ascending = true, .offset = 6, .limit = 1},
                  &arena);
    CHECK_INT(page.count, 1);
    CHECK_STR(page.items[0].type, "checkpointed");
    page = events(&env, &(struct event_filter){.sandbox_id = str_of(id), .from_us = now}, &arena);
    CHECK_INT(page.count, 2);
    page = events(&env, &(struct event_filter){.sandbox_id = str_of(id), .search = STR("boot")},
                  &arena);
    CHECK_INT(page.count, 1);
    page = events(&env, &(struct event_filter){0}, &arena);
    CHECK_INT(page.count, 9);
    FAILS(sandbox_events(
              env.all,
              &(struct event_filter){.team_id = OTHER, .sandbox_id = str_of(id), .limit = 10},
              &arena, &page, &err),
          ERROR_NOT_FOUND);
}

TEST(why_it_ended)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct error refusal = {0};
    struct sandbox_view view;
    struct event_page page;
    char id[ID_SIZE];

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    engine_fake_die(env.engine, id, BOX_END_OOM);
    WAIT_FOR(engine_fake_boxes(env.engine) == 0 && env_live_rows(&env) == 0);
    page = events(&env,
                  &(struct event_filter){.sandbox_id = str_of(id), .min_level = STORE_LEVEL_ERROR},
                  &arena);
    CHECK_INT(page.count, 1);
    CHECK_STR(page.items[0].detail, "out of memory");
    CHECK_INT(sandbox_get(env.all, TEAM, str_of(id), &arena, &view, &refusal), -1);
    CHECK(refusal.code == ERROR_NOT_FOUND && strstr(refusal.message, "out of memory"));
    CHECK_INT(sandbox_get(env.all, OTHER, str_of(id), &arena, &view, &refusal), -1);
    CHECK(refusal.code == ERROR_NOT_FOUND && !strstr(refusal.message, "out of memory"));
}

TEST(a_failed_create_tells_nothing)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct error ignored = {0};
    char id[ID_SIZE];

    env_open(&env, 0);
    engine_fake_envd_status(env.engine, 500);
    CHECK_INT(env_create(&env, id, &ignored), -1);
    CHECK_INT(events(&env, &(struct event_filter){0}, &arena).count, 0);
}

static size_t network_uses(struct sandboxes *all)
{
    struct sandbox_network_use *uses = NULL;
    size_t count = metrics_network_each(all, &uses);

    free(uses);
    return count;
}

TEST(metrics)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_metrics metrics;
    struct sandbox_network_use *uses = NULL;
    struct sandboxes_stats stats;
    struct team_sample *team;
    uint64_t sent;
    int64_t from;
    size_t count = 0;
    char id[ID_SIZE];

    env_open(&env, 0);
    env.config.sample_ms = 30;
    env_reopen(&env);
    OK(env_create(&env, id, &err));
    (void)engine_fake_disk(env.engine, id, 4096);
    OK(sandbox_metrics(env.all, TEAM, str_of(id), 0, 0, &arena, &metrics, &err));
    CHECK(metrics.count >= 1); /* at once */
    CHECK_INT(metrics.cpu_count, 2);
    CHECK_INT(metrics.mem_total, 512 << 20);
    CHECK_INT(metrics.samples[0].mem_used, 64 << 20);
    CHECK_INT(metrics.samples[0].disk_used, 4096);
    while (metrics.count < 12) {
        (void)usleep(10000);
        OK(sandbox_metrics(env.all, TEAM, str_of(id), 0, 0, &arena, &metrics, &err));
    }
    for (size_t i = 1; i < metrics.count; i++) {
        CHECK(metrics.samples[i].at_us > metrics.samples[i - 1].at_us);
        CHECK(metrics.samples[i].cpu_pct > 0 && metrics.samples[i].cpu_pct < 10);
        CHECK(metrics.samples[i].network.sent_bytes > metrics.samples[i - 1].network.sent_bytes);
    }
    CHECK_INT(metrics_network_each(env.all, &uses), 1);
    CHECK_STR(str_of(uses[0].id), id);
    CHECK_INT(uses[0].traffic.connections, 1);
    sent = uses[0].traffic.sent_bytes;
    free(uses);
    from = metrics.samples[5].at_us;
    OK(sandbox_metrics(env.all, TEAM, str_of(id), from, metrics.samples[7].at_us, &arena, &metrics,
                       &err));
    CHECK_INT(metrics.count, 3);
    OK(sandbox_metrics(env.all, TEAM, str_of(id), 1, 2, &arena, &metrics, &err));
    CHECK_INT(metrics.count, 0);
    FAILS(sandbox_metrics(env.all, OTHER, str_of(id), 0, 0, &arena, &metrics, &err),
          ERROR_NOT_FOUND);
    WAIT_FOR((count = team_metrics(env.all, TEAM, 0, 0, &arena, &team)) > 3);
    CHECK_INT(team[count - 1].running, 1);
    CHECK_INT(team_metrics(env.all, OTHER, 0, 0, &arena, &team), 0);

    /* Kept while paused, gone with the sandbox. */
    OK(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){0}, &err));
    OK(sandbox_metrics(env.all, TEAM, str_of(id), 0, 0, &arena, &metrics, &err));
    CHECK(metrics.count >= 12);
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
    FAILS(sandbox_metrics(env.all, TEAM, str_of(id), 0, 0, &arena, &metrics, &err),
          ERROR_NOT_FOUND);
    /* The totals keep what it did. */
    WAIT_FOR(network_uses(env.all) == 0);
    sandboxes_stats(env.all, &stats);
    CHECK(stats.network.sent_bytes >= sent && stats.network.connections >= 1);
}
