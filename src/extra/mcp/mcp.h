/* Quicksand as a server of the Model Context Protocol: /mcp, streamable HTTP.
 *
 * Nothing is kept for a client between its requests but its sandbox, which the runtime finds by a key. A session
 * id is given out, because clients of the older revisions like one, and only tells apart whose request a cancellation
 * means: after a restart of the server they go on as before. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct api_keys;
struct http_exchange;
struct http_limits;
struct mcp;
struct runtime;
struct store;
struct workers;

/* docs/internals/lanes.md lists the lane of each tool. */
enum mcp_lane {
    MCP_LANE_CONTROL, /* every message begins here, and ends here unless it calls a tool of the other lane */
    MCP_LANE_WORK, /* tools that take as long as a command, a file or a create */
    MCP_LANE_COUNT,
};

/* All borrowed. */
struct mcp_config {
    struct runtime *runtime;
    struct api_keys *keys;
    struct store *store; /* the audit log; NULL = none is kept */
    struct {
        struct workers *workers; /* elastic */
        size_t team_max;         /* of them for one team at the same time; 0 = all */
    } lanes[MCP_LANE_COUNT];
    struct http_limits *limits;
    const char *domain;   /* of this server: pages of it may ask; "" or NULL = none */
    const char *fixtures; /* text of canned answers, for tests (mcp_fixture.c); NULL = none */
};

struct mcp *mcp_new(const struct mcp_config *config);
/* After the loops and workers have ended. */
void mcp_free(struct mcp *mcp);
/* On any edge loop. False: the path is not ours. */
bool mcp_handle(struct mcp *mcp, struct http_exchange *ex);
/* Any thread: ends the commands that clients wait for. */
void mcp_drain(struct mcp *mcp);
