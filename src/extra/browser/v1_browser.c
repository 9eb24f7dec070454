/* The page of a sandbox's browser: where it is, what it says, and what a hand would do. */

#include "base/cleanup.h"
#include "edge/api_runtime/v1_types.h"
#include "extra/browser/browser_extra.h"
#include "extra/browser/browser_page.h"
#include "protocol/json/json_shape.h"

enum { SIDE_MAX = 32768, TIMEOUT_MAX_MS = 300000 };

static const struct {
    const char *name, *type; /* of the bytes it gives; NULL = JSON */
} acts[] = {{"goto", NULL},
            {"text", NULL},
            {"click", NULL},
            {"type", NULL},
            {"screenshot", "image/png"},
            {"pdf", "application/pdf"}};

static int find_act(struct str name, const char **out, const char **type, struct error *err)
{
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
        if (str_is(name, acts[i].name)) {
            *out = acts[i].name;
            *type = acts[i].type;
            return 0;
        }
    return error_set(err, ERROR_NOT_FOUND,
                     "no '%.*s' here: there are goto, text, click, type, screenshot, pdf",
                     STR_ARG(name));
}

static int read_place(struct v1_call *call, struct browser_page *page, struct error *err)
{
    page->x = page->y = -1;
    if (v1_body_int(call, "x", 0, SIDE_MAX, &page->x, err) < 0 ||
        v1_body_int(call, "y", 0, SIDE_MAX, &page->y, err) < 0)
        return -1;
    page->has_place = page->x >= 0 && page->y >= 0;
    return 0;
}

static int read_page(struct v1_call *call, struct browser_page *page, struct error *err)
{
    if (v1_body_str(call, "url", &page->url, err) < 0 ||
        v1_body_str(call, "selector", &page->selector, err) < 0 ||
        v1_body_str(call, "button", &page->button, err) < 0 ||
        v1_body_str(call, "text", &page->text, err) < 0 ||
        v1_body_str(call, "key", &page->key, err) < 0 ||
        v1_body_bool(call, "full_page", &page->full_page, err) < 0 ||
        v1_body_int(call, "count", 1, 10, &page->count, err) < 0 ||
        v1_body_int(call, "timeout_ms", 1, TIMEOUT_MAX_MS, &page->timeout_ms, err) < 0)
        return -1;
    return read_place(call, page, err);
}

static int answer_json(struct v1_call *call, const struct buf *text, struct error *err)
{
    json_t *json = NULL;

    if (buf_account_reserve(json_cost(buf_str(text)), err) < 0)
        return -1;
    if (json_parse(buf_str(text), &json, err) < 0)
        return error_set(err, ERROR_CONFLICT, "what the sandbox gave is no answer of a browser");
    call_answer(&call->call, 200, json);
    return 0;
}

int v1_browser(struct v1_call *call, struct error *err)
{
    struct browser_page page = {0};
    auto_buf struct buf out = {0};
    const char *type = NULL;

    buf_init(&out, BROWSER_PAGE_MAX);
    if (find_act(call->params[1], &page.act, &type, err) < 0 || read_page(call, &page, err) < 0 ||
        browser_page_do(call->v1->config.runtime, &call->caller, call->params[0], &page, &out,
                        err) < 0)
        return -1;
    if (!type)
        return answer_json(call, &out, err);
    call_header(&call->call, "Cache-Control", STR("no-store"));
    return call_answer_bytes(&call->call, 200, type, buf_str(&out), err);
}
