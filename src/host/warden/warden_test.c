/* Boxes on the real kernel: needs root. Each test makes a world of its own (network and mount
 * namespace, data directory) and checks that nothing of it is left. */
#include "host/warden/test/any_request.h"
#include "host/warden/test/warden_rig.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "host/engine/engine_wire.h"

TEST_TIMEOUT(box_starts_and_leaves_nothing, 60)
{
    struct box_spec spec;
    struct box_info info;
    size_t before;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    rig_kill(spec.id);
    before = rig_descriptors();
    for (int i = 0; i < 5; i++) {
        spec = rig_spec();
        rig_start(&spec, &info);
        CHECK(info.running && rig_box(info.id)->pid > 0 && rig_box(info.id)->slot > 0);
        rig_kill(spec.id);
        rig_kill(spec.id); /* idempotent */
    }
    CHECK_INT(rig_descriptors(), before);
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(as_many_files_as_the_host_allows_may_be_open, 60)
{
    struct rlimit files;

    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max > 256);
    files.rlim_cur = 256;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    rig_open();
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    CHECK(files.rlim_cur == files.rlim_max || files.rlim_cur == 1 << 20);
    rig_close();
}

static int start(const struct box_spec *spec, struct error *err)
{
    struct box_info info;

    return box_start(&rig_warden.boxes, spec, &info, err);
}

static void after_start(const struct box_spec *spec, const struct error *why)
{
    if (!why)
        rig_kill(spec->id);
}

/* Nothing may be left, and the next start must work. */
TEST_TIMEOUT(start_fails_cleanly_at_every_step, 120)
{
    static const struct rig_sweep sweep = {rig_spec, start, after_start};

    rig_open();
    CHECK(rig_fail_everywhere(&sweep) >= 11);
    rig_close();
}

static struct box_spec started(void)
{
    struct box_spec spec = rig_spec();
    struct box_info info;

    rig_start(&spec, &info);
    return spec;
}

static int end(const struct box_spec *spec, struct error *err)
{
    return box_kill(&rig_warden.boxes, spec->id, err);
}

static void after_kill(const struct box_spec *spec, const struct error *why)
{
    CHECK_INT(boxes_count(&rig_warden.boxes), why ? 1 : 0);
    if (why)
        rig_kill(spec->id);
}

/* It must say so, the box must stay listed, and a second kill succeed. */
TEST_TIMEOUT(kill_can_be_repeated_after_any_failure, 120)
{
    static const struct rig_sweep sweep = {started, end, after_kill};

    rig_open();
    CHECK_INT(rig_fail_everywhere(&sweep), 8);
    rig_close();
}

/* A warden that is killed and started again finds its boxes by what is on the host. */
TEST_TIMEOUT(boxes_are_adopted_after_a_restart, 60)
{
    struct box_spec lives = {0}, dies = {0};
    struct box_info info, list[4];
    struct error err;
    int fd = -1;

    rig_open();
    lives = rig_spec();
    dies = rig_spec();
    rig_start(&lives, &info);
    rig_start(&dies, &info);
    CHECK(kill(rig_box(info.id)->pid, SIGKILL) == 0);
    CHECK(waitpid(rig_box(info.id)->pid, NULL, 0) == rig_box(info.id)->pid);
    rig_restart();
    CHECK_INT(boxes_list(&rig_warden.boxes, 0, list, 4), 2);
    for (int i = 0; i < 2; i++)
        CHECK_INT(list[i].running, strcmp(list[i].id, lives.id) == 0);
    CHECK_INT(box_dial(&rig_warden.boxes, lives.id, 1, false, &fd, &err), 0);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK_INT(box_dial(&rig_warden.boxes, dies.id, 1, false, &fd, &err), -1);
    rig_kill(dies.id);
    rig_kill(lives.id);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    rig_check_nothing_left();
    rig_close();
}

/* And lists know of them before that. */
TEST_TIMEOUT(exits_are_reported_once, 60)
{
    struct engine_event event;
    struct box_spec spec;
    struct box_info info;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    CHECK(kill(rig_box(info.id)->pid, SIGKILL) == 0);
    {
        struct pollfd poll_fd = {.fd = rig_warden.boxes.engine.event_fd, .events = POLLIN};

        CHECK_INT(poll(&poll_fd, 1, 5000 * (int)test_patience()), 1);
    }
    CHECK_INT(boxes_list(&rig_warden.boxes, 0, &info, 1), 1);
    CHECK(!info.running && info.end == BOX_END_EXITED);
    CHECK(boxes_exited(&rig_warden.boxes, rig_box(info.id)->slot, &event));
    CHECK_STR(str_of(event.id), spec.id);
    CHECK(!boxes_exited(&rig_warden.boxes, rig_box(info.id)->slot, &event));
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

static void check_end(const struct box_info *info, enum box_end end)
{
    struct pollfd poll_fd = {.fd = rig_warden.boxes.engine.event_fd, .events = POLLIN};
    struct engine_event event;

    CHECK_INT(poll(&poll_fd, 1, 5000 * (int)test_patience()), 1);
    CHECK(boxes_exited(&rig_warden.boxes, rig_box(info->id)->slot, &event));
    CHECK_INT(event.end, end);
    rig_kill(info->id);
}

static void run_out_of_memory(const struct box_info *info)
{
    RIG_CHECK_ASK("ok", info->id, "eater 500 /eaten");
    WAIT_FOR(box_cgroup_oom_kills(rig_warden.boxes.cgroups, info->id) > 0);
}

/* That something inside once ran out of memory is not why a box ends later. */
TEST_TIMEOUT(an_end_for_want_of_memory_is_told_from_others, 60)
{
    struct box_usage usage;
    struct box_spec spec;
    struct box_info info;
    struct error err;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    run_out_of_memory(&info);
    CHECK(kill(rig_box(info.id)->pid, SIGKILL) == 0);
    check_end(&info, BOX_END_OOM); /* just now: nobody could tell it from that */

    spec = rig_spec();
    rig_start(&spec, &info);
    run_out_of_memory(&info);
    (void)rig_ask(spec.id, "exit");
    check_end(&info, BOX_END_EXITED);

    spec = rig_spec();
    rig_start(&spec, &info);
    run_out_of_memory(&info);
    CHECK_INT(box_usage(&rig_warden.boxes, spec.id, &usage, &err), 0);
    CHECK_INT(box_usage(&rig_warden.boxes, spec.id, &usage, &err), 0);
    CHECK(kill(rig_box(info.id)->pid, SIGKILL) == 0);
    check_end(&info, BOX_END_EXITED);

    rig_check_nothing_left();
    rig_close();
}

/* The other side of the line is the part that parses hostile bytes: nothing it sends may do harm. */
static void check_invalid(int fd, const struct engine_request *request)
{
    struct engine_reply reply;

    CHECK_INT(fd_send(fd, request, sizeof(*request), NULL, 0), 0);
    CHECK_INT(fd_recv(fd, &reply, sizeof(reply), NULL, NULL, 0), sizeof(reply));
    CHECK_INT(reply.status, -1);
    CHECK_INT(reply.err.code, ERROR_INVALID);
}

TEST_TIMEOUT(malformed_requests_are_refused, 60)
{
    struct error err;
    int pair[2];
    struct {
        uint32_t op;
        const char *id;
        uint32_t layers;
        const char *layer;
        uint64_t mem;
    } cases[] = {
        {ENGINE_OP_START, "../../../../etc/pass", 1, "base", 64 << 20},
        {ENGINE_OP_START, "i234567890123456789", 1, "base", 64 << 20},
        {ENGINE_OP_START, "iaaaaaaaaaaaaaaaaaaa", 0, "base", 64 << 20},
        {ENGINE_OP_START, "iaaaaaaaaaaaaaaaaaaa", 33, "base", 64 << 20},
        {ENGINE_OP_START, "iaaaaaaaaaaaaaaaaaaa", 1, "../x", 64 << 20},
        {ENGINE_OP_START, "iaaaaaaaaaaaaaaaaaaa", 1, "", 64 << 20},
        {ENGINE_OP_START, "iaaaaaaaaaaaaaaaaaaa", 1, "base", 0},
        {ENGINE_OP_START, "iaaaaaaaaaaaaaaaaaaa", 1, "missing", 64 << 20},
        {4711, "iaaaaaaaaaaaaaaaaaaa", 1, "base", 64 << 20},
    };

    rig_open();
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    CHECK_INT(warden_serve_channel(&rig_warden, pair[0], false, &err), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct engine_request request = {.op = cases[i].op, .serial = i};
        struct engine_reply reply;

        request.spec = rig_spec();
        memset(request.spec.id, 0, ID_SIZE);
        memcpy(request.spec.id, cases[i].id, strnlen(cases[i].id, ID_LEN));
        request.spec.layer_count = cases[i].layers;
        memset(request.spec.layers[0], 0, LAYER_NAME_SIZE);
        memcpy(request.spec.layers[0], cases[i].layer, strlen(cases[i].layer));
        request.spec.limits.mem_bytes = cases[i].mem;
        CHECK_INT(fd_send(pair[1], &request, sizeof(request), NULL, 0), 0);
        CHECK_INT(fd_recv(pair[1], &reply, sizeof(reply), NULL, NULL, 0), sizeof(reply));
        CHECK_INT(reply.serial, i);
        CHECK_INT(reply.status, -1);
        CHECK(reply.err.message[0]);
    }
    for (int i = 0; i < 4; i++) {
        struct engine_request request = {.op = ENGINE_OP_START, .spec = rig_spec()};
        bool *flags[] = {&request.spec.keep_disk, &request.spec.background, &request.spec.feed,
                         &request.spec.limits.yields};

        memset(flags[i], 2, 1);
        check_invalid(pair[1], &request);
    }
    for (int i = 0; i < 10; i++) {
        struct engine_request request = {.op = i % 2 ? ENGINE_OP_START : ENGINE_OP_NETWORK};
        struct box_spec spec = rig_spec();
        static const struct box_network networks[] = {
            {.mode = NETWORK_FILTERED + 1},
            {.mode = NETWORK_OPEN, .allow_count = BOX_RANGES_MAX + 1},
            {.mode = NETWORK_OPEN, .allow_count = UINT32_MAX, .deny_count = 2},
            {.mode = NETWORK_OPEN, .deny_count = 1, .ranges = {{0x01020304, 33}}},
            {.mode = NETWORK_OPEN, .allow_count = 1, .ranges = {{0x01020304, 29}}},
        };

        spec.network = networks[i / 2];
        any_request_fill(&request, &(struct any_request){.spec = &spec});
        check_invalid(pair[1], &request);
    }
    CHECK_INT(fd_send(pair[1], "short", 5, NULL, 0), 0);
    {
        struct engine_reply reply;

        CHECK_INT(fd_recv(pair[1], &reply, sizeof(reply), NULL, NULL, 0), 0);
    }
    (void)close(pair[1]);
    rig_check_nothing_left();
    rig_close();
}
