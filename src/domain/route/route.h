/* Where a sandbox id leads: what the proxy needs to know, readable from every loop at once.
 *
 * Under a reader-writer lock held for a few instructions; a route set before a create is answered is
 * visible to every loop when the client gets the answer. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/id.h"
#include "domain/route/ingress.h"

enum route_state {
    ROUTE_RUNNING,
    ROUTE_PAUSED,
};

struct route {
    char id[ID_SIZE];
    enum route_state state;
    bool volume;            /* no sandbox: serves the content of a volume */
    bool wakes;             /* PAUSED: traffic may resume it, by routes_wake() */
    uint64_t generation;    /* changes with every new life of the id */
    char access_token[72];  /* envd's token; "" when the sandbox is not secured */
    char traffic_token[72]; /* "" when ports are public */
    struct ingress ingress;
};

struct routes;

struct routes *routes_new(void);
void routes_free(struct routes *routes);
void routes_set(struct routes *routes, const struct route *route);
/* Also tells the watchers, so that open connections are cut. */
void routes_remove(struct routes *routes, const char *id);
/* The same for a sandbox that ended; why is remembered for the last few thousand. */
enum { ROUTE_REASON_SIZE = 40 };
void routes_end(struct routes *routes, const char *id, const char *reason);
/* False when it is not known (any more). */
bool routes_why(struct routes *routes, struct str id, char out[ROUTE_REASON_SIZE]);
bool routes_find(struct routes *routes, struct str id, struct route *out);
/* By access token: some clients name no sandbox, but their token is unique. "" finds nothing. */
bool routes_find_token(struct routes *routes, struct str token, struct route *out);
/* The first secured route that fits() accepts; fits() runs under the lock and must be quick. */
typedef bool route_fits_fn(const struct route *route, void *arg);
bool routes_search(struct routes *routes, route_fits_fn *fits, void *arg, struct route *out);
/* fn is called (on the thread that changes the route) after a route was removed or is no longer
 * RUNNING; it must be quick. It is not called any more once routes_unwatch() returned. */
typedef void route_watch_fn(const char *id, void *arg);
void routes_watch(struct routes *routes, route_watch_fn *fn, void *arg);
void routes_unwatch(struct routes *routes, route_watch_fn *fn, const void *arg);

/* Resumes a paused sandbox: blocks until it runs (then its route is RUNNING) or cannot. Not on a
 * loop's thread. Who can do it says so with routes_set_waker(); until then it is ERROR_UNAVAILABLE. */
typedef int route_wake_fn(const char *id, void *arg, struct error *err);
void routes_set_waker(struct routes *routes, route_wake_fn *fn, void *arg);
int routes_wake(struct routes *routes, const char *id, struct error *err);
/* The same for the content of the volume with this token: blocks until its route is there. ERROR_UNAUTHORIZED when the token
 * is unknown. */
typedef int route_serve_fn(struct str token, void *arg, struct error *err);
/* Returns when the earlier one is not being called any more; NULL = none. */
void routes_set_volume_server(struct routes *routes, route_serve_fn *fn, void *arg);
int routes_serve_volume(struct routes *routes, struct str token, struct error *err);
