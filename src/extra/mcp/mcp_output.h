/* What commands and code print: the begin and the end of it for the result, all of it as progress. */
#pragma once

#include "extra/mcp/mcp_tool.h"

enum { MCP_OUTPUT_DEFAULT = 64 * 1024 };

/* Output of which the begin and the end are kept. */
struct mcp_capture {
    size_t half;
    struct buf head, tail;
    int64_t total;
};

void mcp_capture_init(struct mcp_capture *capture, size_t limit);
void mcp_capture_done(struct mcp_capture *capture);
void mcp_capture_add(struct mcp_capture *capture, struct str data);
/* Bytes that are left out. */
int64_t mcp_capture_missing(struct mcp_capture *capture);
/* With a word for what is left out. In the arena. */
struct str mcp_capture_text(struct mcp_capture *capture, struct arena *arena);

/* Output for whoever wants to see progress; it is told a few times a second. -1 when the client has gone. */
int mcp_progress_add(struct mcp_call *call, struct str data);
/* Tells what was not told yet. */
int mcp_progress_flush(struct mcp_call *call);
