/* A map under a reader-writer lock. Readers are the proxy's loops, many times a second; writers are
 * rare. Writers go first, so that a flood of lookups cannot delay a create. Watchers are called
 * after the lock was let go, on the thread that made the change. */
#include "route/route.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/map.h"

enum { WATCHERS_MAX = 8 };

struct routes {
    pthread_rwlock_t lock; /* guards the map and the routes in it */
    struct map map;
    size_t watcher_count; /* set up before there are threads */
    struct {
        route_watch_fn *fn;
        void *arg;
    } watchers[WATCHERS_MAX];
    route_wake_fn *wake; /* under the lock */
    void *wake_arg;
};

struct routes *routes_new(void)
{
    struct routes *routes = xcalloc(1, sizeof(*routes));
    pthread_rwlockattr_t attr;

    (void)pthread_rwlockattr_init(&attr);
    (void)pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    (void)pthread_rwlock_init(&routes->lock, &attr);
    (void)pthread_rwlockattr_destroy(&attr);
    map_init(&routes->map);
    return routes;
}

void routes_free(struct routes *routes)
{
    struct map_entry *entry;

    if (!routes)
        return;
    map_for_each (&routes->map, entry)
        free(entry->value);
    map_done(&routes->map);
    (void)pthread_rwlock_destroy(&routes->lock);
    free(routes);
}

void routes_watch(struct routes *routes, route_watch_fn *fn, void *arg)
{
    assert(routes->watcher_count < WATCHERS_MAX);
    routes->watchers[routes->watcher_count].fn = fn;
    routes->watchers[routes->watcher_count].arg = arg;
    routes->watcher_count++;
}

static void tell_watchers(struct routes *routes, const char *id)
{
    for (size_t i = 0; i < routes->watcher_count; i++)
        routes->watchers[i].fn(id, routes->watchers[i].arg);
}

void routes_set(struct routes *routes, const struct route *route)
{
    struct route *copy = xmalloc(sizeof(*copy)), *old;
    bool stopped;

    *copy = *route;
    (void)pthread_rwlock_wrlock(&routes->lock);
    old = map_put(&routes->map, str_of(route->id), copy);
    (void)pthread_rwlock_unlock(&routes->lock);
    /* Connections of an earlier life are cut as well. */
    stopped = old && old->state == ROUTE_RUNNING &&
              (route->state != ROUTE_RUNNING || old->generation != route->generation);
    free(old);
    if (stopped)
        tell_watchers(routes, route->id);
}

void routes_remove(struct routes *routes, const char *id)
{
    struct route *old;

    (void)pthread_rwlock_wrlock(&routes->lock);
    old = map_remove(&routes->map, str_of(id));
    (void)pthread_rwlock_unlock(&routes->lock);
    if (!old)
        return;
    free(old);
    tell_watchers(routes, id);
}

bool routes_find(struct routes *routes, struct str id, struct route *out)
{
    const struct route *route;

    (void)pthread_rwlock_rdlock(&routes->lock);
    route = map_get(&routes->map, id);
    if (route)
        *out = *route;
    (void)pthread_rwlock_unlock(&routes->lock);
    return route != NULL;
}

void routes_set_waker(struct routes *routes, route_wake_fn *fn, void *arg)
{
    (void)pthread_rwlock_wrlock(&routes->lock);
    routes->wake = fn;
    routes->wake_arg = arg;
    (void)pthread_rwlock_unlock(&routes->lock);
}

int routes_wake(struct routes *routes, const char *id, struct error *err)
{
    route_wake_fn *wake;
    void *arg;

    (void)pthread_rwlock_rdlock(&routes->lock);
    wake = routes->wake;
    arg = routes->wake_arg;
    (void)pthread_rwlock_unlock(&routes->lock);
    if (!wake)
        return error_set(err, ERROR_UNAVAILABLE, "nobody can resume sandboxes now");
    return wake(id, arg, err);
}
