/* What must not pass: envd's control routes, and ports of sandboxes with a traffic token. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "domain/route/route.h"
#include "protocol/http/http.h"

#define PROXY_TRAFFIC_HEADER "e2b-traffic-access-token"

/* Is this request path, however it is spelled, one of envd's control routes? */
bool proxy_guard_is_control(struct str path);

/* Is it one of envd's paths at all, control routes included? */
bool proxy_guard_is_envds(struct str path);
/* Does a browser ask for a script, worker or style sheet? On the control plane's host it would be one
 * of that origin. */
bool proxy_guard_is_script(const struct http_request *request);

/* In a time that tells nothing but the length. */
bool proxy_guard_secret(struct str given, const char *secret);

enum proxy_traffic { PROXY_TRAFFIC_OK, PROXY_TRAFFIC_MISSING, PROXY_TRAFFIC_INVALID };
/* token is the request's header, STR_NONE when absent. envd's port needs none. */
enum proxy_traffic proxy_guard_traffic(const struct route *route, uint16_t port, struct str token);
