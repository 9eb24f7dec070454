/* The Browserbase provider against a server that writes down what it is asked. */
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "provider/test/provider_test_far.h"

static const char *status = "RUNNING"; /* of the sessions */

static const struct provider_ref ref = {.id = STR_INIT("s-1")};

#define ONE                                                                               \
    "{\"id\":\"%s\",\"status\":\"%s\",\"startedAt\":\"2026-01-02T03:04:05Z\","            \
    "\"connectUrl\":\"wss://connect.example/?k=1\",\"userMetadata\":{\"key\":\"conv:1\"," \
    "\"other\":\"%s\"}}"

static const struct far_answer bad_answers[] = {
    {"500", 500, "{\"message\":\"on fire\"}"},
    {"429", 429,
     "{\"statusCode\":429,\"error\":\"Too Many Requests\",\"message\":\"max concurrent sessions\"}",
     "Retry-After: 60\r\n"},
    {"401", 401, "no"},
    {"404", 404, "{\"message\":\"Session not found\"}"},
    {"garbage", 200, "]["},
    {"half", FAR_HALF},
    {"no url", 200, "{\"id\":\"s-1\",\"status\":\"RUNNING\"}"},
    {0},
};
static const struct far_answer bad_post[] = {
    {"released", 400, "{\"message\":\"already completed\"}"},
    {0},
};

static void answer(struct fetch_rig_exchange *ex, void *arg)
{
    auto_free char *one = xasprintf(ONE, "s-1", status, "x");
    auto_free char *two = xasprintf(ONE, "s-2", status, "y");
    auto_free char *list = xasprintf("[%s,%s]", two, one);
    struct str target = str_of(ex->target);

    (void)arg;
    far_note(ex, "|%.*s", STR_ARG(fetch_rig_header(ex, "x-bb-api-key")));
    if (far_misbehaves(ex, bad_answers) || (ex->method[0] == 'P' && far_misbehaves(ex, bad_post)))
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

    far_begin(NULL, answer);
    config.api_url = fetch_rig_url(rig);
    far_open(&config);
}

TEST(browserbase_create)
{
    auto_json json_t *options =
        json_pack("{s:{s:b, s:{s:i, s:i}}, s:b}", "browserSettings", "solveCaptchas", 1, "viewport",
                  "width", 1920, "height", 1080, "proxies", 1);
    struct pair label = {STR("key"), STR("conv:1")};
    struct provider_spec spec = {.labels = &label,
                                 .label_count = 1,
                                 .egress = EGRESS_ALLOW_ALL,
                                 .ttl_s = 10,
                                 .options = options};
    struct provider_sandbox machine;

    open_all();
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), 0);
    CHECK_STR(machine.id, "s-1");
    CHECK_STR(machine.cdp_url, "wss://connect.example/?k=1");
    CHECK_INT(machine.state, PROVIDER_RUNNING);
    saw("POST /v1/sessions|bb_k {");
    saw("\"projectId\":\"p1\"");
    saw("\"timeout\":60"); /* the least it takes */
    saw("\"keepAlive\":true");
    saw("\"region\":\"eu-central-1\"");
    saw("\"proxies\":true");
    saw("\"browserSettings\":{\"solveCaptchas\":true,\"viewport\":{\"width\":1920,\"height\":1080}"
        "}");
    saw("\"userMetadata\":{\"key\":\"conv:1\"}");
    far_end();
}

TEST(browserbase_find_and_get)
{
    struct pair labels[] = {{STR("key"), STR("conv:1")}, {STR("other"), STR("y")}};
    struct provider_sandbox *found, machine;
    size_t count;

    open_all();
    CHECK_INT(provider_check(provider, &err), 0);
    CHECK_INT(provider_find(provider, &(struct provider_query){.labels = labels, .label_count = 1},
                            &arena, &found, &count, &err),
              0);
    CHECK_INT(count, 2);
    saw("GET /v1/sessions?status=RUNNING&q=user_metadata%5B%27key%27%5D%3A%27conv%3A1%27|bb_k");
    CHECK_INT(provider_find(provider, &(struct provider_query){.labels = labels, .label_count = 2},
                            &arena, &found, &count, &err),
              0);
    CHECK_INT(count, 1);
    CHECK_STR(found[0].id, "s-2");
    labels[0].value = STR("it's");
    CHECK_INT(provider_find(provider, &(struct provider_query){.labels = labels, .label_count = 1},
                            &arena, &found, &count, &err),
              -1);
    CHECK_INT(err.code, ERROR_INVALID);
    CHECK_INT(provider_connect(provider, &ref, 60, &arena, &machine, &err), 0);
    CHECK_STR(machine.cdp_url, "wss://connect.example/?k=1");
    status = "COMPLETED";
    CHECK_INT(provider_get(provider, &ref, &arena, &machine, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    far_end();
}

TEST(browserbase_release)
{
    open_all();
    CHECK_INT(provider_kill(provider, &ref, &err), 0);
    saw("POST /v1/sessions/s-1|bb_k {\"status\":\"REQUEST_RELEASE\",\"projectId\":\"p1\"}");
    misbehaviour = "404";
    CHECK_INT(provider_kill(provider, &ref, &err), 0);
    misbehaviour = "released";
    CHECK_INT(provider_kill(provider, &ref, &err), -1); /* it says so, but the session runs */
    status = "COMPLETED";
    CHECK_INT(provider_kill(provider, &ref, &err), 0);
    far_end();
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
    far_end();
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
    struct provider_sandbox machine;
    char long_value[600];
    struct pair label = {STR("k"), {long_value, sizeof(long_value)}};

    open_all();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        misbehaviour = cases[i].mode;
        CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), -1);
        if (err.code != cases[i].code || !strstr(err.message, cases[i].part))
            test_fail(__FILE__, __LINE__, "%s: %s %s", cases[i].mode, error_code_name(err.code),
                      err.message);
        CHECK(!strstr(err.message, "bb_k"));
    }
    memset(long_value, 'x', sizeof(long_value));
    spec.labels = &label;
    spec.label_count = 1;
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), -1);
    CHECK_INT(err.code, ERROR_LIMIT);
    far_end();
}

/* Against the real service, only with a key: one session, released at once. */
TEST_TIMEOUT(browserbase_live, 120)
{
    const char *key = getenv("BROWSERBASE_API_KEY");
    struct provider_config config = {.name = "live", .type = "browserbase", .api_url = ""};
    struct provider_spec spec = {.egress = EGRESS_ALLOW_ALL, .ttl_s = 60};
    struct provider_sandbox machine;
    struct provider_ref live;

    if (!key || !key[0])
        test_skip("BROWSERBASE_API_KEY is not set");
    config.api_key = key;
    far_open(&config);
    if (provider_create(provider, &spec, &arena, &machine, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    live = (struct provider_ref){.id = machine.id};
    CHECK_INT(provider_kill(provider, &live, &err), 0);
    CHECK(str_starts(machine.cdp_url, STR("wss://")));
    far_end();
}
