/* Code run like cells of a notebook, by the program `interpreter` inside a sandbox. */
#include "extra/core/extra.h"
#include "extra/interpreter/interpreter_extra.h"

static const char *const members_code[] = {"code",
                                           "language",
                                           "context_id context",
                                           "env env_vars envs",
                                           "timeout timeout_seconds",
                                           "timeout_ms",
                                           "stream",
                                           NULL};

/* clang-format off */
static const struct v1_endpoint endpoints[] = {
    {{"POST", "/sandboxes/{id}/code"}, v1_code, V1_BOX, members_code},
    {.is = {.method = NULL}},
};
/* clang-format on */
static const struct cli_place commands[] = {{&cli_code_command, "url"}, {NULL, NULL}};

const struct extra extra_interpreter = {
    .name = "interpreter", .commands = commands, .v1 = endpoints};
