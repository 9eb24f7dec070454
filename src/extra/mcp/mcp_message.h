/* Messages of the Model Context Protocol as they come over HTTP: JSON-RPC, one a request, and what the heads
 * beside it must say. Pure functions: no sandbox, no connection.
 *
 * Two eras live side by side. Until 2025-11-25 a client initialises and may have a session. Since 2026-07-28 every
 * request stands for itself: its version and the client's abilities are in `_meta`, and headers repeat
 * what intermediaries want to know. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/str.h"

#define MCP_VERSION_STATELESS "2026-07-28"
#define MCP_VERSION_NEWEST    "2025-11-25" /* of those with an initialize */

enum mcp_code {
    MCP_PARSE = -32700,
    MCP_REQUEST_BAD = -32600,
    MCP_NO_METHOD = -32601,
    MCP_PARAMS_BAD = -32602,
    MCP_INTERNAL = -32603,
    MCP_REFUSED = -32001, /* not admitted: API key, quota, origin */
    MCP_CANCELLED = -32800,
    MCP_HEADER_MISMATCH = -32020,
    MCP_VERSION_BAD = -32022,
};

enum mcp_kind { MCP_REQUEST, MCP_NOTIFICATION, MCP_RESPONSE };

/* Borrows from tree. */
struct mcp_message {
    json_t *tree; /* owned: mcp_message_done() */
    enum mcp_kind kind;
    bool stateless; /* of 2026-07-28; set by mcp_message_check() */
    json_t *id;     /* a string or an integer; NULL = it has none */
    struct str method;
    json_t *params; /* an object, or NULL */
};

/* What the request's head says; STR_NONE = it does not. */
struct mcp_heads {
    struct str version, method, name; /* MCP-Protocol-Version, Mcp-Method, Mcp-Name */
};

/* Why a message is not taken. */
struct mcp_fault {
    int status;
    enum mcp_code code;
    char message[256];
    json_t *data; /* owned by who gets it; or NULL */
};

/* -1 with a fault; then id may be set all the same, and goes into the answer. */
int mcp_message_parse(struct str text, struct mcp_message *out, struct mcp_fault *fault);
void mcp_message_done(struct mcp_message *message);
/* Which era it is of, and whether its version and heads are as they must be there. */
int mcp_message_check(struct mcp_message *message, const struct mcp_heads *heads,
                      struct mcp_fault *fault);

/* The version to go on with, for a client that asks for this one in its initialize. */
const char *mcp_version_for(struct str asked);
/* All versions that are spoken; new reference. */
json_t *mcp_versions(void);

int mcp_fault_set(struct mcp_fault *fault, int status, enum mcp_code code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* {"jsonrpc","id","error"}; takes fault->data. id: borrowed, NULL = null. New reference. */
json_t *mcp_fault_json(struct mcp_fault *fault, json_t *id);
