#include "store/platform/store_build.h"

#include "base/test.h"
#include "store/core/test/store_env.h"
#include "store/platform/store_event.h"
#include "store/platform/store_layer.h"

static struct store_build a_build(const char *id, const char *tags)
{
    return (struct store_build){.id = str_of(id),
                                .team_id = STR("team"),
                                .state = STORE_BUILD_WAITING,
                                .tags = str_of(tags),
                                .env = STR("{}"),
                                .cpu_count = 2,
                                .mem_mb = 512,
                                .disk_mb = 1024,
                                .created_at_us = 1000};
}

static bool is_used(struct store *store, const char *layer)
{
    bool known = false, used = false;
    struct error err = {0};

    return store_layer_state(store, str_of(layer), &known, &used, &err) == 0 && used;
}

/* From nothing to ready, with a layer of its own. */
static void finish(struct store *store, struct store_build *build, const char *layer)
{
    bool freed;

    OK(store_layer_add(store, str_of(layer), STR("team"), 1, &err));
    OK(store_build_start(store, build->id, STR("{}"), 2000, &err));
    build->layers = str_of(layer);
    build->finished_at_us = 3000;
    OK(store_build_ready(store, build, &freed, &err));
}

/* The platform's base has no row. */
TEST(layers_are_summed_up)
{
    auto_store struct store *store = store_env_new();
    int64_t bytes = -1;
    struct store_shared shared;

    OK(store_layers_bytes(store, STR(""), &bytes, &err));
    CHECK_INT(bytes, 0);
    OK(store_layer_add(store, STR("tree1"), STR("team"), 1, &err));
    OK(store_layer_add(store, STR("tree2"), STR("team"), 1, &err));
    OK(store_layer_size(store, STR("tree1"), STR(""), 1000, &bytes, &err));
    OK(store_layer_size(store, STR("tree2"), STR(""), 20, &bytes, &err));
    OK(store_layers_bytes(store, STR("base"), &bytes, &err));
    CHECK_INT(bytes, 0);
    OK(store_layers_shared(store, STR("base,tree1,tree2"), &shared, &err));
    CHECK_INT(shared.bytes, 1020);
    CHECK_INT(shared.shared, 0);
    OK(store_layers_bytes(store, STR("base,tree1,tree2"), &bytes, &err));
    CHECK_INT(bytes, 1020);
}

TEST(builds_and_their_tags)
{
    auto_store struct store *store = store_env_new();
    auto_arena struct arena arena = {0};
    struct store_build first = a_build("b1", "default,v1"), second = a_build("b2", "default"), got;
    struct store_template template;
    struct error refusal = {0};
    struct store_tag *tags;
    struct str build_id;
    size_t count = 0;
    bool freed = false;

    OK(store_build_add(store, &first, STR("app"), &arena, &template, &err));
    OK(store_build_add(store, &second, template.id, &arena, &template, &err));
    CHECK(str_eq(first.template_id, second.template_id));
    finish(store, &first, "tree1");
    OK(store_build_get(store, STR("team"), STR("b1"), &arena, &got, &err));
    CHECK_INT(got.state, STORE_BUILD_READY);
    CHECK_INT(store_build_get(store, STR("other"), STR("b1"), &arena, &got, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_NOT_FOUND);
    finish(store, &second, "tree2");
    /* v1 still names the first. */
    CHECK(is_used(store, "tree1") && is_used(store, "tree2"));
    OK(store_tag_assign(
        store, &(struct store_tag_move){first.template_id, STR("default"), STR("v1,v2"), 5}, &arena,
        &build_id, &freed, &err));
    CHECK_STR(build_id, "b2");
    CHECK(freed && !is_used(store, "tree1"));
    OK(store_tag_list(store, first.template_id, &arena, &tags, &count, &err));
    CHECK_INT(count, 3);
    OK(store_tag_delete(store, first.template_id, STR("v1,v2,none"), &freed, &err));
    CHECK(!freed && is_used(store, "tree2"));
    CHECK_INT(store_tag_delete(store, first.template_id, STR("v1"), &freed, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_NOT_FOUND);
    OK(store_template_delete(store, STR("team"), first.template_id, &freed, &err));
    CHECK(freed && !is_used(store, "tree2"));
    CHECK_INT(store_build_get(store, STR("team"), STR("b2"), &arena, &got, &refusal), -1);
}

TEST(a_build_ends_once)
{
    auto_store struct store *store = store_env_new();
    auto_arena struct arena arena = {0};
    struct store_build build = a_build("b1", "default"), got;
    struct store_template template;
    struct error refusal = {0};
    size_t count = 0;
    bool freed;

    OK(store_build_add(store, &build, STR("app"), &arena, &template, &err));
    OK(store_build_start(store, STR("b1"), STR("{}"), 1, &err));
    CHECK_INT(store_build_start(store, STR("b1"), STR("{}"), 1, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_CONFLICT);
    OK(store_build_recover(store, STR("restarted"), 0, 7, &count, &err));
    CHECK_INT(count, 1);
    CHECK_INT(store_build_ready(store, &build, &freed, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_CONFLICT);
    OK(store_build_fail(store, STR("b1"), STR("later"), STR("2"), 9, &err));
    OK(store_build_get(store, STR("team"), STR("b1"), &arena, &got, &err));
    CHECK_STR(got.reason, "restarted");
    OK(store_build_prune(store, 8, 10, &count, &err));
    CHECK_INT(count, 1);
}

TEST(logs_of_builds_come_in_order)
{
    auto_store struct store *store = store_env_new();
    auto_arena struct arena arena = {0};
    struct store_build build = a_build("b1", "default");
    struct store_build_log lines[3] = {
        {.at_us = 10, .level = STORE_LEVEL_INFO, .step = STR("1"), .message = STR("a")},
        {.at_us = 20, .level = STORE_LEVEL_ERROR, .step = STR("2"), .message = STR("b")},
        {.at_us = 30, .level = STORE_LEVEL_DEBUG, .step = STR("2"), .message = STR("c")}};
    struct store_template template;
    struct store_build_log *got;
    size_t count = 0;

    OK(store_build_add(store, &build, STR("app"), &arena, &template, &err));
    OK(store_build_log_add(store, STR("b1"), lines, 3, &err));
    OK(store_build_log_add(store, STR("b1"), lines, 1, &err));
    OK(store_build_log_add(store, STR("gone"), lines, 1, &err));
    OK(store_build_log_page(
        store, &(struct store_build_log_query){.build_id = STR("b1"), .offset = 1, .limit = 2},
        &arena, &got, &count, &err));
    CHECK_INT(count, 2);
    CHECK_STR(got[0].message, "b");
    CHECK_INT(got[1].seq, 2);
    OK(store_build_log_page(
        store,
        &(struct store_build_log_query){
            .build_id = STR("b1"), .step = STR("2"), .backward = true, .limit = 9},
        &arena, &got, &count, &err));
    CHECK_INT(count, 2);
    CHECK_STR(got[0].message, "c");
    OK(store_build_log_page(
        store,
        &(struct store_build_log_query){
            .build_id = STR("b1"), .level = STORE_LEVEL_INFO, .from_us = 15, .limit = 9},
        &arena, &got, &count, &err));
    CHECK_INT(count, 1);
}

TEST(what_steps_gave_is_found_and_grows_old)
{
    auto_store struct store *store = store_env_new();
    auto_arena struct arena arena = {0};
    struct store_cached row = {.key = STR("k1"),
                               .team_id = STR("team"),
                               .layers = STR("base,snap1"),
                               .note = STR("{}"),
                               .bytes = 100,
                               .used_at_us = 10};
    struct store_cached got;
    struct str *keys;
    size_t count = 0;
    bool found, freed;

    OK(store_layer_add(store, STR("snap1"), STR("team"), 1, &err));
    OK(store_layer_add(store, STR("snap2"), STR("team"), 1, &err));
    OK(store_cache_put(store, &row, &err));
    CHECK(is_used(store, "snap1"));
    row.layers = STR("base,snap2");
    OK(store_cache_put(store, &row, &err));
    CHECK(!is_used(store, "snap1") && is_used(store, "snap2"));
    row.key = STR("k2");
    OK(store_cache_put(store, &row, &err));
    OK(store_cache_find(store, STR("k1"), 50, &arena, &got, &found, &err));
    CHECK(found && str_is(got.layers, "base,snap2"));
    OK(store_cache_find(store, STR("none"), 50, &arena, &got, &found, &err));
    CHECK(!found);
    /* k2 was not used for long; both are more than 150 bytes. */
    OK(store_cache_old(store, 20, 1000, 9, &arena, &keys, &count, &err));
    CHECK(count == 1 && str_is(keys[0], "k2"));
    OK(store_cache_old(store, 0, 150, 9, &arena, &keys, &count, &err));
    CHECK(count == 1 && str_is(keys[0], "k2"));
    OK(store_cache_delete(store, STR("k2"), &freed, &err));
    OK(store_cache_delete(store, STR("k1"), &freed, &err));
    CHECK(freed && !is_used(store, "snap2"));
}

TEST(uploads_are_known_by_team)
{
    auto_store struct store *store = store_env_new();
    auto_arena struct arena arena = {0};
    struct store_build_file file = {.team_id = STR("team"),
                                    .hash = STR("h"),
                                    .body = STR("body"),
                                    .bytes = 3,
                                    .used_at_us = 10};
    struct store_build_file got;
    struct error refusal = {0};
    struct str *bodies;
    size_t count = 0;
    bool has = false;

    OK(store_build_file_put(store, &file, &err));
    OK(store_build_file_find(store, STR("team"), STR("h"), 20, &arena, &got, &err));
    CHECK_STR(got.body, "body");
    CHECK_INT(store_build_file_find(store, STR("other"), STR("h"), 20, &arena, &got, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_NOT_FOUND);
    OK(store_build_file_prune(store, 15, 9, &arena, &bodies, &count, &err));
    CHECK_INT(count, 0);
    OK(store_build_file_prune(store, 25, 9, &arena, &bodies, &count, &err));
    CHECK(count == 1 && str_is(bodies[0], "body"));
    OK(store_build_file_has_body(store, STR("body"), &has, &err));
    CHECK(!has);
}
