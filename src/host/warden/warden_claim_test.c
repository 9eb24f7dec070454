/* Blank boxes, and what becomes of them. */
#include "host/warden/test/warden_rig.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static struct box_spec blank_spec(void)
{
    struct box_spec spec = rig_spec();

    spec.blank = true;
    spec.layer_count = 0;
    return spec;
}

/* With the id of a new blank box. */
static struct box_spec start_blank(void)
{
    struct box_spec blank = blank_spec(), spec = rig_spec();
    struct box_info info;

    if (rig_warden.boxes.attach_layers)
        test_lacks("a kernel with blank boxes (Linux 6.15)");
    rig_start(&blank, &info);
    memcpy(spec.id, blank.id, ID_SIZE);
    return spec;
}

static void claim(const struct box_spec *spec)
{
    struct box_info info;
    struct error err;

    if (box_claim(&rig_warden.boxes, spec, &info, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    CHECK(info.running && strcmp(info.id, spec->id) == 0);
}

/* What the first process has mounted, without what differs by nature: numbers, and the overlay's own names. */
static void mounts_of(const char *id, char out[8192])
{
    char path[64], line[1024];
    size_t used = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)rig_box(id)->pid);
    file = fopen(path, "re");
    CHECK(file != NULL);
    while (fgets(line, sizeof(line), file)) {
        struct str rest = str_of(line), field;

        for (int i = 0; i < 3; i++)
            (void)str_split(&rest, ' ');
        field = str_split(&rest, ' ');
        (void)field;
        field = str_split(&rest, ' ');
        used += (size_t)snprintf(out + used, 8192 - used, "%.*s ", STR_ARG(field));
        field = str_split(&rest, ' ');
        used += (size_t)snprintf(out + used, 8192 - used, "%.*s\n", STR_ARG(field));
    }
    (void)fclose(file);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_lines(char *text)
{
    char copy[8192], *lines[256] = {0}, *rest = copy, *line;
    size_t count = 0, used = 0;

    (void)snprintf(copy, sizeof(copy), "%s", text);
    while (count < 256 && (line = strsep(&rest, "\n")))
        lines[count++] = line;
    qsort(lines, count, sizeof(*lines), by_text);
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, 8192 - used, "%s\n", lines[i]);
}

TEST_TIMEOUT(a_claimed_box_is_like_one_that_was_started, 60)
{
    static char started_mounts[8192], claimed_mounts[8192];
    struct box_spec spec, started;
    struct box_info info;
    size_t before;

    rig_open();
    started = rig_spec();
    rig_start(&started, &info);
    before = rig_descriptors();
    spec = start_blank();
    RIG_CHECK_ASK("errno 2", spec.id, "get /lower/file");
    RIG_CHECK_ASK("errno 30", spec.id, "put /f text");
    CHECK_INT(rig_descriptors(), before + 3);
    claim(&spec);
    CHECK_INT(rig_descriptors(), before + 2);
    RIG_CHECK_ASK("ok lower", spec.id, "get /lower/file");
    RIG_CHECK_ASK("ok", spec.id, "put /f text");
    RIG_CHECK_ASK("ok text", spec.id, "get f"); /* its working directory moved along */
    RIG_CHECK_ASK("ok text", spec.id, "get /../../f");
    mounts_of(started.id, started_mounts);
    mounts_of(spec.id, claimed_mounts);
    sort_lines(started_mounts);
    sort_lines(claimed_mounts);
    CHECK_STR(str_of(claimed_mounts), started_mounts);
    rig_kill(started.id);
    rig_stop(spec.id);
    spec.keep_disk = true;
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok text", spec.id, "get /f");
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(only_a_blank_box_is_claimed_and_only_once, 60)
{
    struct pollfd poll_fd = {.events = POLLIN};
    struct box_spec spec, other;
    struct box_info info;
    struct error err;

    rig_open();
    other = rig_spec();
    CHECK_INT(box_claim(&rig_warden.boxes, &other, &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    rig_start(&other, &info);
    CHECK_INT(box_claim(&rig_warden.boxes, &other, &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    spec = start_blank();
    claim(&spec);
    CHECK_INT(box_claim(&rig_warden.boxes, &spec, &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    rig_kill(other.id);
    rig_kill(spec.id);
    spec = start_blank();
    poll_fd.fd = rig_box(spec.id)->pidfd;
    CHECK(kill(rig_box(spec.id)->pid, SIGKILL) == 0);
    CHECK_INT(poll(&poll_fd, 1, 5000 * (int)test_patience()), 1);
    CHECK_INT(box_claim(&rig_warden.boxes, &spec, &info, &err), -1);
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

static int try_claim(const struct box_spec *spec, struct error *err)
{
    struct box_info info;

    return box_claim(&rig_warden.boxes, spec, &info, err);
}

/* A box that cannot become what it was asked to be is gone. */
static void after_claim(const struct box_spec *spec, const struct error *why)
{
    if (!why)
        rig_kill(spec->id);
}

TEST_TIMEOUT(a_claim_fails_cleanly_at_every_step, 120)
{
    static const struct rig_sweep sweep = {start_blank, try_claim, after_claim};

    rig_open();
    CHECK(rig_fail_everywhere(&sweep) >= 11);
    rig_close();
}

/* Whatever it was about to become, it is found, and can be ended. */
static void after_crash(const struct box_spec *spec, const struct error *why)
{
    (void)why;
    CHECK(boxes_has(&rig_warden.boxes, spec->id));
    rig_kill(spec->id);
}

TEST_TIMEOUT(the_warden_is_killed_in_a_claim, 120)
{
    static const struct rig_sweep sweep = {start_blank, try_claim, after_crash};

    rig_open();
    CHECK(rig_crash_everywhere(&sweep) >= 11);
    rig_close();
}

/* ---- volumes and trees ---- */

/* With a volume and a tree to fill, and the id of a new blank box that may have them. */
static struct box_spec start_blank_for_places(void)
{
    struct box_spec blank = blank_spec(), spec = rig_spec();
    struct box_info info;
    struct error err;

    if (rig_warden.boxes.attach_layers)
        test_lacks("a kernel with blank boxes (Linux 6.15)");
    blank.refuse_clones = true;
    rig_start(&blank, &info);
    memcpy(spec.id, blank.id, ID_SIZE);
    CHECK_INT(warden_volume_create(&rig_warden, "data", 0, &err), 0);
    spec.volume_count = 1;
    spec.volumes[0] = (struct box_volume){"data", "/mnt/deep/data"};
    (void)snprintf(spec.fill, sizeof(spec.fill), "treeclaimed");
    return spec;
}

TEST_TIMEOUT(a_blank_box_gets_volumes_and_a_tree, 60)
{
    static char started_mounts[8192], claimed_mounts[8192];
    struct box_spec spec, started;
    struct layer_info layer;
    struct box_info info;
    struct error err;

    rig_open();
    spec = start_blank_for_places();
    started = spec;
    id_make(started.id);
    (void)snprintf(started.fill, sizeof(started.fill), "treestarted");
    rig_start(&started, &info);
    claim(&spec);
    RIG_CHECK_ASK("ok", spec.id, "put /mnt/deep/data/f text");
    RIG_CHECK_ASK("ok text", started.id, "get /mnt/deep/data/f");
    RIG_CHECK_ASK("ok", spec.id, "put /run/layer/f text");
    mounts_of(started.id, started_mounts);
    mounts_of(spec.id, claimed_mounts);
    sort_lines(started_mounts);
    sort_lines(claimed_mounts);
    CHECK_STR(str_of(claimed_mounts), started_mounts);
    /* Its filter is that of a box which was started with them. */
    RIG_CHECK_ASK("errno 95", spec.id, "clone /mnt/deep/data/f /mnt/deep/data/g");
    RIG_CHECK_ASK("errno 18", spec.id, "range /mnt/deep/data/f /mnt/deep/data/g");
    CHECK_INT(warden_volume_delete(&rig_warden, "data", &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    rig_kill(started.id);
    rig_kill(spec.id);
    CHECK_INT(warden_layer_seal(&rig_warden, "treeclaimed", &layer, &err), 0);
    rig_layer_delete("treeclaimed");
    rig_layer_delete("treestarted");
    CHECK_INT(warden_volume_delete(&rig_warden, "data", &err), 0);
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(only_a_blank_box_with_their_filter_gets_volumes_or_a_tree, 60)
{
    struct box_spec spec, plain;
    struct box_info info;
    struct error err;

    rig_open();
    spec = start_blank_for_places();
    plain = start_blank();
    for (int i = 0; i < 2; i++) {
        struct box_spec wrong = i ? spec : plain;

        memcpy(wrong.id, i ? plain.id : spec.id, ID_SIZE);
        CHECK_INT(box_claim(&rig_warden.boxes, &wrong, &info, &err), -1);
        CHECK_INT(err.code, ERROR_UNSUPPORTED);
    }
    claim(&plain);
    RIG_CHECK_ASK("ok", plain.id, "put /f text");
    RIG_CHECK_ASK("ok", plain.id, "clone /f /g");
    rig_kill(plain.id);
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

static void after_claim_with_places(const struct box_spec *spec, const struct error *why)
{
    struct error err;

    if (!why)
        rig_kill(spec->id);
    CHECK_INT(warden_layer_check(&rig_warden, spec->fill, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK_INT(warden_layer_delete(&rig_warden, spec->fill, &err), 0);
    CHECK_INT(warden_volume_delete(&rig_warden, "data", &err), 0);
}

TEST_TIMEOUT(a_claim_with_volumes_and_a_tree_fails_cleanly_at_every_step, 120)
{
    static const struct rig_sweep sweep = {start_blank_for_places, try_claim,
                                           after_claim_with_places};

    rig_open();
    CHECK(rig_fail_everywhere(&sweep) >= 11);
    rig_close();
}

static void after_crash_with_places(const struct box_spec *spec, const struct error *why)
{
    struct error err;

    (void)why;
    boxes_end_fillers(&rig_warden.boxes);
    rig_kill(spec->id);
    CHECK_INT(warden_layer_delete(&rig_warden, spec->fill, &err), 0);
    CHECK_INT(warden_volume_delete(&rig_warden, "data", &err), 0);
}

TEST_TIMEOUT(the_warden_is_killed_in_a_claim_with_volumes_and_a_tree, 120)
{
    static const struct rig_sweep sweep = {start_blank_for_places, try_claim,
                                           after_crash_with_places};

    rig_open();
    CHECK(rig_crash_everywhere(&sweep) >= 11);
    rig_close();
}

/* ---- going on from files ---- */

/* A stopped box with a file, and a blank one to go on in. */
static struct box_spec stop_and_start_blank(void)
{
    struct box_spec blank = start_blank(), spec = rig_spec();
    struct box_info info;

    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "put /kept text");
    rig_stop(spec.id);
    spec.keep_disk = true;
    memcpy(spec.blank_id, blank.id, ID_SIZE);
    return spec;
}

TEST_TIMEOUT(a_stopped_box_goes_on_in_a_blank_one, 60)
{
    struct layer_info layer;
    struct box_usage usage;
    struct box_info info;
    struct box_spec spec;
    struct error err;

    rig_open();
    spec = stop_and_start_blank();
    spec.limits.mem_bytes = 128 << 20;
    claim(&spec);
    CHECK(!boxes_has(&rig_warden.boxes, spec.blank_id));
    CHECK_INT(rig_count("pool/boxes"), 1);
    RIG_CHECK_ASK("ok text", spec.id, "get /kept");
    RIG_CHECK_ASK("ok", spec.id, "put /more text");
    /* All that is done to a box finds its cgroup. */
    CHECK_INT(box_usage(&rig_warden.boxes, spec.id, &usage, &err), 0);
    CHECK(usage.pids > 0);
    CHECK_INT(box_limit(&rig_warden.boxes, spec.id, &spec.limits, &err), 0);
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, true, &err), 0);
    CHECK_INT(box_usage(&rig_warden.boxes, spec.id, &usage, &err), 0);
    CHECK(usage.frozen);
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, false, &err), 0);
    rig_snapshot(spec.id, "snapgoeson", &layer);
    rig_layer_delete("snapgoeson");
    /* So does a warden that comes after. */
    rig_restart();
    CHECK_INT(boxes_count(&rig_warden.boxes), 1);
    CHECK(boxes_in_state(&rig_warden.boxes, spec.id, BOX_RUNNING));
    RIG_CHECK_ASK("ok text", spec.id, "get /more");
    rig_stop(spec.id);
    CHECK_INT(rig_count("run"), 2); /* the gateway and its record */
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok text", spec.id, "get /more");
    rig_kill(spec.id);
    while (waitpid(-1, NULL, WNOHANG) > 0) /* the one that the warden before had started */
        continue;
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(only_a_stopped_box_goes_on_in_a_blank_one, 60)
{
    struct box_spec spec, other;
    struct box_info info;
    struct error err;

    rig_open();
    spec = stop_and_start_blank();
    other = rig_spec();
    other.keep_disk = true;
    memcpy(other.blank_id, spec.blank_id, ID_SIZE);
    CHECK_INT(box_claim(&rig_warden.boxes, &other, &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    other.keep_disk = false;
    rig_start(&other, &info);
    other.keep_disk = true;
    CHECK_INT(box_claim(&rig_warden.boxes, &other, &info, &err), -1);
    CHECK_INT(err.code, ERROR_EXISTS);
    memcpy(spec.blank_id, other.id, ID_SIZE);
    CHECK_INT(box_claim(&rig_warden.boxes, &spec, &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    /* None of that changed anything. */
    memcpy(spec.blank_id, other.blank_id, ID_SIZE);
    claim(&spec);
    RIG_CHECK_ASK("ok text", spec.id, "get /kept");
    rig_kill(other.id);
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

/* Whatever happened, it has its files, and a start finds them. */
static void goes_on(const struct box_spec *spec)
{
    struct box_info info;

    rig_kill(spec->blank_id);
    if (!boxes_in_state(&rig_warden.boxes, spec->id, BOX_RUNNING))
        rig_start(spec, &info);
    RIG_CHECK_ASK("ok text", spec->id, "get /kept");
    rig_kill(spec->id);
}

static void after_going_on(const struct box_spec *spec, const struct error *why)
{
    CHECK(!boxes_has(&rig_warden.boxes, spec->blank_id));
    CHECK(boxes_in_state(&rig_warden.boxes, spec->id, why ? BOX_STOPPED : BOX_RUNNING));
    goes_on(spec);
}

TEST_TIMEOUT(going_on_in_a_blank_box_fails_cleanly_at_every_step, 120)
{
    static const struct rig_sweep sweep = {stop_and_start_blank, try_claim, after_going_on};

    rig_open();
    CHECK(rig_fail_everywhere(&sweep) >= 11);
    rig_close();
}

/* As the server does with what it does not know to run. */
static void after_crash_going_on(const struct box_spec *spec, const struct error *why)
{
    (void)why;
    CHECK(boxes_has(&rig_warden.boxes, spec->id));
    rig_stop(spec->id);
    goes_on(spec);
}

TEST_TIMEOUT(the_warden_is_killed_while_a_box_goes_on_in_a_blank_one, 120)
{
    static const struct rig_sweep sweep = {stop_and_start_blank, try_claim, after_crash_going_on};

    rig_open();
    CHECK(rig_crash_everywhere(&sweep) >= 11);
    rig_close();
}

TEST_TIMEOUT(a_claim_is_quicker_than_a_start, 120)
{
    enum { TIMES = 50 };
    struct box_info info;
    int64_t starting = 0, claiming = 0;

    rig_open();
    for (int i = 0; i < TIMES; i++) {
        struct box_spec spec = rig_spec();
        int64_t from = clock_mono_us();

        rig_start(&spec, &info);
        RIG_CHECK_ASK("ok lower", spec.id, "get /lower/file");
        starting += clock_mono_us() - from;
        rig_kill(spec.id);
        spec = start_blank();
        RIG_CHECK_ASK("errno 2", spec.id, "get /lower/file");
        from = clock_mono_us();
        claim(&spec);
        RIG_CHECK_ASK("ok lower", spec.id, "get /lower/file");
        claiming += clock_mono_us() - from;
        rig_kill(spec.id);
    }
    (void)printf("     start %.2f ms, claim %.2f ms\n", (double)starting / 1000 / TIMES,
                 (double)claiming / 1000 / TIMES);
    CHECK(claiming < starting);
    rig_close();
}
