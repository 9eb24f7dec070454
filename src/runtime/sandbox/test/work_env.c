#include "runtime/sandbox/test/work_env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "runtime/command/command.h"
#include "runtime/config/config.h"
#include "runtime/core/runtime_parts.h"
#include "runtime/main/runtime_main.h"
#include "runtime/run/run.h"
#include "store/core/store.h"

enum { NOBODY = 65534 };

static const char *no_environment(const char *name)
{
    (void)name;
    return NULL;
}

static void open_runtime(struct work_env *env)
{
    OK(runtime_open(
        &(struct runtime_config){.store = env->core.store,
                                 .settings = &env->core.settings,
                                 .fetch = env->fetch,
                                 .embedded = env->embedded,
                                 .sender = env->sender,
                                 .provider_new = *env->root ? NULL : provider_fake_open},
        &env->core.runtime, &err));
}

static void open_with(struct work_env *env, const char *file, void (*change)(struct core_env *env))
{
    auto_buf struct buf faults = {0};

    env->core.caller = (struct runtime_caller){.team_id = STR("t1"), .actor = STR("key1")};
    buf_init(&faults, 65536);
    if (runtime_settings_load(str_of(file), no_environment, NULL, &env->core.settings, &faults) < 0)
        test_fail(__FILE__, __LINE__, "settings: %s", faults.p);
    env->core.fake = provider_fake_new();
    env->fetch = fetch_new();
    OK(sender_open(&env->sender, &err));
    OK(store_open(":memory:", &env->core.store, &err));
    if (change)
        change(&env->core);
    open_runtime(env);
}

void work_open(struct work_env *env, const char *file, void (*change)(struct core_env *env))
{
    *env = (struct work_env){.envd.parent_fd = -1};
    open_with(env, file, change);
}

void work_open_engine(struct work_env *env, void (*change)(struct core_env *env))
{
    static const struct provider_embedded none;

    *env = (struct work_env){.envd.parent_fd = -1, .embedded = &none};
    open_with(env,
              "{\"providers\":{\"e2b\":{\"type\":\"e2b\",\"api_url\":\"embedded\"}},"
              "\"health_interval_s\":86400}",
              change);
}

void work_open_local(struct work_env *env, void (*change)(struct core_env *env))
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *program = getenv("QUICKSAND_TEST_ENVD");
    auto_close int fd = -1;
    char file[512];

    if (!program)
        test_lacks("QUICKSAND_TEST_ENVD is not set");
    *env = (struct work_env){.envd.parent_fd = -1};
    (void)snprintf(env->root, sizeof(env->root), "/tmp/runtime-test-XXXXXX");
    /* An envd of root would use root's home. */
    if (geteuid() == 0)
        CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    CHECK(mkdtemp(env->root) != NULL);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", env->root);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
          listen(fd, 64) == 0);
    OK(process_envd_start(
        &(struct process_envd_spec){.program = program, .root = env->root, .listen_fd = fd},
        &env->envd, &err));
    (void)snprintf(file, sizeof(file),
                   "{\"default_provider\":\"here\",\"providers\":{\"here\":{\"type\":\"process\","
                   "\"socket\":\"%s/socket\"},\"e2b\":{\"type\":\"e2b\",\"api_url\":"
                   "\"http://127.0.0.1:1\",\"api_key\":\"not-used\"}},\"profiles\":{\"default\":"
                   "{\"provider\":\"here\",\"network\":{\"mode\":\"allow-all\"}}}}",
                   env->root);
    open_with(env, file, change);
}

void work_restart(struct work_env *env)
{
    runtime_close(env->core.runtime);
    env->core.runtime = NULL;
    open_runtime(env);
}

void work_close(struct work_env *env)
{
    runtime_close(env->core.runtime);
    sender_close(env->sender);
    store_close(env->core.store);
    fetch_free(env->fetch);
    provider_fake_free(env->core.fake);
    runtime_settings_done(&env->core.settings);
    if (*env->root) {
        process_envd_stop(&env->envd);
        (void)path_remove_tree(AT_FDCWD, env->root);
    }
}

void work_quick(struct core_env *env)
{
    env->settings.retry.min_ms = 2;
    env->settings.retry.max_ms = 4;
    env->settings.breaker.failures = 100;
}

size_t work_events(struct work_env *env, const char *type)
{
    auto_arena struct arena arena = {0};
    struct runtime_event_filter filter = {.type = str_of(type)};
    struct runtime_event_texts events = {0};

    OK(runtime_event_list(env->core.runtime, &env->core.caller, &filter, 0, RUNTIME_EVENTS_MAX,
                          &arena, &events, &err));
    return events.count;
}

bool work_event_has(struct work_env *env, const char *type, const char *text)
{
    auto_arena struct arena arena = {0};
    struct runtime_event_filter filter = {.type = str_of(type)};
    struct runtime_event_texts events = {0};

    OK(runtime_event_last(env->core.runtime, &env->core.caller, &filter, 1, &arena, &events, &err));
    return events.count && str_find_str(events.items[0].json, str_of(text)) >= 0;
}

void work_sleep_ms(long ms)
{
    (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

struct runtime_sandbox work_ensure(struct work_env *env, const char *key, int tier,
                                   struct arena *arena)
{
    struct runtime_ensure request = {.key = str_of(key)};
    struct runtime_sandbox sandbox = {0};
    enum runtime_tier got = TIER_CREATED;

    OK(runtime_sandbox_ensure(env->core.runtime, &env->core.caller, &request, arena, &sandbox, &got,
                              &err));
    if (tier >= 0)
        CHECK_STR(str_of(runtime_tier_name(got)), runtime_tier_name((enum runtime_tier)tier));
    return sandbox;
}

char *work_exec(struct work_env *env, struct str id, const char *line, int exit_code,
                struct arena *arena)
{
    struct runtime_command command = {.command = str_of(line)};
    struct runtime_result result;
    char *out;

    OK(runtime_exec(env->core.runtime, &env->core.caller, id, &command, &result, &err));
    if (result.exit_code != exit_code)
        test_fail(__FILE__, __LINE__, "'%s' exited with %d: %s%s", line, result.exit_code,
                  result.out.p ? result.out.p : "", result.err.p ? result.err.p : "");
    out = arena_printf(arena, "%s", result.out.p ? result.out.p : "");
    runtime_result_done(&result);
    return out;
}
