/* The rules: what a request may say, what comes back, who sees what. */
#include "domain/sandbox/test/sandbox_test_env.h"

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"

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

static int create_json(struct env *env, const char *metadata, const char *env_vars,
                       struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_new request = request_of();
    auto_json json_t *meta =
        metadata ? json_loads(metadata, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    auto_json json_t *vars =
        env_vars ? json_loads(env_vars, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    struct sandbox_view view;

    CHECK(!metadata == !meta && !env_vars == !vars);
    request.metadata = meta;
    request.env_vars = vars;
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
    request.template_name = STR_NONE;
    FAILS(sandbox_create(env.all, &request, &arena, &view, &err), ERROR_NOT_FOUND);
    request.template_name = STR("base:v2");
    FAILS(sandbox_create(env.all, &request, &arena, &view, &err), ERROR_NOT_FOUND);

    FAILS(create_json(&env, "[]", NULL, &err), ERROR_INVALID);
    FAILS(create_json(&env, "{\"a\":1}", NULL, &err), ERROR_INVALID);
    FAILS(create_json(&env, "{\"a\":null}", NULL, &err), ERROR_INVALID);
    FAILS(create_json(&env, NULL, "{\"a\":[\"x\"]}", &err), ERROR_INVALID);
    FAILS(create_json(&env, NULL, "{\"a=b\":\"x\"}", &err), ERROR_INVALID);
    FAILS(create_json(&env, NULL, "{\"\":\"x\"}", &err), ERROR_INVALID);
    FAILS(create_json(&env, NULL, "{\"a\":\"x\\u0000y\"}", &err), ERROR_INVALID);
    memset(huge, 'x', 69999);
    memcpy(huge, "{\"a\":\"", 6);
    memcpy(huge + 69997, "\"}", 3);
    FAILS(create_json(&env, huge, NULL, &err), ERROR_INVALID);
    FAILS(create_json(&env, NULL, huge, &err), ERROR_INVALID);
    CHECK_INT(engine_fake_boxes(env.engine), 0);
    CHECK_INT(engine_fake_calls(env.engine), 2); /* the lists at open */
    OK(create_json(&env, "{\"a\":\"\u00e9\"}", "{\"A\":\"b=c\"}", &err));
}

TEST(options_reach_box_and_envd)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *vars = json_pack("{s:s}", "NAME", "some \"value\"");
    struct sandbox_new request = request_of();
    struct sandbox_view view;
    struct box_spec spec;
    char sent[1024], id[ID_SIZE];

    env_open(&env, 0);
    request.env_vars = vars;
    request.secure = false;
    request.internet = false;
    request.internet_given = true;
    OK(sandbox_create(env.all, &request, &arena, &view, &err));
    CHECK(view.access_token.p == NULL);
    CHECK(!view.internet && view.internet_given);
    CHECK(str_copy(view.id, id, sizeof(id)));
    CHECK(engine_fake_spec(env.engine, id, &spec) && !spec.internet);
    engine_fake_last_request(env.engine, sent, sizeof(sent));
    CHECK(strstr(sent, "{\"NAME\":\"some \\\"value\\\"\"}") && !strstr(sent, "accessToken"));
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

TEST(list_pages_and_filters)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *red = json_pack("{s:s}", "color", "red");
    struct sandbox_new request = request_of();
    struct sandbox_filter filter = {.team_id = TEAM, .running = true, .limit = 2};
    struct sandbox_page page;
    struct sandbox_view made[5];

    env_open(&env, 0);
    for (size_t i = 0; i < 5; i++) {
        request.metadata = i % 2 ? red : NULL;
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
    filter.metadata = red;
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
