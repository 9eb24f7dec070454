/* Terminals with shells of this host, by the real envd. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "runtime/command/terminal.h"
#include "runtime/main/runtime_main.h"
#include "runtime/sandbox/test/work_env.h"

struct view {
    pthread_mutex_t lock;
    struct buf seen;
    bool full, ended, lost;
    int while_full; /* calls of on_data() */
    int code;
};

static bool on_data(void *arg, struct str data)
{
    struct view *view = arg;
    bool more;

    (void)pthread_mutex_lock(&view->lock);
    (void)buf_add_str(&view->seen, data);
    more = !view->full;
    view->while_full += view->full;
    (void)pthread_mutex_unlock(&view->lock);
    return more;
}

static void on_end(void *arg, int exit_code, const struct error *why)
{
    struct view *view = arg;

    (void)pthread_mutex_lock(&view->lock);
    view->ended = true;
    view->lost = why != NULL;
    view->code = exit_code;
    (void)pthread_mutex_unlock(&view->lock);
}

static bool view_has(struct view *view, const char *text)
{
    bool found;

    (void)pthread_mutex_lock(&view->lock);
    found = str_find_str(buf_str(&view->seen), str_of(text)) >= 0;
    (void)pthread_mutex_unlock(&view->lock);
    return found;
}

static bool view_ended(struct view *view)
{
    bool ended;

    (void)pthread_mutex_lock(&view->lock);
    ended = view->ended;
    (void)pthread_mutex_unlock(&view->lock);
    return ended;
}

static void view_init(struct view *view)
{
    *view = (struct view){0};
    (void)pthread_mutex_init(&view->lock, NULL);
    buf_init(&view->seen, 1 << 20);
}

TEST(terminal_is_left_and_found_again)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct terminal_viewer viewer = {.on_data = on_data, .on_end = on_end};
    struct terminal_request request = {0};
    struct terminal *terminal = NULL, *second = NULL;
    char id[RUNTIME_ID_SIZE], again[RUNTIME_ID_SIZE];
    struct runtime_sandbox sandbox;
    struct view first, next;

    work_open_local(&env, work_quick);
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    view_init(&first);
    view_init(&next);
    request.sandbox_id = sandbox.id;
    viewer.arg = &first;
    OK(terminal_open(env.core.runtime, &env.core.caller, &request, &viewer, id, &terminal, &err));
    terminal_resize(terminal, 91, 17);
    /* The size and what is typed go different ways. */
    terminal_input(terminal, STR("until [ \"$(stty size)\" = '17 91' ]; do sleep 0.01; done\n"));
    terminal_input(terminal, STR("MARK=here; echo a$((1+1))b\n"));
    WAIT_FOR(view_has(&first, "a2b"));
    terminal_leave(terminal);
    CHECK(!view_ended(&first));

    request.terminal_id = str_of(id);
    viewer.arg = &next;
    OK(terminal_open(env.core.runtime, &env.core.caller, &request, &viewer, again, &second, &err));
    CHECK_STR(str_of(again), id);
    WAIT_FOR(view_has(&next, "a2b")); /* what was shown before */
    terminal_input(second, STR("echo was-$MARK\n"));
    WAIT_FOR(view_has(&next, "was-here"));
    terminal_input(second, STR("exit 4\n"));
    WAIT_FOR(view_ended(&next));
    CHECK(!next.lost);
    CHECK_INT(next.code, 4);
    terminal_leave(second);
    FAILS(
        terminal_open(env.core.runtime, &env.core.caller, &request, &viewer, again, &second, &err),
        ERROR_NOT_FOUND, "has ended");
    CHECK_INT(work_events(&env, "terminal.opened"), 1);
    CHECK_INT(work_events(&env, "terminal.closed"), 1);
    buf_done(&first.seen);
    buf_done(&next.seen);
}

TEST(terminal_outlives_the_runtime)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct terminal_viewer viewer = {.on_data = on_data, .on_end = on_end};
    struct terminal_request request = {0};
    struct terminal *terminal = NULL;
    char id[RUNTIME_ID_SIZE], again[RUNTIME_ID_SIZE];
    struct view first, next;

    work_open_local(&env, work_quick);
    view_init(&first);
    view_init(&next);
    request.sandbox_id = work_ensure(&env, "k", TIER_CREATED, &arena).id;
    viewer.arg = &first;
    OK(terminal_open(env.core.runtime, &env.core.caller, &request, &viewer, id, &terminal, &err));
    terminal_input(terminal, STR("MARK=here; echo a$((1+1))b\n"));
    WAIT_FOR(view_has(&first, "a2b"));
    runtime_close(env.core.runtime);
    CHECK(view_ended(&first));
    CHECK(first.lost);
    terminal_leave(terminal);

    OK(runtime_open(&(struct runtime_config){.store = env.core.store,
                                             .settings = &env.core.settings,
                                             .fetch = env.fetch,
                                             .sender = env.sender},
                    &env.core.runtime, &err));
    request.terminal_id = str_of(id);
    viewer.arg = &next;
    OK(terminal_open(env.core.runtime, &env.core.caller, &request, &viewer, again, &terminal,
                     &err));
    CHECK_STR(str_of(again), id);
    terminal_input(terminal, STR("echo was-$MARK; exit 4\n"));
    WAIT_FOR(view_ended(&next));
    CHECK(view_has(&next, "was-here"));
    CHECK_INT(next.code, 4);
    terminal_leave(terminal);
    FAILS(terminal_open(env.core.runtime, &env.core.caller, &request, &viewer, again, &terminal,
                        &err),
          ERROR_NOT_FOUND, "has ended: open a new one");
    CHECK_INT(work_events(&env, "terminal.opened"), 1);
    CHECK_INT(work_events(&env, "terminal.closed"), 1);
    buf_done(&first.seen);
    buf_done(&next.seen);
}

TEST(terminal_waits_for_its_viewer)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct terminal_viewer viewer = {.on_data = on_data, .on_end = on_end};
    struct terminal_request request = {0};
    struct terminal *terminal = NULL, *thief = NULL;
    char id[RUNTIME_ID_SIZE];
    struct runtime_sandbox sandbox;
    struct view view, other;
    char file[] = "/tmp/quicksand-terminal-XXXXXX";
    auto_free char *line = NULL;

    work_open_local(&env, work_quick);
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    view_init(&view);
    view_init(&other);
    viewer.arg = &view;
    request.sandbox_id = sandbox.id;
    OK(terminal_open(env.core.runtime, &env.core.caller, &request, &viewer, id, &terminal, &err));
    terminal_input(terminal, STR("echo rea''dy\n"));
    WAIT_FOR(view_has(&view, "ready"));
    (void)pthread_mutex_lock(&view.lock);
    view.full = true;
    (void)pthread_mutex_unlock(&view.lock);
    (void)close(mkstemp(file));
    line = xasprintf("echo x; sleep 0.1; echo y; sleep 0.1; echo en''ded; rm %s\n", file);
    terminal_input(terminal, str_of(line));
    WAIT_FOR(access(file, F_OK) < 0);
    work_sleep_ms(300); /* nothing comes meanwhile */
    (void)pthread_mutex_lock(&view.lock);
    CHECK_INT(view.while_full, 1);
    CHECK(str_find_str(buf_str(&view.seen), STR("ended")) < 0);
    view.full = false;
    (void)pthread_mutex_unlock(&view.lock);
    terminal_resume(terminal);
    WAIT_FOR(view_has(&view, "ended"));

    /* Somebody else comes: the first one is told, and may leave later. */
    viewer.arg = &other;
    request.terminal_id = str_of(id);
    OK(terminal_open(env.core.runtime, &env.core.caller, &request, &viewer, id, &thief, &err));
    CHECK(view.ended && view.lost);
    terminal_leave(terminal);
    terminal_input(thief, STR("echo still-$((40+2))\n"));
    WAIT_FOR(view_has(&other, "still-42"));
    runtime_close(env.core.runtime);
    env.core.runtime = NULL;
    CHECK(other.ended);
    terminal_leave(thief);
    buf_done(&view.seen);
    buf_done(&other.seen);
}

/* The grace is measured on the test clock: nothing here waits for a minute. */
TEST(terminal_grace)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct terminal_viewer viewer = {.on_data = on_data, .on_end = on_end};
    struct terminal_request request = {0};
    struct terminal *terminal = NULL;
    char id[RUNTIME_ID_SIZE], again[RUNTIME_ID_SIZE];
    struct view first, next;

    work_open_local(&env, work_quick);
    view_init(&first);
    view_init(&next);
    request.sandbox_id = work_ensure(&env, "k", TIER_CREATED, &arena).id;
    viewer.arg = &first;
    OK(terminal_open(env.core.runtime, &env.core.caller, &request, &viewer, id, &terminal, &err));
    terminal_input(terminal, STR("MARK=here; echo a$((1+1))b\n"));
    WAIT_FOR(view_has(&first, "a2b"));
    /* A viewer that stays keeps its shell for longer than the grace. */
    clock_test_pass(120 * 1000000LL);
    terminal_input(terminal, STR("echo c$((1+1))d\n"));
    WAIT_FOR(view_has(&first, "c2d"));
    terminal_leave(terminal);

    clock_test_pass(58 * 1000000LL);
    request.terminal_id = str_of(id);
    viewer.arg = &next;
    OK(terminal_open(env.core.runtime, &env.core.caller, &request, &viewer, again, &terminal,
                     &err));
    terminal_input(terminal, STR("echo was-$MARK\n"));
    WAIT_FOR(view_has(&next, "was-here"));
    CHECK_INT(work_events(&env, "terminal.closed"), 0);
    terminal_leave(terminal);

    clock_test_pass(60 * 1000000LL);
    WAIT_FOR(work_events(&env, "terminal.closed") == 1);
    FAILS(terminal_open(env.core.runtime, &env.core.caller, &request, &viewer, again, &terminal,
                        &err),
          ERROR_NOT_FOUND, "has ended");
    CHECK_INT(work_events(&env, "terminal.opened"), 1);
    CHECK_INT(work_events(&env, "terminal.failed"), 0);
    buf_done(&first.seen);
    buf_done(&next.seen);
}
