#include "runtime/backend/profile.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/profile_parts.h"
#include "runtime/config/config.h"
#include "runtime/core/test/core_env.h"
#include "runtime/main/runtime_main.h"
#include "store/core/store.h"
#include "store/runtime/store_runtime.h"

/* As an E2B endpoint elsewhere: no egress rules, no hooks, no mounts. */
static void remote(struct core_env *env)
{
    env->fake->caps.egress = EGRESS_ALLOW_ALL;
    env->fake->caps.features &= ~(unsigned)(PROVIDER_HOOKS | PROVIDER_MOUNTS);
}

static json_t *parse(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);

    if (!json)
        test_fail(__FILE__, __LINE__, "not JSON: %s", text);
    return json;
}

/* The faults of a record as lines "path: message". */
static char *faults_of(struct core_env *env, const char *text)
{
    auto_json json_t *record = parse(text), *faults = NULL;
    struct error err = {0};
    struct buf out;
    json_t *fault;
    size_t i;
    int r = profile_check(env->runtime, &env->caller, record, &faults, &err);

    CHECK_INT(r, json_array_size(faults) ? -1 : 0);
    if (r < 0)
        CHECK_INT(err.code, ERROR_INVALID);
    buf_init(&out, 65536);
    json_array_foreach (faults, i, fault)
        (void)buf_printf(&out, "%s: %s\n", json_get_str(fault, "path").p,
                         json_get_str(fault, "message").p);
    return buf_take(&out);
}

#define FAULTS(env, record, want)                                               \
    do {                                                                        \
        auto_free char *got_faults = faults_of(env, record);                    \
        if (strcmp(got_faults, want) != 0)                                      \
            test_fail(__FILE__, __LINE__, "%s gives:\n%s", record, got_faults); \
    } while (0)

#define EGRESS_FAULT \
    "e2b cannot enforce egress restrictions; set config.network.mode to allow-all explicitly\n"

TEST(profile_rules_of_the_harness)
{
    auto_core struct core_env env;

    core_open(&env, NULL, remote);
    FAULTS(
        &env,
        "{\"name\":\"e2b\",\"config\":{\"provider\":\"e2b\",\"network\":{\"mode\":\"allow-all\"},"
        "\"permissionMode\":\"ask\",\"options\":{\"apiKey\":\"...\",\"template\":\"rt\","
        "\"workspaceRoot\":\"/mnt/workspaces\"}}}",
        "");
    FAULTS(&env, "{\"config\":{\"provider\":\"e2b\"}}", "config.network.mode: " EGRESS_FAULT);
    FAULTS(&env, "{\"config\":{\"provider\":\"e2b\",\"network\":{\"mode\":\"deny-all\"}}}",
           "config.network.mode: " EGRESS_FAULT);
    FAULTS(&env, "{\"provider\":\"e2b\",\"network\":{\"mode\":\"restricted\"}}",
           "network.mode: " EGRESS_FAULT);
    FAULTS(&env,
           "{\"config\":{\"provider\":\"e2b\",\"network\":{\"mode\":\"allow-all\"},"
           "\"lifecycle\":{\"idleTimeoutSeconds\":60},\"onCreate\":[\"x\"],\"internet\":true,"
           "\"options\":{\"workspace\":{\"bucket\":\"b\"}}}}",
           "config.internet: config.internet is no longer supported\n"
           "config.lifecycle: config.lifecycle requires config.persistent to be true\n"
           "config.onCreate: config.onCreate and config.onResume require config.persistent to be"
           " true\n"
           "config.onCreate: config.onCreate and config.onResume are not supported by the e2b"
           " provider; use an E2B template or run setup commands explicitly\n"
           "config.options.workspace: a shared S3 workspace cannot be attached to a sandbox of the"
           " e2b provider; use it without a workspace\n");
    FAULTS(&env, "{\"network\":{\"mode\":\"allow-all\",\"allowDomains\":[\"a.example\"]}}",
           "network: config.network.allowDomains and config.network.allowCidrs are only allowed"
           " with mode restricted\n");
    FAULTS(&env, "{\"network\":{\"mode\":\"allow-all\"},\"mounts\":[{}]}",
           "mounts: provider 'e2b' does not support mounts\n");
}

/* What the engine of this server declares: it has no lists of what may be reached. */
static void no_rules(struct core_env *env)
{
    env->fake->caps.egress = EGRESS_ALLOW_ALL | EGRESS_DENY_ALL;
}

TEST(profile_the_engine_enforces)
{
    auto_core struct core_env env;

    core_open(&env, NULL, no_rules);
    FAULTS(&env, "{\"provider\":\"e2b\"}", ""); /* omitted: deny-all */
    FAULTS(&env, "{\"network\":{\"mode\":\"deny-all\"}}", "");
    FAULTS(&env, "{\"network\":{\"mode\":\"restricted\",\"allowDomains\":[\"*.example.org\"]}}",
           "network.mode: provider 'e2b' cannot enforce restricted; it enforces: allow-all,"
           " deny-all\n");
    FAULTS(&env,
           "{\"persistent\":true,\"onCreate\":[\"apt-get install -y jq\"],"
           "\"onResume\":[\"true\"]}",
           "");
}

/* A provider that has them. */
TEST(profile_lists_of_what_may_be_reached)
{
    auto_core struct core_env env;

    core_open(&env, NULL, NULL);
    FAULTS(&env,
           "{\"network\":{\"mode\":\"restricted\",\"allowDomains\":[\"*.example.org\"],"
           "\"allowCidrs\":[\"10.0.0.0/8\",\"2001:db8::/32\",\"192.0.2.1\"]}}",
           "");
}

static void with_peers(struct core_env *env)
{
    env->fake->caps.features |= PROVIDER_PEERS;
}

TEST(profile_private_networks)
{
#define LABEL                                                                              \
    "must be a label of a host name: a to z, 0 to 9 and '-', beginning with a letter, at " \
    "most 63 characters\n"
    auto_core struct core_env env;

    core_open(&env, NULL, with_peers);
    FAULTS(&env, "{\"network\":{\"peers\":{\"network\":\"shop\",\"name\":\"db-1\"}}}", "");
    FAULTS(&env, "{\"network\":{\"peers\":{\"network\":\"shop\",\"name\":null}}}", "");
    FAULTS(&env, "{\"network\":{\"peers\":[]}}", "network.peers: must be an object\n");
    FAULTS(&env, "{\"network\":{\"peers\":{\"name\":\"1\",\"x\":1}}}",
           "network.peers.x: unknown member\n"
           "network.peers.network: " LABEL "network.peers.name: " LABEL);
}

TEST(profile_private_networks_where_there_are_none)
{
    auto_core struct core_env env;

    core_open(&env, NULL, NULL);
    FAULTS(&env, "{\"network\":{\"peers\":{\"network\":\"shop\"}}}",
           "network.peers: provider 'e2b' does not support private networks\n");
}

TEST(profile_names_what_is_enforced)
{
    auto_core struct core_env env;

    core_open(&env, NULL, no_rules);
    FAULTS(&env, "{\"network\":{\"mode\":\"restricted\"}}",
           "network.mode: provider 'e2b' cannot enforce restricted; it enforces: allow-all,"
           " deny-all\n");
    FAULTS(&env, "{}", "");
}

TEST(profile_types_and_ranges)
{
    auto_core struct core_env env;

    core_open(&env, NULL, NULL);
    FAULTS(&env,
           "{\"provider\":\"lambda\",\"tmeout\":1,\"timeout\":0,\"outputLimitBytes\":262145,"
           "\"persistent\":\"yes\",\"lifecycle\":{\"maxLifetimeSeconds\":2592001,\"x\":1},"
           "\"permissionMode\":\"all\",\"envVars\":{\"A=B\\n\":\"x\",\"B\":2},\"mcp\":[],"
           "\"workspaceRoot\":\"rel\",\"limits\":{\"cpu\":0,\"mem\":1},"
           "\"network\":{\"mode\":\"restricted\",\"allowDomains\":[\"a b\"],"
           "\"allowCidrs\":[\"10.0.0.0/33\"]},\"onCreate\":\"x\"}",
           "tmeout: unknown member; did you mean 'timeout'?\n"
           "network.allowDomains[0]: is not one of domain names\n"
           "network.allowCidrs[0]: is not one of addresses or CIDR ranges\n"
           "persistent: must be true or false\n"
           "lifecycle.x: unknown member\n"
           "lifecycle.maxLifetimeSeconds: must be a whole number from 1 to 2592000\n"
           "limits.mem: unknown member\n"
           "limits.cpu: must be a whole number from 1 to 256\n"
           "timeout: must be a whole number from 1 to 600\n"
           "outputLimitBytes: must be a whole number from 1 to 262144\n"
           "permissionMode: must be ask, edit or bypass\n"
           "envVars.A=B\\n: is not a valid name of an environment variable\n"
           "envVars.B: must be a string of at most 32768 bytes\n"
           "onCreate: must be an array of at most 256 commands\n"
           "mcp: must be an object or null\n"
           "workspaceRoot: must be an absolute path\n"
           "provider: unknown provider 'lambda'; there are: e2b, docker\n");
    FAULTS(&env,
           "{\"mcp\":{\"own\":{\"command\":\"x\",\"env\":{\"A\\nB\":\"x\",\"B\":2}},"
           "\"npm/y\":{\"envs\":{\"A=B\":\"x\"}},\"z\":{\"env\":[]}}}",
           "mcp.own.env.A\\nB: is not a valid name of an environment variable\n"
           "mcp.own.env.B: must be a string of at most 32768 bytes\n"
           "mcp.npm/y.envs.A=B: is not a valid name of an environment variable\n"
           "mcp.z.env: must be an object of at most 256 strings\n");
    FAULTS(&env,
           "{\"provider\":\"e2b\",\"options\":{\"templte\":\"x\",\"template\":\"a\",\"templateId\":"
           "\"b\"}}",
           "options.templte: unknown member; did you mean 'template'?\n"
           "options.template: template and templateId name different templates; one is enough\n");
    FAULTS(&env, "{\"options\":{\"apiKey\":\"env:HOME\"}}",
           "options.apiKey: env: and file: references are only for the server's configuration"
           " file\n");
    FAULTS(&env, "{\"gitToken\":\"file:/etc/passwd\"}",
           "gitToken: env: and file: references are only for the server's configuration file\n");
    FAULTS(&env, "{\"conventionalCommits\":\"yes\"}",
           "conventionalCommits: must be true or false\n");
    FAULTS(&env, "{\"gitToken\":1}", "gitToken: must be a string that is not empty\n");
}

TEST(profile_git_token)
{
    auto_core struct core_env env;
    auto_free char *token = NULL, *own = NULL;
    auto_json json_t *shown = NULL, *faults = NULL, *record = json_pack("{s:s}", "gitToken", "t2");

    core_environment = "GIT_SECRET=ghp_of_the_environment\0";
    core_open(&env, "{\"profiles\":{\"p\":{\"gitToken\":\"env:GIT_SECRET\"}}}", NULL);
    token = profile_git_token(env.runtime, &env.caller, STR("p"));
    CHECK_STR(str_of(token), "ghp_of_the_environment");
    OK(profile_get(env.runtime, &env.caller, STR("p"), &shown, &err));
    CHECK_STR(json_get_str(shown, "gitToken"), "********");
    OK(profile_put(env.runtime, &env.caller, STR("mine"), record, &faults, &err));
    own = profile_git_token(env.runtime, &env.caller, STR("mine"));
    CHECK_STR(str_of(own), "t2");
    CHECK(!profile_git_token(env.runtime, &env.caller, STR("default")));
    CHECK(!profile_git_token(env.runtime, &env.caller, STR("none")));
}

static int put(struct core_env *env, const char *name, const char *text, struct error *err)
{
    auto_json json_t *record = parse(text), *faults = NULL;

    return profile_put(env->runtime, &env->caller, str_of(name), record, &faults, err);
}

TEST(profile_put_and_show)
{
    auto_core struct core_env env;
    auto_json json_t *got = NULL, *list = NULL, *faults = NULL;
    auto_free char *text = NULL;
    struct runtime_caller other = {.team_id = STR("t2")};

    core_open(&env, "{\"profiles\":{\"fixed\":{\"envVars\":{\"K\":\"file-secret\"}}}}", NULL);
    OK(put(&env, "web",
           "{\"envVars\":{\"TOKEN\":\"value1\"},\"options\":{\"apiKey\":\"key-secret\"},"
           "\"mcp\":{\"github\":{\"envs\":{\"X\":\"value2\"}}}}",
           &err));
    OK(profile_get(env.runtime, &env.caller, STR("web"), &got, &err));
    text = json_text(got);
    CHECK(!strstr(text, "value1") && !strstr(text, "value2") && !strstr(text, "key-secret"));
    CHECK_STR(json_get_str(json_object_get(got, "envVars"), "TOKEN"), "********");
    CHECK_STR(json_get_str(got, "name"), "web");
    CHECK(json_is_false(json_object_get(got, "readOnly")));
    /* What was shown can be put back: secrets stay. */
    OK(profile_put(env.runtime, &env.caller, STR("web"), got, &faults, &err));
    {
        auto_json json_t *record = NULL;
        bool read_only;

        OK(profile_load(env.runtime, &env.caller, STR("web"), &record, &read_only, &err));
        CHECK_STR(json_get_str(json_object_get(record, "envVars"), "TOKEN"), "value1");
        CHECK_STR(json_get_str(json_object_get(record, "options"), "apiKey"), "key-secret");
    }
    FAILS(put(&env, "new", "{\"envVars\":{\"A\":\"********\"}}", &err), ERROR_INVALID,
          "envVars.A: is redacted");
    FAILS(put(&env, "fixed", "{}", &err), ERROR_CONFLICT, "cannot be changed");
    FAILS(put(&env, "Bad Name", "{}", &err), ERROR_INVALID, "name");
    FAILS(put(&env, "a", "{\"name\":\"b\"}", &err), ERROR_INVALID, "name:");
    FAILS(put(&env, "a", "{\"timeout\":9999}", &err), ERROR_INVALID, "timeout:");
    list = profile_list(env.runtime, &env.caller);
    CHECK_INT(json_array_size(list), 4); /* fixed, web, default, desktop */
    FAILS(profile_get(env.runtime, &other, STR("web"), &got, &err), ERROR_NOT_FOUND, "web");
    FAILS(profile_delete(env.runtime, &env.caller, STR("fixed"), &err), ERROR_CONFLICT, "");
    OK(profile_delete(env.runtime, &env.caller, STR("web"), &err));
    FAILS(profile_delete(env.runtime, &env.caller, STR("web"), &err), ERROR_NOT_FOUND, "web");
}

static void resolve(struct core_env *env, const struct runtime_overrides *request,
                    struct arena *arena, struct profile *out)
{
    OK(profile_resolve(env->runtime, &env->caller, request, arena, out, &err));
}

TEST(profile_screens)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *sized = json_pack("{s:[i,i], s:i}", "resolution", 800, 600, "dpi", 120);
    auto_json json_t *screen = NULL;
    struct profile profile;

    core_environment = "E2B_TEMPLATE=mine\0";
    core_open(&env, NULL, NULL);
    resolve(&env, &(struct runtime_overrides){.profile = STR("desktop")}, &arena, &profile);
    CHECK_STR(profile.image, "desktop");
    CHECK(!profile_screen(profile.tree));
    profile_done(&profile);
    resolve(&env, &(struct runtime_overrides){.options = sized}, &arena, &profile);
    CHECK_STR(profile.image, "desktop");
    screen = profile_screen(profile.tree);
    CHECK_STR(json_get_str(screen, "size"), "800x600");
    CHECK_INT(json_integer_value(json_object_get(screen, "dpi")), 120);
    CHECK(json_is_false(json_object_get(screen, "vnc")));
    profile_done(&profile);
}

/* Lines of a team's own servers are commands like others. */
TEST(profile_gateway_and_allowed_commands)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *fine =
        json_pack("{s:{s:s}, s:{s:s}}", "npm/a", "runCmd", "npx a", "own", "command", "sh");
    auto_json json_t *bad = json_pack("{s:{}}", "npm/a"), *off = NULL;
    struct profile profile;

    core_environment = "";
    core_open(&env, "{\"commands\":{\"allow\":[\"npx a\"]}}", NULL);
    resolve(&env, &(struct runtime_overrides){.mcp = fine}, &arena, &profile);
    off = profile_gateway(profile.tree);
    CHECK_INT(json_object_size(off), 1);
    (void)json_object_set_new(profile.tree, "options", json_pack("{s:b}", "enableMcp", 0));
    CHECK(!profile_gateway(profile.tree));
    profile_done(&profile);
    FAILS(profile_resolve(env.runtime, &env.caller, &(struct runtime_overrides){.mcp = bad}, &arena,
                          &profile, &err),
          ERROR_FORBIDDEN, "");
}

TEST(profile_defaults)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    struct profile profile;

    core_environment = "E2B_TEMPLATE=mine\0E2B_TIMEOUT=120\0E2B_SANDBOX_TIMEOUT_MS=1800000\0";
    core_open(&env, NULL, NULL);
    resolve(&env, &(struct runtime_overrides){0}, &arena, &profile);
    CHECK_STR(profile.name, "default");
    CHECK_STR(str_of(backend_name(profile.backend)), "e2b");
    CHECK_STR(profile.image, "mine");
    CHECK_INT(profile.egress, EGRESS_ALLOW_ALL);
    CHECK(!profile.persistent);
    CHECK_INT(profile.idle_s, 1800);
    CHECK_INT(profile.max_lifetime_s, 0);
    CHECK_INT(profile.expire_s, 0);
    CHECK_INT(profile.timeout_s, 120);
    CHECK_INT(profile.output_limit, 65536);
    CHECK_INT(profile.permission, PERMISSION_ASK);
    profile_done(&profile);
}

/* As another process on the same store changes it. */
static void put_row(struct core_env *env, const char *record)
{
    struct store_profile row = {.team_id = env->caller.team_id,
                                .name = STR("web"),
                                .record = str_of(record),
                                .created_at_us = 1,
                                .updated_at_us = 1};

    OK(store_profile_put(env->store, &row, 200, &err));
}

TEST(profile_is_kept_until_its_record_changes)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    struct runtime_overrides web = {.profile = STR("web")};
    struct runtime_overrides longer = {.profile = STR("web"), .timeout_s = 44};
    auto_json json_t *of_file = parse("{\"web\":{\"template\":\"of-file\"}}");
    struct profile first, second, other;

    core_environment = "";
    core_open(&env, NULL, NULL);
    put_row(&env, "{\"template\":\"a\",\"timeout\":33}");
    resolve(&env, &web, &arena, &first);
    resolve(&env, &web, &arena, &second);
    CHECK(first.tree == second.tree);
    CHECK_STR(second.name, "web");
    CHECK_STR(second.image, "a");
    CHECK_INT(second.timeout_s, 33);
    profile_done(&second);
    /* What one request says is for that one only. */
    resolve(&env, &longer, &arena, &other);
    CHECK_INT(other.timeout_s, 44);
    profile_done(&other);
    resolve(&env, &web, &arena, &second);
    CHECK_INT(second.timeout_s, 33);
    profile_done(&second);
    put_row(&env, "{\"template\":\"b\",\"workspaceRoot\":\"/w\"}");
    resolve(&env, &web, &arena, &second);
    CHECK_STR(second.image, "b");
    CHECK_STR(second.workspace_root, "/w");
    CHECK_STR(first.image, "a");
    profile_done(&first);
    profile_done(&second);
    put_row(&env, "{\"timeout\":9999}");
    FAILS(profile_resolve(env.runtime, &env.caller, &web, &arena, &second, &err), ERROR_INVALID,
          "timeout");
    OK(profiles_replace(env.runtime, of_file, &err));
    resolve(&env, &web, &arena, &second);
    CHECK_STR(second.image, "of-file");
    profile_done(&second);
}

/* Those of one team are not another's, nor do many of them stay. */
TEST(profile_kept_is_of_one_team_and_bounded)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    struct profile mine, theirs;

    core_environment = "";
    core_open(&env, NULL, NULL);
    put_row(&env, "{\"template\":\"a\"}");
    resolve(&env, &(struct runtime_overrides){.profile = STR("web")}, &arena, &mine);
    for (int i = 0; i < 600; i++) {
        struct runtime_caller caller = {.team_id = str_of(arena_printf(&arena, "team-%d", i))};

        FAILS(profile_resolve(env.runtime, &caller,
                              &(struct runtime_overrides){.profile = STR("web")}, &arena, &theirs,
                              &err),
              ERROR_INVALID, "web");
        OK(profile_resolve(env.runtime, &caller, &(struct runtime_overrides){0}, &arena, &theirs,
                           &err));
        profile_done(&theirs);
    }
    resolve(&env, &(struct runtime_overrides){.profile = STR("web")}, &arena, &theirs);
    CHECK_STR(theirs.image, "a");
    CHECK(theirs.tree != mine.tree); /* it had to make room meanwhile */
    profile_done(&mine);
    profile_done(&theirs);
}

TEST(profile_request_over_profile)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *life = parse("{\"idleTimeoutSeconds\":60}");
    auto_json json_t *more = parse("{\"B\":\"3\",\"C\":\"4\"}");
    auto_json json_t *closed = parse("{\"mode\":\"deny-all\"}");
    struct profile profile;

    core_environment = "E2B_TEMPLATE=of-env\0";
    core_open(&env,
              "{\"profiles\":{\"p\":{\"template\":\"of-profile\",\"persistent\":true,"
              "\"network\":{\"mode\":\"allow-all\"},\"timeout\":30,\"permissionMode\":\"bypass\","
              "\"lifecycle\":{\"maxLifetimeSeconds\":500},\"limits\":{\"cpu\":2,\"memoryMb\":1024},"
              "\"envVars\":{\"A\":\"1\",\"B\":\"2\"},\"workspaceRoot\":\"/w\"}},"
              "\"agents\":{\"ci-fix\":\"p\",\"lost\":\"nowhere\"}}",
              NULL);
    resolve(&env, &(struct runtime_overrides){.agent_type = STR("ci-fix")}, &arena, &profile);
    CHECK_STR(profile.name, "p");
    CHECK_STR(profile.image, "of-profile");
    CHECK_INT(profile.idle_s, 900);
    CHECK_INT(profile.max_lifetime_s, 500);
    CHECK_INT(profile.timeout_s, 30);
    CHECK_INT(profile.cpu, 2);
    CHECK_INT(profile.mem_mb, 1024);
    CHECK_INT(profile.permission, PERMISSION_BYPASS);
    CHECK_STR(profile.workspace_root, "/w");
    profile_done(&profile);
    resolve(&env,
            &(struct runtime_overrides){.profile = STR("p"),
                                        .image = STR("of-request"),
                                        .lifecycle = life,
                                        .env = more,
                                        .network = closed,
                                        .timeout_s = 77},
            &arena, &profile);
    CHECK_STR(profile.image, "of-request");
    CHECK_INT(profile.idle_s, 60);
    CHECK_INT(profile.max_lifetime_s, 500);
    CHECK_INT(profile.timeout_s, 77);
    CHECK_INT(profile.egress, EGRESS_DENY_ALL);
    CHECK_STR(json_get_str(profile.env, "A"), "1");
    CHECK_STR(json_get_str(profile.env, "B"), "3");
    CHECK_STR(json_get_str(profile.env, "C"), "4");
    profile_done(&profile);
    /* Another type of provider: the template was not meant for it. */
    resolve(&env, &(struct runtime_overrides){.profile = STR("p"), .provider = STR("docker")},
            &arena, &profile);
    CHECK_STR(str_of(backend_name(profile.backend)), "docker");
    CHECK(!profile.image.p);
    profile_done(&profile);
    FAILS(profile_resolve(env.runtime, &env.caller,
                          &(struct runtime_overrides){.agent_type = STR("lost")}, &arena, &profile,
                          &err),
          ERROR_INVALID, "agent type 'lost': profile 'nowhere' not found");
    FAILS(profile_resolve(env.runtime, &env.caller,
                          &(struct runtime_overrides){.provider = STR("vercel")}, &arena, &profile,
                          &err),
          ERROR_INVALID, "unknown provider 'vercel'");
    FAILS(profile_resolve(env.runtime, &env.caller, &(struct runtime_overrides){.timeout_s = 601},
                          &arena, &profile, &err),
          ERROR_INVALID, "profile 'default': timeout:");
}

TEST(profile_refused_before_any_call)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *mounts = parse("[{\"host_path\":\"/\",\"guest_path\":\"/h\"}]");
    auto_json json_t *closed = parse("{\"mode\":\"deny-all\"}");
    struct profile profile;

    core_environment = "";
    core_open(&env, NULL, remote);
    FAILS(profile_resolve(env.runtime, &env.caller, &(struct runtime_overrides){.mounts = mounts},
                          &arena, &profile, &err),
          ERROR_INVALID, "mounts: provider 'e2b' does not support mounts");
    FAILS(profile_resolve(env.runtime, &env.caller, &(struct runtime_overrides){.network = closed},
                          &arena, &profile, &err),
          ERROR_INVALID, "e2b cannot enforce egress restrictions; set config.network.mode to");
    CHECK_INT(provider_fake_calls(env.fake, "create") + provider_fake_calls(env.fake, "find"), 0);
}

TEST(profile_with_its_own_key)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    struct profile first, second;
    struct backend *backend;
    struct runtime_caller other = {.team_id = STR("t2")};
    char name[RUNTIME_NAME_MAX + 1];

    core_environment = "E2B_API_KEY=operators-key\0";
    core_open(&env, NULL, NULL);
    OK(put(&env, "own",
           "{\"config\":{\"provider\":\"e2b\",\"options\":{\"apiKey\":\"teams-key\"}}}", &err));
    resolve(&env, &(struct runtime_overrides){.profile = STR("own")}, &arena, &first);
    resolve(&env, &(struct runtime_overrides){.profile = STR("own")}, &arena, &second);
    CHECK(first.backend == second.backend);
    CHECK(!json_object_get(first.options, "apiKey")); /* nobody needs it any more */
    (void)snprintf(name, sizeof(name), "%s", backend_name(first.backend));
    CHECK(strncmp(name, "e2b#", 4) == 0);
    profile_done(&first);
    profile_done(&second);
    FAILS(backend_find(env.runtime, &other, str_of(name), &backend, &err), ERROR_INVALID, "");
    core_restart(&env);
    OK(backend_find(env.runtime, &env.caller, str_of(name), &backend, &err));
    CHECK_STR(str_of(backend_name(backend)), name);
}

/* Each is a backend that stays, with checks of its own. */
TEST(profile_keys_of_a_team_are_bounded)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    struct runtime_caller other = {.team_id = STR("t2")};
    struct profile profile;
    struct error why = {0};
    int r = 0, made = 0;

    core_environment = "E2B_API_KEY=operators-key\0";
    core_open(&env, NULL, NULL);
    for (int i = 0; i < 1000 && r == 0; i++) {
        auto_json json_t *options = json_pack("{s:o}", "apiKey", json_sprintf("key-%d", i));
        struct runtime_overrides overrides = {.options = options};

        r = profile_resolve(env.runtime, &env.caller, &overrides, &arena, &profile, &why);
        if (r == 0) {
            made++;
            profile_done(&profile);
        }
    }
    CHECK_INT(made, 64);
    CHECK_INT(why.code, ERROR_QUOTA);
    /* Those it has go on, and other teams have their own. */
    auto_json json_t *first = json_pack("{s:s}", "apiKey", "key-0");
    struct runtime_overrides overrides = {.options = first};

    OK(profile_resolve(env.runtime, &env.caller, &overrides, &arena, &profile, &err));
    profile_done(&profile);
    OK(profile_resolve(env.runtime, &other, &overrides, &arena, &profile, &err));
    profile_done(&profile);
}

TEST(profile_file_is_checked_with_its_backend)
{
    auto_buf struct buf faults = {0};
    struct runtime_settings settings;
    struct provider_fake *fake = provider_fake_new();
    auto_store struct store *store = NULL;
    struct runtime *runtime;

    core_environment = "";
    buf_init(&faults, 4096);
    fake->caps.egress = EGRESS_ALLOW_ALL;
    CHECK_INT(runtime_settings_load(STR("{\"profiles\":{\"p\":{\"provider\":\"e2b\"}}}"),
                                    core_getenv, NULL, &settings, &faults),
              0);
    OK(store_open(":memory:", &store, &err));
    FAILS(runtime_open(&(struct runtime_config){.store = store,
                                                .settings = &settings,
                                                .provider_new = provider_fake_open},
                       &runtime, &err),
          ERROR_INVALID, "profiles.p.network.mode: e2b cannot enforce");
    runtime_settings_done(&settings);
    provider_fake_free(fake);
}
