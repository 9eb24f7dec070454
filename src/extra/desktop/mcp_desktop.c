/* desktop_*: the screen of a sandbox as a picture, and what a hand would do there. */
#include "extra/core/extra.h"
#include "extra/mcp/desktop_tools_json.h"
#include "extra/mcp/mcp_tool.h"

#include "extra/desktop/desktop.h"
#include "protocol/json/json_shape.h"

#define TEMPLATE "desktop"

enum { SCROLL_STEPS = 3, DELAY_MS = 12 };

static int mcp_desktop_screenshot(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                                  struct error *err)
{
    auto_buf struct buf picture = {0};
    struct str id;

    buf_init(&picture, MCP_PICTURE_MAX);
    if (mcp_sandbox_of(call, args, TEMPLATE, &id, err) < 0 ||
        desktop_screenshot(call->mcp->config.runtime, &call->caller, id,
                           json_get_str(args, "display"), &picture, err) < 0)
        return -1;
    return mcp_outcome_screen(out, id, &picture, err);
}

static int act(struct mcp_call *call, json_t *args, enum desktop_kind kind, struct mcp_outcome *out,
               struct error *err)
{
    struct desktop_act act = {
        .kind = kind,
        .display = json_get_str(args, "display"),
        .x = (int)mcp_arg_int(args, "x", DESKTOP_NOWHERE),
        .y = (int)mcp_arg_int(args, "y", DESKTOP_NOWHERE),
        .to_x = (int)mcp_arg_int(args, "to_x", DESKTOP_NOWHERE),
        .to_y = (int)mcp_arg_int(args, "to_y", DESKTOP_NOWHERE),
        .button = json_get_str(args, "button"),
        .direction = json_get_str(args, "direction"),
        .text = json_get_str(args, "text"),
        .keys = json_object_get(args, "keys"),
        .count = (int)mcp_arg_int(args, "count", kind == DESKTOP_SCROLL ? SCROLL_STEPS : 1),
        .delay_ms = (int)mcp_arg_int(args, "delay_ms", DELAY_MS),
    };
    struct str id;

    if (mcp_sandbox_of(call, args, TEMPLATE, &id, err) < 0 ||
        desktop_do(call->mcp->config.runtime, &call->caller, id, &act, err) < 0)
        return -1;
    mcp_outcome_text(out, STR("done"));
    mcp_outcome_json(out, json_pack("{s:o, s:b}", "sandbox_id", json_str(id), "done", 1));
    return 0;
}

static int mcp_desktop_move(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                            struct error *err)
{
    return act(call, args, DESKTOP_MOVE, out, err);
}

static int mcp_desktop_click(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                             struct error *err)
{
    return act(call, args, DESKTOP_CLICK, out, err);
}

static int mcp_desktop_type(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                            struct error *err)
{
    return act(call, args, DESKTOP_TYPE, out, err);
}

static int mcp_desktop_key(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                           struct error *err)
{
    return act(call, args, DESKTOP_KEY, out, err);
}

static int mcp_desktop_scroll(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                              struct error *err)
{
    return act(call, args, DESKTOP_SCROLL, out, err);
}

static int mcp_desktop_drag(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                            struct error *err)
{
    return act(call, args, DESKTOP_DRAG, out, err);
}

static const struct mcp_tool rows[] = {
    {"desktop_screenshot", mcp_desktop_screenshot, MCP_READS},
    {"desktop_move", mcp_desktop_move, 0},
    {"desktop_click", mcp_desktop_click, 0},
    {"desktop_type", mcp_desktop_type, 0},
    {"desktop_key", mcp_desktop_key, 0},
    {"desktop_scroll", mcp_desktop_scroll, 0},
    {"desktop_drag", mcp_desktop_drag, 0},
    {NULL, NULL, 0},
};
static const struct mcp_tools tools = {rows, desktop_tools_json};

const struct extra extra_desktop_tools = {.name = "desktop", .tools = &tools};
