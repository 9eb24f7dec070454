#include "domain/sandbox/test/sandbox_test_env.h"

#include <sched.h>

#include "base/alloc.h"
#include "base/log.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "domain/volume/volume_internal.h"
#include "store/driver/store_driver.h"

/* Only of the thread that asked for it: others have their own to do, at any time. */
static _Thread_local int fail_at;
static struct store_driver faulty;

static int faulty_step(struct store_stmt *stmt, struct error *err)
{
    if (fail_at > 0 && --fail_at == 0)
        return error_set(err, ERROR_NO_SPACE, "store: the disk is full, says the test");
    return driver_sqlite.step(stmt, err);
}

void env_fail_store_at(int nth)
{
    fail_at = nth;
}

void env_open(struct env *env, size_t warm)
{
    struct store_template base = {.id = STR("tttttttttttttttttttt"),
                                  .team_id = STR(""),
                                  .alias = STR("base"),
                                  .layers = STR("low,high"),
                                  .cpu_count = 2,
                                  .mem_mb = 512,
                                  .disk_mb = 1024,
                                  .is_public = true};
    struct store_team team = {.id = TEAM, .name = STR("n")};
    auto_arena struct arena arena = {0};
    struct str id;

    log_set_level(LOG_ERROR + 1);
    *env = (struct env){.dir = "/tmp/sandbox_test.XXXXXX"};
    CHECK(mkdtemp(env->dir) != NULL);
    env->engine = engine_fake_new();
    engine_fake_serve(env->engine, env->dir);
    faulty = driver_sqlite;
    faulty.step = faulty_step;
    OK(store_open_driver(&faulty, ":memory:", &env->store, &err));
    OK(store_team_insert(env->store, &team, &err));
    team.id = OTHER;
    OK(store_team_insert(env->store, &team, &err));
    OK(store_template_put(env->store, &base, &arena, &id, &err));
    env->routes = routes_new();
    OK(sender_open(&env->sender, &err));
    env->config = (struct sandboxes_config){.engine = env->engine,
                                            .store = env->store,
                                            .routes = env->routes,
                                            .domain = "example.test",
                                            .warm = warm,
                                            .blank = warm,
                                            .sample_ms = 3600 * 1000,
                                            .max_timeout_s = 86400};
    env_start(env);
}

void env_start(struct env *env)
{
    OK(sandboxes_open(&env->config, &env->all, &err));
    OK(volumes_open(&(struct volumes_config){.sandboxes = env->all,
                                             .engine = env->engine,
                                             .store = env->store,
                                             .routes = env->routes},
                    &env->volumes, &err));
    env->webhooks_config.sandboxes = env->all;
    env->webhooks_config.store = env->store;
    env->webhooks_config.sender = env->sender;
    OK(webhooks_open(&env->webhooks_config, &env->webhooks, &err));
}

void env_stop(struct env *env)
{
    webhooks_close(env->webhooks);
    volumes_close(env->volumes);
    sandboxes_close(env->all);
    env->webhooks = NULL;
    env->volumes = NULL;
    env->all = NULL;
}

void env_reopen(struct env *env)
{
    env_stop(env);
    routes_free(env->routes);
    env->routes = env->config.routes = routes_new();
    env_start(env);
}

void env_close(struct env *env)
{
    env_stop(env);
    sender_close(env->sender);
    routes_free(env->routes);
    store_close(env->store);
    engine_close(env->engine);
    if (rmdir(env->dir) < 0)
        test_fail(__FILE__, __LINE__, "'%s' is not empty", env->dir);
}

int env_create_timeout(struct env *env, int64_t timeout_s, char out_id[ID_SIZE], struct error *err)
{
    struct sandbox_new request = {.team_id = TEAM,
                                  .template_name = STR("base"),
                                  .timeout_s = timeout_s,
                                  .secure = true,
                                  .internet = true};
    auto_arena struct arena arena = {0};
    struct sandbox_view view;

    if (sandbox_create(env->all, &request, &arena, &view, err) < 0)
        return -1;
    CHECK(str_copy(view.id, out_id, ID_SIZE));
    return 0;
}

int env_create(struct env *env, char out_id[ID_SIZE], struct error *err)
{
    return env_create_timeout(env, 3600, out_id, err);
}

size_t env_live_rows(struct env *env)
{
    auto_arena struct arena arena = {0};
    struct store_sandbox *rows;
    size_t count = 0;

    OK(store_sandbox_live(env->store, &arena, &rows, &count, &err));
    return count;
}

bool env_has_route(struct env *env, const char *id)
{
    struct route route;

    return routes_find(env->routes, str_of(id), &route);
}

char *env_end_reason(struct env *env, const char *id)
{
    auto_arena struct arena arena = {0};
    struct store_sandbox row;
    struct error err = {0};

    if (store_sandbox_get(env->store, str_of(id), &arena, &row, &err) < 0 ||
        row.life.state != SANDBOX_ENDED)
        return NULL;
    return str_dup(row.end_reason);
}

void env_keeper_works(struct env *env)
{
    struct keeper *keeper = &env->all->keeper;

    periodic_test_turn(&keeper->back_up);
    periodic_test_turn(&keeper->collect);
    periodic_test_turn(&keeper->prune);
    periodic_test_turn(&keeper->leases);
    periodic_test_turn(&env->volumes->collect);
    periodic_test_turn(&env->volumes->reap);
}
