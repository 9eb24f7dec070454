/* Jobs with processes of this host, by the real envd. */
#include <dirent.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/json/json_shape.h"
#include "runtime/job/job.h"
#include "runtime/job/job_internal.h"
#include "runtime/main/runtime_main.h"
#include "runtime/sandbox/test/work_env.h"

static struct job start(struct work_env *env, struct str sandbox_id, const char *line,
                        struct arena *arena)
{
    struct runtime_command command = {.command = str_of(line)};
    struct job job = {0};

    OK(job_start(env->core.runtime, &env->core.caller, sandbox_id, &command, NULL, arena, &job,
                 &err));
    return job;
}

static struct job wait_for(struct work_env *env, struct str id, uint32_t ms, struct arena *arena)
{
    struct job job = {0};
    struct error problem;

    CHECK_INT(job_wait(env->core.runtime, &env->core.caller, id, ms, &problem), 1);
    OK(job_get(env->core.runtime, &env->core.caller, id, arena, &job, &err));
    return job;
}

static int sink(void *arg, struct str data)
{
    return buf_add_str(arg, data) ? 0 : -1;
}

static int64_t logs(struct work_env *env, struct str id, int64_t after, bool follow,
                    struct buf *out)
{
    int64_t next = -1;
    struct job_read read = {.after = after, .follow = follow, .wait_ms = 5000};

    OK(job_logs(env->core.runtime, &env->core.caller, id, &read, sink, out, &next, &err));
    return next;
}

TEST(job_runs_to_its_end)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    auto_buf struct buf out = {0};
    struct runtime_sandbox sandbox;
    struct job good, bad;

    work_open_local(&env, work_quick);
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    good = start(&env, sandbox.id, "echo 'it'\\''s \"$HOME\"' done; echo more >&2", &arena);
    CHECK_INT(good.state, JOB_RUNNING);
    bad = start(&env, sandbox.id, "exit 9", &arena);
    good = wait_for(&env, good.id, 10000, &arena);
    CHECK_INT(good.state, JOB_COMPLETED);
    CHECK_INT(good.exit_code, 0);
    bad = wait_for(&env, bad.id, 10000, &arena);
    CHECK_INT(bad.state, JOB_FAILED);
    CHECK_INT(bad.exit_code, 9);
    buf_init(&out, 4096);
    CHECK_INT(logs(&env, good.id, 0, false, &out), (int64_t)strlen("it's \"$HOME\" done\nmore\n"));
    CHECK_STR(buf_str(&out), "it's \"$HOME\" done\nmore\n");
    buf_clear(&out);
    CHECK_INT(logs(&env, good.id, 18, false, &out), 23);
    CHECK_STR(buf_str(&out), "more\n");
    CHECK_INT(work_events(&env, "process.exited"), 2);
}

TEST(job_logs_are_followed)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    auto_buf struct buf out = {0};
    struct runtime_sandbox sandbox;
    struct job job;

    work_open_local(&env, work_quick);
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    job = start(&env, sandbox.id, "for i in 1 2 3; do echo line $i; sleep 0.3; done; echo end",
                &arena);
    buf_init(&out, 4096);
    CHECK_INT(logs(&env, job.id, 0, true, &out), 25);
    CHECK_STR(buf_str(&out), "line 1\nline 2\nline 3\nend\n");
}

TEST(job_is_stopped_with_all_it_started)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_sandbox sandbox;
    struct job job;
    int64_t begin_ms;
    char *left;

    work_open_local(&env, work_quick);
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    /* One ignores TERM, one has left the session. */
    job = start(&env, sandbox.id,
                "trap '' TERM; setsid sleep 1234.5 & sleep 1234.5 & while :; do sleep 0.1; done",
                &arena);
    WAIT_FOR(strcmp(work_exec(&env, sandbox.id, "pgrep -fxc 'sleep 1234.5' || true", 0, &arena),
                    "1\n") > 0);
    begin_ms = clock_mono_ms();
    OK(job_stop(env.core.runtime, &env.core.caller, job.id, 0, &err));
    CHECK(clock_mono_ms() - begin_ms < 4000);
    job = wait_for(&env, job.id, 1000, &arena);
    CHECK_INT(job.state, JOB_CANCELLED);
    CHECK_INT(job.exit_code, 143);
    left = work_exec(&env, sandbox.id,
                     "grep -l QUICKSAND_JOB= /proc/[0-9]*/environ 2>/dev/null | wc -l", 0, &arena);
    CHECK_STR(str_trim(str_of(left)), "0");
    OK(job_stop(env.core.runtime, &env.core.caller, job.id, 0, &err));
}

TEST(job_takes_input)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    auto_buf struct buf out = {0};
    struct runtime_command command = {.command = STR("cat; echo bye"), .input = STR("one\n")};
    struct runtime_sandbox sandbox;
    struct job job, without;

    work_open_local(&env, work_quick);
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    OK(job_start(env.core.runtime, &env.core.caller, sandbox.id, &command, NULL, &arena, &job,
                 &err));
    OK(job_input(env.core.runtime, &env.core.caller, job.id, STR("two\n"), false, &err));
    OK(job_input(env.core.runtime, &env.core.caller, job.id, STR_NONE, true, &err));
    job = wait_for(&env, job.id, 10000, &arena);
    CHECK_INT(job.state, JOB_COMPLETED);
    buf_init(&out, 4096);
    (void)logs(&env, job.id, 0, false, &out);
    CHECK_STR(buf_str(&out), "one\ntwo\nbye\n");
    without = start(&env, sandbox.id, "sleep 5", &arena);
    FAILS(job_input(env.core.runtime, &env.core.caller, without.id, STR("x"), false, &err),
          ERROR_CONFLICT, "without standard input");
    FAILS(job_input(env.core.runtime, &env.core.caller, job.id, STR("x"), false, &err),
          ERROR_CONFLICT, "has ended");
}

TEST(job_survives_a_restart)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_sandbox sandbox;
    struct job running, quick, killed;
    struct store_runtime_job never = {
        .id = STR("job_neverlaunched"), .team_id = STR("t1"), .state = JOB_RUNNING};

    work_open_local(&env, work_quick);
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    running = start(&env, sandbox.id, "sleep 1.5; exit 5", &arena);
    quick = start(&env, sandbox.id, "sleep 0.3; exit 6", &arena);
    killed = start(&env, sandbox.id, "sleep 1000", &arena);
    work_sleep_ms(150);
    runtime_close(env.core.runtime);
    env.core.runtime = NULL;
    work_sleep_ms(400); /* one ends while nobody watches */
    /* And one was written, but not launched. */
    never.sandbox_id = sandbox.id;
    never.started_at_us = clock_wall_us();
    OK(store_runtime_job_insert(env.core.store, &never, 10, &err));
    OK(runtime_open(&(struct runtime_config){.store = env.core.store,
                                             .settings = &env.core.settings,
                                             .fetch = env.fetch,
                                             .sender = env.sender},
                    &env.core.runtime, &err));
    quick = wait_for(&env, quick.id, 5000, &arena);
    CHECK_INT(quick.exit_code, 6);
    CHECK_INT(wait_for(&env, never.id, 5000, &arena).exit_code, 137);
    running = wait_for(&env, running.id, 5000, &arena);
    CHECK_INT(running.exit_code, 5);
    CHECK_INT(running.state, JOB_FAILED);
    OK(runtime_sandbox_kill(env.core.runtime, &env.core.caller, sandbox.id, NULL, &err));
    killed = wait_for(&env, killed.id, 1000, &arena);
    CHECK_INT(killed.exit_code, 137);
    CHECK_INT(killed.state, JOB_FAILED);
}

static void two_jobs(struct core_env *env)
{
    work_quick(env);
    env->settings.jobs_per_sandbox = 2;
}

TEST(job_number_is_limited)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_command command = {.command = STR("sleep 100")};
    struct runtime_sandbox sandbox;
    struct job first, job, *list = NULL;
    size_t count = 0;

    work_open_local(&env, two_jobs);
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    first = start(&env, sandbox.id, "sleep 100", &arena);
    (void)start(&env, sandbox.id, "sleep 100", &arena);
    FAILS(job_start(env.core.runtime, &env.core.caller, sandbox.id, &command, NULL, &arena, &job,
                    &err),
          ERROR_QUOTA, "running jobs");
    OK(job_stop(env.core.runtime, &env.core.caller, first.id, 0, &err));
    (void)start(&env, sandbox.id, "sleep 100", &arena);
    OK(job_list(env.core.runtime, &env.core.caller, STR("key:k"), &arena, &list, &count, &err));
    CHECK_INT(count, 3);
}

static size_t threads_of_this_process(void)
{
    DIR *dir = opendir("/proc/self/task");
    size_t count = 0;

    CHECK(dir != NULL);
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count;
}

TEST(jobs_that_run_have_no_threads)
{
    enum { JOBS = 10 };
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_sandbox sandbox;
    struct job jobs[JOBS];
    size_t before;

    work_open_local(&env, work_quick);
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    before = threads_of_this_process();
    for (size_t i = 0; i < JOBS; i++)
        jobs[i] = start(&env, sandbox.id, "sleep 100", &arena);
    WAIT_FOR(threads_of_this_process() < before + JOBS / 2);
    OK(runtime_sandbox_kill(env.core.runtime, &env.core.caller, sandbox.id, NULL, &err));
    for (size_t i = 0; i < JOBS; i++)
        CHECK_INT(wait_for(&env, jobs[i].id, 10000, &arena).exit_code, 137);
}

/* ---- callbacks ---- */

struct receiver {
    pthread_t thread;
    int fd;
    uint16_t port;
    int failures; /* so many answers are 500 */
    pthread_mutex_t lock;
    int count;
    char last[8192];
};

static void *receive(void *arg)
{
    struct receiver *receiver = arg;
    int fd;

    while ((fd = accept(receiver->fd, NULL, NULL)) >= 0) {
        const char *answer = "HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        char text[8192];
        size_t len = 0;
        ssize_t n;

        while ((n = read(fd, text + len, sizeof(text) - 1 - len)) > 0) {
            len += (size_t)n;
            text[len] = '\0';
            if (strstr(text, "\r\n\r\n") && text[len - 1] == '}')
                break;
        }
        (void)pthread_mutex_lock(&receiver->lock);
        if (receiver->count++ >= receiver->failures)
            answer = "HTTP/1.1 204 OK\r\nConnection: close\r\n\r\n";
        memcpy(receiver->last, text, len + 1);
        (void)pthread_mutex_unlock(&receiver->lock);
        CHECK(write(fd, answer, strlen(answer)) > 0);
        (void)close(fd);
    }
    return NULL;
}

static void receiver_open(struct receiver *receiver, int failures)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);

    *receiver = (struct receiver){.failures = failures};
    (void)pthread_mutex_init(&receiver->lock, NULL);
    receiver->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(receiver->fd, (struct sockaddr *)&address, size) == 0 &&
          listen(receiver->fd, 16) == 0 &&
          getsockname(receiver->fd, (struct sockaddr *)&address, &size) == 0);
    receiver->port = ntohs(address.sin_port);
    CHECK_INT(pthread_create(&receiver->thread, NULL, receive, receiver), 0);
}

static void receiver_close(struct receiver *receiver)
{
    (void)shutdown(receiver->fd, SHUT_RDWR);
    (void)close(receiver->fd);
    (void)pthread_join(receiver->thread, NULL);
}

static bool callback_is(struct work_env *env, struct str id, enum callback_state state)
{
    auto_arena struct arena arena = {0};
    struct job job = {0};

    OK(job_get(env->core.runtime, &env->core.caller, id, &arena, &job, &err));
    return job.callback_state == state;
}

TEST(job_callback_is_tried_until_it_is_taken)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_callback callback = {.token = STR("token-of-this-job")};
    struct runtime_command command = {.command = STR("echo working; exit 3")};
    struct runtime_sandbox sandbox;
    struct receiver receiver;
    struct job job;

    work_open_local(&env, work_quick);
    receiver_open(&receiver, 2);
    callback.url = str_of(arena_printf(&arena, "http://127.0.0.1:%u/done", receiver.port));
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    OK(job_start(env.core.runtime, &env.core.caller, sandbox.id, &command, &callback, &arena, &job,
                 &err));
    CHECK_INT(job.callback_state, CALLBACK_PENDING);
    (void)wait_for(&env, job.id, 5000, &arena);
    WAIT_FOR(work_events(&env, "job.delivery_failed") > 0);
    /* It outlives a restart and the sandbox. */
    OK(runtime_sandbox_kill(env.core.runtime, &env.core.caller, sandbox.id, NULL, &err));
    work_restart(&env);
    WAIT_FOR(callback_is(&env, job.id, CALLBACK_DELIVERED));
    CHECK_INT(receiver.count, 3);
    CHECK(strstr(receiver.last, "POST /done HTTP/1.1"));
    CHECK(strstr(receiver.last, "x-job-token: token-of-this-job"));
    CHECK(strstr(receiver.last, "{\"status\":\"failed\",\"response\":{\"exitCode\":3,"
                                "\"logs\":\"working\\n\"}}"));
    CHECK_INT(work_events(&env, "job.delivered"), 1);
    CHECK_INT(work_events(&env, "job.delivery_failed"), 1);
    callback.url = STR("ftp://x/");
    FAILS(job_start(env.core.runtime, &env.core.caller, sandbox.id, &command, &callback, &arena,
                    &job, &err),
          ERROR_INVALID, "http");
    receiver_close(&receiver);
}

static int callback_tries(struct receiver *receiver)
{
    int count;

    (void)pthread_mutex_lock(&receiver->lock);
    count = receiver->count;
    (void)pthread_mutex_unlock(&receiver->lock);
    return count;
}

/* The last try is over and noted: the pause after it is shorter than the time for which a try takes the callback. */
static bool callback_rests(struct work_env *env)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_callback callback;

    OK(store_runtime_callback_next(env->core.store, STR(","), &arena, &callback, &err));
    return callback.next_at_us - clock_wall_us() < 30 * INT64_C(1000000);
}

/* Nobody takes it: the last try is the first one that ends after a day. */
TEST(job_callback_is_given_up_after_a_day)
{
    const int64_t hour_us = 3600 * INT64_C(1000000);
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_callback callback = {0};
    struct runtime_command command = {.command = STR("true")};
    struct runtime_sandbox sandbox;
    struct receiver receiver;
    struct job job;

    work_open_local(&env, work_quick);
    receiver_open(&receiver, INT_MAX);
    callback.url = str_of(arena_printf(&arena, "http://127.0.0.1:%u/done", receiver.port));
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    OK(job_start(env.core.runtime, &env.core.caller, sandbox.id, &command, &callback, &arena, &job,
                 &err));
    (void)wait_for(&env, job.id, 5000, &arena);
    WAIT_FOR(work_events(&env, "job.delivery_failed") == 1);
    clock_test_pass(23 * hour_us);
    sender_kick(env.sender);
    WAIT_FOR(callback_tries(&receiver) > 1);
    WAIT_FOR(callback_rests(&env));
    CHECK(callback_is(&env, job.id, CALLBACK_PENDING));
    CHECK_INT(work_events(&env, "job.delivery_failed"), 1);
    clock_test_pass(2 * hour_us);
    sender_kick(env.sender);
    WAIT_FOR(callback_is(&env, job.id, CALLBACK_FAILED));
    WAIT_FOR(work_events(&env, "job.delivery_failed") == 2);
    receiver_close(&receiver);
}

/* A listener that takes connections and never answers. */
static int open_hole(struct arena *arena, struct str *out_url)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 64) == 0 &&
          getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    *out_url = str_of(arena_printf(arena, "http://127.0.0.1:%u/", ntohs(address.sin_port)));
    return fd;
}

TEST(job_callback_that_hangs_holds_up_nobody_else)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_callback callback = {0};
    struct runtime_command command = {.command = STR("true")};
    struct receiver receiver;
    struct job job;
    struct runtime_sandbox sandbox;
    struct str hole;
    int fd;

    work_open_local(&env, work_quick);
    receiver_open(&receiver, 0);
    fd = open_hole(&arena, &hole);
    callback.url = hole;
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    for (int i = 0; i < 9; i++) {
        OK(job_start(env.core.runtime, &env.core.caller, sandbox.id, &command, &callback, &arena,
                     &job, &err));
        (void)wait_for(&env, job.id, 5000, &arena);
    }
    env.core.caller.team_id = STR("t2");
    callback.url = str_of(arena_printf(&arena, "http://127.0.0.1:%u/done", receiver.port));
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    OK(job_start(env.core.runtime, &env.core.caller, sandbox.id, &command, &callback, &arena, &job,
                 &err));
    WAIT_FOR(callback_is(&env, job.id, CALLBACK_DELIVERED));
    (void)close(fd);
    receiver_close(&receiver);
}

TEST(job_callback_of_a_stranger_stays_outside)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    struct runtime_callback callback = {0};
    struct runtime_command command = {.command = STR("true")};
    struct runtime_sandbox sandbox;
    struct receiver receiver;
    struct job job;

    work_open_local(&env, work_quick);
    env.core.runtime->config.operator_team = "operator";
    receiver_open(&receiver, 0);
    callback.url = str_of(arena_printf(&arena, "http://localhost:%u/done", receiver.port));
    sandbox = work_ensure(&env, "k", TIER_CREATED, &arena);
    OK(job_start(env.core.runtime, &env.core.caller, sandbox.id, &command, &callback, &arena, &job,
                 &err));
    (void)wait_for(&env, job.id, 5000, &arena);
    WAIT_FOR(work_events(&env, "job.delivery_failed") > 0);
    CHECK(work_event_has(&env, "job.delivery_failed", "not a public address"));
    CHECK_INT(receiver.count, 0);
    /* The operator may say that all are welcome. */
    env.core.settings.private_urls = true;
    WAIT_FOR(callback_is(&env, job.id, CALLBACK_DELIVERED));
    CHECK_INT(receiver.count, 1);
    receiver_close(&receiver);
}

/* ---- without the features ---- */

static void no_jobs(struct core_env *env)
{
    work_quick(env);
    env->fake->caps.features &= ~(unsigned)(PROVIDER_JOB_LOGS | PROVIDER_JOB_STOP);
}

static void run_hanging(void *arg, const struct provider_command *command,
                        struct provider_fake_run *out)
{
    (void)arg;
    out->hangs = command->tag != NULL;
}

TEST(job_logs_and_stop_are_refused)
{
    auto_work struct work_env env;
    auto_arena struct arena arena = {0};
    auto_buf struct buf out = {0};
    struct runtime_sandbox sandbox;
    struct job job;
    int64_t next;
    int starts;

    work_open(&env, NULL, no_jobs);
    env.core.fake->run = run_hanging;
    sandbox = work_ensure(&env, NULL, TIER_CREATED, &arena);
    job = start(&env, sandbox.id, "sleep 100", &arena);
    starts = provider_fake_calls(env.core.fake, "start");
    buf_init(&out, 64);
    FAILS(job_logs(env.core.runtime, &env.core.caller, job.id, &(struct job_read){0}, sink, &out,
                   &next, &err),
          ERROR_UNSUPPORTED, "job_logs");
    FAILS(job_stop(env.core.runtime, &env.core.caller, job.id, 0, &err), ERROR_UNSUPPORTED,
          "job_stop");
    CHECK_INT(provider_fake_calls(env.core.fake, "start"), starts);
    provider_fake_lose(env.core.fake, STR_NONE);
    FAILS(runtime_sandbox_resume(env.core.runtime, &env.core.caller, sandbox.id, &err),
          ERROR_NOT_FOUND, "gone");
    CHECK_INT(wait_for(&env, job.id, 1000, &arena).exit_code, 137);
}
