/* The Browserbase provider against a server that writes down what it is asked. */
#include <pthread.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "fetch/fetch.h"
#include "fetch/fetch_rig.h"
#include "provider/provider.h"
#include "json/json_shape.h"

static struct {
    pthread_mutex_t mutex;
    const char *status;
    const char *mode;
    struct buf seen; /* "METHOD target|key body\n" */
} fake = {.mutex = PTHREAD_MUTEX_INITIALIZER, .status = "RUNNING"};

static struct fetch *fetch;
static struct fetch_rig *rig;
static struct provider *provider;
static struct arena arena;
static struct error err;
static const struct provider_ref ref = {.id = STR_INIT("s-1")};

#define ONE                                                                               \
    "{\"id\":\"%s\",\"status\":\"%s\",\"startedAt\":\"2026-01-02T03:04:05Z\","            \
    "\"connectUrl\":\"wss://connect.example/?k=1\",\"userMetadata\":{\"key\":\"conv:1\"," \
    "\"other\":\"%s\"}}"

static bool misbehave(struct fetch_rig_exchange *ex)
{
    if (!fake.mode)
        return false;
    if (strcmp(fake.mode, "500") == 0) {
        fetch_rig_answer(ex, 500, NULL, STR("{\"message\":\"on fire\"}"));
    } else if (strcmp(fake.mode, "429") == 0) {
        fetch_rig_answer(ex, 429, "Retry-After: 60\r\n",
                         STR("{\"statusCode\":429,\"error\":\"Too Many Requests\","
                             "\"message\":\"max concurrent sessions\"}"));
    } else if (strcmp(fake.mode, "401") == 0) {
        fetch_rig_answer(ex, 401, NULL, STR("no"));
    } else if (strcmp(fake.mode, "404") == 0) {
        fetch_rig_answer(ex, 404, NULL, STR("{\"message\":\"Session not found\"}"));
    } else if (strcmp(fake.mode, "garbage") == 0) {
        fetch_rig_answer(ex, 200, NULL, STR("]["));
    } else if (strcmp(fake.mode, "half") == 0) {
        fetch_rig_send(ex, STR("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"id"));
        ex->close = true;
    } else if (strcmp(fake.mode, "no url") == 0) {
        fetch_rig_answer(ex, 200, NULL, STR("{\"id\":\"s-1\",\"status\":\"RUNNING\"}"));
    } else if (strcmp(fake.mode, "released") == 0 && ex->method[0] == 'P') {
        fetch_rig_answer(ex, 400, NULL, STR("{\"message\":\"already completed\"}"));
    } else {
        return false;
    }
    return true;
}

static void answer(struct fetch_rig_exchange *ex, void *arg)
{
    auto_free char *one = xasprintf(ONE, "s-1", fake.status, "x");
    auto_free char *two = xasprintf(ONE, "s-2", fake.status, "y");
    auto_free char *list = xasprintf("[%s,%s]", two, one);
    struct str target = str_of(ex->target);

    (void)arg;
    (void)pthread_mutex_lock(&fake.mutex);
    (void)buf_printf(&fake.seen, "%s %s|%.*s %.*s\n", ex->method, ex->target,
                     STR_ARG(fetch_rig_header(ex, "x-bb-api-key")), STR_ARG(buf_str(&ex->body)));
    (void)pthread_mutex_unlock(&fake.mutex);
    if (misbehave(ex))
        return;
    fetch_rig_answer(ex, 200, NULL,
                     str_of(str_starts(target, STR("/v1/sessions?"))  ? list
                            : str_starts(target, STR("/v1/projects")) ? "[]"
                                                                      : one));
}

static void open_all(void)
{
    auto_json json_t *options =
        json_pack("{s:s, s:s, s:b}", "project_id", "p1", "region", "eu-central-1", "keep_alive", 1);
    struct provider_config config = {
        .name = "bb", .type = "browserbase", .api_key = "bb_k", .options = options};

    buf_init(&fake.seen, 1 << 20);
    fetch = fetch_new();
    rig = fetch_rig_new(NULL, answer, NULL);
    config.api_url = fetch_rig_url(rig);
    config.fetch = fetch;
    CHECK_INT(provider_new(&config, &provider, &err), 0);
}

static void close_all(void)
{
    provider_free(provider);
    fetch_rig_free(rig);
    fetch_free(fetch);
    arena_done(&arena);
    buf_done(&fake.seen);
}

static void saw(const char *expected)
{
    if (str_find_str(buf_str(&fake.seen), str_of(expected)) < 0)
        test_fail(__FILE__, __LINE__, "no '%s' in:\n%s", expected, fake.seen.p);
}

TEST(browserbase_create)
{
    auto_json json_t *options =
        json_pack("{s:{s:b, s:{s:i, s:i}}, s:b}", "browserSettings", "solveCaptchas", 1, "viewport",
                  "width", 1920, "height", 1080, "proxies", 1);
    struct provider_label label = {STR("key"), STR("conv:1")};
    struct provider_spec spec = {.labels = &label,
                                 .label_count = 1,
                                 .egress = EGRESS_ALLOW_ALL,
                                 .ttl_s = 10,
                                 .options = options};
    struct provider_sandbox box;

    open_all();
    CHECK_INT(provider_create(provider, &spec, &arena, &box, &err), 0);
    CHECK_STR(box.id, "s-1");
    CHECK_STR(box.cdp_url, "wss://connect.example/?k=1");
    CHECK_INT(box.state, PROVIDER_RUNNING);
    saw("POST /v1/sessions|bb_k {");
    saw("\"projectId\":\"p1\"");
    saw("\"timeout\":60"); /* the least it takes */
    saw("\"keepAlive\":true");
    saw("\"region\":\"eu-central-1\"");
    saw("\"proxies\":true");
    saw("\"browserSettings\":{\"solveCaptchas\":true,\"viewport\":{\"width\":1920,\"height\":1080}"
        "}");
    saw("\"userMetadata\":{\"key\":\"conv:1\"}");
    close_all();
}

TEST(browserbase_find_and_get)
{
    struct provider_label labels[] = {{STR("key"), STR("conv:1")}, {STR("other"), STR("y")}};
    struct provider_sandbox *found, box;
    size_t count;

    open_all();
    CHECK_INT(provider_check(provider, &err), 0);
    CHECK_INT(provider_find(provider, STR_NONE, labels, 1, &arena, &found, &count, &err), 0);
    CHECK_INT(count, 2);
    saw("GET /v1/sessions?status=RUNNING&q=user_metadata%5B%27key%27%5D%3A%27conv%3A1%27|bb_k");
    CHECK_INT(provider_find(provider, STR_NONE, labels, 2, &arena, &found, &count, &err), 0);
    CHECK_INT(count, 1);
    CHECK_STR(found[0].id, "s-2");
    labels[0].value = STR("it's");
    CHECK_INT(provider_find(provider, STR_NONE, labels, 1, &arena, &found, &count, &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
    CHECK_INT(provider_connect(provider, &ref, 60, &arena, &box, &err), 0);
    CHECK_STR(box.cdp_url, "wss://connect.example/?k=1");
    fake.status = "COMPLETED";
    CHECK_INT(provider_get(provider, &ref, &arena, &box, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    close_all();
}

TEST(browserbase_release)
{
    open_all();
    CHECK_INT(provider_kill(provider, &ref, &err), 0);
    saw("POST /v1/sessions/s-1|bb_k {\"status\":\"REQUEST_RELEASE\",\"projectId\":\"p1\"}");
    fake.mode = "404";
    CHECK_INT(provider_kill(provider, &ref, &err), 0);
    fake.mode = "released";
    CHECK_INT(provider_kill(provider, &ref, &err), -1); /* it says so, but the session runs */
    fake.status = "COMPLETED";
    CHECK_INT(provider_kill(provider, &ref, &err), 0);
    close_all();
}

TEST(browserbase_has_only_cdp)
{
    static const char *const argv[] = {"true", NULL};
    struct provider_command command = {.argv = argv};
    struct provider_process *process;
    struct str snapshot;

    open_all();
    CHECK_INT(provider_caps(provider)->features, PROVIDER_CDP | PROVIDER_FIND);
    CHECK_INT(provider_start(provider, &ref, &command, &process, &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    CHECK_INT(provider_pause(provider, &ref, &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    CHECK_INT(provider_snapshot(provider, &ref, "x", &arena, &snapshot, &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    CHECK_INT(fetch_rig_requests(rig), 0);
    close_all();
}

TEST(browserbase_misbehaviour)
{
    static const struct {
        const char *mode;
        enum error_code code;
        const char *part;
    } cases[] = {
        {"500", ERROR_UNAVAILABLE, "on fire"}, {"429", ERROR_QUOTA, "try again in 60 s"},
        {"401", ERROR_UNAUTHORIZED, "key"},    {"garbage", ERROR_UNAVAILABLE, "no JSON"},
        {"half", ERROR_UNAVAILABLE, ""},       {"no url", ERROR_UNAVAILABLE, "connectUrl"},
    };
    struct provider_spec spec = {.egress = EGRESS_ALLOW_ALL};
    struct provider_sandbox box;
    char long_value[600];
    struct provider_label label = {STR("k"), {long_value, sizeof(long_value)}};

    open_all();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fake.mode = cases[i].mode;
        CHECK_INT(provider_create(provider, &spec, &arena, &box, &err), -1);
        if (err.code != cases[i].code || !strstr(err.message, cases[i].part))
            test_fail(__FILE__, __LINE__, "%s: %s %s", cases[i].mode, error_code_name(err.code),
                      err.message);
        CHECK(!strstr(err.message, "bb_k"));
    }
    memset(long_value, 'x', sizeof(long_value));
    spec.labels = &label;
    spec.label_count = 1;
    CHECK_INT(provider_create(provider, &spec, &arena, &box, &err), -1);
    CHECK_INT(err.code, ERROR_LIMIT);
    close_all();
}

/* Against the real service, only with a key: one session, released at once. */
TEST_TIMEOUT(browserbase_live, 120)
{
    const char *key = getenv("BROWSERBASE_API_KEY");
    struct provider_config config = {.name = "live", .type = "browserbase", .api_url = ""};
    struct provider_spec spec = {.egress = EGRESS_ALLOW_ALL, .ttl_s = 60};
    struct provider_sandbox box;
    struct provider_ref live;

    if (!key || !key[0])
        test_skip("BROWSERBASE_API_KEY is not set");
    fetch = fetch_new();
    config.api_key = key;
    config.fetch = fetch;
    CHECK_INT(provider_new(&config, &provider, &err), 0);
    if (provider_create(provider, &spec, &arena, &box, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    live = (struct provider_ref){.id = box.id};
    CHECK_INT(provider_kill(provider, &live, &err), 0);
    CHECK(str_starts(box.cdp_url, STR("wss://")));
    provider_free(provider);
    fetch_free(fetch);
}
