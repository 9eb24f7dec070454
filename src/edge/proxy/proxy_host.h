/* Which sandbox and port a request addresses. Pure parsing. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum { PROXY_ID_SIZE = 64, PROXY_ENVD_PORT = 49983 };

/* Whose origin a browser would take the answer for. */
enum proxy_place {
    PROXY_PLACE_OWN,    /* the sandbox has a host name of its own */
    PROXY_PLACE_HEADER, /* the control plane's host: named by a header, which no link can carry */
    PROXY_PLACE_LINK,   /* the control plane's host: named by what a link carries */
};

struct proxy_target {
    char id[PROXY_ID_SIZE]; /* [a-z0-9]+; not necessarily one of ours */
    char volume_token
        [PROXY_ID_SIZE]; /* instead of an id: the content of the volume with this token; "" = a sandbox */
    uint16_t port;
    enum proxy_place place;
};

enum proxy_host {
    PROXY_HOST_NONE, /* not for a sandbox: the control plane's */
    PROXY_HOST_OK,
    PROXY_HOST_BAD, /* for a sandbox, but wrong: 400 */
};

/* host, id and port are the values of Host, E2b-Sandbox-Id and E2b-Sandbox-Port (STR_NONE when
 * absent). A Host of the form <port>-<id>[-<anything>].<rest> decides alone; with any other the two
 * headers do. */
enum proxy_host proxy_host_parse(struct str host, struct str id, struct str port,
                                 struct proxy_target *out, const char **out_error);
