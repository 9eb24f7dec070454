/* Specs, and what can be had without a sandbox. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/test.h"
#include "lib/lib_internal.h"
#include "protocol/json/json_shape.h"

TEST(a_spec_is_a_request)
{
    struct runtime_ensure out = {0};
    auto_json json_t *tree = NULL;
    struct error err = {0};

    CHECK_INT(lib_spec_read(NULL, &out, &tree, &err), 0);
    CHECK_INT(lib_spec_read(
                  "{\"provider\":\"p\",\"template\":\"t\",\"snapshot\":\"s\","
                  "\"env\":{\"A\":\"b\"},\"timeout\":7,\"persistent\":false,"
                  "\"workspace_root\":\"/w\",\"repo\":\"r\",\"branch\":\"b\",\"git_token\":\"g\","
                  "\"network\":{\"mode\":\"deny-all\"},\"mcp\":null,\"mounts\":[]}",
                  &out, &tree, &err),
              0);
    CHECK_STR(out.overrides.provider, "p");
    CHECK_STR(out.overrides.image, "t");
    CHECK_STR(out.snapshot, "s");
    CHECK_STR(out.overrides.workspace_root, "/w");
    CHECK_STR(out.repo, "r");
    CHECK_STR(out.branch, "b");
    CHECK_STR(out.git_token, "g");
    CHECK_INT(out.overrides.timeout_s, 7);
    CHECK(out.overrides.persistent_given && !out.overrides.persistent);
    CHECK(json_is_object(out.overrides.network) && json_is_array(out.overrides.mounts));
    CHECK(!out.overrides.mcp);
    CHECK_STR(json_get_str(out.overrides.env, "A"), "b");
}

TEST(what_a_spec_must_not_be)
{
    static const char *const wrong[] = {
        "",
        "[]",
        "{",
        "{\"tmeplate\":\"x\"}",
        "{\"timeout\":\"soon\"}",
        "{\"timeout\":-1}",
        "{\"env\":{\"A\":1}}",
        "{\"persistent\":\"yes\"}",
        "{\"provider\":7}",
        "{\"mounts\":{}}",
        "{\"timeout\":99999999999}",
        "{\"provider\":\"a\\u0000b\"}",
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct runtime_ensure out = {0};
        auto_json json_t *tree = NULL;
        struct error err = {0};

        if (lib_spec_read(wrong[i], &out, &tree, &err) == 0)
            test_fail(__FILE__, __LINE__, "'%s' was taken", wrong[i]);
        CHECK_INT(err.code, ERROR_INVALID);
    }
}
