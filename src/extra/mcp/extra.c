/* The Model Context Protocol: the server at /mcp, `quicksand mcp`, and the gateway inside sandboxes. */
#include <fcntl.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "cli/core/cli_command.h"
#include "extra/core/extra.h"
#include "extra/mcp/cli_mcp.h"
#include "extra/mcp/mcp.h"

enum { FIXTURES_MAX = 1024 * 1024 };

/* Canned answers for the conformance suite: for tests only. malloc()ed; NULL = none are wanted. */
static char *read_fixtures(void)
{
    const char *path = getenv("QUICKSAND_MCP_FIXTURES");
    struct buf text;

    if (!path || !path[0])
        return NULL;
    buf_init(&text, FIXTURES_MAX);
    if (fd_read_file_at(AT_FDCWD, path, &text) < 0)
        log_warn("mcp", "cannot read QUICKSAND_MCP_FIXTURES '%s'", path);
    else
        log_warn("mcp", "tests: /mcp has canned answers from '%s'", path);
    return buf_take(&text);
}

static int mcp_open(const struct extra_host *host, void **out, struct error *err)
{
    auto_free char *fixtures = read_fixtures();
    struct mcp_config config = {.runtime = host->runtime,
                                .keys = host->keys,
                                .store = host->store,
                                .limits = host->limits,
                                .domain = host->domain,
                                .fixtures = fixtures};

    (void)err;
    config.lanes[MCP_LANE_CONTROL].workers = host->lanes[EXTRA_LANE_RUNTIME_CONTROL].workers;
    config.lanes[MCP_LANE_CONTROL].team_max = host->lanes[EXTRA_LANE_RUNTIME_CONTROL].team_max;
    config.lanes[MCP_LANE_WORK].workers = host->lanes[EXTRA_LANE_RUNTIME_WORK].workers;
    config.lanes[MCP_LANE_WORK].team_max = host->lanes[EXTRA_LANE_RUNTIME_WORK].team_max;
    *out = mcp_new(&config);
    return 0;
}

static bool handle(void *mcp, struct http_exchange *ex)
{
    return mcp_handle(mcp, ex);
}

static void drain(void *mcp)
{
    mcp_drain(mcp);
}

static void mcp_close(void *mcp)
{
    mcp_free(mcp);
}

static const struct cli_place commands[] = {{&cli_mcp_command, "template"}, {NULL, NULL}};

const struct extra extra_mcp = {.name = "mcp",
                                .commands = commands,
                                .open = mcp_open,
                                .handle = handle,
                                .drain = drain,
                                .close = mcp_close};
