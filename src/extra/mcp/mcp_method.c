/* The methods. What a server of tools needs; others are not there. */
#include "extra/mcp/mcp_tool.h"

#include "base/id.h"
#include "protocol/json/json_shape.h"

enum { SESSION_ID_BYTES = 16 };

static const char instructions[] = "Linux sandboxes to run commands and keep files in. Tools work "
                                   "in a sandbox of your own, which is made at first "
                                   "use and kept between calls; sandbox_id chooses another one.";

static json_t *server_info(void)
{
    return json_pack("{s:s, s:s, s:s}", "name", "quicksand", "title", "Quicksand", "version",
                     QUICKSAND_VERSION);
}

static void refuse(struct mcp_call *call, int stateless_status, enum mcp_code code,
                   const char *message)
{
    struct mcp_fault fault;

    (void)mcp_fault_set(&fault, call->message.stateless ? stateless_status : 200, code, "%s",
                        message);
    mcp_answer_fault(call, &fault);
}

static void initialize(struct mcp_call *call)
{
    struct str asked = json_get_str(call->message.params, "protocolVersion");
    char id[SESSION_ID_BYTES * 2 + 1];

    if (!asked.p) {
        refuse(call, 400, MCP_PARAMS_BAD, "'protocolVersion' is missing");
        return;
    }
    id_hex(id, SESSION_ID_BYTES);
    call_header(&call->call, "Mcp-Session-Id", arena_str(&call->arena, str_of(id)));
    mcp_answer(call, json_pack("{s:s, s:o, s:o, s:s}", "protocolVersion", mcp_version_for(asked),
                               "capabilities", mcp_capabilities(call->mcp), "serverInfo",
                               server_info(), "instructions", instructions));
}

static void ping(struct mcp_call *call)
{
    mcp_answer(call, json_object());
}

static void discover(struct mcp_call *call)
{
    mcp_answer(call,
               json_pack("{s:o, s:o, s:s}", "supportedVersions", mcp_versions(), "capabilities",
                         mcp_capabilities(call->mcp), "instructions", instructions));
}

static void tools_list(struct mcp_call *call)
{
    json_t *tools;

    if (json_is_string(json_object_get(call->message.params, "cursor"))) {
        refuse(call, 400, MCP_PARAMS_BAD, "all tools are on the first page: there is no cursor");
        return;
    }
    tools = mcp_tools(call);
    mcp_fixture_tools(call->mcp, tools);
    mcp_answer(call, json_pack("{s:o}", "tools", tools));
}

static void tools_call(struct mcp_call *call)
{
    struct str name = json_get_str(call->message.params, "name");
    json_t *args = json_object_get(call->message.params, "arguments"), *result = NULL;
    auto_json json_t *none = json_object();
    char message[320];

    if (!name.len || (args && !json_is_object(args))) {
        refuse(call, 400, MCP_PARAMS_BAD, "'name' must be a text and 'arguments' an object");
        return;
    }
    if (mcp_tool_call(call, name, args ? args : none, &result) == 0) {
        if (mcp_running_cancelled(call)) {
            json_decref(result);
            refuse(call, 200, MCP_CANCELLED, "the request was cancelled");
            return;
        }
        mcp_answer(call, result);
        return;
    }
    (void)snprintf(message, sizeof(message), "there is no tool '%.*s'",
                   (int)(name.len < 200 ? name.len : 200), name.p);
    refuse(call, 400, MCP_PARAMS_BAD, message);
}

static const struct {
    const char *name;
    bool initialized, stateless; /* in which eras it is there */
    void (*fn)(struct mcp_call *call);
} methods[] = {
    {"initialize", true, false, initialize},    {"ping", true, false, ping},
    {"server/discover", false, true, discover}, {"tools/list", true, true, tools_list},
    {"tools/call", true, true, tools_call},
};

enum mcp_lane mcp_method_lane(const struct mcp_call *call)
{
    const json_t *params = call->message.params;

    if (!str_is(call->message.method, "tools/call"))
        return MCP_LANE_CONTROL;
    return mcp_tool_lane(json_get_str(params, "name"), json_object_get(params, "arguments"));
}

void mcp_method(struct mcp_call *call)
{
    json_t *meta = json_object_get(call->message.params, "_meta");
    json_t *token = json_object_get(meta, "progressToken");

    if (json_is_string(token) || json_is_integer(token))
        call->progress.token = token;
    if (mcp_fixture_answer(call))
        return;
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (str_is(call->message.method, methods[i].name) &&
            (call->message.stateless ? methods[i].stateless : methods[i].initialized)) {
            methods[i].fn(call);
            return;
        }
    refuse(call, 404, MCP_NO_METHOD, "there is no such method");
}
