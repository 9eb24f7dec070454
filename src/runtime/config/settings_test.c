#include "runtime/core/settings.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "protocol/fetch/fetch.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/profile.h"
#include "runtime/config/config.h"
#include "runtime/core/test/core_env.h"
#include "runtime/main/runtime_main.h"

static void settings_cleanup(struct runtime_settings *settings)
{
    runtime_settings_done(settings);
}
#define auto_settings __attribute__((cleanup(settings_cleanup)))

/* The server at http://127.0.0.1:3000 with one key. */
static bool is_three_thousand(void *arg, const char *api_url, const char *domain,
                              const char *api_key)
{
    (void)arg;
    if (*api_url || *domain)
        return strstr(api_url, ":3000") || strstr(domain, ":3000");
    return strcmp(api_key, "e2b_own") == 0;
}

static const struct runtime_self *self;

static void load(const char *file, struct runtime_settings *out)
{
    auto_buf struct buf faults = {0};

    buf_init(&faults, 65536);
    if (runtime_settings_load(str_of(file), core_getenv, self, out, &faults) < 0)
        test_fail(__FILE__, __LINE__, "faults: %s", faults.p);
}

/* The faults as text. */
static char *load_bad(const char *file)
{
    struct runtime_settings settings;
    struct buf faults;

    buf_init(&faults, 65536);
    CHECK_INT(runtime_settings_load(str_of(file), core_getenv, self, &settings, &faults), -1);
    return buf_take(&faults);
}

static const struct backend_settings *backend(const struct runtime_settings *settings,
                                              const char *name)
{
    for (size_t i = 0; i < settings->backend_count; i++)
        if (strcmp(settings->backends[i].name, name) == 0)
            return &settings->backends[i];
    return NULL;
}

#define HAS(text, part)                                                       \
    do {                                                                      \
        if (!strstr(text, part))                                              \
            test_fail(__FILE__, __LINE__, "'%s' is not in:\n%s", part, text); \
    } while (0)

TEST(settings_nothing_said)
{
    auto_settings struct runtime_settings settings;

    load(NULL, &settings);
    CHECK_STR(str_of(settings.default_provider), "e2b");
    CHECK_INT(settings.backend_count, 2);
    CHECK_STR(str_of(backend(&settings, "e2b")->api_url), "embedded");
    CHECK(backend(&settings, "docker") != NULL);
    CHECK_INT(settings.retry.attempts, 3);
    CHECK_INT(settings.retry.min_ms, 1000);
    CHECK_INT(settings.retry.max_ms, 10000);
    CHECK(!settings.retry.on_quota);
    CHECK_INT(settings.breaker.failures, 5);
    CHECK_INT(settings.breaker.open_ms, 30000);
    CHECK_INT(settings.health_interval_s, 30);
    CHECK_INT(settings.stale_after_s, 86400);
    CHECK_INT(settings.retention_days, 0);
    CHECK_INT(settings.create_timeout_s, 180);
    CHECK_INT(settings.runner_ttl_ms, 60000);
    CHECK_INT(settings.sandbox_agent_port, 2468);
    CHECK_INT(settings.sandbox_timeout_ms, 600000);
    CHECK_INT(settings.command_timeout_s, 300);
}

TEST(settings_environment)
{
    auto_settings struct runtime_settings settings;

    core_environment =
        "AGENT_RUNTIME_PROVIDER= Daytona \0EXO_SANDBOX_BACKEND=docker\0"
        "E2B_API_KEY=e2b_k\0E2B_API_URL=http://127.0.0.1:1\0E2B_DOMAIN=d.example\0"
        "E2B_TEMPLATE=tpl\0E2B_SECURE=1\0E2B_TIMEOUT=120\0"
        "E2B_SANDBOX_TIMEOUT_MS=1800000\0E2B_SANDBOX_AGENT_PORT=3000\0"
        "E2B_HEALTH_RETRIES=7\0E2B_HEALTH_INTERVAL_MS=50\0SANDBOX_AGENT_TOKEN=tok\0"
        "DAYTONA_API_KEY=dtn\0DAYTONA_API_URL=http://d\0DAYTONA_TOOLBOX_URL=http://t\0"
        "DAYTONA_TARGET=eu\0DAYTONA_ORGANIZATION_ID=org\0BROWSERBASE_API_KEY=bbk\0"
        "BROWSERBASE_BASE_URL=http://b\0LOCAL_RUNNER_HEARTBEAT_TTL_MS=5000\0"
        "E2B_REPO_CLONE_COMMAND=clone {repo_url}\0E2B_ENVD_BASE_URL=http://e\0"
        "DOCKER_HOST=unix:///x/y.sock\0QUICKSAND_PROCESS_SOCKET=/p.sock\0";
    load(NULL, &settings);
    CHECK_STR(str_of(settings.default_provider), "daytona");
    CHECK_STR(str_of(backend(&settings, "e2b")->api_url), "http://127.0.0.1:1");
    CHECK_STR(str_of(backend(&settings, "e2b")->api_key), "e2b_k");
    CHECK_STR(str_of(backend(&settings, "e2b")->domain), "d.example");
    CHECK(json_is_true(json_object_get(backend(&settings, "e2b")->record, "secure")));
    CHECK_STR(json_get_str(backend(&settings, "e2b")->record, "envd_url"), "http://e");
    CHECK(!json_object_get(backend(&settings, "e2b")->record, "api_key"));
    CHECK_STR(str_of(backend(&settings, "daytona")->api_key), "dtn");
    CHECK_STR(str_of(backend(&settings, "daytona")->api_url), "http://d");
    CHECK_STR(json_get_str(backend(&settings, "daytona")->record, "target"), "eu");
    CHECK_STR(json_get_str(backend(&settings, "daytona")->record, "toolbox_url"), "http://t");
    CHECK_STR(json_get_str(backend(&settings, "daytona")->record, "organization_id"), "org");
    CHECK_STR(str_of(backend(&settings, "browserbase")->api_url), "http://b");
    CHECK_STR(json_get_str(backend(&settings, "docker")->record, "socket"), "/x/y.sock");
    CHECK_STR(json_get_str(backend(&settings, "local")->record, "socket"), "/p.sock");
    CHECK_STR(str_of(backend(&settings, "local")->type), "process");
    CHECK_STR(str_of(settings.default_template), "tpl");
    CHECK_INT(settings.command_timeout_s, 120);
    CHECK_INT(settings.sandbox_timeout_ms, 1800000);
    CHECK_INT(settings.sandbox_agent_port, 3000);
    CHECK_INT(settings.sandbox_agent_health_tries, 7);
    CHECK_INT(settings.sandbox_agent_health_ms, 50);
    CHECK_INT(settings.runner_ttl_ms, 5000);
    CHECK_STR(str_of(settings.sandbox_agent_token), "tok");
    CHECK_STR(str_of(settings.clone_command), "clone {repo_url}");
}

/* The key of a record goes to the address of that record, never to the environment's. */
TEST(settings_addresses_are_not_mixed)
{
    auto_settings struct runtime_settings settings;

    core_environment = "E2B_API_URL=http://127.0.0.1:1\0E2B_DOMAIN=d.example\0"
                       "E2B_ENVD_BASE_URL=http://127.0.0.1:2\0DAYTONA_TOOLBOX_URL=http://t\0";
    load("{\"providers\":{\"a\":{\"type\":\"e2b\",\"domain\":\"a.example\",\"api_key\":\"k\"},"
         "\"b\":{\"type\":\"e2b\",\"api_url\":\"http://b\",\"api_key\":\"k\"},"
         "\"c\":{\"type\":\"e2b\",\"api_key\":\"k\"},"
         "\"d\":{\"type\":\"daytona\",\"api_url\":\"http://d\",\"api_key\":\"k\"}},"
         "\"default_provider\":\"a\"}",
         &settings);
    CHECK_STR(str_of(backend(&settings, "a")->api_url), "");
    CHECK_STR(str_of(backend(&settings, "a")->domain), "a.example");
    CHECK(!json_object_get(backend(&settings, "a")->record, "envd_url"));
    CHECK_STR(str_of(backend(&settings, "b")->api_url), "http://b");
    CHECK_STR(str_of(backend(&settings, "b")->domain), "");
    CHECK_STR(str_of(backend(&settings, "c")->api_url), "http://127.0.0.1:1");
    CHECK_STR(str_of(backend(&settings, "c")->domain), "d.example");
    CHECK(!json_object_get(backend(&settings, "d")->record, "toolbox_url"));
}

TEST(settings_secure)
{
    static const char *const off[] = {"E2B_SECURE=0\0", "E2B_SECURE=False\0"};
    auto_settings struct runtime_settings file;

    for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
        auto_settings struct runtime_settings settings;

        core_environment = off[i];
        load(NULL, &settings);
        CHECK(json_is_false(json_object_get(backend(&settings, "e2b")->record, "secure")));
    }
    load("{\"providers\":{\"e2b\":{\"secure\":true}}}", &file);
    CHECK(json_is_true(json_object_get(backend(&file, "e2b")->record, "secure")));
}

TEST(settings_names_of_exo)
{
    auto_settings struct runtime_settings settings;

    core_environment = "EXO_SANDBOX_BACKEND=docker\0E2B_TEMPLATE_ID=base2\0E2B_API_KEY=k\0";
    load(NULL, &settings);
    CHECK_STR(str_of(settings.default_provider), "docker");
    CHECK_STR(str_of(settings.default_template), "base2");
    /* A key without an address is the public service. */
    CHECK_STR(str_of(backend(&settings, "e2b")->api_url), "");
}

static const char example[] =
    "{ \"listen\": \"127.0.0.1:8000\", \"data_dir\": \"/var/lib/x\", \"default_provider\": \"e2b\","
    "  \"providers\": { \"e2b\": {\"type\":\"e2b\",\"api_url\":\"embedded\",\"domain\":\"d\","
    "     \"api_key\":\"env:E2B_API_KEY\",\"secure\":true,\"egress\":[\"allow-all\"],"
    "     \"max_sandboxes\":20},"
    "   \"daytona\": {\"type\":\"daytona\",\"api_key\":\"env:DAYTONA_API_KEY\"},"
    "   \"docker\": {\"type\":\"docker\"}, \"local\": {\"type\":\"local\"},"
    "   \"bb\": {\"type\":\"browserbase\",\"api_key\":\"env:BROWSERBASE_API_KEY\"} },"
    "  \"profiles\": { \"default\": {\"provider\":\"e2b\",\"template\":\"base\","
    "     \"network\":{\"mode\":\"allow-all\"}, \"persistent\":false,"
    "     \"lifecycle\":{\"idleTimeoutSeconds\":900,\"maxLifetimeSeconds\":604800},"
    "     \"timeout\":300,\"outputLimitBytes\":65536,\"permissionMode\":\"ask\",\"envVars\":{},"
    "     \"mcp\":null} },"
    "  \"agents\": {\"ci-fix\":\"default\",\"visual-tester\":\"desktop\",\"web-scraper\":\"web\"},"
    "  \"retry\": {\"attempts\":4,\"min_s\":0.5,\"max_s\":10,\"on_quota\":false},"
    "  \"breaker\": {\"failures\":5,\"open_s\":30}, \"health_interval_s\":30,"
    "  \"stale_after_s\":86400, \"commands\": {\"allow\":[\"git \"]} }";

TEST(settings_whole_file)
{
    auto_settings struct runtime_settings settings;

    core_environment = "DAYTONA_API_KEY=dtn\0BROWSERBASE_API_KEY=bbk\0E2B_API_URL=http://other\0";
    load(example, &settings);
    CHECK_INT(settings.backend_count, 5);
    CHECK_STR(str_of(backend(&settings, "e2b")->api_url), "embedded"); /* file over environment */
    CHECK_INT(backend(&settings, "e2b")->max_sandboxes, 20);
    CHECK_STR(str_of(backend(&settings, "bb")->type), "browserbase");
    CHECK_STR(str_of(backend(&settings, "bb")->api_key), "bbk");
    CHECK_STR(str_of(backend(&settings, "local")->type), "process");
    CHECK_INT(settings.retry.attempts, 4);
    CHECK_INT(settings.retry.min_ms, 500);
    CHECK_STR(json_get_str(settings.agents, "web-scraper"), "web");
    CHECK_INT(json_array_size(settings.allow), 1);
    CHECK_STR(str_of(settings.listen), "127.0.0.1:8000");
}

TEST(settings_all_faults_at_once)
{
    auto_free char *faults = NULL;

    core_environment = "E2B_TIMEOUT=soon\0E2B_SECURE=maybe\0DOCKER_HOST=ssh://h\0";
    faults = load_bad(
        "{\"lisen\":\"x\", \"default_provider\":\"lambda\","
        " \"providers\":{\"e2b\":{\"type\":\"e2b\",\"api_url\":\"http://h\",\"tmeplate\":\"b\"},"
        "   \"k\":{\"type\":\"kubernetes\"}, \"d\":{\"type\":\"daytona\",\"api_key\":\"env:NOPE\"},"
        "   \"runner\":{\"type\":\"e2b\"}},"
        " \"profiles\":{\"x\":{\"network\":{\"mode\":\"open\"},\"timeout\":601,"
        "   \"lifecycle\":{\"idleTimeoutSeconds\":604801,\"expireAfterSeconds\":0}}, \"Bad "
        "Name\":{}},"
        " \"retention_days\":1,"
        " \"retry\":{\"attempts\":0,\"wait\":1}, \"commands\":{\"allow\":[1]},"
        " \"agents\":{\"a\":5}}");
    HAS(faults, "E2B_TIMEOUT: must be a whole number from 1 to 600\n");
    HAS(faults, "E2B_SECURE: must be 0, 1, true or false\n");
    HAS(faults, "DOCKER_HOST: must be");
    HAS(faults, "lisen: unknown member; did you mean 'listen'?\n");
    HAS(faults, "default_provider: unknown provider 'lambda'; there are: e2b");
    HAS(faults, "providers.e2b.tmeplate: unknown member; did you mean 'template'?\n");
    HAS(faults, "providers.e2b.api_key: is needed for a remote endpoint");
    HAS(faults, "providers.k.type: unknown type 'kubernetes'; there are: e2b, docker");
    HAS(faults, "providers.d.api_key: the environment variable 'NOPE' is not set\n");
    HAS(faults, "providers.runner: is not a name");
    HAS(faults, "profiles.x.network.mode: must be allow-all, deny-all or restricted\n");
    HAS(faults, "profiles.x.timeout: must be a whole number from 1 to 600\n");
    HAS(faults, "profiles.x.lifecycle.idleTimeoutSeconds: must be a whole number from 1 to 604800");
    HAS(faults, "profiles.x.lifecycle.expireAfterSeconds: must be a whole number from 1 to ");
    HAS(faults, "retention_days: must be 0 (off) or at least 2");
    HAS(faults, "profiles.Bad Name: is not a name");
    HAS(faults, "retry.attempts: must be a whole number from 1 to 10\n");
    HAS(faults, "retry.wait: unknown member\n");
    HAS(faults, "commands.allow[0]: must be a string");
    HAS(faults, "agents.a: must be the name of a profile\n");
}

TEST(settings_not_json)
{
    auto_free char *faults = load_bad("{\"a\":");
    auto_free char *array = load_bad("[]");

    HAS(faults, "file: ");
    HAS(array, "file: must be a JSON object\n");
}

TEST(settings_unknown_provider_of_the_environment)
{
    auto_free char *faults = NULL;

    core_environment = "AGENT_RUNTIME_PROVIDER=firecracker\0";
    faults = load_bad(NULL);
    HAS(faults, "AGENT_RUNTIME_PROVIDER: unknown provider 'firecracker'; there are: e2b, docker\n");
}

TEST(settings_runner_as_default)
{
    auto_settings struct runtime_settings settings;

    core_environment = "AGENT_RUNTIME_PROVIDER=LOCAL-RUNNER\0";
    load(NULL, &settings);
    CHECK_STR(str_of(settings.default_provider), "local-runner");
}

TEST(settings_secrets_in_files)
{
    auto_settings struct runtime_settings settings;
    auto_free char *faults = NULL;
    char path[] = "/tmp/agent_secret.XXXXXX", file[256];
    auto_close int fd = mkstemp(path);

    CHECK(fd >= 0 && write(fd, "dtn_file\n", 9) == 9);
    (void)snprintf(file, sizeof(file),
                   "{\"providers\":{\"daytona\":{\"api_key\":\"file:%s\"}},"
                   "\"profiles\":{\"p\":{\"network\":{\"mode\":\"allow-all\"},"
                   "\"envVars\":{\"T\":\"file:%s\"}}}}",
                   path, path);
    load(file, &settings);
    CHECK_STR(str_of(backend(&settings, "daytona")->api_key), "dtn_file");
    CHECK_STR(
        json_get_str(json_object_get(json_object_get(settings.profiles, "p"), "envVars"), "T"),
        "dtn_file");
    CHECK_INT(fchmod(fd, 0644), 0);
    faults = load_bad(file);
    HAS(faults, "providers.daytona.api_key: file '");
    HAS(faults, "can be read or changed by everybody: chmod 600 it\n");
    HAS(faults, "profiles.p.envVars.T: file '");
    (void)unlink(path);
}

TEST(settings_execution)
{
    auto_settings struct runtime_settings settings;
    auto_json json_t *screen = NULL, *servers = NULL;
    const json_t *desktop, *web, *e2b;

    core_environment = "";
    load("{\"execution\":{\"default\":\"e2b\","
         " \"e2b\":{\"apiKey\":\"e2b_x\",\"template\":\"relay\",\"timeout\":300000,"
         "   \"enableMcp\":true,\"mcp\":{\"npm/one\":{},\"own\":{\"command\":\"x\"}}},"
         " \"e2bDesktop\":{\"apiKey\":\"e2b_y\",\"resolution\":{\"width\":1920,\"height\":1080},"
         "   \"vncEnabled\":true},"
         " \"browserbase\":{\"apiKey\":\"bb_z\",\"proxy\":\"residential\",\"captchaSolver\":true},"
         " \"agentOverrides\":{\"visual-tester\":{\"backend\":\"e2b-desktop\","
         "   \"capabilities\":[\"code\",\"terminal\"]}, "
         "\"web-scraper\":{\"backend\":\"browserbase\"},"
         "   \"ci-fix\":{\"backend\":\"e2b\"}}}}",
         &settings);
    CHECK_STR(str_of(backend(&settings, "e2b")->api_key), "e2b_x");
    CHECK_STR(str_of(backend(&settings, "browserbase")->api_key), "bb_z");
    CHECK_STR(json_get_str(settings.agents, "visual-tester"), "e2b-desktop");
    CHECK_STR(json_get_str(settings.agents, "web-scraper"), "browserbase");
    CHECK_STR(json_get_str(settings.agents, "ci-fix"), "e2b");
    e2b = json_object_get(settings.profiles, "default");
    CHECK_STR(json_get_str(e2b, "template"), "relay");
    CHECK_INT(json_integer_value(
                  json_object_get(json_object_get(e2b, "lifecycle"), "idleTimeoutSeconds")),
              300);
    CHECK_INT(json_array_size(json_object_get(settings.capabilities, "visual-tester")), 2);
    desktop = json_object_get(settings.profiles, "e2b-desktop");
    CHECK_STR(json_get_str(json_object_get(desktop, "options"), "apiKey"), "e2b_y");
    CHECK_STR(json_get_str(desktop, "template"), "desktop");
    screen = profile_screen(desktop);
    CHECK_STR(json_get_str(screen, "size"), "1920x1080");
    CHECK_INT(json_integer_value(json_object_get(screen, "dpi")), 96);
    CHECK(json_is_true(json_object_get(screen, "vnc")));
    servers = profile_gateway(e2b);
    CHECK(servers);
    CHECK_INT(json_object_size(servers), 1);
    CHECK(json_object_get(servers, "npm/one"));
    CHECK(!profile_gateway(desktop) && !profile_screen(e2b));
    web = json_object_get(settings.profiles, "browserbase");
    CHECK(json_is_true(json_object_get(json_object_get(web, "options"), "proxies")));
    CHECK(json_is_true(json_object_get(
        json_object_get(json_object_get(web, "options"), "browserSettings"), "solveCaptchas")));
}

TEST(settings_execution_faults)
{
    auto_free char *faults = NULL;

    core_environment = "";
    faults = load_bad("{\"execution\":{\"default\":\"fly\",\"e2b\":{\"tmout\":1},"
                      "\"browserbase\":{\"apiKey\":\"k\",\"proxy\":\"mobile\"},"
                      "\"agentOverrides\":{\"x\":{\"backend\":\"lambda\"}}}}");
    HAS(faults, "execution.default: must be");
    HAS(faults, "execution.e2b.tmout: unknown member; did you mean 'timeout'?\n");
    HAS(faults, "execution.browserbase.proxy: must be residential");
    HAS(faults, "execution.agentOverrides.x.backend: must be");
}

/* What would have no effect is not taken. */
TEST(settings_execution_without_effect)
{
    auto_free char *faults = NULL;

    core_environment = "";
    faults =
        load_bad("{\"execution\":{\"e2b\":{\"enableMcp\":7},"
                 "\"browserbase\":{\"apiKey\":\"k\",\"proxy\":\"datacenter\"},"
                 "\"agentOverrides\":{\"x\":{\"backend\":\"e2b\",\"capabilities\":[\"fly\"]}}},"
                 "\"profiles\":{\"d\":{\"network\":{\"mode\":\"allow-all\"},"
                 "\"options\":{\"resolution\":\"1x1\",\"dpi\":7,\"vncEnabled\":\"yes\"}}}}");
    HAS(faults, "execution.e2b.enableMcp: must be true or false");
    HAS(faults, "execution.browserbase.proxy: must be residential");
    HAS(faults, "execution.agentOverrides.x.capabilities: must be an array of code, terminal");
    HAS(faults, "profiles.d.options.resolution: must be like");
    HAS(faults, "profiles.d.options.dpi: must be a whole number from 24 to 600");
    HAS(faults, "profiles.d.options.vncEnabled: must be true or false");
}

/* The whole example with the real providers: each takes its record, and asks nobody. */
TEST(settings_example_opens)
{
    auto_settings struct runtime_settings settings;
    auto_store struct store *store = NULL;
    struct provider_embedded embedded = {.open = provider_fake_open};
    struct provider_fake *fake = provider_fake_new();
    struct fetch *fetch = fetch_new();
    struct runtime *runtime = NULL;
    auto_json json_t *list = NULL;

    core_environment = "DAYTONA_API_KEY=dtn\0BROWSERBASE_API_KEY=bbk\0"
                       "QUICKSAND_PROCESS_SOCKET=/nowhere/envd.sock\0";
    load(example, &settings);
    OK(store_open(":memory:", &store, &err));
    OK(runtime_open(
        &(struct runtime_config){
            .store = store, .settings = &settings, .fetch = fetch, .embedded = &embedded},
        &runtime, &err));
    list = backends_json(runtime, &(struct runtime_caller){.team_id = STR("t1")}, false);
    CHECK_INT(json_array_size(list), 5);
    CHECK_STR(json_get_str(json_array_get(list, 3), "type"), "process");
    runtime_close(runtime);
    fetch_free(fetch);
    provider_fake_free(fake);
}

static void expect_default(const char *environment, const char *file, const char *url,
                           const char *text, bool remote)
{
    static const struct runtime_self server = {.is_self = is_three_thousand};
    auto_settings struct runtime_settings settings;
    auto_buf struct buf told = {0};
    bool is_remote;

    core_environment = environment;
    self = &server;
    load(file, &settings);
    self = NULL;
    buf_init(&told, 4096);
    runtime_settings_default(&settings, &told, &is_remote);
    CHECK_STR(buf_str(&told), text);
    CHECK_INT(is_remote, remote);
    if (!url)
        return;
    CHECK_STR(str_of(backend(&settings, "e2b")->api_url), url);
    if (strcmp(url, "embedded") == 0) {
        CHECK_STR(str_of(backend(&settings, "e2b")->api_key), "");
        CHECK_STR(str_of(backend(&settings, "e2b")->domain), "");
        CHECK(!json_object_get(backend(&settings, "e2b")->record, "envd_url"));
    }
}

TEST(settings_of_a_server_that_is_told_to_use_itself)
{
    expect_default("", NULL, "embedded", "e2b, the engine of this server", false);
    expect_default("E2B_API_URL=http://localhost:3000\0E2B_API_KEY=e2b_x\0"
                   "E2B_ENVD_BASE_URL=http://localhost:3000\0",
                   NULL, "embedded",
                   "e2b, the engine of this server (which is what E2B_API_URL names)", false);
    expect_default("E2B_DOMAIN=localhost:3000\0E2B_API_KEY=e2b_x\0", NULL, "embedded",
                   "e2b, the engine of this server (which is what E2B_DOMAIN names)", false);
    expect_default("E2B_API_KEY=e2b_own\0", NULL, "embedded",
                   "e2b, the engine of this server (which is what E2B_API_KEY names)", false);
    expect_default(
        "", "{\"providers\":{\"e2b\":{\"api_url\":\"http://x:3000\",\"api_key\":\"k\"}}}",
        "embedded", "e2b, the engine of this server (which is what its record names)", false);
}

TEST(settings_of_a_server_that_uses_another)
{
    expect_default("E2B_API_URL=http://localhost:3001\0E2B_API_KEY=e2b_own\0", NULL,
                   "http://localhost:3001", "e2b at http://localhost:3001 (named by E2B_API_URL)",
                   true);
    expect_default("E2B_API_KEY=e2b_theirs\0", NULL, "",
                   "e2b at E2B's public cloud (named by E2B_API_KEY)", true);
    expect_default("E2B_DOMAIN=e2b.example\0E2B_API_KEY=e2b_theirs\0", NULL, "",
                   "e2b at e2b.example (named by E2B_DOMAIN)", true);
    expect_default("AGENT_RUNTIME_PROVIDER=docker\0", NULL, "embedded",
                   "docker, chosen by AGENT_RUNTIME_PROVIDER", false);
    expect_default("DAYTONA_API_KEY=dtn\0", "{\"default_provider\":\"daytona\"}", "embedded",
                   "daytona, chosen by default_provider", true);
}

TEST(settings_git_hosts)
{
    auto_settings struct runtime_settings settings;
    const json_t *hosts;
    auto_free char *faults = NULL;

    load("{\"git_hosts\": {\"Git.Example\": {\"type\": \"gitea\"}, \"ghe.example\": {\"type\": "
         "\"github\"},"
         " \"h:3000\": {\"type\": \"forgejo\", \"api_url\": \"http://127.0.0.1:3000/api/v1/\"},"
         " \"github.com\": {\"type\": \"github\"}}}",
         &settings);
    hosts = settings.git_hosts;
    CHECK_INT(json_object_size(hosts), 4);
    CHECK_STR(json_get_str(json_object_get(hosts, "git.example"), "api_url"),
              "https://git.example/api/v1");
    CHECK_STR(json_get_str(json_object_get(hosts, "ghe.example"), "api_url"),
              "https://ghe.example/api/v3");
    CHECK_STR(json_get_str(json_object_get(hosts, "github.com"), "api_url"),
              "https://api.github.com");
    CHECK_STR(json_get_str(json_object_get(hosts, "h:3000"), "type"), "gitea");
    CHECK_STR(json_get_str(json_object_get(hosts, "h:3000"), "api_url"),
              "http://127.0.0.1:3000/api/v1");
    faults = load_bad(
        "{\"git_hosts\": {\"a/b\": {\"type\": \"gitea\"}, \"u@h\": {\"type\": \"gitea\"},"
        " \"x\": {\"type\": \"gitlab\"}, \"y\": {\"type\": \"gitea\", \"api_url\":"
        " \"https://u:p@y/\"}, \"z\": {\"type\": \"gitea\", \"token\": \"t\"}, \"w\": 1}}");
    HAS(faults, "git_hosts.a/b: must be HOST");
    HAS(faults, "git_hosts.u@h: must be HOST");
    HAS(faults, "git_hosts.x: type must be");
    HAS(faults, "git_hosts.y.api_url: must be");
    HAS(faults, "git_hosts.z.token: unknown member");
    HAS(faults, "git_hosts.w: must be HOST");
}
