/* Browsers in sandboxes: Browserbase's API at /v1, the page of a browser by /api/v1, the command line and tools of MCP. */
#include "extra/core/extra.h"
#include "base/alloc.h"
#include "extra/browser/bb.h"
#include "extra/browser/browser.h"
#include "extra/browser/browser_extra.h"

struct state {
    struct browsers *browsers;
    struct bb *bb;
};

static int browser_open(const struct extra_host *host, void **out, struct error *err)
{
    struct state *state = xcalloc(1, sizeof(*state));
    struct bb_config config = {.keys = host->keys,
                               .store = host->store,
                               .limits = host->limits,
                               .file_directory = host->directory,
                               .spool = host->spool,
                               .url = host->url,
                               .join = host->join,
                               .join_arg = host->join_arg};

    (void)err;
    state->browsers = browsers_open(&(struct browsers_config){.sandboxes = host->sandboxes,
                                                              .volumes = host->volumes,
                                                              .engine = host->engine,
                                                              .store = host->store,
                                                              .secrets = host->secrets,
                                                              .spool = host->spool,
                                                              .directory = host->directory});
    config.browsers = state->browsers;
    config.lanes[BB_LANE_CONTROL].workers = host->lanes[EXTRA_LANE_CONTROL].workers;
    config.lanes[BB_LANE_CONTROL].team_max = host->lanes[EXTRA_LANE_CONTROL].team_max;
    config.lanes[BB_LANE_WAIT].workers = host->lanes[EXTRA_LANE_WAIT].workers;
    config.lanes[BB_LANE_WAIT].team_max = host->lanes[EXTRA_LANE_WAIT].team_max;
    state->bb = bb_new(&config);
    *out = state;
    return 0;
}

static bool browser_handle(void *arg, struct http_exchange *ex)
{
    return bb_handle(((struct state *)arg)->bb, ex);
}

static void browser_close(void *arg)
{
    struct state *state = arg;

    bb_free(state->bb);
    browsers_close(state->browsers);
    free(state);
}

static const char *const members_browser[] = {"url",       "selector",     "x",    "y",
                                              "button",    "count clicks", "text", "key",
                                              "full_page", "timeout_ms",   NULL};

/* clang-format off */
static const struct v1_endpoint endpoints[] = {
    {{"GET", "/sandboxes/{id}/browser/live", true}, v1_browser_live, V1_UPGRADE | V1_BOX},
    {{"GET", "/sandboxes/{id}/browser/{act}"}, v1_browser, V1_BOX | V1_QUIET},
    {{"POST", "/sandboxes/{id}/browser/{act}"}, v1_browser, V1_BOX, members_browser},
    {.is = {.method = NULL}},
};
/* clang-format on */
static const struct cli_place commands[] = {{&cli_browser_command, "url"}, {NULL, NULL}};

const struct extra extra_browser = {.name = "browser",
                                    .commands = commands,
                                    .v1 = endpoints,
                                    .open = browser_open,
                                    .handle = browser_handle,
                                    .close = browser_close};
