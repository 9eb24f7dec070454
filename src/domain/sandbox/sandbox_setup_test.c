/* What sandboxes have of the build they started from, and the programs that it starts. */
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_setup.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "domain/sandbox/test/sandbox_test_env.h"
#include "protocol/envd/test/envd_test_wire.h"
#include "protocol/rpc/connect.h"
#include "store/platform/store_build.h"

#define SERVE "serve it"
#define PROBE "probe it"

/* The envds of all boxes. */
struct guest {
    atomic_int starts, probes, inits;
    atomic_int ahead;     /* probes in boxes of the warm pool */
    atomic_int not_ready; /* so many probes fail */
    atomic_int dies;      /* exit code of the start command; 0 = it goes on */
    atomic_bool hangs;    /* probes do not end */
    pthread_mutex_t lock;
    char init[512]; /* the last body of /init */
};

static void stream(struct buf *out, const char *const *messages, bool ended)
{
    auto_buf struct buf body = {0};

    buf_init(&body, 4096);
    for (size_t i = 0; messages[i]; i++)
        envd_test_answer(&body, "/process.Process/Start", messages[i], true);
    if (ended)
        connect_add_end(&body, NULL);
    (void)buf_printf(out,
                     "HTTP/1.1 200 OK\r\nContent-Type: application/connect+proto\r\n"
                     "Transfer-Encoding: chunked\r\n\r\n%zx\r\n",
                     body.len);
    (void)buf_add_str(out, buf_str(&body));
    (void)buf_add_str(out, ended ? STR("\r\n0\r\n\r\n") : STR("\r\n"));
}

static void answer_start(struct guest *guest, struct buf *out)
{
    static const char dead[] = "{\"event\":{\"end\":{\"exitCode\":7,\"exited\":true,"
                               "\"status\":\"exit status 7\"}}}";
    /* "no port" */
    const char *messages[] = {"{\"event\":{\"start\":{\"pid\":7}}}",
                              "{\"event\":{\"data\":{\"stderr\":\"bm8gcG9ydAo=\"}}}",
                              atomic_load(&guest->dies) ? dead : NULL, NULL};

    atomic_fetch_add(&guest->starts, 1);
    stream(out, messages, atomic_load(&guest->dies) != 0);
}

static void answer_probe(struct guest *guest, struct buf *out)
{
    bool ready = atomic_fetch_add(&guest->probes, 1) >= atomic_load(&guest->not_ready);
    const char *messages[] = {"{\"event\":{\"start\":{\"pid\":8}}}",
                              atomic_load(&guest->hangs) ? NULL
                              : ready ? "{\"event\":{\"end\":{\"exitCode\":0,\"exited\":true,"
                                        "\"status\":\"exit status 0\"}}}"
                                      : "{\"event\":{\"end\":{\"exitCode\":1,\"exited\":true,"
                                        "\"status\":\"exit status 1\"}}}",
                              NULL};

    stream(out, messages, !atomic_load(&guest->hangs));
}

static void answer(void *arg, const char *id, struct str request, struct buf *out)
{
    struct guest *guest = arg;

    (void)id;
    if (str_find_str(request, STR("POST /init ")) >= 0) {
        ptrdiff_t body = str_find_str(request, STR("\r\n\r\n"));

        atomic_fetch_add(&guest->inits, 1);
        (void)pthread_mutex_lock(&guest->lock);
        (void)snprintf(guest->init, sizeof(guest->init), "%.*s",
                       STR_ARG(str_skip(request, (size_t)body + 4)));
        (void)pthread_mutex_unlock(&guest->lock);
    } else if (str_find_str(request, STR("POST /process.Process/Start ")) >= 0) {
        if (str_find_str(request, STR(SERVE)) >= 0)
            answer_start(guest, out);
        else
            answer_probe(guest, out);
        if (str_find_str(request, STR(SETUP_AHEAD)) >= 0)
            atomic_fetch_add(&guest->ahead, 1);
    }
}

/* A ready build of a template; its layers are the base's and a tree. */
static void add_build(struct env *env, const char *name, const char *start, const char *ready,
                      const char *user)
{
    auto_arena struct arena arena = {0};
    static int made;
    int number = ++made;
    struct store_build build = {
        .id = str_of(arena_printf(&arena, "build-%d", number)),
        .team_id = TEAM,
        .tags = STR("default"),
        .cpu_count = 1,
        .mem_mb = 256,
        .disk_mb = 512,
        .created_at_us = number,
    };
    struct store_template template;
    bool freed;

    OK(store_build_add(env->store, &build, str_of(name), &arena, &template, &err));
    OK(store_build_start(env->store, build.id, STR("{}"), 1, &err));
    build.layers = STR("low,high");
    build.env = STR("{\"A\":\"template\",\"B\":\"b\"}");
    build.default_user = str_of(user);
    build.workdir = STR("/app");
    build.start_cmd = str_of(start);
    build.ready_cmd = str_of(ready);
    build.finished_at_us = 2;
    OK(store_build_ready(env->store, &build, &freed, &err));
}

static void guest_open(struct guest *guest, struct env *env)
{
    (void)pthread_mutex_init(&guest->lock, NULL);
    engine_fake_envd(env->engine, answer, guest);
}

static int create(struct env *env, const char *name, char id[ID_SIZE], struct error *err)
{
    const struct pair pair = {STR("A"), STR("request")};
    struct sandbox_new request = {.team_id = TEAM,
                                  .template_name = str_of(name),
                                  .timeout_s = 600,
                                  .internet = true,
                                  .env = &pair,
                                  .env_count = 1};
    auto_arena struct arena arena = {0};
    struct sandbox_view view;

    if (sandbox_create(env->all, &request, &arena, &view, err) < 0)
        return -1;
    CHECK(str_copy(view.id, id, ID_SIZE));
    return 0;
}

static void has(struct guest *guest, const char *text)
{
    (void)pthread_mutex_lock(&guest->lock);
    if (!strstr(guest->init, text))
        test_fail(__FILE__, __LINE__, "no '%s' in '%s'", text, guest->init);
    (void)pthread_mutex_unlock(&guest->lock);
}

TEST(what_is_kept)
{
    auto_arena struct arena arena = {0};
    struct store_template template = {.build_id = STR("b"),
                                      .env = STR("{\"A\":\"1\",\"B\":\"x\"}"),
                                      .default_user = STR("bob"),
                                      .workdir = STR("/a \"b\""),
                                      .start_cmd = STR("serve"),
                                      .ready_cmd = STR("")};
    struct setup setup, again;
    auto_free char *env = NULL;

    setup_of_template(&template, &arena, &setup);
    setup_read(setup.text, &arena, &again);
    CHECK_STR(again.user, "bob");
    CHECK_STR(again.workdir, "/a \"b\"");
    CHECK_STR(again.start, "serve");
    CHECK_STR(again.ready, "");
    CHECK(str_eq(again.text, setup.text) && str_eq(setup_key(&again), setup.text));
    env = setup_env(&again, "{\"A\":\"2\",\"C\":\"3\"}");
    CHECK_STR(str_of(env), "{\"A\":\"2\",\"B\":\"x\",\"C\":\"3\"}");
    template.start_cmd = STR("");
    setup_of_template(&template, &arena, &setup);
    CHECK(setup.text.len && !setup_key(&setup).len);
    template = (struct store_template){.build_id = STR("b"), .env = STR("{}")};
    setup_of_template(&template, &arena, &setup);
    CHECK(!setup.text.len && !setup.env.len);
    setup_read(STR("no JSON"), &arena, &setup);
    CHECK(!setup.text.len && !setup.user.len);
    CHECK_STR(setup_shell_text(STR("/x:/it's"), STR("run"), &arena),
              "export PATH='/x:/it'\\''s'; run");
    CHECK_STR(setup_shell_text(STR(""), STR("run"), &arena), "run");
}

#define EXPOSED                                                                          \
    "n=0; until grep -qE ':(0050|1F40) [0-9A-F]+:0000 0A' /proc/net/tcp /proc/net/tcp6 " \
    "2>/dev/null "                                                                       \
    "|| [ $n -ge 100 ]; do n=$((n + 1)); sleep 0.1; done"

TEST(ready_commands_of_dockerfiles_are_ports_or_none)
{
    auto_arena struct arena arena = {0};
    struct setup setup = {.start = STR("exec serve")};

    setup_set_ready(&setup, STR(EXPOSED));
    CHECK_STR(setup.ready, "");
    CHECK_STR(str_of(setup_ports_text(&setup, &arena)), "port 80 or port 8000");
    CHECK(str_find_str(setup_listen_text(&setup, 1, &arena), STR("in 1F40|0050) exit 0 ;; esac")) >
          0);
    /* Earlier versions gave it to Dockerfiles with CMD alone; others mean it. */
    setup_set_ready(&setup, STR("true"));
    CHECK_STR(setup.ready, "");
    CHECK_STR(str_of(setup_ports_text(&setup, &arena)), "a port");
    CHECK(str_find_str(setup_listen_text(&setup, 1, &arena), STR("in C33F) ;; *) exit 0 ;; esac")) >
          0);
    setup.start = STR("serve");
    setup_set_ready(&setup, STR("true"));
    CHECK_STR(setup.ready, "true");
}

TEST(a_template_that_is_not_waited_for_costs_no_descriptor)
{
    struct guest guest = {.not_ready = 1};
    auto_env struct env env;
    char id[ID_SIZE];

    CHECK(fcntl(STDIN_FILENO, F_GETFD) >= 0);
    env_open(&env, 0);
    guest_open(&guest, &env);
    add_build(&env, "web", SERVE, "", "");
    for (int i = 0; i < 2; i++) {
        OK(create(&env, "web", id, &err));
        OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
    }
    CHECK_INT(atomic_load(&guest.probes), 1);
    CHECK(fcntl(STDIN_FILENO, F_GETFD) >= 0);
}

TEST(a_template_that_listened_on_nothing_is_waited_for_again_later)
{
    static const char *const ready[] = {"", EXPOSED};
    struct guest guest = {0};
    auto_env struct env env;
    char id[ID_SIZE];

    env_open(&env, 0);
    guest_open(&guest, &env);
    for (size_t i = 0; i < 2; i++) {
        int before = atomic_load(&guest.probes);

        atomic_store(&guest.not_ready, before + 1);
        add_build(&env, "web", SERVE, ready[i], "");
        for (int n = 0; n < 2; n++) {
            OK(create(&env, "web", id, &err));
            CHECK_INT(atomic_load(&guest.probes), before + 1);
            OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
        }
        clock_test_pass((int64_t)SETUP_SILENT_S * 1000 * 1000);
        for (int n = 2; n < 4; n++) { /* it listens now, and goes on being waited for */
            OK(create(&env, "web", id, &err));
            CHECK_INT(atomic_load(&guest.probes), before + n);
            OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
        }
    }
}

TEST(programs_are_started_and_awaited)
{
    struct guest guest = {.not_ready = 2};
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    struct box_spec spec;
    char id[ID_SIZE];

    env_open(&env, 0);
    guest_open(&guest, &env);
    add_build(&env, "web", SERVE, PROBE, "bob");
    OK(create(&env, "web", id, &err));
    CHECK_INT(atomic_load(&guest.starts), 1);
    CHECK_INT(atomic_load(&guest.probes), 3);
    CHECK_INT(atomic_load(&guest.inits), 2);
    has(&guest, "\"envVars\":{\"A\":\"request\",\"B\":\"b\"}");
    has(&guest, "\"defaultUser\":\"bob\"");
    has(&guest, "\"defaultWorkdir\":\"/app\"");
    CHECK(engine_fake_spec(env.engine, id, &spec));
    CHECK_INT(spec.limits.mem_bytes >> 20, 256);
    CHECK_INT(spec.limits.disk_bytes >> 20, 512);

    /* Frozen processes go on; others are started anew, also when the template is another or gone. */
    add_build(&env, "web", "", "", "");
    OK(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){0}, &err));
    OK(sandbox_resume(env.all, TEAM, str_of(id), &(struct sandbox_resume){.timeout_s = 60}, &arena,
                      &view, &err));
    CHECK_INT(atomic_load(&guest.starts), 1);
    OK(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){.disk_only = true}, &err));
    OK(sandbox_resume(env.all, TEAM, str_of(id), &(struct sandbox_resume){.timeout_s = 60}, &arena,
                      &view, &err));
    CHECK_INT(atomic_load(&guest.starts), 2);
    has(&guest, "\"defaultUser\":\"bob\"");
    has(&guest, "\"A\":\"request\"");
    env_reopen(&env);
    CHECK_INT(atomic_load(&guest.starts), 2);
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
}

TEST(forks_and_snapshots_start_them_too)
{
    struct guest guest = {0};
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct snapshot_view snapshot;
    struct fork_result *forks;
    char id[ID_SIZE], child[ID_SIZE];

    env_open(&env, 0);
    guest_open(&guest, &env);
    add_build(&env, "web", SERVE, PROBE, "bob");
    OK(create(&env, "web", id, &err));
    for (size_t n = 1; n <= 2; n++) {
        int before = atomic_load(&guest.starts);

        OK(sandbox_fork(env.all, TEAM, str_of(id),
                        &(struct sandbox_fork){.count = n, .timeout_s = 60}, &arena, &forks, &err));
        CHECK_INT(atomic_load(&guest.starts), before + (int)n);
        has(&guest, "\"A\":\"request\"");
        for (size_t i = 0; i < n; i++) {
            CHECK(forks[i].ok);
            OK(sandbox_kill(env.all, TEAM, forks[i].view.id, &err));
        }
    }
    OK(sandbox_snapshot(env.all, TEAM, str_of(id), STR("kept"), &arena, &snapshot, &err));
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
    atomic_store(&guest.starts, 0);
    OK(create(&env, "kept", child, &err));
    CHECK_INT(atomic_load(&guest.starts), 1);
    has(&guest, "\"defaultUser\":\"bob\"");
    has(&guest, "\"B\":\"b\"");
    OK(sandbox_kill(env.all, TEAM, str_of(child), &err));
    OK(snapshot_delete(env.all, TEAM, STR("kept"), &err));
    WAIT_FOR(engine_fake_layers(env.engine) == 0);
}

TEST(a_program_that_fails_leaves_nothing)
{
    struct guest guest = {.not_ready = 1000, .dies = 7};
    auto_env struct env env;
    struct error why = {0};
    char id[ID_SIZE];

    env_open(&env, 0);
    env.config.ready_s = 1;
    env_reopen(&env);
    guest_open(&guest, &env);
    add_build(&env, "web", SERVE, PROBE, "");
    CHECK_INT(create(&env, "web", id, &why), -1);
    CHECK_INT(why.code, ERROR_INVALID);
    CHECK(strstr(why.message, "start command '" SERVE "' failed: exit status 7; the last that it "
                              "wrote: 'no port'") != NULL);
    atomic_store(&guest.dies, 0);
    CHECK_INT(create(&env, "web", id, &why), -1);
    CHECK_INT(why.code, ERROR_INVALID);
    CHECK(strstr(why.message, "ready command '" PROBE "' did not succeed within 1 s: exit status "
                              "1") != NULL);
    CHECK(atomic_load(&guest.probes) > 3 && atomic_load(&guest.probes) < 30);
    CHECK_INT(env_live_rows(&env), 0);
    CHECK_INT(sandboxes_running(env.all), 0);
    /* A server that ends waits for nobody. */
    atomic_store(&guest.hangs, true);
    sandboxes_hurry(env.all);
    CHECK_INT(create(&env, "web", id, &why), -1);
    CHECK(strstr(why.message, "the server ends") != NULL);
}

TEST(a_resume_that_fails_stays_paused)
{
    struct guest guest = {0};
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandbox_resume resume = {.timeout_s = 60};
    struct sandbox_view view;
    char id[ID_SIZE];

    env_open(&env, 0);
    guest_open(&guest, &env);
    add_build(&env, "web", SERVE, PROBE, "");
    OK(create(&env, "web", id, &err));
    OK(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){.disk_only = true}, &err));
    atomic_store(&guest.dies, 7);
    atomic_store(&guest.not_ready, 1000);
    FAILS(sandbox_resume(env.all, TEAM, str_of(id), &resume, &arena, &view, &err), ERROR_INVALID);
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &view, &err));
    CHECK_INT(view.state, SANDBOX_PAUSED);
    atomic_store(&guest.dies, 0);
    atomic_store(&guest.not_ready, 0);
    OK(sandbox_resume(env.all, TEAM, str_of(id), &resume, &arena, &view, &err));
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
}

static size_t warm_count(struct env *env)
{
    struct sandboxes_stats stats;

    sandboxes_stats(env->all, &stats);
    return stats.warm;
}

TEST(warm_boxes_have_them_running)
{
    struct guest guest = {0};
    auto_env struct env env;
    char ids[3][ID_SIZE];

    env_open(&env, 2);
    guest_open(&guest, &env);
    add_build(&env, "web", SERVE, PROBE, "bob");
    WAIT_FOR(warm_count(&env) == 4); /* the base's, and blank ones */
    OK(create(&env, "web", ids[0], &err));
    WAIT_FOR(warm_count(&env) == 5);
    CHECK_INT(atomic_load(&guest.starts), 2);
    OK(create(&env, "web", ids[1], &err));
    has(&guest, "\"defaultUser\":\"bob\"");
    WAIT_FOR(warm_count(&env) == 6);
    CHECK_INT(atomic_load(&guest.starts), 4);
    /* The same layers with other commands are another thing. */
    add_build(&env, "other", "", "", "");
    OK(create(&env, "other", ids[2], &err));
    CHECK_INT(atomic_load(&guest.starts), 4);
    for (size_t i = 0; i < 3; i++)
        OK(sandbox_kill(env.all, TEAM, str_of(ids[i]), &err));
}

/* Boxes for which others go first where processors are short. */
static size_t yielding_count(struct env *env)
{
    auto_free struct box_info *infos = NULL;
    size_t count = 0, yielding = 0;
    struct box_spec spec;

    OK(env->engine->ops->list(env->engine, &infos, &count, &err));
    for (size_t i = 0; i < count; i++)
        yielding += engine_fake_spec(env->engine, infos[i].id, &spec) && spec.limits.yields;
    return yielding;
}

TEST(boxes_that_get_ready_for_the_pool_yield_to_creates)
{
    struct guest guest = {0};
    auto_env struct env env;
    char id[ID_SIZE];
    int ahead;

    env_open(&env, 2);
    guest_open(&guest, &env);
    add_build(&env, "web", SERVE, PROBE, "bob");
    WAIT_FOR(warm_count(&env) == 4);
    CHECK_INT(yielding_count(&env), 0);
    OK(create(&env, "web", id, &err));
    WAIT_FOR(warm_count(&env) == 5);
    atomic_store(&guest.not_ready, INT_MAX);
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
    OK(create(&env, "web", id, &err));
    /* The pool may have two by now. */
    WAIT_FOR(yielding_count(&env) == 2);
    ahead = atomic_load(&guest.ahead);
    WAIT_FOR(atomic_load(&guest.ahead) > ahead);
    CHECK_INT(yielding_count(&env), 2);
    atomic_store(&guest.not_ready, 0);
    WAIT_FOR(warm_count(&env) == 6);
    CHECK_INT(yielding_count(&env), 0);
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
}

TEST(a_template_that_was_just_made_has_a_box_ahead)
{
    struct guest guest = {0};
    auto_env struct env env;
    char id[ID_SIZE];

    env_open(&env, 2);
    guest_open(&guest, &env);
    add_build(&env, "web", SERVE, PROBE, "bob");
    WAIT_FOR(warm_count(&env) == 4);
    warm_expect(env.all, TEAM, STR("web"));
    WAIT_FOR(warm_count(&env) == 5);
    CHECK_INT(atomic_load(&guest.starts), 1);
    OK(create(&env, "web", id, &err));
    has(&guest, "\"defaultUser\":\"bob\"");
    warm_expect(env.all, TEAM, STR("none"));
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
}

TEST(programs_that_run_for_nobody_end)
{
    struct guest guest = {0};
    auto_env struct env env;
    char id[ID_SIZE];

    env_open(&env, 2);
    env.config.idle_s = 1;
    env_reopen(&env);
    guest_open(&guest, &env);
    add_build(&env, "web", SERVE, PROBE, "");
    OK(create(&env, "web", id, &err));
    WAIT_FOR(warm_count(&env) == 5);
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
    WAIT_FOR(warm_count(&env) == 4);
    OK(create(&env, "web", id, &err));
    WAIT_FOR(warm_count(&env) == 5);
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
}

/* Neither the base's boxes nor the end of the server wait for a template that does not get ready. */
TEST(slow_ones_hold_up_nobody)
{
    struct guest guest = {0};
    auto_env struct env env;
    char id[ID_SIZE];

    env_open(&env, 2);
    guest_open(&guest, &env);
    add_build(&env, "web", SERVE, PROBE, "");
    WAIT_FOR(warm_count(&env) == 4);
    OK(create(&env, "web", id, &err));
    atomic_store(&guest.hangs, true);
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
    for (int i = 0; i < 5; i++) {
        OK(env_create(&env, id, &err));
        OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
    }
    WAIT_FOR(warm_count(&env) >= 2);
    env_reopen(&env);
}

struct race {
    struct env *env;
    const char *name;
    atomic_int made;
};

static void *create_one(void *arg)
{
    struct race *race = arg;
    struct error why = {0};
    char id[ID_SIZE];

    if (create(race->env, race->name, id, &why) == 0) {
        atomic_fetch_add(&race->made, 1);
        OK(sandbox_kill(race->env->all, TEAM, str_of(id), &err));
    }
    return NULL;
}

TEST(fifty_at_once)
{
    struct guest guest = {.not_ready = 20};
    auto_env struct env env;
    struct race race = {.env = &env, .name = "web"};
    pthread_t threads[50];

    env_open(&env, 2);
    guest_open(&guest, &env);
    add_build(&env, "web", SERVE, PROBE, "");
    for (size_t i = 0; i < 50; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, create_one, &race), 0);
    for (size_t i = 0; i < 50; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK_INT(atomic_load(&race.made), 50);
    CHECK_INT(env_live_rows(&env), 0);
}

/* Every call of the engine and of envds fails once. */
TEST_TIMEOUT(every_failure_while_programs_start, 60)
{
    struct guest guest = {0};
    auto_env struct env env;
    struct error why = {0};
    char id[ID_SIZE];

    env_open(&env, 0);
    guest_open(&guest, &env);
    add_build(&env, "web", SERVE, PROBE, "");
    for (int nth = 1;; nth++) {
        int before = engine_fake_failures(env.engine), result;

        engine_fake_fail_at(env.engine, nth);
        result = create(&env, "web", id, &why);
        engine_fake_fail_at(env.engine, 0);
        if (result == 0)
            OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
        CHECK_INT(env_live_rows(&env), 0);
        if (engine_fake_failures(env.engine) == before)
            break;
        CHECK(nth < 100);
    }
}

/* Who has no time is told so before anything is made. */
TEST(who_cannot_wait_comes_again)
{
    struct guest guest = {0};
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    bool waits = false;
    struct sandbox_new request = {.team_id = TEAM,
                                  .template_name = STR("web"),
                                  .timeout_s = 600,
                                  .internet = true,
                                  .waits = &waits};
    struct sandbox_resume resume = {.timeout_s = 60, .waits = &waits};
    struct sandbox_view view;
    char id[ID_SIZE];

    env_open(&env, 2);
    guest_open(&guest, &env);
    add_build(&env, "web", SERVE, PROBE, "");
    OK(sandbox_create(env.all, &request, &arena, &view, &err));
    CHECK(waits);
    CHECK_INT(env_live_rows(&env), 0);
    CHECK_INT(atomic_load(&guest.starts), 0);
    OK(create(&env, "web", id, &err));
    WAIT_FOR(warm_count(&env) == 5);
    waits = false;
    OK(sandbox_create(env.all, &request, &arena, &view, &err));
    CHECK(!waits);
    OK(sandbox_kill(env.all, TEAM, view.id, &err));

    OK(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){.disk_only = true}, &err));
    OK(sandbox_resume(env.all, TEAM, str_of(id), &resume, &arena, &view, &err));
    CHECK(waits);
    OK(sandbox_get(env.all, TEAM, str_of(id), &arena, &view, &err));
    CHECK_INT(view.state, SANDBOX_PAUSED);
    resume.waits = NULL;
    OK(sandbox_resume(env.all, TEAM, str_of(id), &resume, &arena, &view, &err));
    OK(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){0}, &err));
    waits = false;
    resume.waits = &waits;
    OK(sandbox_resume(env.all, TEAM, str_of(id), &resume, &arena, &view, &err));
    CHECK(!waits);
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
}
