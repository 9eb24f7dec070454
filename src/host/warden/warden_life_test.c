/* Freezing, stopping and going on; and what is left when the warden is killed in the middle of it. */
#include "host/warden/test/warden_rig.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "host/disk/disk.h"

static bool is_running(const char *id)
{
    return boxes_in_state(&rig_warden.boxes, id, BOX_RUNNING);
}

static void reap(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

TEST_TIMEOUT(a_hundred_stops_and_starts_keep_every_file, 120)
{
    struct box_spec spec;
    struct box_info info;
    size_t before = 0;
    int64_t stopping = 0, starting = 0;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "mkdir /kept");
    RIG_CHECK_ASK("ok", spec.id, "remove /lower/file");
    spec.keep_disk = true;
    for (int i = 0; i < 100; i++) {
        int64_t t0 = clock_mono_us(), t1;

        RIG_CHECK_ASK("ok", spec.id, "put /kept/%d file-%d", i, i);
        t0 = clock_mono_us();
        rig_stop(spec.id);
        t1 = clock_mono_us();
        stopping += t1 - t0;
        CHECK(!is_running(spec.id));
        if (i % 10 == 0) {
            CHECK_INT(rig_count("run"), 2); /* the record, and the gateway's mount */
            rig_stop(spec.id);              /* idempotent */
            t1 = clock_mono_us();
        }
        rig_start(&spec, &info);
        starting += clock_mono_us() - t1;
        CHECK(info.running && rig_box(info.id)->slot);
        if (i == 1)
            before = rig_descriptors();
    }
    CHECK_INT(rig_descriptors(), before);
    RIG_CHECK_ASK("ok 100", spec.id, "count /kept");
    for (int i = 0; i < 100; i++) {
        char want[32];

        (void)snprintf(want, sizeof(want), "ok file-%d", i);
        RIG_CHECK_ASK(want, spec.id, "get /kept/%d", i);
    }
    RIG_CHECK_ASK("errno 2", spec.id, "get /lower/file");
    (void)printf("     stop %.2f ms, start of a stopped box %.2f ms\n", (double)stopping / 100000,
                 (double)starting / 100000);
    rig_stop(spec.id);
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(a_stopped_box_has_no_slot_and_is_found_again, 60)
{
    struct box_spec spec, other;
    struct box_info info, list[2];
    struct error err;

    rig_open();
    spec = other = rig_spec();
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "put /f text");
    CHECK_INT(box_start(&rig_warden.boxes, &spec, &info, &err), -1);
    CHECK_INT(err.code, ERROR_EXISTS);
    rig_stop(spec.id);
    CHECK_INT(box_start(&rig_warden.boxes, &spec, &info, &err), -1);
    CHECK_INT(err.code, ERROR_EXISTS);
    for (int round = 0; round < 2; round++) {
        CHECK_INT(boxes_list(&rig_warden.boxes, 0, list, 2), 1);
        CHECK(!list[0].running && rig_box(list[0].id)->slot == 0 && rig_box(list[0].id)->pid == 0);
        CHECK(boxes_in_state(&rig_warden.boxes, spec.id, BOX_STOPPED));
        CHECK_INT(boxes_count_live(&rig_warden.boxes), 0);
        rig_restart();
    }
    spec.keep_disk = true;
    CHECK_INT(box_start(&rig_warden.boxes, &spec, &info, &err), 0);
    RIG_CHECK_ASK("ok text", spec.id, "get /f");
    CHECK_INT(box_start(&rig_warden.boxes, &spec, &info, &err), -1);
    CHECK_INT(err.code, ERROR_EXISTS);
    id_make(other.id);
    other.keep_disk = true;
    CHECK_INT(box_start(&rig_warden.boxes, &other, &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK_INT(box_stop(&rig_warden.boxes, other.id, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    rig_stop(spec.id);
    /* Without its disk it is not quietly started with an empty one. */
    CHECK_INT(disk_box_delete(rig_warden.boxes.disk, spec.id, &err), 0);
    CHECK_INT(box_start(&rig_warden.boxes, &spec, &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    rig_kill(spec.id);
    reap();
    rig_check_nothing_left();
    rig_close();
}

/* A box whose first process died goes on from its files as well. */
TEST_TIMEOUT(a_dead_box_can_be_started_from_its_files, 60)
{
    struct engine_event event;
    struct pollfd poll_fd;
    struct box_spec spec;
    struct box_info info;

    rig_open();
    poll_fd = (struct pollfd){.fd = rig_warden.boxes.engine.event_fd, .events = POLLIN};
    spec = rig_spec();
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "put /f text");
    CHECK(kill(rig_box(info.id)->pid, SIGKILL) == 0);
    CHECK_INT(poll(&poll_fd, 1, 5000 * (int)test_patience()), 1);
    CHECK(boxes_exited(&rig_warden.boxes, rig_box(info.id)->slot, &event));
    CHECK(boxes_in_state(&rig_warden.boxes, spec.id, BOX_DEAD));
    spec.keep_disk = true;
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok text", spec.id, "get /f");
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

/* ---- failures at every step ---- */

static struct box_spec started(void)
{
    struct box_spec spec = rig_spec();
    struct box_info info;

    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "put /f text");
    spec.keep_disk = true;
    return spec;
}

static struct box_spec stopped(void)
{
    struct box_spec spec = started();

    rig_stop(spec.id);
    return spec;
}

static int start(const struct box_spec *spec, struct error *err)
{
    struct box_info info;

    return box_start(&rig_warden.boxes, spec, &info, err);
}

static int stop(const struct box_spec *spec, struct error *err)
{
    return box_stop(&rig_warden.boxes, spec->id, err);
}

static int snapshot(const struct box_spec *spec, struct error *err)
{
    struct layer_info layer;

    return box_snapshot(&rig_warden.boxes, spec->id, "snap", &layer, err);
}

static int end(const struct box_spec *spec, struct error *err)
{
    return box_kill(&rig_warden.boxes, spec->id, err);
}

static void after_stop(const struct box_spec *spec, const struct error *why)
{
    struct box_info info;

    /* The last step is for the disk only. */
    CHECK(boxes_in_state(&rig_warden.boxes, spec->id,
                         !why || strstr(why->message, "disk sync") ? BOX_STOPPED : BOX_DEAD));
    rig_stop(spec->id);
    rig_start(spec, &info);
    RIG_CHECK_ASK("ok text", spec->id, "get /f");
    rig_kill(spec->id);
}

TEST_TIMEOUT(stop_can_be_repeated_after_any_failure, 120)
{
    static const struct rig_sweep sweep = {started, stop, after_stop};

    rig_open();
    CHECK_INT(rig_fail_everywhere(&sweep), 8);
    rig_close();
}

static void after_going_on(const struct box_spec *spec, const struct error *why)
{
    if (why) {
        CHECK(boxes_in_state(&rig_warden.boxes, spec->id, BOX_STOPPED));
        CHECK_INT(rig_count("run"), 2);
    } else {
        RIG_CHECK_ASK("ok text", spec->id, "get /f");
    }
    rig_kill(spec->id);
}

TEST_TIMEOUT(going_on_fails_cleanly_at_every_step, 120)
{
    static const struct rig_sweep sweep = {stopped, start, after_going_on};

    rig_open();
    CHECK(rig_fail_everywhere(&sweep) >= 11);
    rig_close();
}

/* ---- kill -9 of the warden at every step ---- */

/* The restarted warden must find something that is true and from which everything leads on. */
static void after_crash(const struct box_spec *spec, const struct error *why)
{
    struct box_info info;

    (void)why;
    if (!is_running(spec->id))
        rig_start(spec, &info);
    RIG_CHECK_ASK("ok text", spec->id, "get /f");
    rig_kill(spec->id);
}

static void after_crash_in_snapshot(const struct box_spec *spec, const struct error *why)
{
    CHECK(is_running(spec->id));
    rig_layer_delete("snap");
    after_crash(spec, why);
}

static void after_crash_in_start_or_kill(const struct box_spec *spec, const struct error *why)
{
    (void)why;
    rig_kill(spec->id);
}

static void crash_everywhere(const struct rig_sweep *sweep, int steps)
{
    rig_open();
    CHECK(rig_crash_everywhere(sweep) >= steps);
    rig_close();
}

TEST_TIMEOUT(the_warden_is_killed_in_a_start, 120)
{
    static const struct rig_sweep sweep = {rig_spec, start, after_crash_in_start_or_kill};

    crash_everywhere(&sweep, 12);
}

TEST_TIMEOUT(the_warden_is_killed_in_a_start_from_kept_files, 120)
{
    static const struct rig_sweep sweep = {stopped, start, after_crash};

    crash_everywhere(&sweep, 12);
}

TEST_TIMEOUT(the_warden_is_killed_in_a_stop, 120)
{
    static const struct rig_sweep sweep = {started, stop, after_crash};

    crash_everywhere(&sweep, 7);
}

TEST_TIMEOUT(the_warden_is_killed_in_a_snapshot, 120)
{
    static const struct rig_sweep sweep = {started, snapshot, after_crash_in_snapshot};

    crash_everywhere(&sweep, 6);
}

TEST_TIMEOUT(the_warden_is_killed_in_a_kill, 120)
{
    static const struct rig_sweep sweep = {started, end, after_crash_in_start_or_kill};

    crash_everywhere(&sweep, 7);
}

/* ---- ports ---- */

static bool has_port(const struct box_ports *ports, uint32_t at, uint16_t number, bool loopback)
{
    return at < ports->count && ports->at[at].number == number &&
           ports->at[at].loopback == loopback;
}

TEST(ports_are_read_from_the_lines_of_listening_sockets)
{
    static const char text[] =
        "  sl  local_address rem_address   st tx_queue rx_queue\n"
        "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000\n"
        "   1: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000\n"
        "   2: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000\n"
        "   3: 0100007F:0050 0100007F:C000 01 00000000:00000000 00:00000000\n"
        "   4: 0100007F:0051 00000000:0000 0A 00000000:00000000 00:00000000\n";
    static const char text6[] =
        "  sl  local_address\n"
        "   0: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0\n"
        "   1: 0000000000000000FFFF00000100007F:0017 00000000000000000000000000000000:0000 0A 0\n"
        "   2: 00000000000000000000000000000000:0018 00000000000000000000000000000000:0000 0";
    struct box_ports ports = {0};

    box_ports_read(str_of(text), &ports);
    box_ports_read(str_of(text6), &ports);
    CHECK_INT(ports.count, 3);
    CHECK(has_port(&ports, 0, 22, true) && has_port(&ports, 1, 23, true) &&
          has_port(&ports, 2, 8080, false));
    box_ports_read(STR("title\n 0: 00000000:FFFFF 00000000:0000 0A\n"), &ports);
    box_ports_read(STR("title\n 0: 00000000: 00000000:0000 0A\n"), &ports);
    box_ports_read(STR("title\n"), &ports);
    box_ports_read(STR_NONE, &ports);
    CHECK_INT(ports.count, 3);
    for (unsigned i = 0; i < 2 * BOX_PORTS_MAX; i++) {
        char line[64];
        int n = snprintf(line, sizeof(line), "title\n 0: 00000000:%04X 0:0 0A\n", 60000 - i);

        box_ports_read(str_n(line, (size_t)n), &ports);
    }
    CHECK_INT(ports.count, BOX_PORTS_MAX);
}

TEST_TIMEOUT(the_ports_of_a_box_are_known_without_asking_it, 60)
{
    struct box_ports ports;
    struct box_spec spec, other;
    struct box_info info;
    struct error err;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    other = rig_spec();
    rig_start(&other, &info);
    CHECK_INT(box_ports(&rig_warden.boxes, spec.id, &ports, &err), 0);
    CHECK_INT(ports.count, 0);
    RIG_CHECK_ASK("ok", spec.id, "listener 4 20000");
    RIG_CHECK_ASK("ok", spec.id, "listener 6 443");
    RIG_CHECK_ASK("ok", other.id, "listener 4 80");
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, true, &err), 0);
    CHECK_INT(box_ports(&rig_warden.boxes, spec.id, &ports, &err), 0);
    CHECK_INT(ports.count, 2);
    CHECK(has_port(&ports, 0, 443, true) && has_port(&ports, 1, 20000, false));
    CHECK_INT(box_ports(&rig_warden.boxes, other.id, &ports, &err), 0);
    CHECK(ports.count == 1 && has_port(&ports, 0, 80, true));
    rig_kill(spec.id);
    rig_kill(other.id);
    CHECK_INT(box_ports(&rig_warden.boxes, spec.id, &ports, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    reap();
    rig_check_nothing_left();
    rig_close();
}

/* ---- freezing ---- */

TEST_TIMEOUT(a_frozen_box_stands_still_and_goes_on, 60)
{
    struct box_usage before, after;
    struct box_spec spec;
    struct box_info info;
    struct error err;
    int fd = -1;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "spinner");
    RIG_CHECK_ASK("ok", spec.id, "eater 16 /eaten");
    WAIT_FOR(strcmp(rig_ask(spec.id, "get /eaten"), "ok eaten") == 0);
    WAIT_FOR(box_usage(&rig_warden.boxes, spec.id, &before, &err) == 0 && before.cpu_us > 10000 &&
             before.mem_bytes > 16 << 20);
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, true, &err), 0);
    CHECK_INT(box_usage(&rig_warden.boxes, spec.id, &before, &err), 0);
    CHECK(before.frozen && before.pids == 3 && before.cpu_us > 10000);
    CHECK(before.mem_bytes > 8 << 20 && before.mem_bytes < 64 << 20);
    (void)usleep(100000); /* in which nothing of it runs */
    CHECK_INT(box_usage(&rig_warden.boxes, spec.id, &after, &err), 0);
    CHECK_INT(after.cpu_us, before.cpu_us);
    /* Whoever calls waits in the queue. */
    CHECK_INT(box_dial(&rig_warden.boxes, spec.id, 1, false, &fd, &err), 0);
    CHECK(close(fd) == 0);
    CHECK_STR(str_of(rig_ask_for(spec.id, 100, "put /f text")), "");
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, true, &err), 0);
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, false, &err), 0);
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, false, &err), 0);
    RIG_CHECK_ASK("ok text", spec.id, "get /f");
    WAIT_FOR(box_usage(&rig_warden.boxes, spec.id, &after, &err) == 0 &&
             after.cpu_us > before.cpu_us);
    CHECK(!after.frozen && after.pids == 3);
    /* What cannot be brought to disk does not stand still. */
    box_fault_at = 1;
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, true, &err), -1);
    CHECK(strstr(err.message, "disk sync"));
    CHECK_INT(box_usage(&rig_warden.boxes, spec.id, &after, &err), 0);
    CHECK(!after.frozen);
    /* A frozen one can be stopped, and killed; a restarted warden leaves it frozen. */
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, true, &err), 0);
    rig_restart();
    CHECK_INT(box_usage(&rig_warden.boxes, spec.id, &after, &err), 0);
    CHECK(after.frozen);
    rig_stop(spec.id);
    CHECK_INT(box_usage(&rig_warden.boxes, spec.id, &after, &err), -1);
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, true, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    spec.keep_disk = true;
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok text", spec.id, "get /f");
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, true, &err), 0);
    rig_kill(spec.id);
    reap();
    rig_check_nothing_left();
    rig_close();
}

/* A process that waits in the kernel for one that is frozen cannot be frozen itself; it stands still. */
TEST_TIMEOUT(who_waits_for_the_frozen_does_not_hinder, 60)
{
    struct layer_info layer;
    struct box_spec spec;
    struct box_info info;
    struct box_usage usage;
    struct error err;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "waiter");
    rig_snapshot(spec.id, "snap", &layer);
    CHECK(layer.frozen_us < 2000000);
    RIG_CHECK_ASK("ok", spec.id, "put /f text");
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, true, &err), 0);
    CHECK_INT(box_usage(&rig_warden.boxes, spec.id, &usage, &err), 0);
    CHECK(usage.frozen);
    CHECK_STR(str_of(rig_ask_for(spec.id, 100, "put /g text")), "");
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, false, &err), 0);
    RIG_CHECK_ASK("ok text", spec.id, "get /g");
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, true, &err), 0);
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

static void take_hostage(const char *id)
{
    RIG_CHECK_ASK("ok", id, "hostage /taken");
    WAIT_FOR(strcmp(rig_ask(id, "get /taken"), "ok taken") == 0);
}

/* Nothing but the end of the FUSE connection ends such processes: all ways down bring it. */
TEST_TIMEOUT(a_process_that_waits_for_an_answer_that_never_comes_ends_with_its_box, 60)
{
    struct box_spec spec;
    struct box_info info;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    take_hostage(spec.id);
    rig_stop(spec.id);
    spec.keep_disk = true;
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "remove /taken");
    take_hostage(spec.id);
    rig_kill(spec.id);
    reap();
    rig_check_nothing_left();
    rig_close();
}

/* The number is found again; and it is never another box's. */
TEST_TIMEOUT(a_hostage_ends_with_its_box_after_a_restart_too, 60)
{
    struct box_spec spec, other;
    struct box_info info;
    struct error err;
    uint32_t number;

    rig_open();
    spec = other = rig_spec();
    id_make(other.id);
    rig_start(&spec, &info);
    rig_start(&other, &info);
    take_hostage(spec.id);
    RIG_CHECK_ASK("ok", other.id, "hostage /taken");
    rig_restart();
    box_fuse_find(rig_box(info.id)->pid, &number);
    CHECK(number != 0);
    CHECK_INT(box_fuse_abort(rig_warden.boxes.fuse_fd, number, BOX_UID_FIRST, &err), 0);
    rig_kill(spec.id);
    /* The other's connection is as it was: its server is still there, and silent. */
    WAIT_FOR(strcmp(rig_ask(other.id, "get /taken"), "ok taken") == 0);
    CHECK_STR(str_of(rig_ask_for(other.id, 100, "get /proc/meminfo")), "");
    rig_kill(other.id);
    reap();
    rig_check_nothing_left();
    rig_close();
}

/* What a warden leaves that is killed while a box looks for its files: the record has a slot, and no process. */
TEST_TIMEOUT(a_hostage_of_a_box_without_a_recorded_process_ends_too, 60)
{
    struct box_spec spec, other;
    struct box_info info, others;
    struct box half = {0};
    struct error err;

    rig_open();
    spec = other = rig_spec();
    id_make(other.id);
    rig_start(&spec, &info);
    rig_start(&other, &others);
    take_hostage(spec.id);
    take_hostage(other.id);
    memcpy(half.id, spec.id, ID_SIZE);
    half.slot = rig_box(spec.id)->slot;
    CHECK_INT(box_record_write(&rig_warden.boxes, &half, &err), 0);
    rig_restart();
    rig_kill(spec.id);
    /* The other's connection is as it was. */
    CHECK_STR(str_of(rig_ask_for(other.id, 100, "get /proc/meminfo")), "");
    rig_kill(other.id);
    reap();
    rig_check_nothing_left();
    rig_close();
}

/* ---- many at once ---- */

static struct box_spec crowd_spec;

static void *one_of_many(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;

    for (int i = 0; i < 40; i++) {
        struct layer_info layer;
        struct box_info info;
        struct error err;
        char name[LAYER_NAME_SIZE];

        switch (rand_r(&seed) % 6) {
        case 0:
            (void)box_freeze(&rig_warden.boxes, crowd_spec.id, true, &err);
            break;
        case 1:
            (void)box_freeze(&rig_warden.boxes, crowd_spec.id, false, &err);
            break;
        case 2:
            (void)snprintf(name, sizeof(name), "s%ux%d", (unsigned)(uintptr_t)arg, i);
            (void)box_snapshot(&rig_warden.boxes, crowd_spec.id, name, &layer, &err);
            break;
        case 3:
            (void)box_stop(&rig_warden.boxes, crowd_spec.id, &err);
            break;
        default:
            (void)box_start(&rig_warden.boxes, &crowd_spec, &info, &err);
        }
    }
    return NULL;
}

TEST_TIMEOUT(everybody_at_once_on_one_box, 120)
{
    pthread_t threads[6];
    struct box_info info;
    struct error err;

    rig_open();
    crowd_spec = rig_spec();
    rig_start(&crowd_spec, &info);
    RIG_CHECK_ASK("ok", crowd_spec.id, "put /f text");
    crowd_spec.keep_disk = true;
    for (uintptr_t i = 0; i < 6; i++)
        CHECK(pthread_create(&threads[i], NULL, one_of_many, (void *)(i + 1)) == 0);
    for (size_t i = 0; i < 6; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    if (!is_running(crowd_spec.id))
        rig_start(&crowd_spec, &info);
    CHECK_INT(box_freeze(&rig_warden.boxes, crowd_spec.id, false, &err), 0);
    RIG_CHECK_ASK("ok text", crowd_spec.id, "get /f");
    rig_kill(crowd_spec.id);
    rig_check_nothing_left();
    rig_close();
}
