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
        CHECK(info.running && info.slot);
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
        CHECK(!list[0].running && list[0].slot == 0 && list[0].pid == 0);
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
    poll_fd = (struct pollfd){.fd = rig_warden.boxes.exit_epoll_fd, .events = POLLIN};
    spec = rig_spec();
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "put /f text");
    CHECK(kill(info.pid, SIGKILL) == 0);
    CHECK_INT(poll(&poll_fd, 1, 5000 * (int)test_patience()), 1);
    CHECK(boxes_exited(&rig_warden.boxes, info.slot, &event));
    CHECK(boxes_in_state(&rig_warden.boxes, spec.id, BOX_DEAD));
    spec.keep_disk = true;
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok text", spec.id, "get /f");
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(stop_can_be_repeated_after_any_failure, 120)
{
    struct box_info info;
    struct error err;
    int failed = 0;

    rig_open();
    for (int n = 1;; n++) {
        struct box_spec spec = rig_spec();
        int r;

        rig_start(&spec, &info);
        RIG_CHECK_ASK("ok", spec.id, "put /f text");
        box_fault_at = n;
        r = box_stop(&rig_warden.boxes, spec.id, &err);
        box_fault_at = 0;
        if (r < 0) {
            CHECK(strstr(err.message, "fault injected"));
            /* The last step is for the disk only. */
            CHECK(boxes_in_state(&rig_warden.boxes, spec.id,
                                 strstr(err.message, "disk sync") ? BOX_STOPPED : BOX_DEAD));
            failed++;
        }
        rig_stop(spec.id);
        spec.keep_disk = true;
        rig_start(&spec, &info);
        RIG_CHECK_ASK("ok text", spec.id, "get /f");
        rig_kill(spec.id);
        rig_check_nothing_left();
        if (r == 0)
            break;
    }
    CHECK_INT(failed, 7);
    rig_close();
}

TEST_TIMEOUT(going_on_fails_cleanly_at_every_step, 120)
{
    struct box_spec spec;
    struct box_info info;
    struct error err;
    size_t before = 0;
    int failed = 0;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "put /f text");
    rig_stop(spec.id);
    spec.keep_disk = true;
    for (int n = 1;; n++) {
        int r;

        box_fault_at = n;
        r = box_start(&rig_warden.boxes, &spec, &info, &err);
        box_fault_at = 0;
        if (r == 0)
            break;
        CHECK(strstr(err.message, "fault injected"));
        CHECK(boxes_in_state(&rig_warden.boxes, spec.id, BOX_STOPPED));
        CHECK_INT(rig_count("run"), 2);
        if (failed++ == 0)
            before = rig_descriptors();
        CHECK_INT(rig_descriptors(), before);
    }
    CHECK(failed >= 11);
    RIG_CHECK_ASK("ok text", spec.id, "get /f");
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

/* ---- kill -9 of the warden at every step ---- */

enum operation { START, GO_ON, STOP, SNAPSHOT, KILL };

static int operate(enum operation op, const struct box_spec *spec, struct error *err)
{
    struct layer_info layer;
    struct box_info info;

    switch (op) {
    case START:
    case GO_ON:
        return box_start(&rig_warden.boxes, spec, &info, err);
    case STOP:
        return box_stop(&rig_warden.boxes, spec->id, err);
    case SNAPSHOT:
        return box_snapshot(&rig_warden.boxes, spec->id, "snap", &layer, err);
    case KILL:
        return box_kill(&rig_warden.boxes, spec->id, err);
    }
    return -1;
}

/* Does the operation in a process that ends at its n-th step; false when it has no such step. */
static bool crash_at(enum operation op, const struct box_spec *spec, int n)
{
    pid_t pid = fork();
    int status;

    CHECK(pid >= 0);
    if (pid == 0) {
        struct error err;

        box_fault_at = n;
        box_fault_crash = true;
        _exit(operate(op, spec, &err) < 0 ? 1 : 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == BOX_FAULT_STATUS || WEXITSTATUS(status) == 0);
    return WEXITSTATUS(status) == BOX_FAULT_STATUS;
}

/* The state in which the operation begins. */
static void prepare(enum operation op, struct box_spec *spec)
{
    struct box_info info;

    *spec = rig_spec();
    if (op == START)
        return;
    rig_start(spec, &info);
    RIG_CHECK_ASK("ok", spec->id, "put /f text");
    spec->keep_disk = true;
    if (op == GO_ON)
        rig_stop(spec->id);
}

/* The restarted warden must find something that is true and from which everything leads on. */
static void check_after(enum operation op, const struct box_spec *spec)
{
    struct box_info info;
    struct error err;

    if (op == SNAPSHOT) {
        CHECK(is_running(spec->id));
        CHECK_INT(box_layer_delete(&rig_warden.boxes, "snap", &err), 0);
    }
    if (op == START || op == KILL) {
        rig_kill(spec->id);
        return;
    }
    if (!is_running(spec->id))
        rig_start(spec, &info);
    RIG_CHECK_ASK("ok text", spec->id, "get /f");
    rig_kill(spec->id);
}

static void crash_everywhere(enum operation op, int steps)
{
    int n = 1;

    for (bool crashed = true; crashed; n++) {
        struct box_spec spec;

        prepare(op, &spec);
        crashed = crash_at(op, &spec, n);
        rig_restart();
        check_after(op, &spec);
        reap();
        rig_check_nothing_left();
        CHECK_INT(rig_count("pool/layers"), 0);
    }
    CHECK(n > steps);
}

TEST_TIMEOUT(the_warden_is_killed_in_a_start, 120)
{
    rig_open();
    crash_everywhere(START, 12);
    rig_close();
}

TEST_TIMEOUT(the_warden_is_killed_in_a_start_from_kept_files, 120)
{
    rig_open();
    crash_everywhere(GO_ON, 12);
    rig_close();
}

TEST_TIMEOUT(the_warden_is_killed_in_a_stop, 120)
{
    rig_open();
    crash_everywhere(STOP, 7);
    rig_close();
}

TEST_TIMEOUT(the_warden_is_killed_in_a_snapshot, 120)
{
    rig_open();
    crash_everywhere(SNAPSHOT, 6);
    rig_close();
}

TEST_TIMEOUT(the_warden_is_killed_in_a_kill, 120)
{
    rig_open();
    crash_everywhere(KILL, 7);
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
    RIG_CHECK_ASK("ok", spec.id, "eater 8");
    WAIT_FOR(box_usage(&rig_warden.boxes, spec.id, &before, &err) == 0 && before.cpu_us > 10000 &&
             before.mem_bytes > 8 << 20);
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
    box_fuse_find(info.pid, &number);
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
