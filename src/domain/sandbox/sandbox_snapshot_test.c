/* Snapshots and forks: names, what is shared, and when layers go. */
#include "domain/sandbox/test/sandbox_test_env.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "store/platform/store_layer.h"

static int create_from(struct env *env, struct str template_name, char id[ID_SIZE],
                       struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_new request = {
        .team_id = TEAM, .template_name = template_name, .timeout_s = 600, .secure = true};
    struct sandbox_view view;

    if (sandbox_create(env->all, &request, &arena, &view, err) < 0)
        return -1;
    CHECK(str_copy(view.id, id, ID_SIZE));
    return 0;
}

static void end(struct env *env, const char *id)
{
    OK(sandbox_kill(env->all, TEAM, str_of(id), &err));
}

TEST(snapshot_and_create_from_it)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct snapshot_view snapshot;
    struct box_spec spec;
    char id[ID_SIZE], child[ID_SIZE], grandchild[ID_SIZE];

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    (void)engine_fake_disk(env.engine, id, 42);
    OK(sandbox_snapshot(env.all, TEAM, str_of(id), STR_NONE, &arena, &snapshot, &err));
    CHECK(str_ends(snapshot.id, STR(":default")) && snapshot.id.len == 28 && !snapshot.name.p);
    OK(create_from(&env, snapshot.id, child, &err));
    CHECK(engine_fake_spec(env.engine, child, &spec));
    CHECK_INT(spec.layer_count, 3);
    CHECK_STR(str_of(spec.layers[1]), "high");
    CHECK_INT(engine_fake_disk(env.engine, child, 1), 43);
    CHECK_INT(engine_fake_disk(env.engine, id, 0), 42);
    FAILS(create_from(&env, STR("i0000000000000000000:default"), child, &err), ERROR_NOT_FOUND);

    /* Deleting it takes nothing away from those who use it. */
    OK(sandbox_snapshot(env.all, TEAM, str_of(child), STR("second"), &arena,
                        &(struct snapshot_view){0}, &err));
    OK(snapshot_delete(env.all, TEAM, snapshot.id, &err));
    FAILS(snapshot_delete(env.all, TEAM, snapshot.id, &err), ERROR_NOT_FOUND);
    FAILS(create_from(&env, snapshot.id, grandchild, &err), ERROR_NOT_FOUND);
    (void)usleep(50000); /* nothing more happens */
    CHECK_INT(engine_fake_layers(env.engine), 2);
    end(&env, child);
    WAIT_FOR(engine_fake_layers(env.engine) == 1); /* the second has all that was in the first */
    OK(create_from(&env, STR("second"), grandchild, &err));
    CHECK(engine_fake_spec(env.engine, grandchild, &spec) && spec.layer_count == 3);
    CHECK_INT(engine_fake_disk(env.engine, grandchild, 0), 43);
    OK(snapshot_delete(env.all, TEAM, STR("second"), &err));
    (void)usleep(50000); /* nothing more happens */
    CHECK_INT(engine_fake_layers(env.engine), 1);
    OK(sandbox_pause(env.all, TEAM, str_of(grandchild), &(struct sandbox_pause){.disk_only = true},
                     &err));
    (void)usleep(50000); /* nothing more happens */
    CHECK_INT(engine_fake_layers(env.engine), 1);
    end(&env, grandchild);
    WAIT_FOR(engine_fake_layers(env.engine) == 0);
    end(&env, id);
}

/* A chain of any length is no deeper than its first link. */
TEST_TIMEOUT(snapshots_of_snapshots, 60)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct snapshot_view view;
    struct box_spec spec;
    char id[ID_SIZE];

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    for (unsigned i = 1; i <= 50; i++) {
        CHECK_INT(engine_fake_disk(env.engine, id, 1), i);
        OK(sandbox_snapshot(env.all, TEAM, str_of(id), STR("chain"), &arena, &view, &err));
        end(&env, id);
        OK(create_from(&env, STR("chain"), id, &err));
        CHECK(engine_fake_spec(env.engine, id, &spec) && spec.layer_count == 3);
    }
    end(&env, id);
    OK(snapshot_delete(env.all, TEAM, STR("chain"), &err));
    WAIT_FOR(engine_fake_layers(env.engine) == 0);
}

TEST(names_and_tags)
{
    static const char *const bad[] = {"",      "a b",   "a:",       ":x",
                                      "a/b/c", "a:b:c", "\xc3\xa9", "a/../b"};
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct snapshot_filter filter = {.team_id = TEAM, .limit = 100};
    struct snapshot_page page;
    struct snapshot_view view;
    char id[ID_SIZE], child[ID_SIZE];

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        FAILS(sandbox_snapshot(env.all, TEAM, str_of(id), str_of(bad[i]), &arena, &view, &err),
              ERROR_INVALID);
    FAILS(sandbox_snapshot(env.all, TEAM, str_of(id), STR("base"), &arena, &view, &err),
          ERROR_CONFLICT);
    FAILS(sandbox_snapshot(env.all, TEAM, str_of(id), STR("other/mine"), &arena, &view, &err),
          ERROR_FORBIDDEN);
    (void)engine_fake_disk(env.engine, id, 1);
    OK(sandbox_snapshot(env.all, TEAM, str_of(id), STR("Mine"), &arena, &view, &err));
    CHECK_STR(view.id, "n/mine:default");
    CHECK_STR(view.name, "n/mine");
    (void)engine_fake_disk(env.engine, id, 1);
    OK(sandbox_snapshot(env.all, TEAM, str_of(id), STR("mine:v2.0"), &arena, &view, &err));
    CHECK_STR(view.id, "n/mine:v2.0");
    CHECK_STR(view.name, "n/mine");
    OK(create_from(&env, STR("mine"), child, &err));
    CHECK_INT(engine_fake_disk(env.engine, child, 0), 1);
    end(&env, child);
    OK(create_from(&env, STR("n/mine:v2.0"), child, &err));
    CHECK_INT(engine_fake_disk(env.engine, child, 0), 2);
    end(&env, child);
    FAILS(create_from(&env, STR("mine:v3"), child, &err), ERROR_NOT_FOUND);
    FAILS(create_from(&env, STR("x/mine"), child, &err), ERROR_NOT_FOUND);

    /* The same name and tag again: the old content goes. */
    (void)engine_fake_disk(env.engine, id, 1);
    OK(sandbox_snapshot(env.all, TEAM, str_of(id), STR("mine"), &arena, &view, &err));
    OK(create_from(&env, STR("n/mine:default"), child, &err));
    CHECK_INT(engine_fake_disk(env.engine, child, 0), 3);
    end(&env, child);
    WAIT_FOR(engine_fake_layers(env.engine) == 2);

    OK(sandbox_snapshot(env.all, TEAM, str_of(id), STR_NONE, &arena, &view, &err));
    OK(snapshot_list(env.all, &filter, &arena, &page, &err));
    CHECK_INT(page.count, 3);
    CHECK(str_eq(page.items[0].id, view.id));
    CHECK_STR(page.items[1].id, "n/mine:default");
    filter.name = STR("mine:v2.0");
    OK(snapshot_list(env.all, &filter, &arena, &page, &err));
    CHECK_INT(page.count, 1);
    filter.name = STR("n/mine");
    OK(snapshot_list(env.all, &filter, &arena, &page, &err));
    CHECK_INT(page.count, 2);
    filter.name = view.id;
    OK(snapshot_list(env.all, &filter, &arena, &page, &err));
    CHECK_INT(page.count, 1);
    filter.name = STR("nobody");
    OK(snapshot_list(env.all, &filter, &arena, &page, &err));
    CHECK_INT(page.count, 0);
    filter.name = STR_NONE;
    filter.sandbox_id = STR("i0000000000000000000");
    OK(snapshot_list(env.all, &filter, &arena, &page, &err));
    CHECK_INT(page.count, 0);
    filter.sandbox_id = str_of(id);
    filter.limit = 2;
    OK(snapshot_list(env.all, &filter, &arena, &page, &err));
    CHECK(page.count == 2 && page.next_cursor.p);
    filter.cursor = page.next_cursor;
    OK(snapshot_list(env.all, &filter, &arena, &page, &err));
    CHECK(page.count == 1 && !page.next_cursor.p);
    filter.cursor = STR("AAAA");
    FAILS(snapshot_list(env.all, &filter, &arena, &page, &err), ERROR_INVALID);

    /* Other teams have their own. */
    filter = (struct snapshot_filter){.team_id = OTHER, .limit = 10};
    OK(snapshot_list(env.all, &filter, &arena, &page, &err));
    CHECK_INT(page.count, 0);
    FAILS(snapshot_delete(env.all, OTHER, STR("mine"), &err), ERROR_NOT_FOUND);
    FAILS(snapshot_delete(env.all, OTHER, view.id, &err), ERROR_NOT_FOUND);
    FAILS(snapshot_delete(env.all, TEAM, STR("base"), &err), ERROR_FORBIDDEN);
    OK(snapshot_delete(env.all, TEAM, STR("mine:v2.0"), &err));
    FAILS(snapshot_delete(env.all, TEAM, STR("mine:v2.0"), &err), ERROR_NOT_FOUND);
    OK(snapshot_delete(env.all, TEAM, STR("mine"), &err));
    OK(snapshot_delete(env.all, TEAM, view.id, &err));
    WAIT_FOR(engine_fake_layers(env.engine) == 0);
}

TEST(states)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct snapshot_view view;
    struct fork_result *results;
    char id[ID_SIZE];

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    FAILS(sandbox_snapshot(env.all, OTHER, str_of(id), STR_NONE, &arena, &view, &err),
          ERROR_NOT_FOUND);
    OK(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){0}, &err));
    FAILS(sandbox_snapshot(env.all, TEAM, str_of(id), STR_NONE, &arena, &view, &err),
          ERROR_CONFLICT);
    FAILS(sandbox_fork(env.all, TEAM, str_of(id),
                       &(struct sandbox_fork){.count = 1, .timeout_s = 10}, &arena, &results, &err),
          ERROR_CONFLICT);
    FAILS(sandbox_fork(env.all, TEAM, str_of(id),
                       &(struct sandbox_fork){.count = 0, .timeout_s = 10}, &arena, &results, &err),
          ERROR_INVALID);
    FAILS(sandbox_fork(env.all, TEAM, str_of(id),
                       &(struct sandbox_fork){.count = 101, .timeout_s = 10}, &arena, &results,
                       &err),
          ERROR_INVALID);
    CHECK_INT(engine_fake_layers(env.engine), 0);
}

struct slow {
    struct env *env;
    char id[ID_SIZE];
    atomic_bool done;
    int result;
    struct error err;
};

static void *slow_snapshot(void *arg)
{
    auto_arena struct arena arena = {0};
    struct slow *slow = arg;
    struct snapshot_view view;
    struct error err = {0};

    slow->result =
        sandbox_snapshot(slow->env->all, TEAM, str_of(slow->id), STR_NONE, &arena, &view, &err);
    atomic_store(&slow->done, true);
    return NULL;
}

static pthread_t start_slow(struct slow *slow)
{
    pthread_t thread;

    atomic_init(&slow->done, false);
    CHECK(pthread_create(&thread, NULL, slow_snapshot, slow) == 0);
    WAIT_FOR(engine_fake_waiting(slow->env->engine) == 1);
    return thread;
}

TEST(while_a_snapshot_is_made)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct slow slow = {.env = &env};
    struct snapshot_view snapshot;
    struct sandbox_view view, again;
    auto_free char *reason = NULL;
    pthread_t thread;

    env_open(&env, 0);
    engine_fake_slow(env.engine, 60000, 0);
    OK(env_create(&env, slow.id, &err));
    thread = start_slow(&slow);
    FAILS(sandbox_snapshot(env.all, TEAM, str_of(slow.id), STR_NONE, &arena, &snapshot, &err),
          ERROR_CONFLICT);
    FAILS(sandbox_resume(env.all, TEAM, str_of(slow.id), &(struct sandbox_resume){.timeout_s = 5},
                         &arena, &view, &err),
          ERROR_CONFLICT);
    OK(sandbox_get(env.all, TEAM, str_of(slow.id), &arena, &view, &err));
    CHECK_INT(view.state, SANDBOX_RUNNING);
    CHECK_INT(sandboxes_running(env.all), 1);
    OK(sandbox_set_timeout(env.all, TEAM, str_of(slow.id), 7000, &err));
    OK(sandbox_extend(env.all, TEAM, str_of(slow.id), 10, &arena, &again, &err));
    CHECK(again.end_at_us > view.end_at_us);
    CHECK(!atomic_load(&slow.done));
    engine_fake_slow(env.engine, 400, 0);
    OK(sandbox_pause(env.all, TEAM, str_of(slow.id), &(struct sandbox_pause){0}, &err));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_INT(slow.result, 0);
    OK(sandbox_resume(env.all, TEAM, str_of(slow.id), &(struct sandbox_resume){.timeout_s = 600},
                      &arena, &view, &err));

    thread = start_slow(&slow);
    OK(sandbox_kill(env.all, TEAM, str_of(slow.id), &err));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_INT(slow.result, 0);
    CHECK_INT(engine_fake_boxes(env.engine), 0);

    /* Its time is up meanwhile: it ends when the snapshot is made. */
    OK(env_create(&env, slow.id, &err));
    thread = start_slow(&slow);
    OK(sandbox_set_timeout(env.all, TEAM, str_of(slow.id), 1, &err));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_INT(slow.result, 0);
    WAIT_FOR(engine_fake_boxes(env.engine) == 0);

    /* It dies meanwhile. */
    OK(env_create(&env, slow.id, &err));
    thread = start_slow(&slow);
    engine_fake_die(env.engine, slow.id, BOX_END_OOM);
    CHECK(pthread_join(thread, NULL) == 0);
    WAIT_FOR(engine_fake_boxes(env.engine) == 0);
    CHECK_INT(engine_fake_layers(env.engine), slow.result == 0 ? 4 : 3);
    WAIT_FOR((reason = env_end_reason(&env, slow.id)) != NULL);
    CHECK_STR(str_of(reason), "out of memory");
}

/* Its files are wanted: whoever snapshots it meanwhile must not be the end of them. */
TEST(dies_at_its_end_while_a_snapshot_is_made)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct slow slow = {.env = &env};
    struct sandbox_new request = {.team_id = TEAM,
                                  .template_name = STR("base"),
                                  .timeout_s = 60,
                                  .auto_pause = true,
                                  .auto_resume = true};
    struct sandbox_view view;
    pthread_t thread;

    env_open(&env, 0);
    engine_fake_slow(env.engine, 60000, 0);
    OK(sandbox_create(env.all, &request, &arena, &view, &err));
    CHECK(str_copy(view.id, slow.id, ID_SIZE));
    (void)engine_fake_disk(env.engine, slow.id, 42);
    thread = start_slow(&slow);
    OK(sandbox_set_timeout(env.all, TEAM, str_of(slow.id), 1, &err));
    OK(sandbox_get(env.all, TEAM, str_of(slow.id), &arena, &view, &err));
    WAIT_FOR(clock_wall_us() > view.end_at_us + 200000);
    engine_fake_die(env.engine, slow.id, BOX_END_EXITED);
    WAIT_FOR(engine_fake_told(env.engine) == 1);
    CHECK(!atomic_load(&slow.done));
    CHECK_INT(sandbox_extend(env.all, TEAM, str_of(slow.id), 600, &arena, &view, &slow.err), -1);
    engine_fake_slow(env.engine, 0, 0);
    CHECK(pthread_join(thread, NULL) == 0);
    WAIT_FOR(sandbox_get(env.all, TEAM, str_of(slow.id), &arena, &view, &slow.err) == 0 &&
             view.state == SANDBOX_PAUSED);
    WAIT_FOR(sandbox_get(env.all, TEAM, str_of(slow.id), &arena, &view, &slow.err) == 0 &&
             str_is(view.paused_to, "disk"));
    OK(sandbox_wake(env.all, slow.id, &err));
    OK(sandbox_get(env.all, TEAM, str_of(slow.id), &arena, &view, &err));
    CHECK_STR(view.resumed_from, "disk");
    CHECK_INT(engine_fake_disk(env.engine, slow.id, 0), 42);
}

TEST(forks)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    const struct pair user = {STR("user"), STR("7")};
    const struct pair variable = {STR("NAME"), STR("value")};
    struct sandbox_new request = {.team_id = TEAM,
                                  .template_name = STR("base"),
                                  .timeout_s = 600,
                                  .secure = true,
                                  .metadata = &user,
                                  .metadata_count = 1,
                                  .env = &variable,
                                  .env_count = 1,
                                  .auto_pause = true};
    struct sandbox_view source, view;
    struct fork_result *results;
    char id[ID_SIZE], sent[1024];

    env_open(&env, 2);
    OK(sandbox_create(env.all, &request, &arena, &source, &err));
    CHECK(str_copy(source.id, id, sizeof(id)));
    (void)engine_fake_disk(env.engine, id, 42);
    OK(sandbox_fork(env.all, TEAM, source.id, &(struct sandbox_fork){.count = 30, .timeout_s = 100},
                    &arena, &results, &err));
    for (size_t i = 0; i < 30; i++) {
        char child[ID_SIZE];

        CHECK(results[i].ok);
        CHECK(str_copy(results[i].view.id, child, sizeof(child)));
        CHECK_INT(engine_fake_disk(env.engine, child, 0), 42);
        OK(sandbox_get(env.all, TEAM, results[i].view.id, &arena, &view, &err));
        CHECK_STR(view.metadata, "{\"user\":\"7\"}");
        CHECK(str_eq(view.template_id, source.template_id) && view.auto_pause);
        CHECK(view.access_token.len && !str_eq(view.access_token, source.access_token));
        for (size_t k = 0; k < i; k++)
            CHECK(!str_eq(results[k].view.id, results[i].view.id));
    }
    engine_fake_last_request(env.engine, sent, sizeof(sent));
    CHECK_INT(sandboxes_running(env.all), 31);
    CHECK_INT(engine_fake_layers(env.engine), 1);
    end(&env, id);
    for (size_t i = 0; i < 30; i++)
        OK(sandbox_kill(env.all, TEAM, results[i].view.id, &err));
    WAIT_FOR(engine_fake_layers(env.engine) == 0);

    /* As far as there is room. */
    env.config.max_running = 3;
    env_reopen(&env);
    OK(env_create(&env, id, &err));
    OK(sandbox_fork(env.all, TEAM, str_of(id), &(struct sandbox_fork){.count = 5, .timeout_s = 100},
                    &arena, &results, &err));
    for (size_t i = 0, made = 0; i < 5; i++) {
        made += results[i].ok;
        if (!results[i].ok)
            CHECK_INT(results[i].err.code, ERROR_QUOTA);
        if (i == 4)
            CHECK_INT(made, 2);
    }
}

/* A snapshot, a create from it, a delete, with the n-th call failing: afterwards no layer is left,
 * and none was taken away too early (the fake refuses to start from one that is gone). */
static void sweep(void (*fail_at)(struct env *env, int nth), int last)
{
    bool failed = true;

    for (int nth = 1; nth <= last; nth++) {
        auto_env struct env env;
        auto_arena struct arena arena = {0};
        struct error failure = {0};
        struct snapshot_view view = {0};
        struct fork_result *results;
        char id[ID_SIZE], child[ID_SIZE] = "";

        env_open(&env, 0);
        OK(env_create(&env, id, &err));
        fail_at(&env, nth);
        failed =
            sandbox_snapshot(env.all, TEAM, str_of(id), STR("s"), &arena, &view, &failure) < 0 ||
            create_from(&env, STR("s"), child, &failure) < 0 ||
            snapshot_delete(env.all, TEAM, STR("s"), &failure) < 0 ||
            sandbox_fork(env.all, TEAM, str_of(id),
                         &(struct sandbox_fork){.count = 2, .timeout_s = 60}, &arena, &results,
                         &failure) < 0;
        if (failed)
            CHECK(failure.code != ERROR_NONE);
        fail_at(&env, 0);
        env_reopen(&env);
        OK(sandbox_snapshot(env.all, TEAM, str_of(id), STR("t"), &arena, &view, &err));
        (void)snapshot_delete(env.all, TEAM, STR("s"), &failure);
        OK(snapshot_delete(env.all, TEAM, STR("t"), &err));
        for (;;) {
            struct sandbox_filter filter = {.team_id = TEAM, .running = true, .limit = 1};
            struct sandbox_page page;

            OK(sandbox_list(env.all, &filter, &arena, &page, &err));
            if (!page.count)
                break;
            OK(sandbox_kill(env.all, TEAM, page.items[0].id, &err));
        }
        CHECK_INT(engine_fake_boxes(env.engine), 0);
        WAIT_FOR(engine_fake_layers(env.engine) == 0);
    }
    CHECK(!failed);
}

static void fail_engine(struct env *env, int nth)
{
    engine_fake_fail_at(env->engine, nth);
}

static void fail_store(struct env *env, int nth)
{
    (void)env;
    env_fail_store_at(nth);
}

TEST_TIMEOUT(snapshot_engine_failure_sweep, 60)
{
    sweep(fail_engine, 10);
}

TEST_TIMEOUT(snapshot_store_failure_sweep, 120)
{
    sweep(fail_store, 60);
}

/* The server dies at the worst moments: a layer that the store does not know, one that it knows and
 * nobody uses. */
TEST(leftovers)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct snapshot_view view;
    struct layer_info info;
    char id[ID_SIZE], child[ID_SIZE];

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    OK(sandbox_snapshot(env.all, TEAM, str_of(id), STR("kept"), &arena, &view, &err));
    OK(env.engine->ops->snapshot(env.engine, id, "snapunknown", &info, &err));
    OK(env.engine->ops->snapshot(env.engine, id, "built", &info, &err)); /* not one of ours */
    OK(store_layer_add(env.store, STR("snaphalf"), STR("team"), 1, &err));
    OK(env.engine->ops->snapshot(env.engine, id, "snaphalf", &info, &err));
    CHECK_INT(engine_fake_layers(env.engine), 4);
    env_reopen(&env);
    WAIT_FOR(engine_fake_layers(env.engine) == 2);
    OK(create_from(&env, STR("kept"), child, &err));
}

/* Boxes kept ready from a snapshot go with it. */
TEST(warm_boxes_of_a_snapshot)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct snapshot_view view;
    char id[ID_SIZE], child[ID_SIZE];

    env_open(&env, 2);
    OK(env_create(&env, id, &err));
    OK(sandbox_snapshot(env.all, TEAM, str_of(id), STR("hot"), &arena, &view, &err));
    OK(create_from(&env, STR("hot"), child, &err));
    /* two, two blank ones, two of the base, one as it was used once */
    WAIT_FOR(engine_fake_boxes(env.engine) == 7);
    (void)usleep(50000); /* nothing more happens */
    CHECK_INT(engine_fake_boxes(env.engine), 7);
    end(&env, child);
    OK(create_from(&env, STR("hot"), child, &err));
    WAIT_FOR(engine_fake_boxes(env.engine) == 8);
    OK(snapshot_delete(env.all, TEAM, STR("hot"), &err));
    end(&env, child);
    WAIT_FOR(engine_fake_layers(env.engine) == 0);
    WAIT_FOR(engine_fake_boxes(env.engine) == 5);
}

/* Creates, replacements and deletes of the same name at once: a create either works or says that
 * there is no such template. */
struct race {
    struct env *env;
    char id[ID_SIZE];
    atomic_int turn, odd, made;
};

static void *race_run(void *arg)
{
    struct race *race = arg;
    bool maker = atomic_fetch_add(&race->turn, 1) == 0;

    for (int i = 0; i < 40; i++) {
        auto_arena struct arena arena = {0};
        struct snapshot_view view;
        struct error err = {0};
        char child[ID_SIZE];

        if (maker) {
            if (sandbox_snapshot(race->env->all, TEAM, str_of(race->id), STR("r"), &arena, &view,
                                 &err) < 0)
                atomic_fetch_add(&race->odd, 1);
            if (i % 8 == 7)
                (void)snapshot_delete(race->env->all, TEAM, STR("r"), &err);
            continue;
        }
        if (create_from(race->env, STR("r"), child, &err) == 0) {
            atomic_fetch_add(&race->made, 1);
            end(race->env, child);
        } else if (err.code != ERROR_NOT_FOUND || strstr(err.message, "layer")) {
            (void)fprintf(stderr, "%s\n", err.message);
            atomic_fetch_add(&race->odd, 1);
        }
    }
    return NULL;
}

TEST_TIMEOUT(create_against_delete, 60)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct race race = {.env = &env};
    struct snapshot_view view;
    struct error ignored = {0};
    pthread_t threads[4];

    env_open(&env, 0);
    OK(env_create(&env, race.id, &err));
    OK(sandbox_snapshot(env.all, TEAM, str_of(race.id), STR("r"), &arena, &view, &err));
    engine_fake_slow(env.engine, 3, 5);
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, race_run, &race) == 0);
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_INT(atomic_load(&race.odd), 0);
    CHECK(atomic_load(&race.made) > 0);
    (void)snapshot_delete(env.all, TEAM, STR("r"), &ignored);
    WAIT_FOR(engine_fake_layers(env.engine) == 0);
    end(&env, race.id);
}

/* A single child is a copy: no layer is made for it. */
static void check_metadata(const struct fork_result *result, const char *want)
{
    CHECK(result->ok);
    CHECK_STR(result->view.metadata, want);
}

TEST(forks_have_the_labels_that_were_asked_for)
{
    static const struct pair given[] = {{STR_INIT("name"), STR_INIT("try")},
                                        {STR_INIT("k"), STR_INIT("new")}};
    static const struct pair bad[] = {{STR_INIT("k"), STR_INIT("\xff")}};
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct pair own[] = {
        {STR("name"), STR("source")}, {STR("k"), STR("old")}, {STR("kept"), STR("1")}};
    struct sandbox_fork request = {.count = 1, .timeout_s = 60};
    struct sandbox_new wanted = {.team_id = TEAM,
                                 .template_name = STR("base"),
                                 .timeout_s = 60,
                                 .internet = true,
                                 .metadata = own,
                                 .metadata_count = 3};
    struct fork_result *results;
    struct sandbox_view view;

    env_open(&env, 0);
    OK(sandbox_create(env.all, &wanted, &arena, &view, &err));
    OK(sandbox_fork(env.all, TEAM, view.id, &request, &arena, &results, &err));
    check_metadata(results, "{\"k\":\"old\",\"kept\":\"1\"}");
    request.metadata = given;
    request.metadata_count = 2;
    OK(sandbox_fork(env.all, TEAM, view.id, &request, &arena, &results, &err));
    check_metadata(results, "{\"k\":\"new\",\"kept\":\"1\",\"name\":\"try\"}");
    request.count = 2;
    OK(sandbox_fork(env.all, TEAM, view.id, &request, &arena, &results, &err));
    check_metadata(results, "{\"k\":\"new\",\"kept\":\"1\",\"name\":\"try-1\"}");
    check_metadata(results + 1, "{\"k\":\"new\",\"kept\":\"1\",\"name\":\"try-2\"}");
    request.metadata = bad;
    request.metadata_count = 1;
    FAILS(sandbox_fork(env.all, TEAM, view.id, &request, &arena, &results, &err), ERROR_INVALID,
          "UTF-8");
}

TEST(fork_of_one)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    auto_free struct layer_info *layers = NULL;
    struct sandbox_fork request = {.count = 1, .timeout_s = 60};
    struct fork_result *results;
    char id[ID_SIZE], child[ID_SIZE];
    size_t count = 0;

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    (void)engine_fake_disk(env.engine, id, 42);
    OK(sandbox_fork(env.all, TEAM, str_of(id), &request, &arena, &results, &err));
    CHECK(results[0].ok);
    CHECK(str_copy(results[0].view.id, child, sizeof(child)));
    CHECK_INT(engine_fake_disk(env.engine, child, 0), 42);
    OK(env.engine->ops->layer_list(env.engine, &layers, &count, &err));
    CHECK_INT(count, 0);
    /* It stands on its own: the source may go. */
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
    OK(sandbox_pause(env.all, TEAM, str_of(child), &(struct sandbox_pause){.disk_only = true},
                     &err));
    OK(sandbox_kill(env.all, TEAM, str_of(child), &err));
    CHECK_INT(engine_fake_boxes(env.engine), 0);
}
