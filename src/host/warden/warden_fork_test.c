/* Boxes with the files of others: copied when those are few, shared when they are many; nobody inside can tell. */
#include "host/warden/test/warden_rig.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"

static struct box_spec spec_of(const char *source)
{
    struct box_spec spec = rig_spec();

    (void)snprintf(spec.source, sizeof(spec.source), "%s", source);
    return spec;
}

/* A fork of it, by a start or by a claim of a blank box. */
static int try_fork(const struct box_spec *spec, bool claimed, struct error *err)
{
    struct box_info info;

    return claimed ? box_claim(&rig_warden.boxes, spec, &info, err)
                   : box_start(&rig_warden.boxes, spec, &info, err);
}

/* Its id is that of a blank box, if it is to be claimed. */
static void make_blank(struct box_spec *spec)
{
    struct box_spec blank = rig_spec();
    struct box_info info;

    if (rig_warden.boxes.attach_layers)
        test_lacks("a kernel with blank boxes (Linux 6.15)");
    blank.blank = true;
    blank.layer_count = 0;
    rig_start(&blank, &info);
    memcpy(spec->id, blank.id, ID_SIZE);
}

static struct box_spec fork_of(const char *source, bool claimed)
{
    struct box_spec spec = spec_of(source);
    struct error err;

    if (claimed)
        make_blank(&spec);
    if (try_fork(&spec, claimed, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
    return spec;
}

static bool same_file(const char *id, const char *a, const char *b)
{
    char first[64];

    (void)snprintf(first, sizeof(first), "%s", rig_ask(id, "stat %s", a));
    return strcmp(first, rig_ask(id, "stat %s", b)) == 0;
}

static void write_all_kinds(const char *id)
{
    RIG_CHECK_ASK("ok", id, "put /plain text");
    RIG_CHECK_ASK("ok", id, "remove /lower/file");
    RIG_CHECK_ASK("ok", id, "rename /lower/dir /moved");
    RIG_CHECK_ASK("ok", id, "mkdir /lower/dir");
    RIG_CHECK_ASK("ok", id, "put /lower/dir/own text");
    RIG_CHECK_ASK("ok", id, "remove /moved/x");
    RIG_CHECK_ASK("ok", id, "chmod /moved/y 600");
    RIG_CHECK_ASK("ok", id, "mkdir /mine");
    RIG_CHECK_ASK("ok", id, "put /mine/program text");
    RIG_CHECK_ASK("ok", id, "chown /mine/program 1000");
    RIG_CHECK_ASK("ok", id, "chmod /mine/program 4755");
    RIG_CHECK_ASK("ok", id, "setcap /mine/program");
    RIG_CHECK_ASK("ok", id, "setxattr /mine/program user.note");
    RIG_CHECK_ASK("ok", id, "special /mine/pipe p");
    RIG_CHECK_ASK("ok", id, "special /mine/socket s");
    RIG_CHECK_ASK("ok", id, "symlink /plain /mine/link");
    RIG_CHECK_ASK("ok", id, "sparse /mine/sparse 100000000");
}

/* The same of both, without their numbers. */
static void check_alike(const char *a, const char *b, const char *path)
{
    const char *answer = rig_ask(a, "stat %s", path);
    char first[64];

    CHECK(strncmp(answer, "ok ", 3) == 0);
    (void)snprintf(first, sizeof(first), "%s", strchr(answer + 3, ' '));
    CHECK_STR(str_of(strchr(rig_ask(b, "stat %s", path) + 3, ' ')), first);
}

static void check_all_kinds(const char *id, const char *child)
{
    static const char *const paths[] = {"/plain",         "/moved",        "/moved/y",
                                        "/lower/dir/own", "/mine/program", "/mine/pipe",
                                        "/mine/socket",   "/mine/link",    "/mine/sparse"};

    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        check_alike(id, child, paths[i]);
    RIG_CHECK_ASK("ok text", child, "get /mine/link");
    RIG_CHECK_ASK("errno 2", child, "stat /lower/file");
    RIG_CHECK_ASK("ok 1", child, "count /lower/dir");
    RIG_CHECK_ASK("ok 1", child, "count /moved");
    RIG_CHECK_ASK("ok lower", child, "get /moved/y");
    RIG_CHECK_ASK("ok value", child, "getxattr /mine/program user.note");
    CHECK(strncmp(rig_ask(child, "getcap /mine/program"), "ok ", 3) == 0);
}

/* Files can be told apart, moved, linked and removed, and directories as well, those of the layer below too. */
static void use_all_kinds(const char *id)
{
    char seen[40][64];
    int count = 0;

    for (int i = 0; i < 20; i++)
        RIG_CHECK_ASK("ok", id, "put /new%d x", i);
    for (int i = 0; i < 20; i++)
        (void)snprintf(seen[count++], sizeof(seen[0]), "%s", rig_ask(id, "stat /new%d", i));
    (void)snprintf(seen[count++], sizeof(seen[0]), "%s", rig_ask(id, "stat /plain"));
    (void)snprintf(seen[count++], sizeof(seen[0]), "%s", rig_ask(id, "stat /moved/y"));
    (void)snprintf(seen[count++], sizeof(seen[0]), "%s", rig_ask(id, "stat /mine/program"));
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            CHECK(strncmp(seen[i], seen[j], strcspn(seen[i] + 3, " ") + 4) != 0);
    RIG_CHECK_ASK("ok", id, "link /plain /twin");
    CHECK(same_file(id, "/plain", "/twin"));
    RIG_CHECK_ASK("ok", id, "rename /plain /lower/plain");
    CHECK(same_file(id, "/lower/plain", "/twin"));
    RIG_CHECK_ASK("ok", id, "rename /moved /again");
    RIG_CHECK_ASK("ok lower", id, "get /again/y");
    RIG_CHECK_ASK("errno 39", id, "remove /again");
    RIG_CHECK_ASK("ok", id, "remove /again/y");
    RIG_CHECK_ASK("ok", id, "remove /again");
    RIG_CHECK_ASK("ok", id, "remove /lower/dir/own");
    RIG_CHECK_ASK("ok", id, "remove /lower/dir");
    RIG_CHECK_ASK("ok", id, "mkdir /lower/dir");
    RIG_CHECK_ASK("ok 0", id, "count /lower/dir");
    RIG_CHECK_ASK("ok", id, "put /lower/file own");
    RIG_CHECK_ASK("ok own", id, "get /lower/file");
}

/* kind 0: few files; 1: much; 2: a file with several names. */
static void check_fork(int kind, bool claimed)
{
    struct box_spec parent = rig_spec(), child, grandchild;
    struct box_info info;

    rig_start(&parent, &info);
    write_all_kinds(parent.id);
    if (kind == 1)
        RIG_CHECK_ASK("ok", parent.id, "fill /big 3000000");
    if (kind == 2)
        RIG_CHECK_ASK("ok", parent.id, "link /mine/program /mine/twin");
    child = fork_of(parent.id, claimed);
    check_all_kinds(parent.id, child.id);
    RIG_CHECK_ASK("ok", child.id, "put /child text");
    RIG_CHECK_ASK("errno 2", parent.id, "get /child");
    grandchild = fork_of(child.id, claimed);
    check_all_kinds(parent.id, grandchild.id);
    RIG_CHECK_ASK("ok text", grandchild.id, "get /child");
    if (kind == 2)
        CHECK(same_file(grandchild.id, "/mine/program", "/mine/twin"));
    use_all_kinds(grandchild.id);
    use_all_kinds(child.id);
    check_all_kinds(parent.id, parent.id);
    rig_kill(parent.id);
    rig_kill(grandchild.id);
    /* What it has is its own, and stays. */
    rig_stop(child.id);
    child.keep_disk = true;
    child.source[0] = '\0';
    rig_start(&child, &info);
    RIG_CHECK_ASK("ok own", child.id, "get /lower/file");
    rig_kill(child.id);
    rig_check_nothing_left();
}

TEST_TIMEOUT(a_fork_has_the_files_of_its_source, 120)
{
    rig_open();
    for (int kind = 0; kind < 3; kind++)
        for (int claimed = 0; claimed < 2; claimed++)
            check_fork(kind, claimed);
    rig_close();
}

TEST_TIMEOUT(frozen_and_stopped_boxes_can_be_forked, 60)
{
    struct box_spec parent, child;
    struct box_usage usage;
    struct box_info info;
    struct error err;

    rig_open();
    parent = rig_spec();
    rig_start(&parent, &info);
    RIG_CHECK_ASK("ok", parent.id, "put /f text");
    CHECK_INT(box_freeze(&rig_warden.boxes, parent.id, true, &err), 0);
    child = fork_of(parent.id, false);
    RIG_CHECK_ASK("ok text", child.id, "get /f");
    CHECK_INT(box_usage(&rig_warden.boxes, parent.id, &usage, &err), 0);
    CHECK(usage.frozen);
    rig_kill(child.id);
    rig_stop(parent.id);
    child = fork_of(parent.id, true);
    RIG_CHECK_ASK("ok text", child.id, "get /f");
    rig_kill(child.id);
    rig_kill(parent.id);
    rig_check_nothing_left();
    rig_close();
}

static uint64_t counter(const char *id, int file)
{
    auto_buf struct buf text = {0};
    char path[256];
    uint64_t value = 0;

    buf_init(&text, 64);
    (void)snprintf(path, sizeof(path), "%s/pool/boxes/%s/upper/w/%d", rig_data_dir, id, file);
    CHECK(fd_read_file_at(AT_FDCWD, path, &text) == 0);
    CHECK(str_to_u64(str_trim(buf_str(&text)), &value));
    return value;
}

/* One file is written, then the other: at no moment is the second ahead of the first, whichever is copied first. */
TEST_TIMEOUT(a_fork_is_one_moment_of_a_writing_box, 120)
{
    uint64_t last = 0, begin = 0;
    struct box_spec parent;
    struct box_info info;

    rig_open();
    parent = rig_spec();
    rig_start(&parent, &info);
    RIG_CHECK_ASK("ok", parent.id, "mkdir /w");
    RIG_CHECK_ASK("ok", parent.id, "writer /w");
    WAIT_FOR(strncmp(rig_ask(parent.id, "get /w/1"), "ok ", 3) == 0);
    for (int i = 0; i < 30; i++) {
        struct box_spec child = fork_of(parent.id, false);
        uint64_t first = counter(child.id, 0), second = counter(child.id, 1);

        CHECK(first == second || first == second + 1);
        CHECK(first >= last);
        last = first;
        begin = begin ? begin : first;
        rig_kill(child.id);
        WAIT_FOR(counter(parent.id, 1) > last); /* it goes on */
    }
    CHECK(last > begin);
    rig_kill(parent.id);
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(a_fork_fails_cleanly_at_every_step, 120)
{
    rig_open();
    for (int claimed = 0; claimed < 2; claimed++) {
        struct box_spec parent = rig_spec();
        struct box_usage usage;
        struct box_info info;
        struct error err;
        int failed = 0;

        rig_start(&parent, &info);
        RIG_CHECK_ASK("ok", parent.id, "put /f text");
        for (int n = 1, r = -1, good = 0; good < 3; n++) {
            struct box_spec child = spec_of(parent.id);

            if (claimed)
                make_blank(&child);
            box_fault_at = n;
            r = try_fork(&child, claimed, &err);
            box_fault_at = 0;
            CHECK(r == 0 || strstr(err.message, "fault injected"));
            CHECK_INT(box_usage(&rig_warden.boxes, parent.id, &usage, &err), 0);
            CHECK(!usage.frozen);
            RIG_CHECK_ASK("ok text", parent.id, "get /f");
            if (r == 0) {
                RIG_CHECK_ASK("ok text", child.id, "get /f");
                rig_kill(child.id);
            }
            /* A failed thaw is repeated, so there are good ones between. */
            good = r == 0 ? good + 1 : 0;
            failed += r < 0;
            CHECK_INT(rig_count("pool/boxes"), 1);
            CHECK_INT(rig_count("run"), 3); /* record, socket, the gateway's mount */
        }
        CHECK(failed >= (claimed ? 12 : 16));
        rig_kill(parent.id);
        rig_check_nothing_left();
    }
    rig_close();
}

/* The box that was copied goes on, and the half copy goes. */
TEST_TIMEOUT(the_warden_is_killed_in_a_fork, 120)
{
    bool crashed = true;
    int n = 1;

    rig_open();
    for (; crashed; n++) {
        struct box_spec parent = rig_spec(), child;
        struct box_usage usage;
        struct box_info info;
        struct error err;
        int status;
        pid_t pid;

        rig_start(&parent, &info);
        RIG_CHECK_ASK("ok", parent.id, "put /f text");
        child = spec_of(parent.id);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            box_fault_at = n;
            box_fault_crash = true;
            _exit(try_fork(&child, false, &err) < 0 ? 1 : 0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == BOX_FAULT_STATUS || WEXITSTATUS(status) == 0);
        crashed = WEXITSTATUS(status) == BOX_FAULT_STATUS;
        rig_restart();
        CHECK_INT(box_usage(&rig_warden.boxes, parent.id, &usage, &err), 0);
        CHECK(!usage.frozen);
        RIG_CHECK_ASK("ok text", parent.id, "get /f");
        rig_kill(parent.id);
        if (boxes_has(&rig_warden.boxes, child.id))
            rig_kill(child.id);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        rig_check_nothing_left();
    }
    CHECK(n > 16);
    rig_close();
}
