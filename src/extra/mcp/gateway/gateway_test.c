/* What may be configured. Servers themselves are tried inside sandboxes (tests/compat/mcp-gateway.test.mjs). */
#include "base/test.h"
#include "extra/mcp/gateway/gateway.h"

static int read_one(const char *text, struct server_config *out)
{
    struct server_config all[GATEWAY_SERVERS_MAX] = {0};
    struct error err = {0};
    size_t count = 0;
    int r = config_read(str_of(text), all, &count, &err);

    if (r == 0 && out && count == 1) {
        *out = all[0];
        return 0;
    }
    for (size_t i = 0; i < count; i++)
        config_done(&all[i]);
    return r < 0 ? (int)err.code : 0;
}

TEST(mcp_gateway_entries)
{
    struct server_config one = {0};

    CHECK_INT(read_one("{\"github/acme/tool\":{\"runCmd\":\"node x\",\"installCmd\":\"npm i\","
                       "\"envs\":{\"A\":\"b\"}}}",
                       &one),
              0);
    CHECK_STR(str_of(one.cwd), "/opt/mcp/github/acme/tool");
    CHECK_STR(str_of(one.run), "node x");
    CHECK_STR(str_of(one.install), "npm i");
    config_done(&one);
    CHECK_INT(read_one("{\"npm/@scope/server@1.2.3\":{}}", &one), 0);
    CHECK_STR(str_of(one.run), "exec npx -y @scope/server@1.2.3");
    config_done(&one);
    CHECK_INT(read_one("{}", NULL), 0);
}

TEST(mcp_gateway_refuses)
{
    CHECK_INT(read_one("[]", NULL), ERROR_INVALID);
    CHECK_INT(read_one("{", NULL), ERROR_INVALID);
    CHECK_INT(read_one("{\"exa\":{\"apiKey\":\"x\"}}", NULL), ERROR_UNSUPPORTED);
    CHECK_INT(read_one("{\"github/a/b\":{}}", NULL), ERROR_INVALID);
    CHECK_INT(read_one("{\"github/a\":{\"runCmd\":\"x\"}}", NULL), ERROR_INVALID);
    CHECK_INT(read_one("{\"github/../b\":{\"runCmd\":\"x\"}}", NULL), ERROR_INVALID);
    CHECK_INT(read_one("{\"github/a/b/c\":{\"runCmd\":\"x\"}}", NULL), ERROR_INVALID);
    CHECK_INT(read_one("{\"npm/a b\":{}}", NULL), ERROR_INVALID);
    CHECK_INT(read_one("{\"npm/$(id)\":{}}", NULL), ERROR_INVALID);
    CHECK_INT(read_one("{\"npm/-x\":{}}", NULL), ERROR_INVALID);
    CHECK_INT(read_one("{\"npm/a\":{\"envs\":{\"A=B\":\"x\"}}}", NULL), ERROR_INVALID);
    CHECK_INT(read_one("{\"npm/a\":{\"envs\":{\"A\":1}}}", NULL), ERROR_INVALID);
    CHECK_INT(read_one("{\"npm/a\":7}", NULL), ERROR_INVALID);
}
