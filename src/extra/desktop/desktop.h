/* The screen of a sandbox, for agents that look and click. By the programs of the template `desktop`, or of any other with
 * xdotool and scrot: so on every provider that runs commands. */
#pragma once

#include "base/buf.h"
#include "runtime/sandbox/sandbox.h"

enum desktop_kind {
    DESKTOP_MOVE,
    DESKTOP_CLICK,
    DESKTOP_TYPE,
    DESKTOP_KEY,
    DESKTOP_SCROLL,
    DESKTOP_DRAG
};

enum { DESKTOP_NOWHERE = -1, DESKTOP_SIDE_MAX = 16384, DESKTOP_KEYS_MAX = 32 };

struct desktop_act {
    enum desktop_kind kind;
    struct str display;   /* "" = :0 */
    int x, y;             /* DESKTOP_NOWHERE: where the pointer is */
    int to_x, to_y;       /* of a drag */
    struct str button;    /* left, middle, right; "" = left */
    int count;            /* of clicks; of steps of a scroll */
    struct str direction; /* up, down, left, right; "" = down */
    struct str text;      /* to type */
    int delay_ms;         /* between its letters */
    const json_t *keys;   /* to press one after the other: "ctrl+c", "Return" */
};

/* A picture as PNG, with the pointer. */
int desktop_screenshot(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                       struct str display, struct buf *out, struct error *err);
/* ERROR_INVALID for what makes no sense, ERROR_CONFLICT where the sandbox has no screen. */
int desktop_do(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
               const struct desktop_act *act, struct error *err);
