/* The Daytona provider against a server that writes down what it is asked and answers as told. */
#include <poll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "extra/daytona/daytona.h"
#include "protocol/json/json_shape.h"
#include "provider/test/provider_test_far.h"

static struct {
    const char *state; /* of the sandbox */
    int until_started; /* so many looks until it has started */
} fake = {.state = "started"};

static const struct provider_ref ref = {.id = STR_INIT("sb-1")};

static const struct far_answer bad_answers[] = {
    {"hang", FAR_HANGS},
    {"500", 500, "{\"statusCode\":500,\"message\":\"on fire\"}"},
    {"429", 429, "{\"message\":\"total CPU limit\"}", "Retry-After: 9\r\n"},
    {"401", 401, "{\"message\":\"bad key\"}"},
    {"404", 404, "{\"message\":\"no such sandbox\"}"},
    {"garbage", 200, "<html>{"},
    {"bad id", 200, "{\"id\":\"../../x\",\"state\":\"started\"}"},
    {"half", FAR_HALF},
    {0},
};

static char *machine_json(const char *state)
{
    return xasprintf("{\"id\":\"sb-1\",\"state\":\"%s\",\"snapshot\":\"debian:12\","
                     "\"labels\":{\"k\":\"a:b&c\"},\"createdAt\":\"2026-01-02T03:04:05.000Z\"}",
                     state);
}

static void answer_toolbox(struct fetch_rig_exchange *ex, struct str target)
{
    if (str_find_str(target, STR("/process/execute")) >= 0)
        fetch_rig_answer(ex, 200, NULL, STR("{\"exitCode\":3,\"result\":\"out and err\\n\"}"));
    else if (str_find_str(target, STR("/files/download")) >= 0)
        fetch_rig_answer(ex, 200, NULL, STR("content"));
    else if (str_find_str(target, STR("/files/upload")) >= 0)
        fetch_rig_answer(ex, 200, NULL, STR_NONE);
    else if (ex->method[0] == 'D')
        fetch_rig_answer(ex, 204, NULL, STR_NONE);
    else
        fetch_rig_answer(
            ex, 200, NULL,
            STR("[{\"name\":\"a b\",\"isDir\":false,\"size\":7,\"permissions\":\"0640\","
                "\"modTime\":\"2026-01-02T03:04:05Z\"},"
                "{\"name\":\"d\",\"isDir\":true,\"size\":0}]"));
}

static void answer_list(struct fetch_rig_exchange *ex)
{
    auto_free char *one = machine_json(fake.state);
    auto_free char *all = xasprintf("{\"items\":[%s,{\"id\":\"stranger\",\"state\":\"started\","
                                    "\"labels\":{}}]}",
                                    one);

    fetch_rig_answer(ex, 200, NULL, str_of(all));
}

static void answer_api(struct fetch_rig_exchange *ex, struct str target)
{
    auto_free char *one = NULL;

    if (str_ends(target, STR("/start")))
        fake.until_started = 2;
    if (str_ends(target, STR("/stop")))
        fake.state = "stopped";
    if (ex->method[0] == 'G' && fake.until_started > 0 && --fake.until_started == 0)
        fake.state = "started";
    one = machine_json(fake.until_started > 0 ? "starting" : fake.state);
    if (str_starts(target, STR("/api/sandbox?")))
        answer_list(ex);
    else if (str_ends(target, STR("/toolbox-proxy-url")))
        fetch_rig_answer(ex, 200, NULL, STR("{\"url\":\"http://127.0.0.1:1/looked-up/\"}"));
    else if (str_ends(target, STR("/preview-url")))
        fetch_rig_answer(ex, 200, NULL, STR("{\"url\":\"https://8080-x.d\",\"token\":\"pt\"}"));
    else if (str_starts(target, STR("/api/snapshots/")))
        fetch_rig_answer(ex, 200, NULL, STR("{\"id\":\"uuid-9\",\"name\":\"snap-1\"}"));
    else
        fetch_rig_answer(ex, 200, NULL, str_of(one));
}

static void answer(struct fetch_rig_exchange *ex, void *arg)
{
    struct str target = str_of(ex->target);

    (void)arg;
    far_note(ex, "|%.*s|%.*s", STR_ARG(fetch_rig_header(ex, "authorization")),
             STR_ARG(fetch_rig_header(ex, "x-daytona-organization-id")));
    if (far_misbehaves(ex, bad_answers))
        return;
    if (str_starts(target, STR("/toolbox/")))
        answer_toolbox(ex, target);
    else
        answer_api(ex, target);
}

/* ---- */

static void open_with(const char *more)
{
    auto_free char *url = NULL, *text = NULL;
    auto_json json_t *options = NULL;
    struct provider_config config = {.name = "d1", .type = "daytona", .api_key = "dtn_k"};

    far_begin(NULL, answer);
    url = xasprintf("%s/api/", fetch_rig_url(rig));
    text = xasprintf("{\"toolbox_url\":\"%s\",\"organization_id\":\"org1\",\"target\":\"eu\"%s}",
                     fetch_rig_url(rig), more);
    CHECK_INT(json_parse(str_of(text), &options, &err), 0);
    config.api_url = url;
    config.options = options;
    far_open(&config);
}

TEST(daytona_create_fresh_names_no_snapshot)
{
    struct pair label = {STR("k"), STR("a:b&c")}, env = {STR("E"), STR("v")};
    struct provider_spec spec = {.labels = &label,
                                 .label_count = 1,
                                 .env = &env,
                                 .env_count = 1,
                                 .egress = EGRESS_DENY_ALL,
                                 .cpu = 2,
                                 .mem_mb = 1500,
                                 .disk_mb = 2049,
                                 .ttl_s = 90,
                                 .pause_at_ttl = true};
    struct provider_sandbox machine;

    open_with("");
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), 0);
    CHECK_STR(machine.id, "sb-1");
    CHECK_INT(machine.state, PROVIDER_RUNNING);
    saw("POST /api/sandbox|Bearer dtn_k|org1 ");
    saw("\"labels\":{\"k\":\"a:b&c\"}");
    saw("\"env\":{\"E\":\"v\"}");
    saw("\"target\":\"eu\"");
    saw("\"networkBlockAll\":true");
    saw("\"cpu\":2");
    saw("\"memory\":2");
    saw("\"disk\":3");
    saw("\"autoStopInterval\":2");
    saw_not("autoDeleteInterval");
    saw_not("\"snapshot\"");
    far_end();
}

TEST(daytona_create_from_image_and_restricted)
{
    auto_json json_t *domains = json_pack("[ss]", "a.example", "b.example");
    auto_json json_t *cidrs = json_pack("[s]", "192.0.2.0/24");
    struct provider_spec spec = {.image = STR("python:3.12"),
                                 .egress = EGRESS_RESTRICTED,
                                 .allow_domains = domains,
                                 .allow_cidrs = cidrs,
                                 .ttl_s = 60};
    struct provider_sandbox machine;

    open_with("");
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), 0);
    saw("\"buildInfo\":{\"dockerfileContent\":\"FROM python:3.12\\n\"}");
    saw("\"networkAllowList\":\"192.0.2.0/24\"");
    saw("\"domainAllowList\":\"a.example,b.example\"");
    saw("\"autoDeleteInterval\":0");
    saw_not("networkBlockAll");
    spec.image = STR("x\nRUN evil");
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
    far_end();
}

TEST(daytona_snapshot_and_restore)
{
    struct provider_spec spec = {.egress = EGRESS_ALLOW_ALL};
    struct provider_sandbox machine;
    struct str manifest;

    open_with("");
    CHECK_INT(provider_snapshot(provider, &ref, "snap-1", &arena, &manifest, &err), 0);
    CHECK_STR(manifest, "{\"snapshot_name\":\"snap-1\",\"base_image\":\"debian:12\"}");
    saw("POST /api/sandbox/sb-1/snapshot|Bearer dtn_k|org1 {\"name\":\"snap-1\"}");
    spec.snapshot = manifest;
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), 0);
    saw("\"snapshot\":\"snap-1\"");
    CHECK_INT(provider_snapshot_delete(provider, STR_NONE, manifest, &err), 0);
    saw("DELETE /api/snapshots/uuid-9|");
    spec.snapshot = STR("{\"e2b\":1}");
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
    far_end();
}

TEST(daytona_find_filters_by_one_parameter)
{
    struct pair label = {STR("k"), STR("a:b&c")};
    struct provider_sandbox *found;
    size_t count;

    open_with("");
    CHECK_INT(provider_find(provider, &(struct provider_query){.labels = &label, .label_count = 1},
                            &arena, &found, &count, &err),
              0);
    saw("GET /api/sandbox?labels=%7B%22k%22%3A%22a%3Ab%26c%22%7D&limit=100|");
    CHECK_INT(count, 1); /* the stranger has not the label */
    CHECK_STR(found[0].id, "sb-1");
    far_end();
}

TEST(daytona_stop_never_deletes_and_connect_starts)
{
    struct provider_sandbox machine;

    open_with("");
    CHECK_INT(provider_pause(provider, &ref, &err), 0);
    saw("POST /api/sandbox/sb-1/stop|");
    CHECK_INT(provider_pause(provider, &ref, &err), 0);
    saw_not("DELETE");
    CHECK_INT(provider_get(provider, &ref, &arena, &machine, &err), 0);
    CHECK_INT(machine.state, PROVIDER_PAUSED);
    saw_not("/start");
    CHECK_INT(provider_connect(provider, &ref, 125, &arena, &machine, &err), 0);
    CHECK_INT(machine.state, PROVIDER_RUNNING);
    saw("POST /api/sandbox/sb-1/start|");
    saw("POST /api/sandbox/sb-1/autostop/3|");
    CHECK_INT(provider_kill(provider, &ref, &err), 0);
    saw("DELETE /api/sandbox/sb-1|");
    far_end();
}

TEST(daytona_failed_state_is_told_and_cleaned_up)
{
    struct provider_spec spec = {.egress = EGRESS_ALLOW_ALL};
    struct provider_sandbox machine;

    open_with("");
    fake.state = "build_failed";
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), -1);
    CHECK_INT(err.code, ERROR_UNAVAILABLE);
    CHECK(strstr(err.message, "build_failed"));
    saw("DELETE /api/sandbox/sb-1|");
    fake.state = "destroyed";
    CHECK_INT(provider_get(provider, &ref, &arena, &machine, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    far_end();
}

/* ---- the toolbox ---- */

static int run(const struct provider_command *command, struct buf *out, struct provider_event *last)
{
    struct provider_process *process;
    int got;

    if (provider_start(provider, &ref, command, &process, &err) < 0)
        return -1;
    got = provider_process_next(process, 0, last, &err);
    CHECK_INT(got, 1);
    CHECK_INT(last->kind, PROVIDER_STARTED);
    do {
        struct pollfd fd = {.fd = provider_process_wait(process).fd, .events = POLLIN};

        CHECK_INT(poll(&fd, 1, 20000), 1);
        got = provider_process_next(process, 0, last, &err);
        if (got == 1 && last->kind != PROVIDER_EXITED)
            (void)buf_add_str(out, last->data);
    } while (got == 1 && last->kind != PROVIDER_EXITED);
    provider_process_free(process);
    return got == 1 ? 0 : -1;
}

TEST(daytona_execute)
{
    static const char *const argv[] = {"sh", "-c", "echo 'it''s' $X", "", "a=b", NULL};
    struct pair env = {STR("X"), STR("y")};
    struct provider_command command = {
        .argv = argv, .env = &env, .env_count = 1, .cwd = "/w", .timeout_ms = 2500};
    struct provider_event event;
    auto_buf struct buf out;

    buf_init(&out, 4096);
    open_with("");
    CHECK_INT(run(&command, &out, &event), 0);
    CHECK_STR(buf_str(&out), "out and err\n");
    CHECK_INT(event.exit_code, 3);
    CHECK(!event.timed_out);
    saw("POST /toolbox/sb-1/process/execute|Bearer dtn_k|org1 ");
    saw("\"command\":\"sh -c 'echo '\\\\''it'\\\\'''\\\\''s'\\\\'' $X' '' a=b\"");
    saw("\"cwd\":\"/w\"");
    saw("\"timeout\":3");
    saw("\"envs\":{\"X\":\"y\"}");
    far_end();
}

TEST(daytona_execute_refuses_what_it_cannot)
{
    static const char *const argv[] = {"true", NULL};
    struct provider_command command = {.argv = argv, .user = "root"};
    struct provider_process *process;
    int before;

    open_with("");
    before = fetch_rig_requests(rig);
    CHECK_INT(provider_start(provider, &ref, &command, &process, &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    command.user = NULL;
    command.pty = true;
    CHECK_INT(provider_start(provider, &ref, &command, &process, &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    CHECK_INT(fetch_rig_requests(rig), before);
    far_end();
}

TEST(daytona_execute_cancel)
{
    static const char *const argv[] = {"sleep", "9", NULL};
    struct provider_command command = {.argv = argv};
    struct provider_process *process;
    struct provider_event event;
    int64_t begin;

    open_with("");
    misbehaviour = "hang";
    CHECK_INT(provider_start(provider, &ref, &command, &process, &err), 0);
    CHECK_INT(provider_process_next(process, 1000, &event, &err), 1);
    begin = clock_mono_ms();
    CHECK_INT(provider_process_next(process, 50, &event, &err), 0);
    provider_process_cancel(process);
    CHECK_INT(provider_process_next(process, 5000, &event, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK(clock_mono_ms() - begin < 1000);
    CHECK_INT(provider_process_signal(process, 9, &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    provider_process_free(process);
    far_end();
}

struct bytes {
    const char *p;
    size_t left;
};

static ssize_t take_bytes(void *arg, void *p, size_t size)
{
    struct bytes *bytes = arg;
    size_t n = bytes->left < size ? bytes->left : size;

    memcpy(p, bytes->p, n);
    bytes->p += n;
    bytes->left -= n;
    return (ssize_t)n;
}

static int add_bytes(void *arg, struct str data)
{
    (void)buf_add_str(arg, data);
    return 0;
}

TEST(daytona_files)
{
    struct bytes bytes = {"hello", 5};
    struct provider_file *files;
    size_t count;
    auto_buf struct buf out;

    buf_init(&out, 4096);
    open_with("");
    CHECK_INT(provider_read(provider, &ref, "/a b", add_bytes, &out, &err), 0);
    CHECK_STR(buf_str(&out), "content");
    saw("GET /toolbox/sb-1/files/download?path=%2Fa%20b|Bearer dtn_k|");
    CHECK_INT(provider_write(provider, &ref, "/x", take_bytes, &bytes, 5, &err), 0);
    saw("POST /toolbox/sb-1/files/upload?path=%2Fx|");
    saw("name=\"file\"; filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\n"
        "hello\r\n--quicksand-");
    bytes = (struct bytes){"unknown", 7};
    CHECK_INT(provider_write(provider, &ref, "/x", take_bytes, &bytes, -1, &err), 0);
    saw("\r\n\r\nunknown\r\n--quicksand-");
    bytes = (struct bytes){"short", 5};
    CHECK_INT(provider_write(provider, &ref, "/x", take_bytes, &bytes, 50, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK_INT(provider_list(provider, &ref, "/dir/", &arena, &files, &count, &err), 0);
    CHECK_INT(count, 2);
    CHECK_STR(files[0].path, "/dir/a b");
    CHECK_INT(files[0].mode, 0640);
    CHECK(files[1].directory);
    CHECK_INT(provider_remove(provider, &ref, "/x", &err), 0);
    saw("DELETE /toolbox/sb-1/files?path=%2Fx&recursive=true|");
    far_end();
}

TEST(daytona_address_has_its_token)
{
    struct provider_address address;

    open_with("");
    CHECK_INT(provider_address(provider, &ref, 8080, &arena, &address, &err), 0);
    saw("GET /api/sandbox/sb-1/ports/8080/preview-url|");
    CHECK_STR(address.url, "https://8080-x.d");
    CHECK_STR(address.headers[0].name, "x-daytona-preview-token");
    CHECK_STR(address.headers[0].value, "pt");
    far_end();
}

TEST(daytona_toolbox_is_looked_up)
{
    struct daytona *daytona;
    struct provider_ref told = ref;
    auto_buf struct buf url;

    buf_init(&url, 4096);
    open_with("");
    daytona = daytona_of(provider);
    free(daytona->toolbox);
    daytona->toolbox = NULL;
    CHECK_INT(daytona_toolbox(daytona, &told, &url, &err), 0);
    CHECK_STR(buf_str(&url), "http://127.0.0.1:1/looked-up/sb-1");
    saw("GET /api/sandbox/sb-1/toolbox-proxy-url|");
    buf_clear(&url);
    told.address = STR("https://told/toolbox");
    CHECK_INT(daytona_toolbox(daytona, &told, &url, &err), 0);
    CHECK_STR(buf_str(&url), "https://told/toolbox/sb-1");
    far_end();
}

TEST(daytona_misbehaviour)
{
    static const struct {
        const char *mode;
        enum error_code code;
        const char *part;
    } cases[] = {
        {"500", ERROR_UNAVAILABLE, "on fire"},     {"429", ERROR_QUOTA, "try again in 9 s"},
        {"401", ERROR_UNAUTHORIZED, "bad key"},    {"404", ERROR_NOT_FOUND, "no such sandbox"},
        {"garbage", ERROR_UNAVAILABLE, "no JSON"}, {"bad id", ERROR_UNAVAILABLE, "another"},
        {"half", ERROR_UNAVAILABLE, ""},
    };
    static const char *const argv[] = {"true", NULL};
    struct provider_command command = {.argv = argv};
    struct provider_sandbox machine;
    struct provider_event event;
    auto_buf struct buf out;

    buf_init(&out, 4096);
    open_with("");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        misbehaviour = cases[i].mode;
        CHECK_INT(provider_get(provider, &ref, &arena, &machine, &err), -1);
        if (err.code != cases[i].code || !strstr(err.message, cases[i].part))
            test_fail(__FILE__, __LINE__, "%s: %s %s", cases[i].mode, error_code_name(err.code),
                      err.message);
        CHECK(!strstr(err.message, "dtn_k"));
        if (strcmp(misbehaviour, "bad id") != 0)
            CHECK_INT(run(&command, &out, &event), -1);
    }
    misbehaviour = "404";
    CHECK_INT(provider_kill(provider, &ref, &err), 0);
    CHECK_INT(provider_snapshot_delete(provider, STR_NONE, STR("gone"), &err), 0);
    far_end();
}

TEST(daytona_settings)
{
    struct provider_config config = {.name = "d", .type = "daytona", .api_url = ""};

    CHECK_INT(provider_new(&config, &provider, &err), -1);
    CHECK(strstr(err.message, "DAYTONA_API_KEY"));
    config.api_key = "k";
    config.api_url = "ftp://x";
    CHECK_INT(provider_new(&config, &provider, &err), -1);
    config.api_url = "";
    CHECK_INT(provider_new(&config, &provider, &err), 0);
    CHECK_INT(provider_caps(provider)->egress,
              EGRESS_ALLOW_ALL | EGRESS_DENY_ALL | EGRESS_RESTRICTED);
    CHECK(!(provider_caps(provider)->features & (PROVIDER_PTY | PROVIDER_JOB_STOP)));
    provider_free(provider);
}

/* Against the real service, only with a key: makes one sandbox and deletes it. */
TEST_TIMEOUT(daytona_live, 300)
{
    const char *key = getenv("DAYTONA_API_KEY");
    static const char *const argv[] = {"echo", "hi there", NULL};
    struct provider_command command = {.argv = argv, .timeout_ms = 30000};
    struct provider_config config = {.name = "live", .type = "daytona", .api_url = ""};
    struct provider_spec spec = {.egress = EGRESS_ALLOW_ALL, .ttl_s = 300};
    struct provider_sandbox machine;
    struct provider_process *process;
    struct provider_event event = {0};
    struct provider_ref live;

    if (!key || !key[0])
        test_skip("DAYTONA_API_KEY is not set");
    config.api_key = key;
    if (getenv("DAYTONA_API_URL"))
        config.api_url = getenv("DAYTONA_API_URL");
    far_open(&config);
    if (provider_create(provider, &spec, &arena, &machine, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    live = (struct provider_ref){.id = machine.id, .address = machine.address};
    CHECK_INT(provider_start(provider, &live, &command, &process, &err), 0);
    while (provider_process_next(process, 60000, &event, &err) == 1 &&
           event.kind != PROVIDER_EXITED)
        ;
    provider_process_free(process);
    CHECK_INT(provider_kill(provider, &live, &err), 0);
    CHECK_INT(event.kind, PROVIDER_EXITED);
    CHECK_INT(event.exit_code, 0);
    far_end();
}
