/* Messages and schemas, without a socket. */
#include "base/test.h"
#include "edge/call/test/lanes_page.h"
#include "extra/mcp/mcp_schema.h"
#include "extra/mcp/mcp_tool.h"
#include "extra/mcp/mcp_tools_json.h"
#include "protocol/json/json_shape.h"

#define META(version)                                                   \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"" version \
    "\",\"io.modelcontextprotocol/clientCapabilities\":{}}"

static int parse(const char *text)
{
    struct mcp_fault fault = {0};
    struct mcp_message message;
    int r = mcp_message_parse(str_of(text), &message, &fault);

    mcp_message_done(&message);
    return r < 0 ? (int)fault.code : 0;
}

TEST(mcp_what_is_no_message)
{
    CHECK_INT(parse("{"), MCP_PARSE);
    CHECK_INT(parse(""), MCP_PARSE);
    CHECK_INT(parse("7"), MCP_PARSE);
    CHECK_INT(parse("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]"), MCP_REQUEST_BAD);
    CHECK_INT(parse("{}"), MCP_REQUEST_BAD);
    CHECK_INT(parse("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}"), MCP_REQUEST_BAD);
    CHECK_INT(parse("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}"), MCP_REQUEST_BAD);
    CHECK_INT(parse("{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}"), MCP_REQUEST_BAD);
    CHECK_INT(parse("{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}"), MCP_REQUEST_BAD);
    CHECK_INT(parse("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}"), MCP_REQUEST_BAD);
    CHECK_INT(parse("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[]}"),
              MCP_REQUEST_BAD);
    CHECK_INT(parse("{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"ping\"}"), 0);
    CHECK_INT(parse("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"), 0);
    CHECK_INT(parse("{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}"), 0);
}

static int check(const char *text, const char *version, const char *method, const char *name)
{
    struct mcp_heads heads = {str_of(version), str_of(method), str_of(name)};
    struct mcp_fault fault = {0};
    struct mcp_message message;
    int r;

    CHECK_INT(mcp_message_parse(str_of(text), &message, &fault), 0);
    r = mcp_message_check(&message, &heads, &fault);
    if (r < 0) {
        CHECK_INT(fault.status, 400);
        json_decref(mcp_fault_json(&fault, message.id));
    }
    mcp_message_done(&message);
    return r < 0 ? (int)fault.code : 0;
}

TEST(mcp_revisions_with_an_initialize)
{
    const char *ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}";

    CHECK_INT(check(ping, NULL, NULL, NULL), 0);
    CHECK_INT(check(ping, "2025-11-25", NULL, NULL), 0);
    CHECK_INT(check(ping, "2024-11-05", NULL, NULL), 0);
    CHECK_INT(check(ping, "1999-01-01", NULL, NULL), MCP_VERSION_BAD);
    CHECK_STR(str_of(mcp_version_for(STR("2025-06-18"))), "2025-06-18");
    CHECK_STR(str_of(mcp_version_for(STR("2031-01-01"))), "2025-11-25");
}

TEST(mcp_stateless_revision)
{
    const char *v = "2026-07-28";
    const char *list = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{" META(
        "2026-07-28") "}}";
    const char *call =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":"
        "\"run_command\"," META("2026-07-28") "}}";

    CHECK_INT(check(list, v, "tools/list", NULL), 0);
    CHECK_INT(check(list, "2025-11-25", "tools/list", NULL), MCP_HEADER_MISMATCH);
    CHECK_INT(check(list, NULL, "tools/list", NULL), MCP_HEADER_MISMATCH);
    CHECK_INT(check(list, v, "tools/call", NULL), MCP_HEADER_MISMATCH);
    CHECK_INT(check(list, v, NULL, NULL), MCP_HEADER_MISMATCH);
    CHECK_INT(check(call, v, "tools/call", "run_command"), 0);
    CHECK_INT(check(call, v, "tools/call", "=?base64?cnVuX2NvbW1hbmQ=?="), 0);
    CHECK_INT(check(call, v, "tools/call", "=?base64?!?="), MCP_HEADER_MISMATCH);
    CHECK_INT(check(call, v, "tools/call", "Run_command"), MCP_HEADER_MISMATCH);
    CHECK_INT(check(call, v, "tools/call", NULL), MCP_HEADER_MISMATCH);
    CHECK_INT(
        check("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{" META(
                  "v9") "}}",
              "v9", "server/discover", NULL),
        MCP_VERSION_BAD);
    CHECK_INT(check("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\"}", v,
                    "server/discover", NULL),
              MCP_PARAMS_BAD);
}

static int schema(const char *schema_text, const char *value_text)
{
    auto_json json_t *schema = NULL, *value = NULL;
    struct error err = {0};

    CHECK_INT(json_parse(str_of(schema_text), &schema, &err), 0);
    CHECK_INT(json_parse(str_of(value_text), &value, &err), 0);
    return mcp_schema_check(schema, value, &err);
}

TEST(mcp_schemas)
{
    const char *s =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"enum\":[\"x\","
        "\"y\"]},\"n\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":5},\"e\":{\"type\":"
        "\"object\",\"additionalProperties\":{\"type\":\"string\"}},\"l\":{\"type\":"
        "\"array\",\"items\":{\"type\":[\"boolean\",\"null\"]}}},\"required\":[\"a\"],"
        "\"additionalProperties\":false}";

    CHECK_INT(schema(s, "{\"a\":\"x\",\"n\":5,\"e\":{\"k\":\"v\"},\"l\":[true,null]}"), 0);
    CHECK_INT(schema(s, "{}"), -1);
    CHECK_INT(schema(s, "{\"a\":\"z\"}"), -1);
    CHECK_INT(schema(s, "{\"a\":1}"), -1);
    CHECK_INT(schema(s, "{\"a\":\"x\",\"n\":6}"), -1);
    CHECK_INT(schema(s, "{\"a\":\"x\",\"n\":\"5\"}"), -1);
    CHECK_INT(schema(s, "{\"a\":\"x\",\"e\":{\"k\":1}}"), -1);
    CHECK_INT(schema(s, "{\"a\":\"x\",\"l\":[1]}"), -1);
    CHECK_INT(schema(s, "{\"a\":\"x\",\"b\":1}"), -1);
    CHECK_INT(schema(s, "[]"), -1);
}

/* What is told and what is there are the same tools, in the same order. */
TEST(mcp_all_tools_have_a_description)
{
    struct mcp *mcp = mcp_new(&(struct mcp_config){0});
    struct mcp_call call = {.mcp = mcp}, bound = {.mcp = mcp, .key_sandbox = STR("sbx_1")};
    auto_json json_t *all = mcp_tools(&call), *some = mcp_tools(&bound);

    CHECK_INT(json_array_size(all), json_array_size(mcp->tools));
    CHECK(json_array_size(all) >= 18);
    CHECK(json_array_size(some) < json_array_size(all));
    mcp_free(mcp);
}

static enum mcp_lane lane_of(const char *method, const char *params_text)
{
    auto_json json_t *params = NULL;
    struct error err = {0};
    struct mcp_call call = {.message.method = str_of(method)};

    CHECK_INT(json_parse(str_of(params_text), &params, &err), 0);
    call.message.params = params;
    return mcp_method_lane(&call);
}

TEST(mcp_calls_have_the_lane_of_their_tool)
{
    CHECK_INT(lane_of("ping", "{}"), MCP_LANE_CONTROL);
    CHECK_INT(lane_of("tools/call", "{}"), MCP_LANE_CONTROL);
    CHECK_INT(lane_of("tools/call", "{\"name\":\"nothing\"}"), MCP_LANE_CONTROL);
    CHECK_INT(lane_of("tools/call", "{\"name\":7,\"arguments\":7}"), MCP_LANE_CONTROL);
    CHECK_INT(lane_of("tools/call", "{\"name\":\"sandbox_kill\"}"), MCP_LANE_CONTROL);
    CHECK_INT(lane_of("tools/call", "{\"name\":\"run_command\"}"), MCP_LANE_WORK);
    CHECK_INT(lane_of("tools/call", "{\"name\":\"job_status\",\"arguments\":{}}"),
              MCP_LANE_CONTROL);
    CHECK_INT(lane_of("tools/call", "{\"name\":\"job_status\",\"arguments\":{\"wait_s\":9}}"),
              MCP_LANE_WORK);
}

TEST(the_page_of_lanes_lists_every_tool)
{
    struct mcp *mcp = mcp_new(&(struct mcp_config){0});
    json_t *tool;
    size_t i;

    json_array_foreach (mcp->tools, i, tool) {
        struct str name = json_get_str(tool, "name");

        lanes_page_check("MCP", name.p, mcp_lane_name(mcp_tool_lane(name, NULL)));
    }
    lanes_page_check("MCP", "POST /mcp", mcp_lane_name(MCP_LANE_CONTROL));
    lanes_page_check("MCP", "DELETE /mcp", mcp_lane_name(MCP_LANE_CONTROL));
    CHECK_INT(lanes_page_count("MCP"), json_array_size(mcp->tools) + 2);
    mcp_free(mcp);
}
