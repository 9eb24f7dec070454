#include "domain/template/template.h"

#include "base/id.h"
#include "base/test.h"

TEST(base_keeps_its_id)
{
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct template_base base = {.layer = STR("debian12a")};
    struct store_template found, *list;
    struct str first, second;
    struct error refusal = {0};
    size_t count = 0;

    OK(store_open(":memory:", &store, &err));
    OK(template_register_base(store, &base, &arena, &first, &err));
    CHECK(id_valid(first));
    base.layer = STR("debian12b");
    base.mem_mb = 1024;
    OK(template_register_base(store, &base, &arena, &second, &err));
    CHECK(str_eq(first, second));
    OK(template_find(store, STR("any"), STR("base"), &arena, &found, &err));
    CHECK_STR(found.layers, "debian12b");
    CHECK_INT(found.cpu_count, 2);
    CHECK_INT(found.mem_mb, 1024);
    CHECK_INT(found.disk_mb, 10240);
    OK(template_find(store, STR("any"), first, &arena, &found, &err));
    OK(template_find(store, STR("any"), STR("base:default"), &arena, &found, &err));
    CHECK_INT(template_find(store, STR("any"), STR("base:v9"), &arena, &found, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_NOT_FOUND);
    CHECK_STR(str_of(refusal.message), "template 'base:v9' not found");
    OK(template_list(store, STR("any"), &arena, &list, &count, &err));
    CHECK_INT(count, 1);
}

TEST(bad_layers_and_sizes_are_refused)
{
    static const char *const bad[] = {"", "../x", "a,b", "A", "abcdefghijabcdefghijabcdefghijab"};
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct template_base base = {.layer = STR("ok"), .cpu_count = -1};
    struct error refusal = {0};
    struct str id;

    OK(store_open(":memory:", &store, &err));
    CHECK_INT(template_register_base(store, &base, &arena, &id, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_INVALID);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        base = (struct template_base){.layer = str_of(bad[i])};
        CHECK_INT(template_register_base(store, &base, &arena, &id, &refusal), -1);
        CHECK_INT(refusal.code, ERROR_INVALID);
    }
}
