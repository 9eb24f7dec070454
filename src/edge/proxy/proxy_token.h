/* Finding the sandbox of a request that names none. A client that was given one URL for all sandboxes
 * sends some requests to envd without an id: with a token, or with a signed URL for a file. Both
 * fit exactly one sandbox. */
#pragma once

#include "domain/route/route.h"
#include "protocol/http/http.h"

enum proxy_token {
    PROXY_TOKEN_NONE, /* neither token nor signature: not for a sandbox */
    PROXY_TOKEN_OK,
    PROXY_TOKEN_UNKNOWN,  /* the token fits no sandbox that is there now */
    PROXY_TOKEN_UNSIGNED, /* nor does the signature */
};

enum proxy_token proxy_token_route(struct routes *routes, const struct http_request *request,
                                   struct route *out);
