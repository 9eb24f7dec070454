#include "base/id.h"
#include "base/test.h"
#include "store/core/store.h"
#include "store/core/store_name.h"
#include "store/core/test/store_env.h"
#include "store/platform/store_layer.h"
#include "store/platform/store_sandbox.h"
#include "store/platform/store_snapshot.h"
#include "store/platform/store_team.h"
#include "store/platform/store_template.h"

static struct store *open_memory(void)
{
    struct store *store = NULL;

    store = store_env_new();
    OK(store_team_insert(store, &(struct store_team){.id = STR("t"), .name = STR("acme")}, &err));
    OK(store_team_insert(store, &(struct store_team){.id = STR("u"), .name = STR("No Name")},
                         &err));
    return store;
}

static size_t unused(struct store *store)
{
    auto_arena struct arena arena = {0};
    struct str *names;
    size_t count;

    OK(store_layer_unused(store, 10, &arena, &names, &count, &err));
    return count;
}

static struct store_snapshot snapshot_of(const char *name, const char *tag, const char *layers)
{
    return (struct store_snapshot){.tag = str_of(tag),
                                   .team_id = STR("t"),
                                   .name = str_of(name),
                                   .source_id = STR("s"),
                                   .layers = str_of(layers),
                                   .cpu_count = 2,
                                   .mem_mb = 512,
                                   .disk_mb = 1024,
                                   .created_at_us = 5};
}

TEST(names)
{
    static const char *const bad[] = {"",   ":",   "a:",    ":a",    "a/",
                                      "/a", "a b", "a:b:c", "a/b/c", "é"};
    auto_arena struct arena arena = {0};
    struct store_name name;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(!store_name_parse(str_of(bad[i]), &arena, &name));
    CHECK(!store_name_parse(STR_NONE, &arena, &name));
    CHECK(store_name_parse(STR("My-Team/My_Name:V1.2"), &arena, &name));
    CHECK_STR(name.team, "my-team");
    CHECK_STR(name.name, "my_name");
    CHECK_STR(name.tag, "v1.2");
    CHECK(store_name_parse(STR("x"), &arena, &name));
    CHECK(!name.team.p && !name.tag_given);
    CHECK_STR(name.tag, "default");
}

TEST(slugs)
{
    auto_store struct store *store = open_memory();
    auto_arena struct arena arena = {0};
    struct str slug;

    OK(store_team_slug(store, STR("t"), &arena, &slug, &err));
    CHECK_STR(slug, "acme");
    OK(store_team_slug(store, STR("u"), &arena, &slug, &err));
    CHECK_STR(slug, "u");
    FAILS(store_team_slug(store, STR("nobody"), &arena, &slug, &err), ERROR_NOT_FOUND);
}

TEST(uses_are_counted)
{
    auto_store struct store *store = open_memory();
    auto_arena struct arena arena = {0};
    struct store_snapshot first = snapshot_of("mine", "default", "base,one");
    struct store_snapshot second = snapshot_of("", "default", "base,one,two");
    struct store_sandbox row = {.id = STR("sb"),
                                .team_id = STR("t"),
                                .template_id = STR("x"),
                                .layers = STR("base,one"),
                                .life = {.state = SANDBOX_RUNNING}};
    struct store_template found;
    bool freed = true, known, used;

    OK(store_layer_add(store, STR("one"), STR("team"), 1, &err));
    OK(store_layer_add(store, STR("two"), STR("team"), 2, &err));
    CHECK_INT(unused(store), 2);
    OK(store_snapshot_put(store, &first, &arena, &freed, &err));
    CHECK(!freed && id_valid(first.template_id));
    OK(store_snapshot_put(store, &second, &arena, &freed, &err));
    CHECK_INT(unused(store), 0);
    OK(store_sandbox_insert(store, &row, &err));
    OK(store_template_find(store, STR("t"), STR("acme/mine:default"), &arena, &found, &err));
    CHECK_STR(found.layers, "base,one");
    CHECK(found.is_snapshot);
    FAILS(store_template_find(store, STR("u"), STR("mine"), &arena, &found, &err), ERROR_NOT_FOUND);
    OK(store_template_find(store, STR("t"), second.template_id, &arena, &found, &err));
    CHECK_STR(found.layers, "base,one,two");

    /* Replaced by one that needs less. */
    first.layers = STR("base");
    OK(store_snapshot_put(store, &first, &arena, &freed, &err));
    CHECK(freed);
    CHECK_INT(unused(store), 0);
    OK(store_snapshot_delete(store, second.template_id, STR_NONE, &freed, &err));
    CHECK(freed);
    CHECK_INT(unused(store), 1);
    FAILS(store_template_find(store, STR("t"), second.template_id, &arena, &found, &err),
          ERROR_NOT_FOUND);
    FAILS(store_snapshot_delete(store, second.template_id, STR_NONE, &freed, &err),
          ERROR_NOT_FOUND);
    OK(store_layer_forget(store, STR("two"), &err));
    OK(store_layer_state(store, STR("one"), &known, &used, &err));
    CHECK(known && used);
    FAILS(store_layer_forget(store, STR("one"), &err), ERROR_INTERNAL); /* it is used */
    OK(store_sandbox_ended(store, STR("sb"), STR("kill"), NULL, 9, &freed, &err));
    CHECK(freed);
    OK(store_layer_state(store, STR("one"), &known, &used, &err));
    CHECK(known && !used);
    OK(store_layer_forget(store, STR("one"), &err));
    OK(store_layer_state(store, STR("one"), &known, &used, &err));
    CHECK(!known);
}

TEST(tags_of_one_template)
{
    auto_store struct store *store = open_memory();
    auto_arena struct arena arena = {0};
    struct store_snapshot v1 = snapshot_of("mine", "v1", "a");
    struct store_snapshot v2 = snapshot_of("mine", "v2", "b");
    struct store_template found, *list;
    size_t count;
    bool freed;

    OK(store_snapshot_put(store, &v1, &arena, &freed, &err));
    OK(store_snapshot_put(store, &v2, &arena, &freed, &err));
    CHECK(str_eq(v1.template_id, v2.template_id));
    FAILS(store_template_find(store, STR("t"), STR("mine"), &arena, &found, &err),
          ERROR_NOT_FOUND); /* no default */
    OK(store_template_get(store, STR("t"), STR("mine"), &arena, &found, &err));
    CHECK(!found.tag.p);
    OK(store_template_list(store, STR("t"), &arena, &list, &count, &err));
    CHECK_INT(count, 0);
    OK(store_snapshot_delete(store, v1.template_id, STR("v1"), &freed, &err));
    OK(store_template_find(store, STR("t"), STR("mine:v2"), &arena, &found, &err));
    FAILS(store_snapshot_delete(store, v1.template_id, STR("v1"), &freed, &err), ERROR_NOT_FOUND);
    OK(store_snapshot_delete(store, v1.template_id, STR("v2"), &freed, &err));
    FAILS(store_template_get(store, STR("t"), STR("mine"), &arena, &found, &err), ERROR_NOT_FOUND);
}
