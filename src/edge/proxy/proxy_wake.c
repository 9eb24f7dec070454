#include "edge/proxy/proxy_wake.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/log.h"
#include "edge/proxy/proxy_guard.h"

struct wake {
    struct work work;
    struct list link;      /* of the proxy's wakes, or of another's followers */
    struct list followers; /* requests for the same sandbox that came meanwhile */
    struct routes *routes;
    struct http_exchange *ex; /* NULL when the client has gone; only the loop looks */
    struct proxy_target target;
    proxy_wake_fn *fn;
    void *arg;
    int result;
    struct error err;
};

bool proxy_wake_allowed(const struct route *route, const struct proxy_target *target,
                        const struct http_request *request)
{
    struct str access_token = http_headers_get(&request->headers, "x-access-token");

    if (!route->wakes)
        return false;
    if (target->port != PROXY_ENVD_PORT)
        return true;
    if (str_is(request->path, "/health"))
        return false;
    return !route->access_token[0] || proxy_guard_secret(access_token, route->access_token);
}

static void on_client_gone(struct http_exchange *ex, void *arg)
{
    struct wake *wake = arg;

    (void)ex;
    wake->ex = NULL;
}

static void run(struct work *work)
{
    struct wake *wake = container_of(work, struct wake, work);

    const char *token = wake->target.volume_token;

    wake->result = token[0] ? routes_serve_volume(wake->routes, str_of(token), &wake->err)
                            : routes_wake(wake->routes, wake->target.id, &wake->err);
    /* The token identifies the volume, so it is not logged; an unknown token is not worth a line. */
    if (wake->result < 0 && wake->err.code != ERROR_UNAUTHORIZED)
        log_warn("proxy", "%s%s cannot be resumed by traffic: %s",
                 token[0] ? "a volume" : "sandbox=", wake->target.id, wake->err.message);
}

static void go_on(struct wake *wake, const struct error *failure)
{
    if (wake->ex) {
        http_on_done(wake->ex, NULL, NULL);
        wake->fn(wake->ex, &wake->target, failure, wake->arg);
    }
}

static void done(struct work *work)
{
    struct wake *wake = container_of(work, struct wake, work);
    const struct error *failure = wake->result < 0 ? &wake->err : NULL;
    struct list *at;

    list_remove(&wake->link);
    go_on(wake, failure);
    while ((at = list_pop_front(&wake->followers))) {
        struct wake *follower = container_of(at, struct wake, link);

        go_on(follower, failure);
        free(follower);
    }
    free(wake);
}

static struct wake *find_wake(struct list *wakes, const struct proxy_target *target)
{
    struct list *at;

    list_for_each (at, wakes) {
        struct wake *wake = container_of(at, struct wake, link);

        if (strcmp(wake->target.id, target->id) == 0 &&
            strcmp(wake->target.volume_token, target->volume_token) == 0)
            return wake;
    }
    return NULL;
}

bool proxy_wake(const struct proxy_wakes *wakes, struct http_exchange *ex,
                const struct proxy_target *target, proxy_wake_fn *fn, void *arg)
{
    struct wake *wake, *leader;

    if (!wakes->workers)
        return false;
    wake = xcalloc(1, sizeof(*wake));
    *wake = (struct wake){.work = {.run = run, .done = done, .loop = http_loop(ex)},
                          .routes = wakes->routes,
                          .ex = ex,
                          .target = *target,
                          .fn = fn,
                          .arg = arg};
    http_on_done(ex, on_client_gone, wake);
    list_init(&wake->followers);
    leader = find_wake(wakes->under_way, target);
    list_push_back(leader ? &leader->followers : wakes->under_way, &wake->link);
    if (leader || workers_run(wakes->workers, &wake->work) == 0)
        return true;
    list_remove(&wake->link);
    http_on_done(ex, NULL, NULL);
    free(wake);
    return false;
}
