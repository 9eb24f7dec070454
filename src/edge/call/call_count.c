/* How many calls each endpoint and each team had, and how long they took: for /metrics. Counted for the process, in a
 * table that is never made smaller; beyond its end all that is left counts as "other". */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/map.h"
#include "edge/call/call.h"

enum { ROUTES_MAX = 512, TEAMS_MAX = 1000, CLASSES = 6, BUCKETS = 13 };

/* Most are answered within a millisecond; a command may take minutes. */
static const int64_t bucket_us[BUCKETS] = {500,    1000,   2000,   5000,    10000,   20000,   50000,
                                           100000, 200000, 500000, 1000000, 5000000, 60000000};

struct route_count {
    _Atomic(const struct call_endpoint *) row; /* NULL: free */
    const char *api;
    atomic_uint_fast64_t classes[CLASSES], buckets[BUCKETS + 1], sum_us;
};

static struct route_count routes[ROUTES_MAX + 1];        /* the last: whatever has no row */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows, and new routes */
static struct map teams;                                 /* id to its count plus 1, as a pointer */
static bool has_teams;

static struct route_count *take_route(const struct call_endpoint *row, const char *api)
{
    size_t at = 0;

    (void)pthread_mutex_lock(&lock);
    while (at < ROUTES_MAX && atomic_load(&routes[at].row) && atomic_load(&routes[at].row) != row)
        at++;
    if (at < ROUTES_MAX && !atomic_load(&routes[at].row)) {
        routes[at].api = api;
        atomic_store(&routes[at].row, row);
    }
    (void)pthread_mutex_unlock(&lock);
    return &routes[at];
}

static struct route_count *route_of(const struct call_endpoint *row, const char *api)
{
    if (!row)
        return &routes[ROUTES_MAX];
    for (size_t at = 0; at < ROUTES_MAX && atomic_load(&routes[at].row); at++)
        if (atomic_load(&routes[at].row) == row)
            return &routes[at];
    return take_route(row, api);
}

static void count_team(struct str team)
{
    uintptr_t count;

    (void)pthread_mutex_lock(&lock);
    if (!has_teams)
        map_init(&teams);
    has_teams = true;
    count = (uintptr_t)map_get(&teams, team);
    if (!count && teams.count >= TEAMS_MAX) {
        team = STR("other");
        count = (uintptr_t)map_get(&teams, team);
    }
    (void)map_put(&teams, team, (void *)(count + 1));
    (void)pthread_mutex_unlock(&lock);
}

void call_count(const struct call *call)
{
    int64_t us = clock_mono_us() - call->started_us;
    struct route_count *route = route_of(call->row, call->desk->ops->name);
    size_t class = call->status >= 100 && call->status < 600 ? (size_t)call->status / 100 : 0;
    size_t bucket = 0;

    while (bucket < BUCKETS && us > bucket_us[bucket])
        bucket++;
    atomic_fetch_add(&route->classes[class], 1);
    atomic_fetch_add(&route->buckets[bucket], 1);
    atomic_fetch_add(&route->sum_us, (uint64_t)us);
    if (call->team_id.len)
        count_team(call->team_id);
}

static void write_labels(struct buf *out, const struct route_count *route)
{
    const struct call_endpoint *row = atomic_load(&route->row);

    (void)buf_printf(out, "api=\"%s\",method=\"%s\",route=\"%s\"", route->api ? route->api : "none",
                     row ? row->method : "", row ? row->pattern : "other");
}

static void write_histogram(struct buf *out, struct route_count *route)
{
    uint64_t sum = 0;

    for (size_t i = 0; i <= BUCKETS; i++) {
        sum += atomic_load(&route->buckets[i]);
        (void)buf_printf(out, "quicksand_route_seconds_bucket{");
        write_labels(out, route);
        if (i < BUCKETS)
            (void)buf_printf(out, ",le=\"%g\"} %" PRIu64 "\n", (double)bucket_us[i] / 1e6, sum);
        else
            (void)buf_printf(out, ",le=\"+Inf\"} %" PRIu64 "\n", sum);
    }
    (void)buf_printf(out, "quicksand_route_seconds_sum{");
    write_labels(out, route);
    (void)buf_printf(out, "} %g\nquicksand_route_seconds_count{",
                     (double)atomic_load(&route->sum_us) / 1e6);
    write_labels(out, route);
    (void)buf_printf(out, "} %" PRIu64 "\n", sum);
}

static void write_classes(struct buf *out, struct route_count *route)
{
    for (size_t i = 0; i < CLASSES; i++) {
        uint64_t count = atomic_load(&route->classes[i]);

        if (!count)
            continue;
        (void)buf_printf(out, "quicksand_route_requests_total{");
        write_labels(out, route);
        if (i)
            (void)buf_printf(out, ",status=\"%zuxx\"} %" PRIu64 "\n", i, count);
        else
            (void)buf_printf(out, ",status=\"none\"} %" PRIu64 "\n", count);
    }
}

static void write_routes(struct buf *out, void (*write)(struct buf *out, struct route_count *route))
{
    for (size_t i = 0; i <= ROUTES_MAX; i++)
        if (atomic_load(&routes[i].row) || i == ROUTES_MAX)
            write(out, &routes[i]);
}

static void write_teams(struct buf *out)
{
    struct map_entry *at;

    (void)pthread_mutex_lock(&lock);
    if (has_teams)
        map_for_each (&teams, at)
            (void)buf_printf(out, "quicksand_team_requests_total{team=\"%.*s\"} %" PRIuPTR "\n",
                             (int)at->key_len, at->key, (uintptr_t)at->value);
    (void)pthread_mutex_unlock(&lock);
}

void call_counts_write(struct buf *out)
{
    (void)buf_printf(out, "# HELP quicksand_route_requests_total Requests by endpoint and class "
                          "of status; none: their client left.\n"
                          "# TYPE quicksand_route_requests_total counter\n");
    write_routes(out, write_classes);
    (void)buf_printf(out, "# HELP quicksand_route_seconds How long requests took, by endpoint.\n"
                          "# TYPE quicksand_route_seconds histogram\n");
    write_routes(out, write_histogram);
    (void)buf_printf(out, "# HELP quicksand_team_requests_total Requests by team.\n"
                          "# TYPE quicksand_team_requests_total counter\n");
    write_teams(out);
}
