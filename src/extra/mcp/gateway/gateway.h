/* The MCP gateway: one MCP server at a port of a sandbox for several that speak over standard input and output (docs/mcp.md).
 *
 * It starts each of them, initialises it as its client, lists its tools, and passes calls on: with numbers of its own, because those of
 * its clients may be the same. A server that ends is started again. What servers send is hostile: lines, answers and tools have
 * limits, and an answer to nothing that was asked is dropped.
 *
 * One thread, one loop. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"
#include "base/str.h"
#include "protocol/http/http_server.h"
#include "protocol/loop/loop.h"

enum {
    GATEWAY_PORT = 50005,
    GATEWAY_SERVERS_MAX = 32,
    GATEWAY_TOOLS_MAX = 1024,                  /* of all servers */
    GATEWAY_TOOL_SIZE_MAX = 64 * 1024,         /* of one, as JSON */
    GATEWAY_TOOLS_BYTES_MAX = 4 * 1024 * 1024, /* of all servers, as JSON */
    GATEWAY_LINE_MAX = 8 * 1024 * 1024,        /* from a server */
    GATEWAY_BODY_MAX = 8 * 1024 * 1024,        /* from a client */
    GATEWAY_ASKED_MAX = 256,                   /* requests under way at one server */
    GATEWAY_CALL_MS = 60 * 60 * 1000,          /* the longest call of a tool */
    GATEWAY_BEGIN_MS = 50 * 1000,              /* until a server has told its tools */
};

/* One server as it is configured. Owned by the gateway. */
struct server_config {
    char *name;    /* "github/owner/repo", "npm/package" */
    char *install; /* a line for bash, or NULL */
    char *run;     /* the same */
    char *cwd;
    json_t *envs; /* object of strings, or NULL */
};

struct server;

struct gateway {
    struct loop *loop;
    struct str token;
    struct server *servers[GATEWAY_SERVERS_MAX];
    size_t count, ready;
    struct list requests; /* of clients, under way */
    int told_fd; /* who started us waits there for "ok" or what went wrong; -1 = was told */
};

/* ---- config.c ---- */

/* Of the option's JSON. ERROR_INVALID or ERROR_UNSUPPORTED names the entry. */
int config_read(struct str text, struct server_config out[GATEWAY_SERVERS_MAX], size_t *out_count,
                struct error *err);
void config_done(struct server_config *config);
/* The environment of its programs: this process's without the token of clients, with those of `envs`, which may be NULL. */
char **config_environment(json_t *envs);
void config_environment_free(char **environment);
/* Clones and installs what is not there yet; blocks. */
int config_install(const struct server_config *config, struct error *err);

/* ---- server.c ---- */

/* A request that a server works on. */
struct asked {
    struct list link;
    struct server *server;
    int64_t id, deadline_ms;
    /* Once. answer: {"result"} or {"error"}, borrowed; NULL = there is none, and why says so. */
    void (*on_answer)(void *arg, json_t *answer, const char *why);
    void (*on_progress)(void *arg, json_t *params); /* or NULL */
    void *arg;
};

struct server *server_new(struct gateway *gateway, const struct server_config *config);
void server_start(struct server *server);
/* NULL: it does not run, or has too many. Takes params. */
struct asked *server_ask(struct server *server, const char *method, json_t *params_consume,
                         const struct asked *request);
/* Nobody waits for it any more: its callbacks are not called. */
void server_cancel(struct asked *asked);
const char *server_name(const struct server *server);
json_t *server_tools(const struct server *server); /* array, borrowed; or NULL */

/* ---- endpoints.c ---- */

void gateway_handle(struct http_exchange *ex, void *arg);
/* Under which name a tool is told: its own, or behind its server's when another server has it too. malloc()ed. */
char *gateway_tool_name(const struct gateway *gateway, const struct server *server,
                        const char *tool);

/* ---- main.c ---- */

/* What the one who started us waits for: NULL = all servers are ready. Ends the process when something is wrong. */
void gateway_tell(struct gateway *gateway, const char *what);
