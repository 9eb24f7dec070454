/* The proxy's own answers: JSON for programs, a page for browsers. */
#pragma once

#include "edge/proxy/proxy_host.h"
#include "protocol/http/http_server.h"

enum proxy_error {
    PROXY_ERROR_NOT_FOUND,     /* 502: no such sandbox */
    PROXY_ERROR_PAUSED,        /* 502 */
    PROXY_ERROR_PORT_CLOSED,   /* 502: nobody listens there */
    PROXY_ERROR_BROKEN,        /* 502: closed or garbage before an answer */
    PROXY_ERROR_CUT,           /* 502: the request was passed on, then the sandbox stopped */
    PROXY_ERROR_TOKEN_MISSING, /* 403 */
    PROXY_ERROR_TOKEN_INVALID, /* 403 */
    PROXY_ERROR_CONTROL,       /* 404: a control route of envd */
    PROXY_ERROR_BUSY,          /* 503: the sandbox has its share of connections */
    PROXY_ERROR_SCRIPT, /* 403: a browser wants it as a script of the control plane's origin */
    PROXY_ERROR_RAW,    /* 401: the bare connection is for who may run commands inside */
    PROXY_ERROR_COUNT,
};

void proxy_errors_reply(struct http_exchange *ex, enum proxy_error error,
                        const struct proxy_target *target);
/* PROXY_ERROR_NOT_FOUND for a sandbox that ended; reason NULL: not known. */
void proxy_errors_ended(struct http_exchange *ex, const struct proxy_target *target,
                        const char *reason);
/* 400 {"code":400,"message":...}: the request does not say which sandbox. */
void proxy_errors_bad_request(struct http_exchange *ex, const char *message);
