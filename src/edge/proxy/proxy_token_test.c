#include "edge/proxy/proxy_token.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/encode.h"
#include "base/test.h"
#include "edge/proxy/proxy_wake.h"

static struct routes *two_routes(void)
{
    struct routes *routes = routes_new();
    struct route one = {.id = "iaaaaaaaaaaaaaaaaaaa", .access_token = "token-one"};
    struct route two = {.id = "ibbbbbbbbbbbbbbbbbbb", .access_token = "token-two"};

    routes_set(routes, &one);
    routes_set(routes, &two);
    return routes;
}

/* A query as the SDKs make it: the signature covers path, operation, user, token and expiry. */
static struct http_request signed_request(const char *method, const char *covered,
                                          const char *query, char *text, size_t size)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char signature[BASE64_LEN(SHA256_DIGEST_LENGTH)];

    (void)SHA256((const unsigned char *)covered, strlen(covered), digest);
    base64_encode(signature, digest, sizeof(digest));
    (void)snprintf(text, size, "%s&signature=v1_%.43s", query, signature);
    return (struct http_request){
        .method = str_of(method), .path = STR("/files"), .query = str_of(text)};
}

TEST(a_token_names_its_sandbox)
{
    struct routes *routes = two_routes();
    struct pair header = {STR("X-Access-Token"), STR("token-two")};
    struct http_request request = {.method = STR("GET"), .path = STR("/health")};
    struct route route;

    CHECK_INT(proxy_token_route(routes, &request, &route), PROXY_TOKEN_NONE);
    request.headers = (struct http_headers){&header, 1};
    CHECK_INT(proxy_token_route(routes, &request, &route), PROXY_TOKEN_OK);
    CHECK_STR(str_of(route.id), "ibbbbbbbbbbbbbbbbbbb");
    header.value = STR("token-three");
    CHECK_INT(proxy_token_route(routes, &request, &route), PROXY_TOKEN_UNKNOWN);
    routes_free(routes);
}

TEST(a_signature_names_its_sandbox)
{
    struct routes *routes = two_routes();
    struct http_request request;
    struct route route;
    char text[256];

    /* This digest needs no escapes in a query. */
    request = signed_request("GET", "/tmp/a:read:root:token-two", "path=%2Ftmp%2Fa&username=root",
                             text, sizeof(text));
    CHECK(!strpbrk(strstr(text, "v1_"), "/+"));
    CHECK_INT(proxy_token_route(routes, &request, &route), PROXY_TOKEN_OK);
    CHECK_STR(str_of(route.id), "ibbbbbbbbbbbbbbbbbbb");
    request.method = STR("POST");
    CHECK_INT(proxy_token_route(routes, &request, &route), PROXY_TOKEN_UNSIGNED);
    request = signed_request("GET", "/tmp/b:read:root:token-two", "path=%2Ftmp%2Fa&username=root",
                             text, sizeof(text));
    CHECK_INT(proxy_token_route(routes, &request, &route), PROXY_TOKEN_UNSIGNED);
    request.path = STR("/other");
    CHECK_INT(proxy_token_route(routes, &request, &route), PROXY_TOKEN_NONE);
    routes_free(routes);
}

static struct routes *many_routes(int count)
{
    struct routes *routes = routes_new();

    for (int i = 0; i < count; i++) {
        struct route route = {0};

        (void)snprintf(route.id, sizeof(route.id), "i%019d", i);
        (void)snprintf(route.access_token, sizeof(route.access_token), "%064d", i);
        routes_set(routes, &route);
    }
    return routes;
}

/* Processor time of one search that finds nothing, in microseconds: the least of some. */
static double search_us(int sandboxes, size_t path_len)
{
    struct routes *routes = many_routes(sandboxes);
    char *text = xcalloc(1, path_len + 200);
    struct http_request request = {.method = STR("GET"), .path = STR("/files")};
    struct route route;
    double best = 1e9;

    (void)snprintf(text, path_len + 200, "path=%0*d&signature=v1_%043d", (int)path_len, 0, 0);
    request.query = str_of(text);
    for (int i = 0; i < 20; i++) {
        struct timespec from, to;
        double us;

        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        CHECK_INT(proxy_token_route(routes, &request, &route), PROXY_TOKEN_UNSIGNED);
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        us = (double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3;
        best = us < best ? us : best;
    }
    routes_free(routes);
    free(text);
    return best;
}

/* What the client makes long is hashed once, not once for each sandbox. */
TEST(a_long_path_does_not_make_the_search_long)
{
    double brief = search_us(1000, 10), lengthy = search_us(1000, 12000);

    if (getenv("PROXY_TOKEN_FIGURES"))
        (void)fprintf(stderr, "150: %.0f and %.0f us; 1000: %.0f and %.0f us\n", search_us(150, 10),
                      search_us(150, 12000), brief, lengthy);
    CHECK(lengthy < 5 * brief + 200);
}

TEST(an_expiry_is_a_number)
{
    struct routes *routes = two_routes();
    struct http_request request;
    struct route route;
    char text[256];

    request = signed_request("GET", "p:read::token-two:1700000000",
                             "path=p&signature_expiration=1700000000", text, sizeof(text));
    CHECK_INT(proxy_token_route(routes, &request, &route), PROXY_TOKEN_OK);
    request = signed_request("GET", "p:read::token-two:17x", "path=p&signature_expiration=17x",
                             text, sizeof(text));
    CHECK_INT(proxy_token_route(routes, &request, &route), PROXY_TOKEN_UNSIGNED);
    request =
        signed_request("GET", "p:read::token-two:111111111111111111111",
                       "path=p&signature_expiration=111111111111111111111", text, sizeof(text));
    CHECK_INT(proxy_token_route(routes, &request, &route), PROXY_TOKEN_UNSIGNED);
    routes_free(routes);
}

TEST(only_welcome_requests_wake)
{
    struct route route = {.id = "iaaaaaaaaaaaaaaaaaaa", .state = ROUTE_PAUSED, .access_token = "t"};
    struct proxy_target user = {.port = 8000}, envd = {.port = PROXY_ENVD_PORT};
    struct pair header = {STR("X-Access-Token"), STR("t")};
    struct http_request plain = {.path = STR("/files")};
    struct http_request known = {.path = STR("/files"), .headers = {&header, 1}};
    struct http_request health = {.path = STR("/health"), .headers = {&header, 1}};

    CHECK(!proxy_wake_allowed(&route, &user, &plain));
    route.wakes = true;
    CHECK(proxy_wake_allowed(&route, &user, &plain));
    CHECK(!proxy_wake_allowed(&route, &envd, &plain));
    CHECK(proxy_wake_allowed(&route, &envd, &known));
    CHECK(!proxy_wake_allowed(&route, &envd, &health));
    header.value = STR("u");
    CHECK(!proxy_wake_allowed(&route, &envd, &known));
    route.access_token[0] = '\0';
    CHECK(proxy_wake_allowed(&route, &envd, &plain));
}
