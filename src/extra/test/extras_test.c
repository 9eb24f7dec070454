/* What the extras of this build say of themselves. */
#include "base/test.h"
#include "edge/api_runtime/v1_openapi.h"
#include "edge/api_runtime/v1_types.h"
#include "edge/call/test/lanes_page.h"
#include "extra/extras.h"
#include "protocol/json/json_shape.h"

TEST(endpoints_of_extras_have_their_lane_and_are_described)
{
    auto_json json_t *document = NULL;
    struct error err = {0};
    const json_t *paths;

    CHECK_INT(json_parse(str_of((const char *)v1_openapi_json), &document, &err), 0);
    paths = json_object_get(document, "paths");
    for (const struct extra *const *at = extras; *at; at++)
        for (const struct v1_endpoint *row = (*at)->v1; row && row->is.method; row++) {
            lanes_page_check_endpoint("Runtime API of extras", row->is.method, "/api/v1",
                                      row->is.pattern, v1_lane_name(v1_lane_of(row)));
            if (!json_object_get(paths, row->is.pattern))
                test_fail(__FILE__, __LINE__, "%s is not in openapi.json", row->is.pattern);
        }
}

TEST(endpoints_of_extras_are_found)
{
    for (const struct extra *const *at = extras; *at; at++)
        for (const struct v1_endpoint *row = (*at)->v1; row && row->is.method; row++) {
            struct str params[CALL_PARAMS_MAX] = {STR_NONE, STR_NONE};
            const struct v1_endpoint *found = NULL;
            auto_arena struct arena arena = {0};
            char allow[HTTP_ALLOW_SIZE];

            CHECK_INT(v1_endpoints_find(str_of(row->is.method), str_of(row->is.pattern), &arena,
                                        &found, params, allow),
                      CALL_FOUND);
            CHECK(found == row);
        }
}

static bool is_built(const char *name, bool with_tools)
{
    for (const struct extra *const *at = extras; *at; at++)
        if (strcmp((*at)->name, name) == 0 && (!with_tools || (*at)->tools))
            return true;
    return false;
}

TEST(mcp_has_the_tools_of_other_extras)
{
    static const char *const names[] = {"browser", "desktop", "interpreter"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        CHECK(is_built(names[i], true) == (is_built(names[i], false) && is_built("mcp", false)));
}
