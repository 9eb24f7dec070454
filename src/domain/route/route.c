/* A map under a reader-writer lock. Readers are the proxy's loops, many times a second; writers are
 * rare. Writers go first, so that a flood of lookups cannot delay a create. Watchers are called
 * after the lock was let go, on the thread that made the change, one change at a time. */
#include "domain/route/route.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/map.h"

enum { WATCHERS_MAX = 32, ENDED_MAX = 4096 };

struct ended {
    char id[ID_SIZE], reason[ROUTE_REASON_SIZE];
};

struct routes {
    pthread_rwlock_t lock; /* guards the maps and the routes in them */
    struct map map;        /* by id; owns the routes */
    struct map tokens;     /* the secured ones, by access token */
    struct map ended;      /* by id, in ring */
    struct ended *ring;
    size_t ring_next;
    pthread_mutex_t watch_lock; /* guards the watchers, also while they are called */
    size_t watcher_count;
    struct watcher {
        route_watch_fn *fn;
        void *arg;
    } watchers[WATCHERS_MAX];
    route_wake_fn *wake; /* under the lock */
    void *wake_arg;
    pthread_rwlock_t serve_lock; /* guards what follows, also while it is called */
    route_serve_fn *serve;
    void *serve_arg;
};

struct routes *routes_new(void)
{
    struct routes *routes = xcalloc(1, sizeof(*routes));
    pthread_rwlockattr_t attr;

    (void)pthread_rwlockattr_init(&attr);
    (void)pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    (void)pthread_rwlock_init(&routes->lock, &attr);
    (void)pthread_rwlock_init(&routes->serve_lock, &attr);
    (void)pthread_rwlockattr_destroy(&attr);
    (void)pthread_mutex_init(&routes->watch_lock, NULL);
    map_init(&routes->map);
    map_init(&routes->tokens);
    map_init(&routes->ended);
    routes->ring = xcalloc(ENDED_MAX, sizeof(*routes->ring));
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
    map_done(&routes->tokens);
    map_done(&routes->ended);
    free(routes->ring);
    (void)pthread_rwlock_destroy(&routes->lock);
    (void)pthread_rwlock_destroy(&routes->serve_lock);
    (void)pthread_mutex_destroy(&routes->watch_lock);
    free(routes);
}

void routes_watch(struct routes *routes, route_watch_fn *fn, void *arg)
{
    (void)pthread_mutex_lock(&routes->watch_lock);
    assert(routes->watcher_count < WATCHERS_MAX);
    routes->watchers[routes->watcher_count++] = (struct watcher){fn, arg};
    (void)pthread_mutex_unlock(&routes->watch_lock);
}

void routes_unwatch(struct routes *routes, route_watch_fn *fn, const void *arg)
{
    (void)pthread_mutex_lock(&routes->watch_lock);
    for (size_t i = 0; i < routes->watcher_count; i++) {
        if (routes->watchers[i].fn != fn || routes->watchers[i].arg != arg)
            continue;
        routes->watchers[i] = routes->watchers[--routes->watcher_count];
        break;
    }
    (void)pthread_mutex_unlock(&routes->watch_lock);
}

static void tell_watchers(struct routes *routes, const char *id)
{
    (void)pthread_mutex_lock(&routes->watch_lock);
    for (size_t i = 0; i < routes->watcher_count; i++)
        routes->watchers[i].fn(id, routes->watchers[i].arg);
    (void)pthread_mutex_unlock(&routes->watch_lock);
}

void routes_set(struct routes *routes, const struct route *route)
{
    struct route *copy = xmalloc(sizeof(*copy)), *old;
    bool stopped;

    *copy = *route;
    (void)pthread_rwlock_wrlock(&routes->lock);
    old = map_put(&routes->map, str_of(route->id), copy);
    if (old && old->access_token[0])
        (void)map_remove(&routes->tokens, str_of(old->access_token));
    if (copy->access_token[0])
        (void)map_put(&routes->tokens, str_of(copy->access_token), copy);
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
    if (old && old->access_token[0])
        (void)map_remove(&routes->tokens, str_of(old->access_token));
    (void)pthread_rwlock_unlock(&routes->lock);
    if (!old)
        return;
    free(old);
    tell_watchers(routes, id);
}

static void remember(struct routes *routes, const char *id, const char *reason)
{
    struct ended *ended = map_get(&routes->ended, str_of(id));

    if (!ended) {
        ended = &routes->ring[routes->ring_next];
        routes->ring_next = (routes->ring_next + 1) % ENDED_MAX;
        if (ended->id[0])
            (void)map_remove(&routes->ended, str_of(ended->id));
        (void)snprintf(ended->id, sizeof(ended->id), "%s", id);
        (void)map_put(&routes->ended, str_of(ended->id), ended);
    }
    (void)snprintf(ended->reason, sizeof(ended->reason), "%s", reason);
}

void routes_end(struct routes *routes, const char *id, const char *reason)
{
    (void)pthread_rwlock_wrlock(&routes->lock);
    remember(routes, id, reason);
    (void)pthread_rwlock_unlock(&routes->lock);
    routes_remove(routes, id);
}

bool routes_why(struct routes *routes, struct str id, char out[ROUTE_REASON_SIZE])
{
    const struct ended *ended;

    (void)pthread_rwlock_rdlock(&routes->lock);
    ended = map_get(&routes->ended, id);
    if (ended)
        memcpy(out, ended->reason, ROUTE_REASON_SIZE);
    (void)pthread_rwlock_unlock(&routes->lock);
    return ended != NULL;
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

bool routes_find_token(struct routes *routes, struct str token, struct route *out)
{
    const struct route *route;

    (void)pthread_rwlock_rdlock(&routes->lock);
    route = token.len ? map_get(&routes->tokens, token) : NULL;
    if (route)
        *out = *route;
    (void)pthread_rwlock_unlock(&routes->lock);
    return route != NULL;
}

bool routes_search(struct routes *routes, route_fits_fn *fits, void *arg, struct route *out)
{
    struct map_entry *entry;
    bool found = false;

    (void)pthread_rwlock_rdlock(&routes->lock);
    map_for_each (&routes->tokens, entry) {
        const struct route *route = entry->value;

        found = fits(route, arg);
        if (found) {
            *out = *route;
            break;
        }
    }
    (void)pthread_rwlock_unlock(&routes->lock);
    return found;
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

void routes_set_volume_server(struct routes *routes, route_serve_fn *fn, void *arg)
{
    (void)pthread_rwlock_wrlock(&routes->serve_lock);
    routes->serve = fn;
    routes->serve_arg = arg;
    (void)pthread_rwlock_unlock(&routes->serve_lock);
}

int routes_serve_volume(struct routes *routes, struct str token, struct error *err)
{
    int r;

    (void)pthread_rwlock_rdlock(&routes->serve_lock);
    r = routes->serve ? routes->serve(token, routes->serve_arg, err)
                      : error_set(err, ERROR_UNAUTHORIZED, "unknown token");
    (void)pthread_rwlock_unlock(&routes->serve_lock);
    return r;
}
