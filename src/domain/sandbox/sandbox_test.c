/* The rules: what a request may say, what comes back, who sees what. */
#include "domain/sandbox/test/sandbox_test_env.h"

#include "base/cleanup.h"
#include "domain/network/network_policy.h"
#include "protocol/json/json_shape.h"
#include "store/platform/store_sandbox.h"

static struct sandbox_new request_of(void)
{
    return (struct sandbox_new){.team_id = TEAM,
                                .template_name = STR("base"),
                                .timeout_s = 60,
                                .secure = true,
                                .internet = true};
}

TEST(create_get_kill)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_new request = request_of();
    struct sandbox_view view, again;
    struct box_spec spec;
    struct route route;
    char sent[1024], id[ID_SIZE];

    env_open(&env, 0);
    OK(sandbox_create(env.all, &request, &arena, &view, &err));
    CHECK(id_valid(view.id));
    CHECK(str_copy(view.id, id, sizeof(id)));
    CHECK_STR(view.alias, "base");
    CHECK_STR(view.template_id, "tttttttttttttttttttt");
    CHECK_STR(view.domain, "example.test");
    CHECK_STR(view.metadata, "{}");
    CHECK_INT(view.access_token.len, 67);
    CHECK_INT(view.end_at_us - view.started_at_us, 60 * 1000000);
    CHECK_INT(view.cpu_count, 2);
    CHECK_INT(view.disk_mb, 1024);

    CHECK(engine_fake_spec(env.engine, id, &spec));
    CHECK_INT(spec.layer_count, 2);
    CHECK_STR(str_of(spec.layers[0]), "low");
    CHECK_STR(str_of(spec.layers[1]), "high");
    CHECK_INT(spec.limits.mem_bytes, 512 << 20);
    CHECK(routes_find(env.routes, view.id, &route));
    CHECK_STR(view.access_token, route.access_token);
    engine_fake_last_request(env.engine, sent, sizeof(sent));
    CHECK(strstr(sent, "POST /init ") == sent);
    CHECK(strstr(sent, route.access_token) && strstr(sent, "\"defaultUser\":\"user\""));

    OK(sandbox_get(env.all, TEAM, view.id, &arena, &again, &err));
    CHECK(str_eq(again.access_token, view.access_token));
    CHECK_INT(again.started_at_us, view.started_at_us);
    FAILS(sandbox_get(env.all, OTHER, view.id, &arena, &again, &err), ERROR_NOT_FOUND);
    FAILS(sandbox_get(env.all, TEAM, STR("../x"), &arena, &again, &err), ERROR_NOT_FOUND);
    FAILS(sandbox_get(env.all, TEAM, STR_NONE, &arena, &again, &err), ERROR_NOT_FOUND);
    CHECK_INT(sandboxes_running(env.all), 1);

    FAILS(sandbox_kill(env.all, OTHER, view.id, &err), ERROR_NOT_FOUND);
    OK(sandbox_kill(env.all, TEAM, view.id, &err));
    FAILS(sandbox_kill(env.all, TEAM, view.id, &err), ERROR_NOT_FOUND);
    FAILS(sandbox_get(env.all, TEAM, view.id, &arena, &again, &err), ERROR_NOT_FOUND);
    CHECK_INT(engine_fake_boxes(env.engine), 0);
    CHECK_INT(env_live_rows(&env), 0);
    CHECK(!env_has_route(&env, id));
    CHECK_INT(sandboxes_running(env.all), 0);
}

TEST(timeouts_are_checked)
{
    auto_env struct env env;
    char id[ID_SIZE];
    struct error refusal = {0};

    env_open(&env, 0);
    FAILS(env_create_timeout(&env, 0, id, &err), ERROR_INVALID);
    CHECK_INT(env_create_timeout(&env, -5, id, &refusal), -1);
    CHECK_STR(str_of(refusal.message), "Timeout must be greater than 0");
    CHECK_INT(env_create_timeout(&env, 86401, id, &refusal), -1);
    CHECK_STR(str_of(refusal.message), "Timeout cannot be greater than 24 hours");
    FAILS(env_create_timeout(&env, INT64_MAX, id, &err), ERROR_INVALID);
    OK(env_create_timeout(&env, 86400, id, &err));
    CHECK_INT(engine_fake_boxes(env.engine), 1);
}

static int create_with(struct env *env, const struct pair *metadata, const struct pair *variable,
                       struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_new request = request_of();
    struct sandbox_view view;

    request.metadata = metadata;
    request.metadata_count = metadata ? 1 : 0;
    request.env = variable;
    request.env_count = variable ? 1 : 0;
    return sandbox_create(env->all, &request, &arena, &view, err);
}

TEST(bad_requests)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    auto_free char *huge = malloc(70000);
    struct sandbox_new request = request_of();
    struct sandbox_view view;
    struct error refusal = {0};

    env_open(&env, 0);
    request.template_name = STR("nope");
    CHECK_INT(sandbox_create(env.all, &request, &arena, &view, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_NOT_FOUND);
    CHECK_STR(str_of(refusal.message), "template 'nope' not found");
    request.template_name = STR("code-interpreter-v1");
    CHECK_INT(sandbox_create(env.all, &request, &arena, &view, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_NOT_FOUND);
    CHECK(strstr(refusal.message, "quicksand template build code-interpreter-v1"));
    request.template_name = STR_NONE;
    FAILS(sandbox_create(env.all, &request, &arena, &view, &err), ERROR_INVALID);
    request.template_name = STR("base:v2");
    FAILS(sandbox_create(env.all, &request, &arena, &view, &err), ERROR_NOT_FOUND);

    FAILS(create_with(&env, NULL, &(struct pair){STR("a=b"), STR("x")}, &err), ERROR_INVALID);
    FAILS(create_with(&env, NULL, &(struct pair){STR(""), STR("x")}, &err), ERROR_INVALID);
    FAILS(create_with(&env, NULL, &(struct pair){STR("a"), str_n("x\0y", 3)}, &err), ERROR_INVALID);
    FAILS(create_with(&env, &(struct pair){STR("a"), STR("\xff")}, NULL, &err), ERROR_INVALID);
    memset(huge, 'x', 70000);
    FAILS(create_with(&env, &(struct pair){STR("a"), str_n(huge, 66000)}, NULL, &err),
          ERROR_INVALID);
    FAILS(create_with(&env, NULL, &(struct pair){STR("a"), str_n(huge, 66000)}, &err),
          ERROR_INVALID);
    /* As JSON it would be longer than it is. */
    memset(huge, 1, 70000);
    FAILS(create_with(&env, &(struct pair){STR("a"), str_n(huge, 11000)}, NULL, &err),
          ERROR_INVALID);
    CHECK_INT(engine_fake_boxes(env.engine), 0);
    CHECK_INT(engine_fake_calls(env.engine), 2); /* the lists at open */
    OK(create_with(&env, &(struct pair){STR("a"), str_n(huge, 10000)},
                   &(struct pair){STR("A"), STR("b=c\u00e9")}, &err));
}

TEST(options_reach_box_and_envd)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    const struct pair variable = {STR("NAME"), STR("some \"value\"")};
    struct sandbox_new request = request_of();
    struct sandbox_view view;
    struct box_spec spec;
    char sent[1024], id[ID_SIZE];

    env_open(&env, 0);
    request.env = &variable;
    request.env_count = 1;
    request.secure = false;
    request.internet = false;
    request.internet_given = true;
    OK(sandbox_create(env.all, &request, &arena, &view, &err));
    CHECK(view.access_token.p == NULL);
    CHECK(!view.internet && view.internet_given);
    CHECK(str_copy(view.id, id, sizeof(id)));
    CHECK(engine_fake_spec(env.engine, id, &spec) && spec.network.mode == NETWORK_NONE);
    engine_fake_last_request(env.engine, sent, sizeof(sent));
    CHECK(strstr(sent, "{\"NAME\":\"some \\\"value\\\"\"}") && !strstr(sent, "accessToken"));
}

TEST(the_network_is_set_by_itself)
{
    auto_env struct env env;
    const struct network_policy none = {.text = STR("")}, open = {.internet = true,
                                                                  .text = STR(""),
                                                                  .box.mode = NETWORK_OPEN};
    struct box_spec before, after;
    char id[ID_SIZE];
    int calls;

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    CHECK(engine_fake_spec(env.engine, id, &before) && before.network.mode == NETWORK_OPEN);
    calls = engine_fake_calls(env.engine);
    OK(sandbox_set_network(env.all, TEAM, str_of(id), &none, &err));
    CHECK_INT(engine_fake_calls(env.engine), calls + 1);
    CHECK(engine_fake_spec(env.engine, id, &after) && after.network.mode == NETWORK_NONE);
    CHECK(box_limits_equal(&before.limits, &after.limits));

    /* What the engine refuses is not in the row either. */
    engine_fake_fail_at(env.engine, 1);
    CHECK_INT(sandbox_set_network(env.all, TEAM, str_of(id), &open, &(struct error){0}), -1);
    CHECK(engine_fake_spec(env.engine, id, &after) && after.network.mode == NETWORK_NONE);
    {
        auto_arena struct arena arena = {0};
        struct store_sandbox row;

        OK(store_sandbox_get(env.store, str_of(id), &arena, &row, &err));
        CHECK(!row.internet);
    }
}

/* Lists are in the row and in the box, of forks too, and what clears them does. */
TEST(lists_of_what_it_may_reach_are_kept)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *lists = json_pack("{s:[s],s:[s]}", "allowOut", "1.2.3.4", "denyOut",
                                        NETWORK_EVERYTHING),
                     *names = json_pack("{s:[s]}", "allowOut", "example.com");
    struct sandbox_new request = request_of();
    struct network_policy policy;
    struct sandbox_view view;
    struct box_spec spec;
    char id[ID_SIZE];

    env_open(&env, 0);
    OK(network_policy_read(lists, true, &arena, &policy, &err));
    request.network = &policy;
    OK(sandbox_create(env.all, &request, &arena, &view, &err));
    CHECK(str_copy(view.id, id, sizeof(id)));
    CHECK(!view.internet && str_eq(view.network, policy.text));
    CHECK(engine_fake_spec(env.engine, id, &spec) && spec.network.mode == NETWORK_NONE);
    CHECK(spec.network.allow_count == 1 && spec.network.ranges[0].address == 0x01020304);
    OK(network_policy_read(NULL, true, &arena, &policy, &err));
    OK(sandbox_set_network(env.all, TEAM, str_of(id), &policy, &err));
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &view, &err));
    CHECK(view.internet && !view.network.len);
    CHECK(engine_fake_spec(env.engine, id, &spec) && spec.network.mode == NETWORK_OPEN);
    CHECK_INT(spec.network.allow_count, 0);
    OK(network_policy_read(names, false, &arena, &policy, &err));
    FAILS(sandbox_create(env.all, &request, &arena, &view, &err), ERROR_UNSUPPORTED, "domains");
}

TEST(limit_of_running_sandboxes)
{
    auto_env struct env env;
    char a[ID_SIZE], b[ID_SIZE], c[ID_SIZE];

    env_open(&env, 0);
    env.config.max_running = 2;
    env_reopen(&env);
    OK(env_create(&env, a, &err));
    OK(env_create(&env, b, &err));
    FAILS(env_create(&env, c, &err), ERROR_QUOTA);
    OK(sandbox_kill(env.all, TEAM, str_of(a), &err));
    OK(env_create(&env, c, &err));
    /* A lower limit does not lose what runs. */
    env.config.max_running = 1;
    env_reopen(&env);
    CHECK_INT(sandboxes_running(env.all), 2);
    FAILS(env_create(&env, a, &err), ERROR_QUOTA);
}

TEST(timeout_and_extend)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view, before;
    char id[ID_SIZE];
    int64_t now;

    env_open(&env, 0);
    OK(env_create_timeout(&env, 100, id, &err));
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &before, &err));
    OK(sandbox_extend(env.all, TEAM, str_of(id), 10, &arena, &view, &err));
    CHECK_INT(view.end_at_us, before.end_at_us);
    now = clock_wall_us();
    OK(sandbox_extend(env.all, TEAM, str_of(id), 200, &arena, &view, &err));
    CHECK(view.end_at_us >= now + 200000000 && view.end_at_us < now + 210000000);
    now = clock_wall_us();
    OK(sandbox_set_timeout(env.all, TEAM, str_of(id), 50, &err));
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &view, &err));
    CHECK(view.end_at_us >= now + 50000000 && view.end_at_us < now + 60000000);
    FAILS(sandbox_set_timeout(env.all, TEAM, str_of(id), -1, &err), ERROR_INVALID);
    FAILS(sandbox_set_timeout(env.all, TEAM, str_of(id), 86401, &err), ERROR_INVALID);
    FAILS(sandbox_extend(env.all, TEAM, str_of(id), 86401, &arena, &view, &err), ERROR_INVALID);
    FAILS(sandbox_set_timeout(env.all, OTHER, str_of(id), 5, &err), ERROR_NOT_FOUND);
    FAILS(sandbox_extend(env.all, OTHER, str_of(id), 5, &arena, &view, &err), ERROR_NOT_FOUND);
    OK(sandbox_set_timeout(env.all, TEAM, str_of(id), 0, &err));
    FAILS(sandbox_get(env.all, TEAM, str_of(id), &arena, &view, &err), ERROR_NOT_FOUND);
    FAILS(sandbox_set_timeout(env.all, TEAM, str_of(id), 5, &err), ERROR_NOT_FOUND);
    CHECK_INT(engine_fake_boxes(env.engine), 0);
}

static size_t list_ids(struct env *env, struct sandbox_filter *filter, struct arena *arena,
                       struct sandbox_page *page)
{
    OK(sandbox_list(env->all, filter, arena, page, &err));
    return page->count;
}

static void check_found(struct env *env, struct pair first, struct pair second, size_t expected)
{
    auto_arena struct arena arena = {0};
    const struct pair pairs[] = {first, second};
    struct sandbox_filter filter = {.team_id = TEAM,
                                    .running = true,
                                    .limit = 100,
                                    .metadata = pairs,
                                    .metadata_count = second.name.p ? 2 : 1};
    struct sandbox_page page;

    OK(sandbox_list(env->all, &filter, &arena, &page, &err));
    CHECK_INT(page.count, expected);
    CHECK_INT(page.total_running, expected);
}

/* Most of them have no tag, or share one: they are found all the same. */
TEST(labels_of_the_runtime_are_found)
{
    const struct pair none = {0};
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_new request = request_of();

    env_open(&env, 0);
    OK(sandbox_create(env.all, &request, &arena, &(struct sandbox_view){0}, &err));
    for (int i = 0; i < 300; i++) { /* more than are compared at a time */
        struct str key = str_of(arena_printf(&arena, "key-%d", i));
        struct str id = str_of(arena_printf(&arena, "sbx-%d", i));
        const struct pair labels[] = {
            {STR("exo.sandbox.key"), key},
            {STR("exo.sandbox.spec-hash"), STR("spec")},
            {STR("quicksand.key"), key},
            {STR("quicksand.spec-hash"), STR("spec")},
            {STR("quicksand.id"), id},
            {STR("quicksand.team"), TEAM},
            {STR("quicksand.instance"), STR("me")},
        };

        if (i % 100 == 0) { /* most have a key only */
            request.metadata = labels;
            request.metadata_count = 7;
        } else {
            request.metadata = &labels[2];
            request.metadata_count = 1;
        }
        OK(sandbox_create(env.all, &request, &arena, &(struct sandbox_view){0}, &err));
    }
    check_found(&env, (struct pair){STR("quicksand.instance"), STR("me")}, none, 3);
    check_found(&env, (struct pair){STR("quicksand.instance"), STR("you")}, none, 0);
    check_found(&env, (struct pair){STR("quicksand.id"), STR("sbx-100")}, none, 1);
    check_found(&env, (struct pair){STR("quicksand.key"), STR("key-7")}, none, 1);
    check_found(&env, (struct pair){STR("exo.sandbox.key"), STR("key-7")}, none, 0);
    check_found(&env, (struct pair){STR("exo.sandbox.key"), STR("key-200")},
                (struct pair){STR("exo.sandbox.spec-hash"), STR("spec")}, 1);
    check_found(&env, (struct pair){STR("exo.sandbox.key"), STR("key-200")},
                (struct pair){STR("exo.sandbox.spec-hash"), STR("other")}, 0);
}

TEST(list_pages_and_filters)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    const struct pair red = {STR("color"), STR("red")};
    struct sandbox_new request = request_of();
    struct sandbox_filter filter = {.team_id = TEAM, .running = true, .limit = 2};
    struct sandbox_page page;
    struct sandbox_view made[5];

    env_open(&env, 0);
    for (size_t i = 0; i < 5; i++) {
        request.metadata = &red;
        request.metadata_count = i % 2;
        OK(sandbox_create(env.all, &request, &arena, &made[i], &err));
    }
    request.team_id = OTHER;
    OK(sandbox_create(env.all, &request, &arena, &(struct sandbox_view){0}, &err));

    /* Newest first, two at a time. */
    CHECK_INT(list_ids(&env, &filter, &arena, &page), 2);
    CHECK_INT(page.total_running, 5);
    CHECK(str_eq(page.items[0].id, made[4].id) && str_eq(page.items[1].id, made[3].id));
    filter.cursor = page.next_cursor;
    CHECK_INT(list_ids(&env, &filter, &arena, &page), 2);
    CHECK(str_eq(page.items[0].id, made[2].id) && page.next_cursor.p);
    filter.cursor = page.next_cursor;
    CHECK_INT(list_ids(&env, &filter, &arena, &page), 1);
    CHECK(str_eq(page.items[0].id, made[0].id) && !page.next_cursor.p);

    /* A page that is just full has no next. */
    filter = (struct sandbox_filter){.team_id = TEAM, .running = true, .limit = 5};
    CHECK_INT(list_ids(&env, &filter, &arena, &page), 5);
    CHECK(!page.next_cursor.p);
    filter.ascending = true;
    CHECK_INT(list_ids(&env, &filter, &arena, &page), 5);
    CHECK(str_eq(page.items[0].id, made[0].id));
    filter.started_after_us = made[3].started_at_us; /* inclusive */
    CHECK_INT(list_ids(&env, &filter, &arena, &page), 2);

    filter = (struct sandbox_filter){.team_id = TEAM, .running = true, .limit = 1};
    filter.metadata = &red;
    filter.metadata_count = 1;
    CHECK_INT(list_ids(&env, &filter, &arena, &page), 1);
    CHECK(str_eq(page.items[0].id, made[3].id) && page.next_cursor.p);
    CHECK_STR(page.items[0].metadata, "{\"color\":\"red\"}");
    CHECK_INT(page.total_running, 2); /* of those that match */
    filter.cursor = page.next_cursor;
    CHECK_INT(list_ids(&env, &filter, &arena, &page), 1);
    CHECK(str_eq(page.items[0].id, made[1].id) && !page.next_cursor.p);

    filter = (struct sandbox_filter){.team_id = TEAM, .running = true, .limit = 100};
    filter.template_name = STR("base");
    CHECK_INT(list_ids(&env, &filter, &arena, &page), 5);
    CHECK_INT(page.total_running, 5);
    filter.started_after_us = made[3].started_at_us;
    CHECK_INT(list_ids(&env, &filter, &arena, &page), 2);
    CHECK_INT(page.total_running, 2);
    filter.started_after_us = 0;
    filter.template_name = STR("unknown");
    CHECK_INT(list_ids(&env, &filter, &arena, &page), 0);
    CHECK_INT(page.total_running, 0);
    filter.template_name = STR_NONE;
    filter.running = false;
    filter.paused = true;
    CHECK_INT(list_ids(&env, &filter, &arena, &page), 0);

    filter.running = true;
    OK(sandbox_kill(env.all, TEAM, made[2].id, &err));
    CHECK_INT(list_ids(&env, &filter, &arena, &page), 4);
    filter.limit = 0;
    FAILS(sandbox_list(env.all, &filter, &arena, &page, &err), ERROR_INVALID);
    filter.limit = 101;
    FAILS(sandbox_list(env.all, &filter, &arena, &page, &err), ERROR_INVALID);
}

TEST(bad_cursors)
{
    static const char *const bad[] = {"",
                                      "!!!",
                                      "AAAA",
                                      "MTIz",
                                      "MTIzX19hYmM",
                                      "X19pYWFhYWFh",
                                      "MTIzX18uLi8uLi8uLi8uLi8uLi8uLi9h"};
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_filter filter = {.team_id = TEAM, .running = true, .limit = 2};
    struct sandbox_page page;

    env_open(&env, 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        filter.cursor = str_of(bad[i]);
        FAILS(sandbox_list(env.all, &filter, &arena, &page, &err), ERROR_INVALID);
    }
}
