/* A request for a paused sandbox that traffic may resume. It waits, unread, while a worker resumes the
 * sandbox; then it goes its way as if nothing had been. */
#pragma once

#include "base/list.h"
#include "domain/route/route.h"
#include "edge/proxy/proxy_host.h"
#include "protocol/http/http_server.h"
#include "protocol/loop/workers.h"

/* Called on the loop when the sandbox runs, or cannot (failure is set); not when the client has
 * gone. */
typedef void proxy_wake_fn(struct http_exchange *ex, const struct proxy_target *target,
                           const struct error *failure, void *arg);

/* May this request resume it? Ports that are public by anybody, envd's by its token only, and
 * not by asking whether it runs. */
bool proxy_wake_allowed(const struct route *route, const struct proxy_target *target,
                        const struct http_request *request);
struct proxy_wakes {
    struct workers *workers; /* NULL: none is resumed */
    struct routes *routes;
    struct list *under_way; /* of the loop; private */
};
/* On the loop. One worker resumes a sandbox for all requests of the loop that wait for it. False when there is no worker
 * for it now. */
bool proxy_wake(const struct proxy_wakes *wakes, struct http_exchange *ex,
                const struct proxy_target *target, proxy_wake_fn *fn, void *arg);
