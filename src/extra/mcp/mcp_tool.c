/* The table of tools, with those of other extras. What they are told to be (names, schemas, annotations) is in tools.json. */
#include "extra/mcp/mcp_tool.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/log.h"
#include "extra/core/extra.h"
#include "extra/mcp/mcp_schema.h"
#include "extra/mcp/mcp_tools_json.h"
#include "protocol/json/json_shape.h"

enum {
    PNG_SIZE_AT = 16,  /* width and height: they come first in it */
    AS_TEXT_COPIES = 4 /* base64 for the result, in its JSON, and in the event with that */
};

static const struct mcp_tool tools[] = {
    {"run_command", mcp_run_command, 0},
    {"read_file", mcp_read_file, MCP_READS},
    {"write_file", mcp_write_file, 0},
    {"list_files", mcp_list_files, MCP_READS},
    {"job_start", mcp_job_start, 0},
    {"job_status", mcp_job_status, MCP_READS | MCP_CONTROL},
    {"job_logs", mcp_job_logs, MCP_READS},
    {"job_stop", mcp_job_stop, MCP_CONTROL},
    {"job_list", mcp_job_list, MCP_READS | MCP_CONTROL},
    {"sandbox_create", mcp_sandbox_create, MCP_TEAM},
    {"sandbox_list", mcp_sandbox_list, MCP_READS | MCP_TEAM | MCP_CONTROL},
    {"sandbox_info", mcp_sandbox_info, MCP_READS | MCP_CONTROL},
    {"sandbox_kill", mcp_sandbox_kill, MCP_CONTROL},
    {"sandbox_pause", mcp_sandbox_pause, MCP_CONTROL},
    {"sandbox_resume", mcp_sandbox_resume, MCP_CONTROL},
    {"sandbox_snapshot", mcp_sandbox_snapshot, MCP_TEAM},
    {"sandbox_fork", mcp_sandbox_fork, MCP_TEAM},
    {"sandbox_url", mcp_sandbox_url, MCP_READS | MCP_CONTROL},
    {NULL, NULL, 0},
};
static const struct mcp_tools own_tools = {tools, mcp_tools_json};

static const struct mcp_tool *find_in(const struct mcp_tool *row, struct str name)
{
    for (; row->name; row++)
        if (str_is(name, row->name))
            return row;
    return NULL;
}

static const struct mcp_tool *find_named(struct str name)
{
    const struct mcp_tool *found = find_in(tools, name);

    for (const struct extra *const *at = extras_all(); *at && !found; at++)
        if ((*at)->tools)
            found = find_in((*at)->tools->rows, name);
    return found;
}

static const struct mcp_tool *find(struct mcp_call *call, struct str name)
{
    const struct mcp_tool *tool = find_named(name);

    return tool && (tool->flags & MCP_TEAM) && call->key_sandbox.len ? NULL : tool;
}

enum mcp_lane mcp_tool_lane(struct str name, const json_t *args)
{
    const struct mcp_tool *tool = find_named(name);

    if (!tool)
        return MCP_LANE_CONTROL;
    /* job_status may wait for the end of its job. */
    return (tool->flags & MCP_CONTROL) && mcp_arg_int(args, "wait_s", 0) <= 0 ? MCP_LANE_CONTROL
                                                                              : MCP_LANE_WORK;
}

const char *mcp_lane_name(enum mcp_lane lane)
{
    return lane == MCP_LANE_CONTROL ? "control" : "work";
}

static void add_described(json_t *all, const struct mcp_tools *of)
{
    json_t *some = NULL;
    struct error err = {0};

    if (json_parse(str_of((const char *)of->json), &some, &err) < 0)
        log_error("mcp", "tools.json: %s", err.message);
    (void)json_array_extend(all, some);
    json_decref(some);
}

json_t *mcp_tools_described(void)
{
    json_t *all = json_array();

    add_described(all, &own_tools);
    for (const struct extra *const *at = extras_all(); *at; at++)
        if ((*at)->tools)
            add_described(all, (*at)->tools);
    return all;
}

json_t *mcp_tools(struct mcp_call *call)
{
    json_t *out = json_array(), *one;
    size_t i;

    json_array_foreach (call->mcp->tools, i, one) {
        if (find(call, json_get_str(one, "name")))
            (void)json_array_append(out, one);
    }
    return out;
}

static const json_t *schema_of(const struct mcp_call *call, const char *name)
{
    json_t *one;
    size_t i;

    json_array_foreach (call->mcp->tools, i, one) {
        if (str_is(json_get_str(one, "name"), name))
            return json_object_get(one, "inputSchema");
    }
    return NULL;
}

void mcp_outcome_text(struct mcp_outcome *out, struct str text)
{
    if (!out->content)
        out->content = json_array();
    (void)json_array_append_new(out->content,
                                json_pack("{s:s, s:o}", "type", "text", "text", json_str(text)));
}

int mcp_outcome_reserve(size_t len, struct error *err)
{
    return buf_account_reserve((size_t)AS_TEXT_COPIES * len, err);
}

static json_t *base64(struct str data)
{
    auto_free char *text = xmalloc(BASE64_LEN(data.len) + 1);

    base64_encode(text, data.p, data.len);
    return json_stringn(text, BASE64_LEN(data.len));
}

void mcp_outcome_image(struct mcp_outcome *out, struct str data, const char *type)
{
    if (!out->content)
        out->content = json_array();
    (void)json_array_append_new(out->content, json_pack("{s:s, s:o, s:s}", "type", "image", "data",
                                                        base64(data), "mimeType", type));
}

static json_t *side(const struct buf *png, size_t at)
{
    uint32_t side = 0;

    if (png->len >= at + sizeof(side))
        memcpy(&side, png->p + at, sizeof(side));
    return json_integer(ntohl(side));
}

int mcp_outcome_screen(struct mcp_outcome *out, struct str sandbox_id, const struct buf *png,
                       struct error *err)
{
    if (png->overflowed)
        return error_set(err, ERROR_LIMIT,
                         "the picture is larger than %d MiB: use a smaller screen or part of it",
                         MCP_PICTURE_MAX >> 20);
    if (mcp_outcome_reserve(png->len, err) < 0)
        return -1;
    mcp_outcome_image(out, buf_str(png), "image/png");
    mcp_outcome_json(out, json_pack("{s:o, s:o, s:o}", "sandbox_id", json_str(sandbox_id), "width",
                                    side(png, PNG_SIZE_AT), "height",
                                    side(png, PNG_SIZE_AT + sizeof(uint32_t))));
    return 0;
}

void mcp_outcome_document(struct mcp_outcome *out, const char *uri, const char *type,
                          struct str data)
{
    if (!out->content)
        out->content = json_array();
    (void)json_array_append_new(
        out->content, json_pack("{s:s, s:{s:o, s:s, s:o}}", "type", "resource", "resource", "uri",
                                json_str(str_of(uri)), "mimeType", type, "blob", base64(data)));
}

void mcp_outcome_json(struct mcp_outcome *out, json_t *json_consume)
{
    auto_free char *text = json_text(json_consume);

    if (!out->content)
        mcp_outcome_text(out, str_of(text));
    json_decref(out->structured);
    out->structured = json_consume;
}

int64_t mcp_arg_int(const json_t *args, const char *name, int64_t otherwise)
{
    const json_t *value = json_object_get(args, name);

    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

static json_t *failed(struct mcp_call *call, struct mcp_outcome *out, const struct error *err)
{
    json_decref(out->content);
    json_decref(out->structured);
    *out = (struct mcp_outcome){0};
    mcp_outcome_text(out, mcp_tell(call, err));
    return json_pack("{s:o, s:b}", "content", out->content, "isError", 1);
}

int mcp_tool_call(struct mcp_call *call, struct str name, json_t *args, json_t **out_result)
{
    const struct mcp_tool *tool = find(call, name);
    struct mcp_outcome out = {0};
    struct error err = {0};

    if (!tool)
        return 1;
    call->quiet = tool->flags & MCP_READS;
    call->path = str_of(arena_printf(&call->arena, "/mcp/%s", tool->name));
    if (mcp_schema_check(schema_of(call, tool->name), args, &err) < 0 ||
        tool->fn(call, args, &out, &err) < 0)
        *out_result = failed(call, &out, &err);
    else
        *out_result = json_pack("{s:o, s:o*, s:b}", "content", out.content, "structuredContent",
                                out.structured, "isError", 0);
    return 0;
}
