/* The E2B provider against a server that writes down what it is asked. */
#include <pthread.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "protocol/envd/test/envd_test_wire.h"
#include "protocol/fetch/fetch.h"
#include "protocol/fetch/test/fetch_rig.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"
#include "provider/core/provider.h"

/* What the server answers, and what it has seen. */
static struct {
    pthread_mutex_t mutex;
    _Atomic(const char *) state; /* of the sandbox */
    _Atomic(const char *) mode;  /* how to misbehave; NULL = not */
    struct buf seen;             /* "METHOD target key body\n" */
    struct buf input;            /* what came by SendInput */
} fake = {.mutex = PTHREAD_MUTEX_INITIALIZER, .state = "running"};

#define ONE                                                                                     \
    "{\"sandboxID\":\"iabc\",\"templateID\":\"base\",\"envdAccessToken\":\"tok\",\"state\":\"%" \
    "s\","                                                                                      \
    "\"startedAt\":\"2026-01-02T03:04:05Z\",\"metadata\":{\"k:1\":\"a&b=c %%\"}}"

#define START "/process.Process/Start"

static void frame(struct fetch_rig_exchange *ex, uint8_t flags, struct str message)
{
    auto_buf struct buf out = {0};

    buf_init(&out, 65536);
    (void)connect_add(&out, flags, message);
    fetch_rig_chunk(ex, buf_str(&out));
}

static void tell(struct fetch_rig_exchange *ex, const char *json)
{
    auto_buf struct buf out = {0};

    buf_init(&out, 65536);
    envd_test_answer(&out, START, json, true);
    fetch_rig_chunk(ex, buf_str(&out));
}

static void answer_stream(struct fetch_rig_exchange *ex)
{
    fetch_rig_send(ex, STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
    if (fake.mode && strcmp(fake.mode, "compressed") == 0) {
        frame(ex, 1, STR("{}"));
        fetch_rig_chunk(ex, STR(""));
        return;
    }
    if (fake.mode && strcmp(fake.mode, "long") == 0) {
        fetch_rig_chunk(ex, STR("\0\x7f\xff\xff\xff"));
        fetch_rig_chunk(ex, STR(""));
        return;
    }
    tell(ex, "{\"event\":{\"start\":{\"pid\":77}}}");
    tell(ex, "{\"event\":{\"data\":{\"stdout\":\"aGVsbG8=\"}}}");
    tell(ex, "{\"event\":{\"keepalive\":{}}}");
    if (fake.mode && strcmp(fake.mode, "cut") == 0) {
        ex->close = true;
        return;
    }
    if (fake.mode && strcmp(fake.mode, "junk") == 0)
        frame(ex, 0, STR("\x0a\x7f"));
    else if (fake.mode && strcmp(fake.mode, "no end") != 0)
        tell(ex, fake.mode);
    if (!fake.mode || strcmp(fake.mode, "no end") != 0)
        frame(ex, CONNECT_END, STR("{}"));
    fetch_rig_chunk(ex, STR(""));
}

/* A request of envd as JSON, others as they are. */
static char *body_text(const struct fetch_rig_exchange *ex)
{
    struct str target = str_of(ex->target), body = buf_str(&ex->body);
    auto_json json_t *json =
        envd_test_request(target, str_is(target, START) ? str_skip(body, CONNECT_HEAD_SIZE) : body);

    return json ? json_text(json) : str_dup(body);
}

static void note_input(struct fetch_rig_exchange *ex)
{
    auto_json json_t *json = envd_test_request(str_of(ex->target), buf_str(&ex->body));

    CHECK_INT(json_integer_value(json_object_get(json_object_get(json, "process"), "pid")), 77);
    CHECK(base64_decode(json_get_str(json_object_get(json, "input"), "stdin"), &fake.input));
}

static bool misbehave(struct fetch_rig_exchange *ex)
{
    if (!fake.mode || strncmp(ex->target, "/process", 8) == 0)
        return false;
    if (strcmp(fake.mode, "hang") == 0) {
        while (!fetch_rig_stopping(ex->rig))
            (void)usleep(10000);
        ex->close = true;
    } else if (strcmp(fake.mode, "500") == 0) {
        fetch_rig_answer(ex, 500, NULL, STR("{\"code\":500,\"message\":\"on fire\"}"));
    } else if (strcmp(fake.mode, "429") == 0) {
        fetch_rig_answer(ex, 429, "Retry-After: 9\r\n",
                         STR("{\"message\":\"too many sandboxes\"}"));
    } else if (strcmp(fake.mode, "401") == 0) {
        fetch_rig_answer(ex, 401, NULL, STR("{\"message\":\"no\"}"));
    } else if (strcmp(fake.mode, "garbage") == 0) {
        fetch_rig_answer(ex, 200, NULL, STR("<html>{"));
    } else if (strcmp(fake.mode, "bad id") == 0) {
        fetch_rig_answer(ex, 200, NULL, STR("{\"sandboxID\":\"../../x\"}"));
    } else if (strcmp(fake.mode, "half") == 0) {
        fetch_rig_send(ex, STR("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"sand"));
        ex->close = true;
    } else {
        return false;
    }
    return true;
}

static void answer(struct fetch_rig_exchange *ex, void *arg)
{
    auto_free char *one = xasprintf(ONE, fake.state), *list = xasprintf("[" ONE "]", fake.state);
    auto_free char *body = body_text(ex);
    struct str target = str_n(ex->target, strlen(ex->target));

    (void)arg;
    (void)pthread_mutex_lock(&fake.mutex);
    (void)buf_printf(&fake.seen, "%s %s %.*s|%.*s %s\n", ex->method, ex->target,
                     STR_ARG(fetch_rig_header(ex, "x-api-key")),
                     STR_ARG(fetch_rig_header(ex, "x-access-token")), body);
    (void)pthread_mutex_unlock(&fake.mutex);
    if (misbehave(ex))
        return;
    if (str_starts(target, STR("/process.Process/Start")))
        answer_stream(ex);
    else if (str_starts(target, STR("/process.Process/SendInput"))) {
        note_input(ex);
        fetch_rig_answer(ex, 200, NULL, STR(""));
    } else if (str_starts(target, STR("/process.Process/")))
        fetch_rig_answer(ex, 200, NULL, STR(""));
    else if (str_starts(target, STR("/v2/sandboxes?")))
        fetch_rig_answer(ex, 200, NULL, str_of(list));
    else if (str_ends(target, STR("/pause")))
        fetch_rig_answer(ex, str_is(str_of(fake.state), "paused") ? 409 : 204, NULL, STR(""));
    else if (str_ends(target, STR("/metrics")))
        fetch_rig_answer(
            ex, 200, NULL,
            strcmp(fake.state, "running") != 0
                ? STR("[]")
                : STR("[{\"timestamp\":\"2026-01-01T00:00:00Z\",\"cpuUsedPct\":1},"
                      "{\"timestamp\":\"2026-01-01T00:00:05Z\",\"cpuCount\":2,\"cpuUsedPct\":12.5,"
                      "\"memUsed\":10,\"memTotal\":20,\"diskUsed\":30}]"));
    else if (str_ends(target, STR("/snapshots")))
        fetch_rig_answer(ex, 201, NULL, STR("{\"snapshotID\":\"team/snap:default\",\"names\":[]}"));
    else if (strcmp(ex->method, "DELETE") == 0)
        fetch_rig_answer(ex, 404, NULL, STR("{\"code\":404,\"message\":\"gone\"}"));
    else
        fetch_rig_answer(ex, 200, NULL, str_of(one));
}

struct test {
    struct fetch_rig *rig;
    struct fetch *fetch;
    struct provider *provider;
    struct arena arena;
    struct error err;
};

static const struct provider_ref ref = {.id = STR_INIT("iabc"), .token = STR_INIT("tok")};

static void begin(struct test *test, const char *options)
{
    auto_json json_t *json = json_loads(options ? options : "{}", 0, NULL);

    *test = (struct test){0};
    buf_init(&fake.seen, 1024 * 1024);
    buf_init(&fake.input, 1024 * 1024);
    test->rig = fetch_rig_new(NULL, answer, NULL);
    test->fetch = fetch_new();
    CHECK_INT(provider_new(&(struct provider_config){.name = "far",
                                                     .type = "e2b",
                                                     .api_url = fetch_rig_url(test->rig),
                                                     .api_key = "e2b_key",
                                                     .options = json,
                                                     .fetch = test->fetch},
                           &test->provider, &test->err),
              0);
}

static void end(struct test *test)
{
    provider_free(test->provider);
    fetch_free(test->fetch);
    fetch_rig_free(test->rig);
    arena_done(&test->arena);
    buf_done(&fake.seen);
    buf_done(&fake.input);
}

static bool saw(const char *text)
{
    bool found = str_find_str(buf_str(&fake.seen), str_of(text)) >= 0;

    if (!found)
        (void)fprintf(stderr, "not in:\n%s", fake.seen.p);
    return found;
}

TEST(e2b_create)
{
    const struct pair labels[] = {{STR("exo.sandbox.key"), STR("conversation:c:s")}};
    const struct pair env[] = {{STR("A"), STR("b")}};
    struct provider_spec spec = {.image = STR("tpl"),
                                 .labels = labels,
                                 .label_count = 1,
                                 .env = env,
                                 .env_count = 1,
                                 .ttl_s = 900,
                                 .pause_at_ttl = true,
                                 .egress = EGRESS_ALLOW_ALL};
    struct provider_sandbox sandbox;
    struct test t;

    begin(&t, NULL);
    CHECK_INT(provider_create(t.provider, &spec, &t.arena, &sandbox, &t.err), 0);
    CHECK_STR(sandbox.id, "iabc");
    CHECK_STR(sandbox.token, "tok");
    CHECK_INT(sandbox.label_count, 1);
    CHECK(saw("POST /sandboxes e2b_key| {\"templateID\":\"tpl\",\"timeout\":900,\"autoPause\":true,"
              "\"secure\":true,\"allow_internet_access\":true,\"metadata\":{\"exo.sandbox.key\":"
              "\"conversation:c:s\"},\"envVars\":{\"A\":\"b\"}}"));
    spec = (struct provider_spec){.snapshot = STR("team/snap:default"), .image = STR("tpl")};
    CHECK_INT(provider_create(t.provider, &spec, &t.arena, &sandbox, &t.err), 0);
    CHECK(saw("{\"templateID\":\"team/snap:default\",\"timeout\":300,\"autoPause\":false"));
    spec = (struct provider_spec){.egress = EGRESS_ALLOW_ALL};
    CHECK_INT(provider_create(t.provider, &spec, &t.arena, &sandbox, &t.err), 0);
    CHECK(saw("{\"templateID\":\"base\",\"timeout\":300,"));
    CHECK_INT(fetch_rig_requests(t.rig), 3);
    end(&t);
}

TEST(e2b_restricted_when_declared)
{
    auto_json json_t *domains = json_pack("[s]", "pypi.org"),
                     *cidrs = json_pack("[s]", "1.2.3.0/24");
    struct provider_spec spec = {
        .egress = EGRESS_RESTRICTED, .allow_domains = domains, .allow_cidrs = cidrs};
    struct provider_sandbox sandbox;
    struct test t;

    begin(&t, "{\"egress\":[\"allow-all\",\"restricted\"],\"features\":[\"hooks\"]}");
    CHECK(provider_caps(t.provider)->features & PROVIDER_HOOKS);
    CHECK_INT(provider_create(t.provider, &spec, &t.arena, &sandbox, &t.err), 0);
    CHECK(saw(
        "\"network\":{\"allowOut\":[\"pypi.org\",\"1.2.3.0/24\"],\"denyOut\":[\"0.0.0.0/0\"]}"));
    end(&t);
}

/* All of these without a single request. */
TEST(e2b_refused_at_once)
{
    auto_json json_t *mounts = json_pack("[{s:s,s:s}]", "host_path", "/etc", "guest_path", "/x");
    const struct provider_spec specs[] = {
        {.mounts = mounts}, {.egress = EGRESS_DENY_ALL}, {.egress = EGRESS_RESTRICTED}, {.cpu = 2}};
    struct provider_sandbox sandbox;
    struct provider_process *process;
    struct test t;

    begin(&t, NULL);
    CHECK(!(provider_caps(t.provider)->features &
            (PROVIDER_HOOKS | PROVIDER_JOB_LOGS | PROVIDER_JOB_STOP | PROVIDER_MOUNTS)));
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        CHECK_INT(provider_create(t.provider, &specs[i], &t.arena, &sandbox, &t.err), -1);
        CHECK_INT(t.err.code, ERROR_UNSUPPORTED);
        CHECK(strstr(t.err.message, "'far'") != NULL);
    }
    CHECK_INT(provider_kill(t.provider, &(struct provider_ref){.id = STR("../x")}, &t.err), -1);
    CHECK_INT(provider_start(t.provider, &ref, &(struct provider_command){0}, &process, &t.err),
              -1);
    CHECK_INT(t.err.code, ERROR_INVALID);
    CHECK_INT(fetch_rig_requests(t.rig), 0);
    end(&t);
}

TEST(e2b_find)
{
    const struct pair labels[] = {{STR("k:1"), STR("a&b=c %")}};
    const struct pair others[] = {{STR("k:1"), STR("other")}};
    struct provider_sandbox *found;
    size_t count;
    struct test t;

    begin(&t, NULL);
    fake.state = "paused";
    CHECK_INT(provider_find(t.provider,
                            &(struct provider_query){.labels = labels, .label_count = 1}, &t.arena,
                            &found, &count, &t.err),
              0);
    CHECK_INT(count, 1);
    CHECK_INT(found[0].state, PROVIDER_PAUSED);
    CHECK_INT(found[0].started_at_us, INT64_C(1767323045000000));
    /* The parameter, the filter, each name and value: three times encoded. */
    CHECK(saw("GET /v2/sandboxes?metadata=k%25253A1%3Da%252526b%25253Dc%252520%252525"
              "&state=running,paused&limit=100 e2b_key|"));
    CHECK_INT(provider_find(t.provider,
                            &(struct provider_query){.labels = others, .label_count = 1}, &t.arena,
                            &found, &count, &t.err),
              0);
    CHECK_INT(count, 0);
    end(&t);
}

TEST(e2b_life)
{
    struct provider_sandbox sandbox;
    struct str snapshot;
    struct test t;

    begin(&t, NULL);
    fake.state = "running";
    CHECK_INT(provider_connect(t.provider, &ref, 77, &t.arena, &sandbox, &t.err), 0);
    CHECK(saw("POST /sandboxes/iabc/connect e2b_key| {\"timeout\":77}"));
    CHECK_INT(provider_pause(t.provider, &ref, &t.err), 0);
    fake.state = "paused";
    CHECK_INT(provider_pause(t.provider, &ref, &t.err), 0);
    CHECK(saw("POST /sandboxes/iabc/pause"));
    CHECK_INT(provider_extend(t.provider, &ref, 600, &t.err), 0);
    CHECK(saw("POST /sandboxes/iabc/refreshes e2b_key| {\"duration\":600}"));
    CHECK_INT(provider_extend(t.provider, &ref, 7200, &t.err), 0);
    CHECK(saw("POST /sandboxes/iabc/timeout e2b_key| {\"timeout\":7200}"));
    CHECK_INT(provider_snapshot(t.provider, &ref, "snap", &t.arena, &snapshot, &t.err), 0);
    CHECK_STR(snapshot, "team/snap:default");
    CHECK(str_find_str(buf_str(&fake.seen), STR("DELETE")) < 0);
    CHECK_INT(provider_snapshot_delete(t.provider, STR_NONE, snapshot, &t.err), 0);
    CHECK(saw("DELETE /templates/team%2Fsnap%3Adefault"));
    CHECK_INT(provider_kill(t.provider, &ref, &t.err), 0);
    CHECK(saw("DELETE /sandboxes/iabc "));
    end(&t);
}

TEST(e2b_usage)
{
    struct provider_usage usage;
    struct test t;

    begin(&t, NULL);
    fake.state = "running";
    CHECK_INT(provider_usage(t.provider, &ref, &usage, &t.err), 0);
    CHECK(saw("GET /sandboxes/iabc/metrics e2b_key|"));
    CHECK_INT((int64_t)(usage.cpu_percent * 10), 125);
    CHECK_INT(usage.cpu_count, 2);
    CHECK_INT(usage.mem_used, 10);
    CHECK_INT(usage.mem_total, 20);
    CHECK_INT(usage.disk_used, 30);
    CHECK_INT(usage.disk_total, -1);
    CHECK_INT(usage.at_us, INT64_C(1767225605000000));
    fake.state = "paused"; /* no samples */
    CHECK_INT(provider_usage(t.provider, &ref, &usage, &t.err), 0);
    CHECK_INT(usage.mem_used, -1);
    fake.mode = "garbage";
    CHECK_INT(provider_usage(t.provider, &ref, &usage, &t.err), -1);
    end(&t);
}

TEST(e2b_exec)
{
    const char *argv[] = {"/bin/cat", "-", NULL};
    struct provider_command command = {
        .argv = argv, .open_stdin = true, .cwd = "/w", .timeout_ms = 5000};
    struct provider_process *process;
    struct provider_event event;
    struct test t;

    begin(&t, NULL);
    fake.mode = "{\"event\":{\"end\":{\"status\":\"exit status 3\",\"exited\":true}}}";
    CHECK_INT(provider_start(t.provider, &ref, &command, &process, &t.err), 0);
    CHECK(
        saw("POST /process.Process/Start |tok {\"process\":{\"cmd\":\"/bin/cat\",\"args\":[\"-\"],"
            "\"cwd\":\"/w\"},\"stdin\":true}"));
    CHECK_INT(provider_process_input(process, STR("in put"), &t.err), 0);
    CHECK_STR(buf_str(&fake.input), "in put");
    CHECK_INT(provider_process_close_stdin(process, &t.err), 0);
    CHECK(saw("POST /process.Process/CloseStdin |tok {\"process\":{\"pid\":77}}"));
    CHECK_INT(provider_process_next(process, 5000, &event, &t.err), 1);
    CHECK(event.kind == PROVIDER_STARTED && event.pid == 77);
    CHECK_INT(provider_process_next(process, 5000, &event, &t.err), 1);
    CHECK(event.kind == PROVIDER_STDOUT);
    CHECK_STR(event.data, "hello");
    CHECK_INT(provider_process_next(process, 5000, &event, &t.err), 1);
    CHECK(event.kind == PROVIDER_EXITED && event.exit_code == 3 && !event.timed_out);
    CHECK_INT(provider_process_next(process, 100, &event, &t.err), -1);
    provider_process_free(process);
    end(&t);
}

TEST(e2b_not_secured)
{
    const char *argv[] = {"x", NULL};
    struct provider_sandbox sandbox;
    struct provider_process *process;
    struct test t;

    begin(&t, "{\"secure\":false}");
    CHECK_INT(provider_create(t.provider, &(struct provider_spec){0}, &t.arena, &sandbox, &t.err),
              0);
    CHECK(saw("\"secure\":false"));
    CHECK_INT(provider_start(t.provider, &(struct provider_ref){.id = STR("iabc")},
                             &(struct provider_command){.argv = argv}, &process, &t.err),
              0);
    provider_process_free(process);
    CHECK(saw("POST /process.Process/Start | {")); /* no token, and none was asked for */
    CHECK_INT(fetch_rig_requests(t.rig), 2);
    end(&t);
}

/* A token is asked for when it is not known. */
TEST(e2b_token)
{
    const char *argv[] = {"x", NULL};
    struct provider_process *process;
    struct test t;

    begin(&t, NULL);
    CHECK_INT(provider_start(t.provider, &(struct provider_ref){.id = STR("iabc")},
                             &(struct provider_command){.argv = argv}, &process, &t.err),
              0);
    provider_process_free(process);
    CHECK(saw("GET /sandboxes/iabc e2b_key|"));
    CHECK(saw("POST /process.Process/Start |tok "));
    end(&t);
}

static const struct {
    const char *mode;
    int exit_code; /* -1: the stream breaks */
    bool timed_out;
} endings[] = {
    {"{\"event\":{\"end\":{\"status\":\"signal: killed\",\"exitCode\":-1}}}", 137, false},
    {"{\"event\":{\"end\":{\"status\":\"signal: segmentation fault (core dumped)\"}}}", 139, false},
    {"{\"event\":{\"end\":{\"status\":\"signal: signal 35\"}}}", 163, false},
    {"{\"event\":{\"end\":{\"exitCode\":9,\"exited\":true}}}", 9, false},
    {"{\"event\":{\"end\":{\"exitCode\":\"12\"}}}", 12, false},
    {"{\"event\":{\"end\":{}}}", 0, false},
    {"{\"error\":{}}", -1, false},
    {"cut", -1, false},
    {"no end", -1, false},
    {"junk", -1, false},
};

TEST_TIMEOUT(e2b_endings, 60)
{
    const char *argv[] = {"x", NULL};
    struct test t;

    begin(&t, NULL);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        struct provider_process *process;
        struct provider_event event;
        int r;

        fake.mode = endings[i].mode;
        CHECK_INT(provider_start(t.provider, &ref, &(struct provider_command){.argv = argv},
                                 &process, &t.err),
                  0);
        do
            r = provider_process_next(process, 5000, &event, &t.err);
        while (r == 1 && event.kind != PROVIDER_EXITED);
        if (endings[i].exit_code < 0) {
            CHECK_INT(r, -1);
            CHECK_INT(t.err.code, ERROR_UNAVAILABLE);
        } else {
            CHECK_INT(r, 1);
            CHECK_INT(event.exit_code, endings[i].exit_code);
        }
        provider_process_free(process);
    }
    end(&t);
}

TEST(e2b_bad_streams)
{
    static const char *const modes[] = {"compressed", "long"};
    const char *argv[] = {"x", NULL};
    struct provider_process *process;
    struct test t;

    begin(&t, NULL);
    for (size_t i = 0; i < 2; i++) {
        fake.mode = modes[i];
        CHECK_INT(provider_start(t.provider, &ref, &(struct provider_command){.argv = argv},
                                 &process, &t.err),
                  -1);
        CHECK_INT(t.err.code, ERROR_UNAVAILABLE);
    }
    end(&t);
}

TEST(e2b_bad_servers)
{
    static const struct {
        const char *mode;
        enum error_code code;
    } cases[] = {
        {"500", ERROR_UNAVAILABLE},     {"429", ERROR_QUOTA},        {"401", ERROR_UNAUTHORIZED},
        {"garbage", ERROR_UNAVAILABLE}, {"half", ERROR_UNAVAILABLE}, {"bad id", ERROR_UNAVAILABLE},
    };
    struct provider_sandbox sandbox;
    struct test t;

    begin(&t, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fake.mode = cases[i].mode;
        CHECK_INT(
            provider_create(t.provider, &(struct provider_spec){0}, &t.arena, &sandbox, &t.err),
            -1);
        CHECK_INT(t.err.code, cases[i].code);
        CHECK(!strstr(t.err.message, "e2b_key"));
        if (cases[i].code == ERROR_QUOTA)
            CHECK(strstr(t.err.message, "9 s") && strstr(t.err.message, "too many sandboxes"));
    }
    /* Only the check is short enough to wait for. */
    fake.mode = "hang";
    CHECK_INT(provider_check(t.provider, &t.err), -1);
    CHECK_INT(t.err.code, ERROR_TIMEOUT);
    end(&t);
}

static int refused(const struct provider_config *config)
{
    struct provider *provider;
    struct error err = {0};

    CHECK_INT(provider_new(config, &provider, &err), -1);
    CHECK(provider == NULL && err.message[0]);
    return (int)err.code;
}

/* The message that asks for a key names the address that would get it. */
TEST(e2b_address_of_a_domain)
{
    static const char *const bad[] = {"a/b",       "user@host", "a?b",  "a b",
                                      "host:port", "a\\b",      "[::1]"};
    struct provider_config config = {.name = "x", .type = "e2b", .domain = "e2b.example:8443"};
    struct provider *provider;
    struct error err = {0};

    CHECK_INT(provider_new(&config, &provider, &err), -1);
    CHECK(strstr(err.message, "'https://api.e2b.example:8443'") != NULL);
    config.api_url = "http://10.0.0.1:3000";
    CHECK_INT(provider_new(&config, &provider, &err), -1);
    CHECK(strstr(err.message, "'http://10.0.0.1:3000'") != NULL);
    config.api_url = "";
    config.domain = NULL; /* neither: the public service */
    CHECK_INT(provider_new(&config, &provider, &err), -1);
    CHECK(strstr(err.message, "'https://api.e2b.app'") != NULL);
    config.api_key = "k";
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        config.domain = bad[i];
        CHECK_INT(refused(&config), ERROR_INVALID);
    }
}

TEST(e2b_settings)
{
    auto_json json_t *bad = json_loads("{\"features\":[\"flying\"]}", 0, NULL);
    struct provider_config config = {.name = "x", .type = "e2b", .api_key = "k"};
    struct provider_address address;
    auto_arena struct arena arena = {0};
    struct provider *provider;
    struct error err = {0};

    config.api_url = "embedded";
    CHECK_INT(refused(&config), ERROR_UNSUPPORTED);
    config.api_url = "ftp://x";
    CHECK_INT(refused(&config), ERROR_INVALID);
    config.api_url = "";
    config.api_key = "";
    CHECK_INT(refused(&config), ERROR_INVALID);
    config.api_key = "k";
    config.options = bad;
    CHECK_INT(refused(&config), ERROR_INVALID);
    config.options = NULL;
    config.type = "lambda";
    CHECK_INT(refused(&config), ERROR_INVALID);
    config.type = "e2b";
    CHECK_INT(provider_new(&config, &provider, &err), 0);
    CHECK_INT(provider_address(provider, &ref, 8080, &arena, &address, &err), 0);
    CHECK_STR(address.url, "https://8080-iabc.e2b.app");
    CHECK_INT(address.header_count, 0);
    provider_free(provider);
    config.domain = "e2b.example:8443";
    CHECK_INT(provider_new(&config, &provider, &err), 0);
    CHECK_INT(provider_address(provider, &ref, 8080, &arena, &address, &err), 0);
    CHECK_STR(address.url, "https://8080-iabc.e2b.example:8443");
    provider_free(provider);
    config.domain = NULL;
    config.api_url = "http://10.0.0.1:3000/";
    CHECK_INT(provider_new(&config, &provider, &err), 0);
    CHECK_INT(provider_address(provider, &ref, 8080, &arena, &address, &err), 0);
    CHECK_STR(address.url, "http://8080-iabc.localhost:3000");
    CHECK_STR(address.local_url, "http://10.0.0.1:3000");
    CHECK_STR(address.headers[0].value, "iabc");
    CHECK_STR(address.headers[1].value, "8080");
    provider_free(provider);
}

static ssize_t read_text(void *arg, void *p, size_t size)
{
    struct str *text = arg;
    size_t len = text->len < size ? text->len : size;

    memcpy(p, text->p, len);
    *text = str_skip(*text, len);
    return (ssize_t)len;
}

static int live_write(struct provider *provider, const struct provider_ref *live, struct error *err)
{
    struct str text = STR("kept");

    return provider_write(provider, live, "/tmp/kept", read_text, &text, (int64_t)text.len, err);
}

/* Against a real service, only with a key: creates one sandbox, and deletes it also when a check
 * fails. E2B_API_URL and E2B_DOMAIN name another one than E2B's own. */
TEST_TIMEOUT(e2b_live, 300)
{
    const char *key = getenv("E2B_API_KEY"), *url = getenv("E2B_API_URL"),
               *domain = getenv("E2B_DOMAIN"), *image = getenv("E2B_TEMPLATE");
    static const char *const argv[] = {"sh", "-c", "cat /tmp/kept", NULL};
    const struct pair labels[] = {{STR("quicksand.test"), STR("e2b:live 1")}};
    struct provider_config config = {.name = "live", .type = "e2b", .api_key = key};
    struct provider_spec spec = {.egress = EGRESS_ALLOW_ALL,
                                 .ttl_s = 120,
                                 .image = str_of(image && image[0] ? image : "base"),
                                 .labels = labels,
                                 .label_count = 1};
    struct provider_command command = {.argv = argv, .timeout_ms = 30000};
    struct provider_sandbox machine, *found = NULL;
    struct provider_process *process = NULL;
    struct provider_event event = {0};
    struct provider_ref live;
    struct error why = {0};
    auto_buf struct buf out = {0};
    size_t count = 0;
    struct test t = {0};
    int r;

    if (!key || !key[0])
        test_skip("E2B_API_KEY is not set");
    config.api_url = url ? url : "";
    config.domain = domain ? domain : "";
    config.fetch = t.fetch = fetch_new();
    buf_init(&out, 4096);
    CHECK_INT(provider_new(&config, &t.provider, &t.err), 0);
    if (provider_create(t.provider, &spec, &t.arena, &machine, &t.err) < 0)
        test_fail(__FILE__, __LINE__, "%s", t.err.message);
    live = (struct provider_ref){.id = machine.id, .token = machine.token};
    r = provider_find(t.provider, &(struct provider_query){.labels = labels, .label_count = 1},
                      &t.arena, &found, &count, &why);
    if (r == 0)
        r = live_write(t.provider, &live, &why);
    if (r == 0)
        r = provider_pause(t.provider, &live, &why);
    if (r == 0)
        r = provider_connect(t.provider, &live, 120, &t.arena, &machine, &why);
    if (r == 0) {
        live.token = machine.token.len ? machine.token : live.token;
        r = provider_start(t.provider, &live, &command, &process, &why);
    }
    while (r == 0 && provider_process_next(process, 60000, &event, &why) == 1 &&
           event.kind != PROVIDER_EXITED)
        if (event.kind == PROVIDER_STDOUT)
            (void)buf_add_str(&out, event.data);
    provider_process_free(process);
    CHECK_INT(provider_kill(t.provider, &live, &t.err), 0);
    if (r < 0)
        test_fail(__FILE__, __LINE__, "%s", why.message);
    CHECK_INT(count, 1);
    CHECK_INT(event.kind, PROVIDER_EXITED);
    CHECK_INT(event.exit_code, 0);
    CHECK_STR(buf_str(&out), "kept");
    provider_free(t.provider);
    fetch_free(t.fetch);
    arena_done(&t.arena);
}
