/* Canned answers, for the conformance suite: it calls tools, resources and prompts that a server has only for its sake.
 * They come from a file that the operator of a test names; without it nothing of this is there.
 *
 * {"capabilities": {...}, "tools": [...], "answers": [{"method", "name" or "uri", "notifications": [{method, params}],
 * "result" or "error", "initialized": true when it is not there in the stateless revision}]}. A "*" in a uri stands for anything. In texts, "{{NAME}}" becomes the argument of that name and
 * "{{*}}" what the "*" stood for. */
#include "extra/mcp/mcp_tool.h"

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"

json_t *mcp_capabilities(const struct mcp *mcp)
{
    json_t *canned = json_object_get(mcp->fixtures, "capabilities");

    return canned ? json_deep_copy(canned) : json_pack("{s:{}}", "tools");
}

void mcp_fixture_tools(const struct mcp *mcp, json_t *tools)
{
    json_t *canned = json_object_get(mcp->fixtures, "tools");

    if (canned)
        (void)json_array_extend(tools, canned);
}

/* *out_rest: what the "*" stood for. */
static bool matches(struct str pattern, struct str text, struct str *out_rest)
{
    ptrdiff_t at = str_find(pattern, '*');
    struct str begin, end;

    *out_rest = STR_NONE;
    if (at < 0)
        return str_eq(pattern, text);
    begin = str_n(pattern.p, (size_t)at);
    end = str_skip(pattern, (size_t)at + 1);
    if (text.len < begin.len + end.len || !str_starts(text, begin) || !str_ends(text, end))
        return false;
    *out_rest = str_n(text.p + begin.len, text.len - begin.len - end.len);
    return true;
}

static json_t *find(struct mcp_call *call, struct str *out_rest)
{
    json_t *answers = json_object_get(call->mcp->fixtures, "answers"), *one;
    json_t *params = call->message.params;
    size_t i;

    json_array_foreach (answers, i, one) {
        struct str name = json_get_str(one, "name"), uri = json_get_str(one, "uri");

        if (call->message.stateless && json_is_true(json_object_get(one, "initialized")))
            continue;
        if (str_eq(json_get_str(one, "method"), call->message.method) &&
            (!name.p || str_eq(name, json_get_str(params, "name"))) &&
            (!uri.p || matches(uri, json_get_str(params, "uri"), out_rest)))
            return one;
    }
    return NULL;
}

static struct str value_of(struct mcp_call *call, struct str name, struct str rest)
{
    struct str key = arena_str(&call->arena, name);

    if (str_is(name, "*"))
        return rest;
    return json_get_str(json_object_get(call->message.params, "arguments"), key.p);
}

/* New reference: a text with its places filled. */
static json_t *filled(struct mcp_call *call, struct str text, struct str rest)
{
    auto_buf struct buf out = {0};
    ptrdiff_t at, end;

    buf_init(&out, MCP_BODY_MAX);
    while ((at = str_find_str(text, STR("{{"))) >= 0 &&
           (end = str_find_str(str_skip(text, (size_t)at), STR("}}"))) > 0) {
        struct str name = str_n(text.p + at + 2, (size_t)end - 2);

        (void)buf_add(&out, text.p, (size_t)at);
        (void)buf_add_str(&out, value_of(call, name, rest));
        text = str_skip(text, (size_t)(at + end) + 2);
    }
    (void)buf_add_str(&out, text);
    return json_str(buf_str(&out));
}

/* A copy whose texts are filled; fixtures are the tester's own, and as deep as json_parse() allows. */
static json_t *fill(struct mcp_call *call, json_t *value, struct str rest)
{
    json_t *out, *one;
    const char *key;
    size_t i;

    if (json_is_string(value))
        return filled(call, str_n(json_string_value(value), json_string_length(value)), rest);
    if (json_is_array(value)) {
        out = json_array();
        json_array_foreach (value, i, one)
            (void)json_array_append_new(out, fill(call, one, rest));
        return out;
    }
    if (!json_is_object(value))
        return json_incref(value);
    out = json_object();
    json_object_foreach (value, key, one)
        (void)json_object_set_new(out, key, fill(call, one, rest));
    return out;
}

static void notify(struct mcp_call *call, json_t *canned)
{
    const char *method = json_string_value(json_object_get(canned, "method"));
    json_t *params = json_deep_copy(json_object_get(canned, "params"));
    bool progress = method && str_is(str_of(method), "notifications/progress");

    if (!method || (progress && !call->progress.token)) {
        json_decref(params);
        return;
    }
    if (progress)
        (void)json_object_set(params, "progressToken", call->progress.token);
    (void)mcp_notify(call, method, params);
}

bool mcp_fixture_answer(struct mcp_call *call)
{
    struct str rest = STR_NONE;
    json_t *canned = call->mcp->fixtures ? find(call, &rest) : NULL, *one;
    struct mcp_fault fault;
    size_t i;

    if (!canned)
        return false;
    json_array_foreach (json_object_get(canned, "notifications"), i, one)
        notify(call, one);
    if (json_object_get(canned, "result")) {
        mcp_answer(call, fill(call, json_object_get(canned, "result"), rest));
        return true;
    }
    one = json_object_get(canned, "error");
    (void)mcp_fault_set(&fault, 200, (int)json_integer_value(json_object_get(one, "code")),
                        "%.200s", json_string_value(json_object_get(one, "message")));
    if (json_object_get(one, "data"))
        fault.data = fill(call, json_object_get(one, "data"), rest);
    mcp_answer_fault(call, &fault);
    return true;
}
