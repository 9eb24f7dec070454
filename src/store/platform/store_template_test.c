/* Templates that are built: which build a name means, and who may see it. */
#include "base/test.h"
#include "store/core/store.h"
#include "store/core/test/store_env.h"
#include "store/platform/store_sandbox.h"
#include "store/platform/store_template.h"

/* Template b1 of team t ("web"): builds one (default) and two (v2), and one that never got ready (v3). */
static const char rows[] =
    "INSERT INTO teams (id, name, created_at_us) VALUES ('t', 'acme', 1), ('u', 'other', 2),"
    " ('v', 'acme', 3);"
    "INSERT INTO templates (id, team_id, alias, layers, cpu_count, mem_mb, disk_mb, public,"
    " created_at_us, updated_at_us, kind, name) VALUES"
    " ('b1', 't', NULL, '', 1, 256, 512, 0, 1, 1, 'template', 'web'),"
    " ('b2', 't', NULL, '', 1, 256, 512, 0, 2, 2, 'template', 'young'),"
    " ('b3', 'u', NULL, '', 1, 256, 512, 1, 3, 3, 'template', 'shared');"
    "INSERT INTO builds (id, template_id, team_id, state, recipe, tags, layers, cpu_count, mem_mb,"
    " disk_mb, env, default_user, workdir, start_cmd, ready_cmd, reason, reason_step, log_count,"
    " created_at_us, started_at_us, finished_at_us) VALUES"
    " ('one', 'b1', 't', 'ready', '', '', 'base,treea', 4, 1024, 2048, '{\"A\":\"1\"}', 'bob',"
    " '/app', 'serve', 'probe', '', '', 0, 1, 1, 2),"
    " ('two', 'b1', 't', 'ready', '', '', 'base,treeb', 2, 512, 2048, '{}', '', '', '', '', '', '',"
    " 0, 3, 3, 4),"
    " ('bad', 'b1', 't', 'error', '', '', '', 2, 512, 2048, '{}', '', '', '', '', 'no', '1',"
    " 0, 5, 5, 6),"
    " ('new', 'b2', 't', 'building', '', '', '', 2, 512, 2048, '{}', '', '', '', '', '', '',"
    " 0, 5, 5, 6),"
    " ('pub', 'b3', 'u', 'ready', '', '', 'base,treec', 2, 512, 2048, '{}', '', '', '', '', '', '',"
    " 0, 5, 5, 6);"
    "INSERT INTO template_tags (template_id, tag, build_id, created_at_us) VALUES"
    " ('b1', 'default', 'one', 2), ('b1', 'v2', 'two', 4), ('b1', 'v3', 'bad', 6),"
    " ('b3', 'default', 'pub', 6)";

static struct store *open_built(struct store_env *env)
{
    struct store *store;

    store_env_make(env);
    store = store_env_open(env);
    store_env_exec(env, rows);
    return store;
}

static void find(struct store *store, const char *team, const char *name, struct arena *arena,
                 struct store_template *out)
{
    OK(store_template_find(store, str_of(team), str_of(name), arena, out, &err));
}

static void lacks(struct store *store, const char *team, const char *name)
{
    auto_arena struct arena arena = {0};
    struct store_template found;

    FAILS(store_template_find(store, str_of(team), str_of(name), &arena, &found, &err),
          ERROR_NOT_FOUND);
}

TEST(a_tag_names_a_build)
{
    auto_store_env struct store_env env = {0};
    auto_store struct store *store = open_built(&env);
    auto_arena struct arena arena = {0};
    struct store_template found;

    find(store, "t", "web", &arena, &found);
    CHECK_STR(found.id, "b1");
    CHECK_STR(found.build_id, "one");
    CHECK_STR(found.tag, "default");
    CHECK_STR(found.layers, "base,treea");
    CHECK_INT(found.cpu_count, 4);
    CHECK_INT(found.mem_mb, 1024);
    CHECK_INT(found.disk_mb, 2048);
    CHECK_STR(found.env, "{\"A\":\"1\"}");
    CHECK_STR(found.default_user, "bob");
    CHECK_STR(found.workdir, "/app");
    CHECK_STR(found.start_cmd, "serve");
    CHECK_STR(found.ready_cmd, "probe");
    CHECK(!found.is_snapshot);
    find(store, "t", "acme/WEB:v2", &arena, &found);
    CHECK_STR(found.build_id, "two");
    CHECK_STR(found.tag, "v2");
    find(store, "t", "b1:v2", &arena, &found);
    CHECK_STR(found.layers, "base,treeb");
    lacks(store, "t", "web:v3");
    lacks(store, "t", "web:v4");
}

TEST(what_is_not_ready_says_so)
{
    auto_store_env struct store_env env = {0};
    auto_store struct store *store = open_built(&env);
    auto_arena struct arena arena = {0};
    struct store_template found;
    struct error why = {0};

    CHECK_INT(store_template_find(store, STR("t"), STR("young"), &arena, &found, &why), -1);
    CHECK_INT(why.code, ERROR_NOT_FOUND);
    CHECK(strstr(why.message, "template 'young' has no ready build yet") != NULL);
    OK(store_template_get(store, STR("t"), STR("young"), &arena, &found, &err));
    CHECK_STR(found.id, "b2");
    CHECK(!found.build_id.len && !found.tag.p);
    CHECK_INT(found.mem_mb, 256);
    OK(store_template_get(store, STR("t"), STR("web:v2"), &arena, &found, &err));
    CHECK_STR(found.build_id, "two");
}

TEST(others_see_public_ones_by_their_team)
{
    auto_store_env struct store_env env = {0};
    auto_store struct store *store = open_built(&env);
    auto_arena struct arena arena = {0};
    struct store_template found, *list;
    size_t count;

    find(store, "t", "other/shared", &arena, &found);
    CHECK_STR(found.build_id, "pub");
    find(store, "t", "u/shared:default", &arena, &found);
    find(store, "t", "b3", &arena, &found);
    find(store, "u", "shared", &arena, &found);
    lacks(store, "t", "shared");
    lacks(store, "t", "acme/shared");
    lacks(store, "u", "web");
    lacks(store, "u", "acme/web");
    lacks(store, "u", "b1");
    /* Of two teams of one name each means itself. */
    lacks(store, "v", "acme/web");
    find(store, "t", "acme/web", &arena, &found);
    OK(store_template_list(store, STR("t"), &arena, &list, &count, &err));
    CHECK_INT(count, 3);
    CHECK_STR(list[0].build_id, "one");
    CHECK_INT(list[0].mem_mb, 1024);
    CHECK(!list[1].build_id.len);
    OK(store_template_list(store, STR("v"), &arena, &list, &count, &err));
    CHECK_INT(count, 1);
}

TEST(sandboxes_of_it_are_counted)
{
    auto_store_env struct store_env env = {0};
    auto_store struct store *store = open_built(&env);
    auto_arena struct arena arena = {0};
    struct store_sandbox row = {.id = STR("s1"),
                                .team_id = STR("t"),
                                .template_id = STR("b1"),
                                .layers = STR("base,treea"),
                                .life = {.state = SANDBOX_RUNNING},
                                .started_at_us = 70,
                                .setup = STR("{\"user\":\"bob\"}")};
    struct store_template found;

    find(store, "t", "web", &arena, &found);
    CHECK_INT(found.spawn_count, 0);
    OK(store_sandbox_insert(store, &row, &err));
    row.id = STR("s2");
    row.started_at_us = 80;
    OK(store_sandbox_insert(store, &row, &err));
    find(store, "t", "web", &arena, &found);
    CHECK_INT(found.spawn_count, 2);
    CHECK_INT(found.last_spawned_at_us, 80);
    OK(store_sandbox_get(store, STR("s2"), &arena, &row, &err));
    CHECK_STR(row.setup, "{\"user\":\"bob\"}");
}
