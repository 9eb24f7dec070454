#include "domain/route/route.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/test.h"

static void count_calls(const char *id, void *arg)
{
    CHECK_INT(strlen(id), 1);
    ++*(int *)arg;
}

TEST(set_find_remove)
{
    struct routes *routes = routes_new();
    struct route route = {.id = "a", .generation = 1, .access_token = "tok"}, found;
    int calls = 0;

    routes_watch(routes, count_calls, &calls);
    CHECK(!routes_find(routes, STR("a"), &found));
    routes_set(routes, &route);
    CHECK(routes_find(routes, STR("a"), &found));
    CHECK_STR(str_of(found.access_token), "tok");
    routes_set(routes, &route);
    CHECK_INT(calls, 0);
    route.state = ROUTE_PAUSED;
    routes_set(routes, &route);
    CHECK_INT(calls, 1);
    route.state = ROUTE_RUNNING;
    routes_set(routes, &route);
    CHECK_INT(calls, 1);
    route.generation = 2;
    routes_set(routes, &route);
    CHECK_INT(calls, 2);
    routes_remove(routes, "a");
    CHECK_INT(calls, 3);
    routes_remove(routes, "a");
    CHECK_INT(calls, 3);
    CHECK(!routes_find(routes, STR("a"), &found));
    routes_set(routes, &route);
    routes_free(routes);
}

TEST(why_a_sandbox_ended_is_remembered)
{
    struct routes *routes = routes_new();
    struct route route = {.id = "iaaaaaaaaaaaaaaaaaaa"}, found;
    char why[ROUTE_REASON_SIZE], id[ID_SIZE];

    routes_set(routes, &route);
    CHECK(!routes_why(routes, str_of(route.id), why));
    routes_end(routes, route.id, "out of memory");
    CHECK(!routes_find(routes, str_of(route.id), &found));
    CHECK(routes_why(routes, str_of(route.id), why));
    CHECK_STR(str_of(why), "out of memory");
    routes_end(routes, route.id, "a reason that is much longer than what is kept of one");
    CHECK(routes_why(routes, str_of(route.id), why));
    CHECK_INT(strlen(why), ROUTE_REASON_SIZE - 1);
    for (int i = 0; i < 10000; i++) {
        (void)snprintf(id, sizeof(id), "i%019d", i);
        routes_end(routes, id, "killed");
    }
    CHECK(!routes_why(routes, str_of(route.id), why));
    CHECK(!routes_why(routes, STR("i0000000000000005000"), why));
    CHECK(routes_why(routes, STR("i0000000000000009999"), why));
    CHECK(routes_why(routes, STR("i0000000000000006000"), why));
    routes_free(routes);
}

struct shared {
    struct routes *routes;
    atomic_bool stop;
    atomic_int torn;
};

/* A reader must never see half of one route and half of another. */
static void *read_routes(void *arg)
{
    struct shared *shared = arg;

    while (!atomic_load(&shared->stop)) {
        struct route found;

        if (routes_find(shared->routes, STR("a"), &found) &&
            found.generation != (uint64_t)(found.access_token[0] - 'a'))
            atomic_fetch_add(&shared->torn, 1);
    }
    return NULL;
}

TEST(readers_and_writers)
{
    struct shared shared = {.routes = routes_new()};
    pthread_t threads[3];

    for (size_t i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, read_routes, &shared) == 0);
    for (unsigned i = 0; i < 20000; i++) {
        struct route route = {.id = "a", .generation = i % 20};

        route.access_token[0] = (char)('a' + i % 20);
        routes_set(shared.routes, &route);
        if (i % 7 == 0)
            routes_remove(shared.routes, "a");
    }
    atomic_store(&shared.stop, true);
    for (size_t i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK_INT(atomic_load(&shared.torn), 0);
    routes_free(shared.routes);
}

static bool is_second(const struct route *route, void *arg)
{
    (void)arg;
    return strcmp(route->access_token, "token-two") == 0;
}

TEST(routes_are_found_by_token)
{
    struct routes *routes = routes_new();
    struct route one = {.id = "iaaaaaaaaaaaaaaaaaaa", .access_token = "token-one"};
    struct route two = {.id = "ibbbbbbbbbbbbbbbbbbb", .access_token = "token-two"};
    struct route open = {.id = "iccccccccccccccccccc"};
    struct route got;

    routes_set(routes, &one);
    routes_set(routes, &two);
    routes_set(routes, &open);
    CHECK(routes_find_token(routes, STR("token-two"), &got));
    CHECK_STR(str_of(got.id), "ibbbbbbbbbbbbbbbbbbb");
    CHECK(!routes_find_token(routes, STR(""), &got));
    CHECK(!routes_find_token(routes, STR("token"), &got));
    CHECK(routes_search(routes, is_second, NULL, &got));
    CHECK_STR(str_of(got.id), "ibbbbbbbbbbbbbbbbbbb");
    (void)str_copy(STR("token-new"), two.access_token, sizeof(two.access_token));
    routes_set(routes, &two);
    CHECK(!routes_find_token(routes, STR("token-two"), &got));
    CHECK(routes_find_token(routes, STR("token-new"), &got));
    routes_remove(routes, two.id);
    CHECK(!routes_find_token(routes, STR("token-new"), &got));
    CHECK(!routes_search(routes, is_second, NULL, &got));
    routes_free(routes);
}
