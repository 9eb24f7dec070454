/* browser_*: the page of a sandbox's browser, for who does not speak its protocol. What the sandbox gives is the guest's: of it only
 * text, a picture and a document are passed on. */
#include "extra/core/extra.h"
#include "extra/mcp/browser_tools_json.h"
#include "extra/mcp/mcp_tool.h"

#include "base/cleanup.h"
#include "extra/browser/browser_page.h"
#include "extra/mcp/mcp_output.h"
#include "protocol/json/json_shape.h"

#define TEMPLATE "browser"

enum { WORDS_MAX = 4096 }; /* bytes of an address or a title */

static int on_started(void *arg, const char *process_id)
{
    return mcp_running_started(arg, process_id) ? 0 : -1;
}

/* What it gives is in *out; *id: where it was. */
static int act(struct mcp_call *call, json_t *args, const char *name, struct str *id,
               struct buf *out, struct error *err)
{
    const struct browser_page page = {
        .act = name,
        .url = json_get_str(args, "url"),
        .selector = json_get_str(args, "selector"),
        .has_place = json_object_get(args, "x") && json_object_get(args, "y"),
        .x = mcp_arg_int(args, "x", 0),
        .y = mcp_arg_int(args, "y", 0),
        .button = json_get_str(args, "button"),
        .count = mcp_arg_int(args, "count", 0),
        .text = json_get_str(args, "text"),
        .key = json_get_str(args, "key"),
        .full_page = json_is_true(json_object_get(args, "full_page")),
        .timeout_ms = mcp_arg_int(args, "timeout_s", 0) * 1000,
        .on_started = on_started,
        .on_started_arg = call,
    };

    if (mcp_sandbox_of(call, args, TEMPLATE, id, err) < 0)
        return -1;
    return browser_page_do(call->mcp->config.runtime, &call->caller, *id, &page, out, err);
}

/* In the arena; *cut: whether something in the middle was left out. */
static struct str shorten(struct mcp_call *call, struct str text, size_t most, bool *cut)
{
    struct mcp_capture capture = {0};
    struct str out;

    mcp_capture_init(&capture, most);
    mcp_capture_add(&capture, text);
    *cut = mcp_capture_missing(&capture) > 0;
    out = mcp_capture_text(&capture, &call->arena);
    mcp_capture_done(&capture);
    return out;
}

/* Where the page is now, and what it is called; *answer: all that was told. */
static int ask(struct mcp_call *call, json_t *args, const char *name, json_t **answer,
               json_t **about, struct error *err)
{
    auto_buf struct buf text = {0};
    struct str id;
    bool cut;

    buf_init(&text, BROWSER_PAGE_MAX);
    if (act(call, args, name, &id, &text, err) < 0)
        return -1;
    if (buf_account_reserve(json_cost(buf_str(&text)), err) < 0)
        return -1;
    if (json_parse(buf_str(&text), answer, err) < 0 || !json_is_object(*answer))
        return error_set(err, ERROR_CONFLICT, "what the sandbox gave is no answer of a browser");
    *about =
        json_pack("{s:o, s:o, s:o}", "sandbox_id", json_str(id), "url",
                  json_str(shorten(call, json_get_str(*answer, "url"), WORDS_MAX, &cut)), "title",
                  json_str(shorten(call, json_get_str(*answer, "title"), WORDS_MAX, &cut)));
    return 0;
}

static int tell_about(struct mcp_call *call, json_t *args, const char *name,
                      struct mcp_outcome *out, struct error *err)
{
    auto_json json_t *answer = NULL;
    json_t *about = NULL;

    if (ask(call, args, name, &answer, &about, err) < 0)
        return -1;
    mcp_outcome_json(out, about);
    return 0;
}

static int mcp_browser_open(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                            struct error *err)
{
    return tell_about(call, args, "goto", out, err);
}

static int mcp_browser_click(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                             struct error *err)
{
    return tell_about(call, args, "click", out, err);
}

static int mcp_browser_type(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                            struct error *err)
{
    return tell_about(call, args, "type", out, err);
}

static int mcp_browser_text(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                            struct error *err)
{
    size_t most = (size_t)mcp_arg_int(args, "output_limit", MCP_OUTPUT_DEFAULT);
    auto_json json_t *answer = NULL;
    json_t *about = NULL;
    struct str text;
    bool cut;

    if (ask(call, args, "text", &answer, &about, err) < 0)
        return -1;
    text = shorten(call, json_get_str(answer, "text"), most, &cut);
    mcp_outcome_text(out, text);
    (void)json_object_set_new(about, "text", json_str(text));
    (void)json_object_set_new(about, "truncated", json_boolean(cut));
    mcp_outcome_json(out, about);
    return 0;
}

static int mcp_browser_screenshot(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                                  struct error *err)
{
    auto_buf struct buf picture = {0};
    struct str id;

    buf_init(&picture, MCP_PICTURE_MAX);
    if (act(call, args, "screenshot", &id, &picture, err) < 0)
        return -1;
    return mcp_outcome_screen(out, id, &picture, err);
}

static int mcp_browser_pdf(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                           struct error *err)
{
    auto_buf struct buf document = {0};
    struct str id;

    buf_init(&document, MCP_PICTURE_MAX);
    if (act(call, args, "pdf", &id, &document, err) < 0)
        return -1;
    if (document.overflowed)
        return error_set(err, ERROR_LIMIT, "the page as a PDF is larger than %d MiB",
                         MCP_PICTURE_MAX >> 20);
    if (mcp_outcome_reserve(document.len, err) < 0)
        return -1;
    mcp_outcome_document(out, "browser:///page.pdf", "application/pdf", buf_str(&document));
    mcp_outcome_json(
        out, json_pack("{s:o, s:I}", "sandbox_id", json_str(id), "size", (json_int_t)document.len));
    return 0;
}

static const struct mcp_tool rows[] = {
    {"browser_open", mcp_browser_open, 0},
    {"browser_text", mcp_browser_text, MCP_READS},
    {"browser_click", mcp_browser_click, 0},
    {"browser_type", mcp_browser_type, 0},
    {"browser_screenshot", mcp_browser_screenshot, MCP_READS},
    {"browser_pdf", mcp_browser_pdf, MCP_READS},
    {NULL, NULL, 0},
};
static const struct mcp_tools tools = {rows, browser_tools_json};

const struct extra extra_browser_tools = {.name = "browser", .tools = &tools};
