/* Snapshots as layers of other boxes. */
#include "host/warden/test/warden_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"

static struct box_spec spec_from(const char *layer)
{
    struct box_spec spec = rig_spec();

    (void)snprintf(spec.layers[spec.layer_count++], LAYER_NAME_SIZE, "%s", layer);
    return spec;
}

static unsigned long long counter(const char *layer, int file)
{
    auto_buf struct buf text = {0};
    char path[256];
    uint64_t value = 0;

    buf_init(&text, 64);
    (void)snprintf(path, sizeof(path), "%s/pool/layers/%s/upper/w/%d", rig_data_dir, layer, file);
    CHECK(fd_read_file_at(AT_FDCWD, path, &text) == 0);
    CHECK(str_to_u64(str_trim(buf_str(&text)), &value));
    return value;
}

/* One file is written, then the other: at no moment is the second ahead of the first. */
TEST_TIMEOUT(a_snapshot_is_one_moment_of_a_writing_box, 120)
{
    unsigned long long last = 0, begin = 0;
    char seen[64] = "";
    struct box_spec spec;
    struct box_info info;
    uint64_t frozen_us = 0;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "mkdir /w");
    RIG_CHECK_ASK("ok", spec.id, "writer /w");
    WAIT_FOR(strncmp(rig_ask(spec.id, "get /w/1"), "ok ", 3) == 0);
    for (int i = 0; i < 30; i++) {
        struct layer_info layer;
        unsigned long long first, second;

        WAIT_FOR(strcmp(rig_ask(spec.id, "get /w/1"), seen) != 0); /* it had its turn */
        (void)snprintf(seen, sizeof(seen), "%s", rig_ask(spec.id, "get /w/1"));
        rig_snapshot(spec.id, "moment", &layer);
        first = counter("moment", 0);
        second = counter("moment", 1);
        CHECK(first == second || first == second + 1);
        CHECK(first >= last);
        CHECK(layer.frozen_us > 0);
        last = first;
        begin = begin ? begin : first;
        frozen_us += layer.frozen_us;
        rig_layer_delete("moment");
    }
    CHECK(last > begin);
    (void)printf("     stood still for %.2f ms on average\n", (double)frozen_us / 30000);
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(a_box_from_a_snapshot_has_its_files_and_its_own_future, 60)
{
    struct box_spec parent, child, grandchild;
    struct layer_info layer;
    struct box_info info;
    struct error err;

    rig_open();
    parent = rig_spec();
    rig_start(&parent, &info);
    RIG_CHECK_ASK("ok", parent.id, "put /kept one");
    RIG_CHECK_ASK("ok", parent.id, "put /changed one");
    RIG_CHECK_ASK("ok", parent.id, "put /removed one");
    RIG_CHECK_ASK("ok", parent.id, "fill /big 3000000");
    rig_snapshot(parent.id, "snap", &layer);
    CHECK_STR(str_of(layer.name), "snap");
    CHECK(layer.bytes > 3000000 && layer.bytes < 5000000);
    CHECK_INT(box_snapshot(&rig_warden.boxes, parent.id, "snap", &layer, &err), -1);
    CHECK_INT(err.code, ERROR_EXISTS);
    RIG_CHECK_ASK("ok", parent.id, "put /changed later");
    child = spec_from("snap");
    rig_start(&child, &info);
    RIG_CHECK_ASK("ok one", child.id, "get /kept");
    RIG_CHECK_ASK("ok one", child.id, "get /changed");
    RIG_CHECK_ASK("ok", child.id, "put /changed two");
    RIG_CHECK_ASK("ok", child.id, "put /new two");
    RIG_CHECK_ASK("ok", child.id, "remove /removed");
    RIG_CHECK_ASK("ok later", parent.id, "get /changed");
    RIG_CHECK_ASK("errno 2", parent.id, "get /new");
    RIG_CHECK_ASK("ok one", parent.id, "get /removed");
    /* The next generation, named with all its ancestors. The first is gone by then. */
    rig_snapshot(child.id, "snap2", &layer);
    rig_kill(parent.id);
    grandchild = spec_from("snap");
    (void)snprintf(grandchild.layers[grandchild.layer_count++], LAYER_NAME_SIZE, "snap2");
    rig_start(&grandchild, &info);
    RIG_CHECK_ASK("ok one", grandchild.id, "get /kept");
    RIG_CHECK_ASK("ok two", grandchild.id, "get /changed");
    RIG_CHECK_ASK("ok two", grandchild.id, "get /new");
    RIG_CHECK_ASK("errno 2", grandchild.id, "get /removed");
    /* In use, as far as anybody who asks is concerned, also after a restart. */
    CHECK_INT(warden_layer_delete(&rig_warden, "snap", &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    rig_stop(grandchild.id);
    rig_restart();
    CHECK_INT(warden_layer_delete(&rig_warden, "snap2", &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    rig_kill(child.id);
    rig_kill(grandchild.id);
    rig_layer_delete("snap");
    rig_layer_delete("snap2");
    rig_layer_delete("snap2");
    child = spec_from("snap");
    CHECK_INT(box_start(&rig_warden.boxes, &child, &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    rig_close();
}

/* Two different files must not look like one: a new file in the child and one of the snapshot. */
TEST_TIMEOUT(files_of_snapshot_and_box_can_be_told_apart, 60)
{
    struct box_spec parent, child;
    struct layer_info layer;
    struct box_info info;
    char seen[40][64];

    rig_open();
    parent = rig_spec();
    rig_start(&parent, &info);
    for (int i = 0; i < 20; i++)
        RIG_CHECK_ASK("ok", parent.id, "put /old%d x", i);
    rig_snapshot(parent.id, "snap", &layer);
    child = spec_from("snap");
    rig_start(&child, &info);
    for (int i = 0; i < 20; i++)
        RIG_CHECK_ASK("ok", child.id, "put /new%d x", i);
    for (int i = 0; i < 40; i++) {
        const char *answer = rig_ask(child.id, "stat /%s%d", i < 20 ? "old" : "new", i % 20);

        CHECK(strncmp(answer, "ok ", 3) == 0);
        (void)snprintf(seen[i], sizeof(seen[i]), "%.*s", (int)strcspn(answer + 3, " "), answer + 3);
        for (int j = 0; j < i; j++)
            CHECK(strcmp(seen[i], seen[j]) != 0);
    }
    rig_kill(parent.id);
    rig_kill(child.id);
    rig_check_nothing_left();
    rig_close();
}

/* Removed files, replaced and renamed directories of the layer below. */
TEST_TIMEOUT(what_was_done_to_the_layer_below_survives, 60)
{
    struct box_spec parent, child;
    struct layer_info layer;
    struct box_info info;
    struct error err;
    char path[256];

    rig_open();
    parent = rig_spec();
    rig_start(&parent, &info);
    RIG_CHECK_ASK("ok lower", parent.id, "get /lower/file");
    RIG_CHECK_ASK("ok", parent.id, "remove /lower/file");
    RIG_CHECK_ASK("ok", parent.id, "rename /lower/dir /moved");
    RIG_CHECK_ASK("ok", parent.id, "mkdir /lower/dir");
    RIG_CHECK_ASK("ok", parent.id, "put /lower/dir/own text");
    RIG_CHECK_ASK("ok", parent.id, "remove /moved/x");
    rig_snapshot(parent.id, "snap", &layer);
    /* The layer does hold them in the overlay's own language. */
    {
        struct stat st;

        (void)snprintf(path, sizeof(path), "%s/pool/layers/snap/upper/lower/file", rig_data_dir);
        CHECK(lstat(path, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == 0);
    }
    for (int round = 0; round < 3; round++) {
        child = spec_from(round < 2 ? "snap" : "snap2");
        rig_start(&child, &info);
        RIG_CHECK_ASK("errno 2", child.id, "stat /lower/file");
        RIG_CHECK_ASK("ok 1", child.id, "count /lower/dir");
        RIG_CHECK_ASK("ok text", child.id, "get /lower/dir/own");
        RIG_CHECK_ASK("ok 1", child.id, "count /moved");
        RIG_CHECK_ASK("ok lower", child.id, "get /moved/y");
        /* Nothing inside can speak that language by itself. */
        RIG_CHECK_ASK("errno 1", child.id, "whiteout /forged");
        RIG_CHECK_ASK("ok", child.id, "mkdir /plain");
        RIG_CHECK_ASK("errno 1", child.id, "opaque /plain");
        RIG_CHECK_ASK("ok", child.id, "remove /plain");
        if (round == 1)
            rig_snapshot(child.id, "snap2", &layer);
        rig_kill(child.id);
    }
    rig_kill(parent.id);
    CHECK_INT(warden_layer_delete(&rig_warden, "snap", &err), 0);
    rig_check_nothing_left();
    rig_close();
}

static struct box_spec started(void)
{
    struct box_spec spec = rig_spec();
    struct box_info info;

    rig_start(&spec, &info);
    return spec;
}

static int snapshot(const struct box_spec *spec, struct error *err)
{
    struct layer_info layer;

    return box_snapshot(&rig_warden.boxes, spec->id, "snap", &layer, err);
}

/* The box goes on, and there is the whole layer or none. */
static void after_snapshot(const struct box_spec *spec, const struct error *why)
{
    struct box_usage usage;

    OK(box_usage(&rig_warden.boxes, spec->id, &usage, &err));
    CHECK(!usage.frozen);
    CHECK_INT(rig_count("run"), 3); /* record, socket, the gateway's mount */
    CHECK_INT(rig_count("pool/temporary"), 0);
    RIG_CHECK_ASK("ok", spec->id, "put /f text");
    CHECK_INT(rig_count("pool/layers"), why ? 0 : 1);
    if (!why)
        rig_layer_delete("snap");
    rig_kill(spec->id);
}

/* A thaw that fails is repeated: one step fewer than there are makes it fail. */
TEST_TIMEOUT(a_snapshot_fails_cleanly_at_every_step, 120)
{
    static const struct rig_sweep sweep = {started, snapshot, after_snapshot};

    rig_open();
    CHECK_INT(rig_fail_everywhere(&sweep), 5);
    rig_close();
}

TEST_TIMEOUT(frozen_and_stopped_boxes_can_be_snapshotted, 60)
{
    struct box_spec spec, child;
    struct layer_info layer;
    struct box_info info;
    struct box_usage usage;
    struct error err;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "put /f text");
    CHECK_INT(box_freeze(&rig_warden.boxes, spec.id, true, &err), 0);
    rig_snapshot(spec.id, "frozen", &layer);
    CHECK_INT(layer.frozen_us, 0);
    CHECK_INT(box_usage(&rig_warden.boxes, spec.id, &usage, &err), 0);
    CHECK(usage.frozen);
    rig_stop(spec.id);
    rig_snapshot(spec.id, "stopped", &layer);
    for (int i = 0; i < 2; i++) {
        child = spec_from(i ? "stopped" : "frozen");
        rig_start(&child, &info);
        RIG_CHECK_ASK("ok text", child.id, "get /f");
        rig_kill(child.id);
    }
    rig_kill(spec.id);
    CHECK_INT(box_snapshot(&rig_warden.boxes, spec.id, "x", &layer, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(a_snapshot_does_not_shrink_the_disk, 60)
{
    struct layer_info layer;
    struct box_spec spec;
    struct box_info info;

    rig_open();
    spec = rig_spec(); /* 64 MB */
    spec.limits.mem_bytes = 256 << 20;
    rig_start(&spec, &info);
    for (int i = 0; i < 3; i++) {
        RIG_CHECK_ASK("ok", spec.id, "fill /f 40000000");
        rig_snapshot(spec.id, "snap", &layer);
        rig_layer_delete("snap");
    }
    RIG_CHECK_ASK("errno 122", spec.id, "fill /g 80000000");
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(layers_are_listed_in_pages, 60)
{
    struct layer_info layer, page[8];
    struct box_spec spec;
    struct box_info info;
    struct error err;
    char after[LAYER_NAME_SIZE] = "";
    int count, seen = 0;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    rig_stop(spec.id);
    for (int i = 0; i < 20; i++) {
        char name[LAYER_NAME_SIZE];

        (void)snprintf(name, sizeof(name), "layer%02d", (i * 7) % 20);
        rig_snapshot(spec.id, name, &layer);
    }
    do {
        count = warden_layer_list(&rig_warden, after, page, 8, &err);
        for (int i = 0; i < count; i++) {
            char want[LAYER_NAME_SIZE];

            (void)snprintf(want, sizeof(want), "layer%02d", seen++);
            CHECK_STR(str_of(page[i].name), want);
            CHECK(page[i].bytes > 0);
        }
        if (count > 0)
            memcpy(after, page[count - 1].name, LAYER_NAME_SIZE);
    } while (count > 0);
    CHECK_INT(count, 0);
    CHECK_INT(seen, 20);
    rig_kill(spec.id);
    rig_close();
}

/* How long a snapshot takes does not depend on how much was written; what is not on disk yet when it
 * begins has to get there first, with the box running. */
TEST_TIMEOUT(snapshot_times, 120)
{
    static const unsigned sizes[] = {1, 100, 1000};
    size_t count = test_patience() > 1 ? 2 : 3; /* a slow machine writes the last for minutes */
    struct box_info info;

    rig_open();
    for (size_t i = 0; i < count; i++) {
        struct box_spec spec = rig_spec(), child;
        struct layer_info layer;
        int64_t fresh, clean, started, plain;
        uint64_t frozen;

        spec.limits.mem_bytes = 3ull << 30;
        spec.limits.disk_bytes = 4ull << 30;
        plain = clock_mono_us();
        rig_start(&spec, &info);
        plain = clock_mono_us() - plain;
        RIG_CHECK_ASK("ok", spec.id, "fill /f %llu", (unsigned long long)sizes[i] << 20);
        fresh = clock_mono_us();
        rig_snapshot(spec.id, "fresh", &layer);
        fresh = clock_mono_us() - fresh;
        frozen = layer.frozen_us;
        clean = clock_mono_us();
        rig_snapshot(spec.id, "clean", &layer);
        clean = clock_mono_us() - clean;
        child = spec_from("clean");
        started = clock_mono_us();
        rig_start(&child, &info);
        started = clock_mono_us() - started;
        (void)printf(
            "     %4u MB just written: %.1f ms, frozen for %.2f; again: %.2f, frozen for %.2f; "
            "start from it: %.2f, without: %.2f\n",
            sizes[i], (double)fresh / 1000, (double)frozen / 1000, (double)clean / 1000,
            (double)layer.frozen_us / 1000, (double)started / 1000, (double)plain / 1000);
        rig_kill(child.id);
        rig_kill(spec.id);
        rig_layer_delete("fresh");
        rig_layer_delete("clean");
    }
    rig_close();
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

TEST_TIMEOUT(start_times, 120)
{
    enum { BOXES = 30, KINDS = 2 };
    static char ids[BOXES * KINDS][ID_SIZE];
    int64_t times[KINDS][BOXES];
    struct layer_info layer;
    struct box_spec spec;
    struct box_info info;

    rig_open();
    spec = rig_spec();
    spec.limits.mem_bytes = 1ull << 30;
    spec.limits.disk_bytes = 1ull << 30;
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "fill /f 100000000");
    rig_snapshot(spec.id, "snap", &layer);
    rig_kill(spec.id);
    for (int i = 0; i < BOXES * KINDS; i++) {
        int64_t since = clock_mono_us();

        spec = i % KINDS ? spec_from("snap") : rig_spec();
        rig_start(&spec, &info);
        times[i % KINDS][i / KINDS] = clock_mono_us() - since;
        memcpy(ids[i], spec.id, ID_SIZE);
    }
    for (int kind = 0; kind < KINDS; kind++)
        qsort(times[kind], BOXES, sizeof(times[0][0]), compare_times);
    {
        int64_t plain_us = times[0][BOXES / 2], layer_us = times[1][BOXES / 2];

        (void)printf("     start: %.2f ms, from a snapshot of 100 MB: %.2f ms (medians of %d)\n",
                     (double)plain_us / 1000, (double)layer_us / 1000, BOXES);
    }
    for (int i = 0; i < BOXES * KINDS; i++)
        rig_kill(ids[i]);
    rig_check_nothing_left();
    rig_close();
}
