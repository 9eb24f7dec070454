/* The screen of a sandbox: seen and steered by /api/v1, the command line and tools of MCP. */
#include "extra/core/extra.h"
#include "extra/desktop/desktop_extra.h"

static const char *const members_screenshot[] = {"display", NULL};
static const char *const members_desktop[] = {
    "display",   "x",    "y",        "to_x",     "to_y", "button", "count clicks amount",
    "direction", "text", "delay_ms", "keys key", NULL};

/* clang-format off */
static const struct v1_endpoint endpoints[] = {
    {{"GET", "/sandboxes/{id}/desktop/screenshot"}, v1_desktop_screenshot, V1_BOX},
    {{"POST", "/sandboxes/{id}/desktop/screenshot"}, v1_desktop_screenshot, V1_BOX | V1_QUIET, members_screenshot},
    {{"POST", "/sandboxes/{id}/desktop/{act}"}, v1_desktop_do, V1_BOX, members_desktop},
    {.is = {.method = NULL}},
};
/* clang-format on */
static const struct cli_place commands[] = {{&cli_desktop_command, "url"}, {NULL, NULL}};

const struct extra extra_desktop = {.name = "desktop", .commands = commands, .v1 = endpoints};
