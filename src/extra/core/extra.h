/* What an extra is: a part of the product that the core does without, in a folder of its own, which may use all of the
 * core and which nothing of the core names. It registers itself by one struct; the core goes through those that were
 * chosen by meson's option `extras`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct api_keys;
struct call_join;
struct cli_place;
struct engine;
struct http_exchange;
struct http_limits;
struct loop;
struct mcp_tools;
struct provider_type;
struct runtime;
struct sandboxes;
struct secrets;
struct spool;
struct store;
struct v1_endpoint;
struct volumes;
struct workers;

/* Workers of the server that extras share with its APIs (docs/internals/lanes.md); an extra counts a team's share by itself. */
enum extra_lane {
    EXTRA_LANE_CONTROL, /* of the E2B API */
    EXTRA_LANE_WAIT,
    EXTRA_LANE_RUNTIME_CONTROL, /* of /api/v1 */
    EXTRA_LANE_RUNTIME_WORK,
    EXTRA_LANE_COUNT,
};

/* What the server has. All borrowed, until close(). */
struct extra_host {
    struct sandboxes *sandboxes;
    struct volumes *volumes;
    struct engine *engine;
    struct store *store;
    const struct secrets *secrets;
    struct spool *spool;
    struct api_keys *keys;
    struct http_limits *limits;
    struct runtime *runtime;
    const char *directory;    /* of the store */
    const char *url, *domain; /* of the server; may be NULL */
    struct {
        struct workers *workers;
        size_t team_max;
    } lanes[EXTRA_LANE_COUNT];
    /* To what runs in sandboxes of this host: edge/call/call.h. */
    void (*join)(void *arg, struct loop *loop, struct http_exchange *ex,
                 const struct call_join *join);
    void *join_arg;
};

/* Members that are NULL are what an extra does not have. */
struct extra {
    const char *name;
    const struct cli_place *commands; /* of the command line (cli/core/cli_command.h) */
    const struct v1_endpoint *v1;     /* of /api/v1, ended by one without a method */
    const struct mcp_tools *tools;    /* of MCP (extra/mcp/mcp_tool.h) */

    /* A part of the server, from its start to its end; `state` is what open() gave. */
    int (*open)(const struct extra_host *host, void **out_state, struct error *err);
    /* On a loop: a request that no other API has taken. True: it is taken. */
    bool (*handle)(void *state, struct http_exchange *ex);
    /* On each loop as the server stops: what would not end by itself ends. */
    void (*drain)(void *state);
    /* After the loops and workers have ended. */
    void (*close)(void *state);
    /* On a loop, first of all: takes a request over plain HTTP of a server that has HTTPS, too. True: it is answered. */
    bool (*handle_plain)(struct http_exchange *ex, const char *data_dir);
    const char
        *plain_prefix; /* requests over plain HTTP for paths below it are not redirected to HTTPS */
};

/* Adds their commands, endpoints and types of providers; at the start of the program. Both NULL-terminated. */
void extras_register(const struct extra *const *all, const struct provider_type *const *types);
/* As they were registered; NULL-terminated. */
const struct extra *const *extras_all(void);
