#include "extra/mcp/mcp_message.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/encode.h"
#include "protocol/json/json_shape.h"

#define META "io.modelcontextprotocol/"

enum { NAME_MAX_LEN = 256, ID_MAX_LEN = 256 };

/* The newest first. */
static const char *const initialized[] = {MCP_VERSION_NEWEST, "2025-06-18", "2025-03-26",
                                          "2024-11-05"};
enum { INITIALIZED = sizeof(initialized) / sizeof(initialized[0]) };

int mcp_fault_set(struct mcp_fault *fault, int status, enum mcp_code code, const char *fmt, ...)
{
    va_list args;

    *fault = (struct mcp_fault){.status = status, .code = code};
    va_start(args, fmt);
    (void)vsnprintf(fault->message, sizeof(fault->message), fmt, args);
    va_end(args);
    return -1;
}

json_t *mcp_fault_json(struct mcp_fault *fault, json_t *id)
{
    json_t *data = fault->data;

    fault->data = NULL;
    return json_pack("{s:s, s:o, s:{s:i, s:o, s:o*}}", "jsonrpc", "2.0", "id",
                     id ? json_incref(id) : json_null(), "error", "code", (int)fault->code,
                     "message", json_str(str_of(fault->message)), "data", data);
}

static bool is_initialized(struct str version)
{
    for (int i = 0; i < INITIALIZED; i++)
        if (str_is(version, initialized[i]))
            return true;
    return false;
}

const char *mcp_version_for(struct str asked)
{
    for (int i = 0; i < INITIALIZED; i++)
        if (str_is(asked, initialized[i]))
            return initialized[i];
    return MCP_VERSION_NEWEST;
}

json_t *mcp_versions(void)
{
    json_t *out = json_pack("[s]", MCP_VERSION_STATELESS);

    for (int i = 0; i < INITIALIZED; i++)
        (void)json_array_append_new(out, json_string(initialized[i]));
    return out;
}

void mcp_message_done(struct mcp_message *message)
{
    json_decref(message->tree);
    *message = (struct mcp_message){0};
}

static int bad(struct mcp_fault *fault, const char *why)
{
    return mcp_fault_set(fault, 400, MCP_REQUEST_BAD, "%s", why);
}

static int read_id(struct mcp_message *out, struct mcp_fault *fault)
{
    json_t *id = json_object_get(out->tree, "id");

    if (!id)
        return 0;
    if (!json_is_integer(id) && !json_is_string(id))
        return bad(fault, "'id' must be a string or an integer");
    if (json_string_length(id) > ID_MAX_LEN)
        return bad(fault, "'id' is longer than 256 bytes");
    out->id = id;
    return 0;
}

static int read_members(struct mcp_message *out, struct mcp_fault *fault)
{
    json_t *method = json_object_get(out->tree, "method");
    bool answers = json_object_get(out->tree, "result") || json_object_get(out->tree, "error");

    if (!str_is(json_get_str(out->tree, "jsonrpc"), "2.0"))
        return bad(fault, "'jsonrpc' must be \"2.0\"");
    if (!method && answers && out->id) {
        out->kind = MCP_RESPONSE;
        return 0;
    }
    out->method = json_get_str(out->tree, "method");
    if (!out->method.len || out->method.len > NAME_MAX_LEN)
        return bad(fault, "'method' must be a text of at most 256 bytes");
    out->params = json_object_get(out->tree, "params");
    if (out->params && !json_is_object(out->params))
        return bad(fault, "'params' must be an object");
    out->kind = out->id ? MCP_REQUEST : MCP_NOTIFICATION;
    return 0;
}

int mcp_message_parse(struct str text, struct mcp_message *out, struct mcp_fault *fault)
{
    struct error err = {0};

    *out = (struct mcp_message){0};
    if (json_parse(text, &out->tree, &err) < 0) {
        out->tree = NULL;
        return mcp_fault_set(fault, 400, MCP_PARSE, "%.200s", err.message);
    }
    if (json_is_array(out->tree))
        return bad(fault, "batches are not taken: send one message a request");
    if (!json_is_object(out->tree))
        return bad(fault, "a message is a JSON object");
    if (read_id(out, fault) < 0)
        return -1;
    return read_members(out, fault);
}

/* ---- eras ---- */

static int unsupported(struct str version, struct mcp_fault *fault)
{
    (void)mcp_fault_set(fault, 400, MCP_VERSION_BAD, "protocol version '%.*s' is not spoken here",
                        (int)(version.len < 60 ? version.len : 60), version.p ? version.p : "");
    fault->data =
        json_pack("{s:o, s:o}", "supported", mcp_versions(), "requested", json_str(version));
    return -1;
}

static int mismatch(struct mcp_fault *fault, const char *header, const char *member)
{
    return mcp_fault_set(fault, 400, MCP_HEADER_MISMATCH,
                         "the header %s must be there and equal %s", header, member);
}

/* Which member of params the header Mcp-Name repeats; NULL = none. */
static const char *named_by(struct str method)
{
    if (str_is(method, "tools/call") || str_is(method, "prompts/get"))
        return "name";
    return str_is(method, "resources/read") ? "uri" : NULL;
}

/* A header's text as it is, or "=?base64?...?=" for what headers cannot carry. */
static bool header_is(struct str header, struct str value)
{
    auto_buf struct buf text = {0};

    if (!str_starts(header, STR("=?base64?")) || !str_ends(header, STR("?=")) || header.len < 11)
        return str_eq(header, value);
    buf_init(&text, NAME_MAX_LEN * 16);
    header = str_n(header.p + 9, header.len - 11);
    return base64_decode(header, &text) && str_eq(buf_str(&text), value);
}

static int check_heads(const struct mcp_message *message, const struct mcp_heads *heads,
                       struct mcp_fault *fault)
{
    const char *member = named_by(message->method);

    if (!str_eq(heads->method, message->method))
        return mismatch(fault, "Mcp-Method", "the message's method");
    if (member && json_get_str(message->params, member).p &&
        !header_is(heads->name, json_get_str(message->params, member)))
        return mismatch(fault, "Mcp-Name", member[0] == 'n' ? "params.name" : "params.uri");
    return 0;
}

static int check_stateless(const struct mcp_message *message, const struct mcp_heads *heads,
                           struct mcp_fault *fault)
{
    json_t *meta = json_object_get(message->params, "_meta");
    struct str version = json_get_str(meta, META "protocolVersion");

    if (message->kind != MCP_REQUEST)
        return 0;
    if (heads->version.p && version.p && !str_eq(heads->version, version))
        return mismatch(fault, "MCP-Protocol-Version", "the version in _meta");
    if (!str_is(version.p ? version : heads->version, MCP_VERSION_STATELESS) &&
        (version.p || heads->version.p))
        return unsupported(version.p ? version : heads->version, fault);
    if (!heads->version.p)
        return mismatch(fault, "MCP-Protocol-Version", "the version in _meta");
    if (check_heads(message, heads, fault) < 0)
        return -1;
    if (!version.p || !json_is_object(json_object_get(meta, META "clientCapabilities")))
        return mcp_fault_set(fault, 400, MCP_PARAMS_BAD,
                             "params._meta must have '" META "protocolVersion' and '" META
                             "clientCapabilities'");
    return 0;
}

int mcp_message_check(struct mcp_message *message, const struct mcp_heads *heads,
                      struct mcp_fault *fault)
{
    json_t *meta = json_object_get(message->params, "_meta");

    message->stateless = json_object_get(meta, META "protocolVersion") ||
                         str_is(heads->version, MCP_VERSION_STATELESS) ||
                         str_is(message->method, "server/discover");
    if (message->stateless)
        return check_stateless(message, heads, fault);
    /* In an initialize the body says it. */
    if (heads->version.p && !is_initialized(heads->version) &&
        !str_is(message->method, "initialize"))
        return unsupported(heads->version, fault);
    return 0;
}
