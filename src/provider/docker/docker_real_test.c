/* What only a real daemon shows. Skipped unless QUICKSAND_DOCKER_SOCKET names one and
 * QUICKSAND_DOCKER_IMAGE an image that it has: tests/functional/docker.test.mjs starts both kinds. */
#include <signal.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/test.h"
#include "protocol/fetch/fetch.h"
#include "protocol/json/json_shape.h"
#include "provider/docker/docker.h"

static struct fetch *fetch;
static struct provider *provider;
static struct provider_ref ref;
static struct arena arena;
static struct error err;

static void must(int result, const char *what)
{
    if (result < 0)
        test_fail(__FILE__, __LINE__, "%s: %s: %s", what, error_code_name(err.code), err.message);
}

static void create(struct provider_spec *spec, struct provider_ref *out)
{
    struct provider_sandbox machine;

    must(provider_create(provider, spec, &arena, &machine, &err), "create");
    *out = (struct provider_ref){.id = machine.id};
}

static void open_with(const char *more)
{
    const char *socket = getenv("QUICKSAND_DOCKER_SOCKET"),
               *image = getenv("QUICKSAND_DOCKER_IMAGE");
    struct provider_config config = {.name = "real", .type = "docker", .api_url = ""};
    struct provider_spec spec = {.egress = EGRESS_ALLOW_ALL};
    auto_free char *text = NULL;
    auto_json json_t *options = NULL;

    if (!socket || !image)
        test_skip("QUICKSAND_DOCKER_SOCKET and QUICKSAND_DOCKER_IMAGE are not set");
    text =
        xasprintf("{\"socket\":\"%s\",\"image\":\"%s\",\"pull\":\"never\"%s}", socket, image, more);
    must(json_parse(str_of(text), &options, &err), "options");
    fetch = fetch_new();
    config.options = options;
    config.fetch = fetch;
    must(provider_new(&config, &provider, &err), "new");
    create(&spec, &ref);
}

static void close_all(void)
{
    must(provider_kill(provider, &ref, &err), "kill");
    provider_free(provider);
    fetch_free(fetch);
    arena_done(&arena);
}

/* stdout and stderr of a shell command in one, and how it ended. */
static struct provider_event sh(const char *script, int64_t timeout_ms, struct buf *out)
{
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    struct provider_command command = {.argv = argv, .timeout_ms = timeout_ms};
    struct provider_process *process;
    struct provider_event event;
    int got;

    buf_init(out, 1 << 20);
    must(provider_start(provider, &ref, &command, &process, &err), "start");
    while ((got = provider_process_next(process, 30000, &event, &err)) == 1 &&
           event.kind != PROVIDER_EXITED)
        (void)buf_add_str(out, event.data);
    must(got == 1 ? 0 : -1, "next");
    provider_process_free(process);
    return event;
}

static void prints(const char *script, const char *expected)
{
    auto_buf struct buf out = {0};

    (void)sh(script, 0, &out);
    if (!str_is(buf_str(&out), expected))
        test_fail(__FILE__, __LINE__, "%s: printed '%s', not '%s'", script, out.p, expected);
}

#define COUNT_SLEEPS                                                                  \
    "n=0; for f in /proc/[0-9]*/cmdline; do case $(tr '\\0' ' ' <$f 2>/dev/null) in " \
    "'sleep 77'* | '/bin/sleep 77'*) n=$((n + 1)) ;; esac; done; echo $n"

/* Children, grandchildren, sessions of their own, orphans, and one that forgot its environment. */
static const char tree[] = "sleep 771 & (sleep 772 &) ; setsid sleep 773 & "
                           "(setsid sh -c 'sleep 774 & sleep 775' &) ; "
                           "env -i /bin/sleep 776 & (sh -c 'sleep 777 & sleep 778' &) ; "
                           "sleep 0.3; echo up; sleep 779";

TEST_TIMEOUT(docker_real_timeout_ends_the_tree, 60)
{
    auto_buf struct buf out = {0};
    struct provider_event event;

    open_with("");
    prints("sleep 7700 >/dev/null 2>&1 & echo other", "other\n"); /* of another command: stays */
    event = sh(tree, 2000, &out);
    CHECK_STR(buf_str(&out), "up\n");
    CHECK(event.timed_out);
    CHECK_INT(event.exit_code, 137);
    prints(COUNT_SLEEPS, "1\n");
    close_all();
}

TEST_TIMEOUT(docker_real_sigkill_ends_the_tree, 60)
{
    const char *const argv[] = {"/bin/sh", "-c", tree, NULL};
    struct provider_command command = {.argv = argv};
    struct provider_process *process;
    struct provider_event event = {0};

    open_with("");
    must(provider_start(provider, &ref, &command, &process, &err), "start");
    while (provider_process_next(process, 10000, &event, &err) == 1 &&
           event.kind != PROVIDER_STDOUT)
        ;
    prints(COUNT_SLEEPS, "9\n");
    must(provider_process_signal(process, SIGKILL, &err), "signal");
    while (provider_process_next(process, 10000, &event, &err) == 1 &&
           event.kind != PROVIDER_EXITED)
        ;
    CHECK_INT(event.exit_code, 137);
    CHECK(!event.timed_out);
    CHECK_INT(provider_process_signal(process, SIGTERM, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    provider_process_free(process);
    prints(COUNT_SLEEPS, "0\n");
    close_all();
}

TEST_TIMEOUT(docker_real_background_child_does_not_hold, 60)
{
    int64_t begin;

    open_with("");
    begin = clock_mono_ms();
    prints("sleep 20 & echo begun", "begun\n");
    CHECK(clock_mono_ms() - begin < 5000);
    close_all();
}

TEST_TIMEOUT(docker_real_orphans_are_reaped, 60)
{
    open_with("");
    prints("for i in 1 2 3 4 5; do (true &) ; done; sleep 0.5; grep -l 'State:.Z' "
           "/proc/[0-9]*/status | wc -l | tr -d ' '",
           "0\n");
    close_all();
}

TEST_TIMEOUT(docker_real_isolation, 60)
{
    struct provider_spec spec = {.egress = EGRESS_DENY_ALL, .mem_mb = 64, .cpu = 1};
    struct provider_address address;
    struct provider_ref first;

    open_with("");
    prints("grep NoNewPrivs /proc/self/status | tr -d '\\t '; grep -c ': ' /proc/net/dev",
           "NoNewPrivs:1\n2\n");
    first = ref;
    create(&spec, &ref);
    prints("grep -c ': ' /proc/net/dev", "1\n"); /* lo */
    prints("cat /sys/fs/cgroup/memory.max 2>/dev/null || "
           "cat /sys/fs/cgroup/memory/memory.limit_in_bytes",
           "67108864\n");
    CHECK_INT(provider_address(provider, &ref, 80, &arena, &address, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    must(provider_kill(provider, &ref, &err), "kill");
    ref = first;
    must(provider_address(provider, &ref, 80, &arena, &address, &err), "endpoint");
    close_all();
}

static ssize_t take_text(void *arg, void *p, size_t size)
{
    struct str *text = arg;
    size_t n = text->len < size ? text->len : size;

    memcpy(p, text->p, n);
    *text = str_skip(*text, n);
    return (ssize_t)n;
}

static void files_of(const char *option)
{
    struct str text = STR("mine");

    open_with(option);
    must(provider_write(provider, &ref, "/tmp/new/dir/file", take_text, &text, 4, &err), "write");
    prints("id -u; stat -c '%u %a' /tmp/new /tmp/new/dir/file; cat /tmp/new/dir/file; ls -A "
           "/tmp/new/dir",
           "1000\n1000 755\n1000 644\nminefile\n");
    text = STR("again");
    prints("chmod 0700 /tmp/new/dir/file", "");
    must(provider_write(provider, &ref, "/tmp/new/dir/file", take_text, &text, -1, &err), "write");
    prints("stat -c '%u %a' /tmp/new/dir/file; cat /tmp/new/dir/file", "1000 700\nagain");
    close_all();
}

TEST_TIMEOUT(docker_real_files_belong_to_the_user, 60)
{
    files_of(",\"user\":\"1000:1000\"");
    files_of(",\"user\":\"user\""); /* 1000 in the image; the host has none of that name */
}

TEST_TIMEOUT(docker_real_snapshot_has_no_labels_and_variables, 120)
{
    struct pair labels[] = {{STR("exo.sandbox.key"), STR("conv:1=2 x")}};
    struct pair other[] = {{STR("else"), STR("1")}};
    struct pair env[] = {{STR("TOKEN"), STR("secret")}};
    struct provider_spec spec = {
        .labels = labels, .label_count = 1, .env = env, .env_count = 1, .egress = EGRESS_ALLOW_ALL};
    struct provider_spec again = {.labels = other, .label_count = 1, .egress = EGRESS_ALLOW_ALL};
    struct provider_sandbox *found;
    struct provider_ref first, second;
    size_t count;

    open_with("");
    first = ref;
    create(&spec, &ref);
    prints("echo $TOKEN; echo kept > /kept", "secret\n");
    must(provider_snapshot(provider, &ref, "real-test", &arena, &again.snapshot, &err), "snapshot");
    second = ref;
    create(&again, &ref);
    prints("echo \"[$TOKEN]\"; cat /kept", "[]\nkept\n");
    must(provider_find(provider, &(struct provider_query){.labels = labels, .label_count = 1},
                       &arena, &found, &count, &err),
         "find");
    CHECK_INT(count, 1);
    CHECK(str_eq(found[0].id, second.id));
    must(provider_find(provider, &(struct provider_query){.labels = other, .label_count = 1},
                       &arena, &found, &count, &err),
         "find");
    CHECK_INT(count, 1);
    CHECK_INT(found[0].label_count, 1);
    CHECK_INT(provider_snapshot_delete(provider, STR_NONE, again.snapshot, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT); /* in use */
    must(provider_kill(provider, &ref, &err), "kill");
    must(provider_kill(provider, &second, &err), "kill");
    must(provider_snapshot_delete(provider, STR_NONE, again.snapshot, &err), "delete");
    ref = first;
    close_all();
}

TEST_TIMEOUT(docker_real_stopped_is_started_again, 60)
{
    struct provider_sandbox machine;

    open_with(",\"pause\":\"stop\"");
    prints("echo kept > /kept; sleep 100 >/dev/null 2>&1 &", "");
    must(provider_pause(provider, &ref, &err), "pause");
    must(provider_get(provider, &ref, &arena, &machine, &err), "get");
    CHECK_INT(machine.state, PROVIDER_PAUSED);
    must(provider_connect(provider, &ref, 0, &arena, &machine, &err), "connect");
    CHECK_INT(machine.state, PROVIDER_RUNNING);
    prints("cat /kept", "kept\n");
    close_all();
}

TEST_TIMEOUT(docker_real_freeze_keeps_processes, 60)
{
    const char *const argv[] = {"/bin/sh", "-c", "read x; echo $x", NULL};
    struct provider_command command = {.argv = argv, .open_stdin = true};
    struct provider_process *process;
    struct provider_event event = {0};
    struct provider_sandbox machine;

    open_with("");
    must(provider_start(provider, &ref, &command, &process, &err), "start");
    must(provider_pause(provider, &ref, &err), "pause");
    must(provider_connect(provider, &ref, 0, &arena, &machine, &err), "connect");
    must(provider_process_input(process, STR("thawed\n"), &err), "input");
    while (provider_process_next(process, 10000, &event, &err) == 1 &&
           event.kind != PROVIDER_STDOUT)
        ;
    CHECK_STR(event.data, "thawed\n");
    provider_process_free(process);
    close_all();
}

/* Not a test of anything, but the figure is of interest. */
TEST_TIMEOUT(docker_real_round_trip, 60)
{
    enum { ROUNDS = 10 };
    int64_t begin;

    open_with("");
    prints("true", "");
    begin = clock_mono_us();
    for (int i = 0; i < ROUNDS; i++)
        prints("true", "");
    (void)printf("# exec round trip: %.1f ms\n", (double)(clock_mono_us() - begin) / 1000 / ROUNDS);
    (void)fflush(stdout);
    close_all();
}
