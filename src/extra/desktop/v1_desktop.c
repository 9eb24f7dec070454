/* The screen of a sandbox: a picture of it, and what a hand would do. */
#include "base/cleanup.h"
#include "edge/api_runtime/v1_types.h"
#include "extra/desktop/desktop.h"
#include "extra/desktop/desktop_extra.h"
#include "protocol/json/json_shape.h"

enum { PICTURE_MAX = 16 << 20 };

static struct runtime *runtime_of(const struct v1_call *call)
{
    return call->v1->config.runtime;
}

int v1_desktop_screenshot(struct v1_call *call, struct error *err)
{
    auto_buf struct buf picture = {0};
    struct str display = STR_NONE;

    buf_init(&picture, PICTURE_MAX);
    if (call->json && v1_body_str(call, "display", &display, err) < 0)
        return -1;
    if (desktop_screenshot(runtime_of(call), &call->caller, call->params[0], display, &picture,
                           err) < 0)
        return -1;
    call_header(&call->call, "Cache-Control", STR("no-store"));
    /* As bytes, so that `curl -o` and an <img> have what they want. */
    return call_answer_bytes(&call->call, 200, "image/png", buf_str(&picture), err);
}

static const struct {
    const char *name;
    enum desktop_kind kind;
} acts[] = {{"move", DESKTOP_MOVE}, {"click", DESKTOP_CLICK},   {"type", DESKTOP_TYPE},
            {"key", DESKTOP_KEY},   {"scroll", DESKTOP_SCROLL}, {"drag", DESKTOP_DRAG}};

static int find_act(struct str name, enum desktop_kind *out, struct error *err)
{
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
        if (str_is(name, acts[i].name)) {
            *out = acts[i].kind;
            return 0;
        }
    return error_set(err, ERROR_NOT_FOUND,
                     "no '%.*s' here: there are screenshot, move, click, type, key, scroll, drag",
                     STR_ARG(name));
}

static int read_place(struct v1_call *call, const char *name, int *out, struct error *err)
{
    int64_t value = *out;

    if (v1_body_int(call, name, DESKTOP_NOWHERE, DESKTOP_SIDE_MAX, &value, err) < 0)
        return -1;
    *out = (int)value;
    return 0;
}

/* One key, or several. */
static int read_keys(struct v1_call *call, struct desktop_act *act, json_t **keys,
                     struct error *err)
{
    json_t *given = json_object_get(call->json, "keys");

    if (json_is_string(given))
        *keys = json_pack("[O]", given);
    else if (v1_body_strings(call, "keys", JSON_ARRAY, keys, err) < 0)
        return -1;
    else
        (void)json_incref(*keys);
    act->keys = *keys;
    return 0;
}

static int read_act(struct v1_call *call, struct desktop_act *act, struct error *err)
{
    int64_t count = act->kind == DESKTOP_SCROLL ? 3 : 1, delay_ms = 12;

    if (v1_body_str(call, "display", &act->display, err) < 0 ||
        read_place(call, "x", &act->x, err) < 0 || read_place(call, "y", &act->y, err) < 0 ||
        read_place(call, "to_x", &act->to_x, err) < 0 ||
        read_place(call, "to_y", &act->to_y, err) < 0 ||
        v1_body_str(call, "button", &act->button, err) < 0 ||
        v1_body_str(call, "direction", &act->direction, err) < 0 ||
        v1_body_str(call, "text", &act->text, err) < 0 ||
        v1_body_int(call, "count", 1, 100, &count, err) < 0 ||
        v1_body_int(call, "delay_ms", 0, 1000, &delay_ms, err) < 0)
        return -1;
    act->count = (int)count;
    act->delay_ms = (int)delay_ms;
    return 0;
}

int v1_desktop_do(struct v1_call *call, struct error *err)
{
    struct desktop_act act = {.x = DESKTOP_NOWHERE,
                              .y = DESKTOP_NOWHERE,
                              .to_x = DESKTOP_NOWHERE,
                              .to_y = DESKTOP_NOWHERE};
    auto_json json_t *keys = NULL;

    if (find_act(call->params[1], &act.kind, err) < 0 || read_act(call, &act, err) < 0 ||
        read_keys(call, &act, &keys, err) < 0)
        return -1;
    if (desktop_do(runtime_of(call), &call->caller, call->params[0], &act, err) < 0)
        return -1;
    call_answer(&call->call, 200, json_pack("{s:b}", "ok", 1));
    return 0;
}
