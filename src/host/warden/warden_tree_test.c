/* Trees as layers, boxes that fill them, and what the server gives boxes to read. */
#include "host/warden/test/any_request.h"
#include "host/warden/test/warden_rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "host/engine/engine_wire.h"

static struct box_spec spec_on(const char *layer)
{
    struct box_spec spec = rig_spec();

    (void)snprintf(spec.layers[spec.layer_count++], LAYER_NAME_SIZE, "%s", layer);
    return spec;
}

static struct box_spec spec_filling(const char *layer)
{
    struct box_spec spec = rig_spec();

    (void)snprintf(spec.fill, sizeof(spec.fill), "%s", layer);
    return spec;
}

static void publish(const char *snapshot, const char *layer, struct layer_info *out)
{
    struct error err;

    if (warden_layer_publish(&rig_warden, snapshot, layer, 0, out, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

static void seal(const char *layer, struct layer_info *out)
{
    struct error err;

    if (warden_layer_seal(&rig_warden, layer, out, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

/* Entries of DATA/layers that are no layers. */
static size_t hidden_layers(void)
{
    struct dirent *entry;
    size_t count = 0;
    char path[256];
    DIR *dir;

    (void)snprintf(path, sizeof(path), "%s/layers", rig_data_dir);
    dir = opendir(path);
    CHECK(dir);
    while ((entry = readdir(dir)))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                 entry->d_name[0] == '.';
    (void)closedir(dir);
    return count;
}

static void tend_until_clean(void)
{
    for (int i = 0; i < 1000 && hidden_layers(); i++)
        warden_trees_tend(&rig_warden);
    CHECK_INT(hidden_layers(), 0);
}

/* As the server would. */
static void write_feed(const char *id, const char *name, const char *text, mode_t mode)
{
    char path[256];
    auto_close int fd = -1;

    (void)snprintf(path, sizeof(path), "%s/feeds/%s", rig_data_dir, id);
    CHECK(mkdir(path, 0700) == 0 || errno == EEXIST);
    CHECK(chown(path, 64737, 64737) == 0);
    (void)snprintf(path, sizeof(path), "%s/feeds/%s/%s", rig_data_dir, id, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
    CHECK(fd >= 0 && fd_write_full(fd, text, strlen(text)) == 0 && fchmod(fd, mode) == 0 &&
          fchown(fd, 64737, 64737) == 0);
}

TEST_TIMEOUT(a_box_reads_what_the_server_left_for_it_and_nothing_else, 60)
{
    struct box_spec spec, other, none;
    struct box_info info;
    char path[256];

    rig_open();
    spec = rig_spec();
    other = rig_spec();
    none = rig_spec();
    spec.feed = other.feed = true;
    write_feed(spec.id, "blob", "mine", 0600);
    write_feed(other.id, "blob", "another's", 0600);
    rig_start(&spec, &info);
    rig_start(&other, &info);
    rig_start(&none, &info);
    RIG_CHECK_ASK("ok mine", spec.id, "get /run/feed/blob");
    RIG_CHECK_ASK("ok another's", other.id, "get /run/feed/blob");
    RIG_CHECK_ASK("errno 2", none.id, "get /run/feed/blob");
    RIG_CHECK_ASK("ok 1", spec.id, "count /run/feed");
    RIG_CHECK_ASK("errno 30", spec.id, "put /run/feed/blob changed");
    RIG_CHECK_ASK("errno 30", spec.id, "put /run/feed/new one");
    RIG_CHECK_ASK("errno 30", spec.id, "remove /run/feed/blob");
    RIG_CHECK_ASK("errno 30", spec.id, "chmod /run/feed/blob 777");
    /* What comes later is there too. */
    write_feed(spec.id, "later", "also", 0644);
    RIG_CHECK_ASK("ok also", spec.id, "get /run/feed/later");
    rig_kill(spec.id);
    rig_kill(other.id);
    rig_kill(none.id);
    /* The server's, and still there. */
    (void)snprintf(path, sizeof(path), "%s/feeds/%s/blob", rig_data_dir, spec.id);
    CHECK(access(path, F_OK) == 0);
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(what_a_feed_holds_can_be_run, 60)
{
    auto_buf struct buf program = {0};
    struct box_spec spec;
    struct box_info info;
    char path[256];
    auto_close int fd = -1;

    rig_open();
    spec = rig_spec();
    spec.feed = true;
    write_feed(spec.id, "tool", "", 0755);
    buf_init(&program, 64 << 20);
    CHECK_INT(fd_read_file_at(AT_FDCWD, TEST_ENVD, &program), 0);
    (void)snprintf(path, sizeof(path), "%s/feeds/%s/tool", rig_data_dir, spec.id);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fd_write_full(fd, program.p, program.len) == 0);
    close_fd(&fd);
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok 7", spec.id, "run /run/feed/tool");
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(a_feed_that_is_not_the_servers_is_refused, 60)
{
    struct box_spec spec;
    struct box_info info;
    struct error err;
    char path[256], elsewhere[256];

    rig_open();
    spec = rig_spec();
    spec.feed = true;
    CHECK_INT(box_start(&rig_warden.boxes, &spec, &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    (void)snprintf(path, sizeof(path), "%s/feeds/%s", rig_data_dir, spec.id);
    (void)snprintf(elsewhere, sizeof(elsewhere), "%s/store", rig_data_dir);
    CHECK(symlink(elsewhere, path) == 0);
    CHECK_INT(box_start(&rig_warden.boxes, &spec, &info, &err), -1);
    CHECK_INT(err.errnum, ENOTDIR);
    CHECK(unlink(path) == 0 && mkdir(path, 0755) == 0);
    CHECK_INT(box_start(&rig_warden.boxes, &spec, &info, &err), -1);
    CHECK_INT(err.code, ERROR_FORBIDDEN);
    CHECK(chown(path, 64737, 64737) == 0);
    rig_start(&spec, &info);
    rig_kill(spec.id);
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(what_a_box_fills_is_a_layer_of_others, 60)
{
    struct box_spec filler, user, alone;
    struct layer_info layer, layers[4];
    struct box_info info;
    struct error err;

    rig_open();
    filler = spec_filling("tree1");
    rig_start(&filler, &info);
    RIG_CHECK_ASK("ok", filler.id, "mkdir /run/layer/etc");
    RIG_CHECK_ASK("ok", filler.id, "put /run/layer/etc/name image");
    RIG_CHECK_ASK("ok", filler.id, "put /run/layer/tool x");
    RIG_CHECK_ASK("ok", filler.id, "chown /run/layer/tool 1000");
    RIG_CHECK_ASK("ok", filler.id, "chmod /run/layer/tool 4755");
    RIG_CHECK_ASK("errno 1", filler.id, "special /run/layer/null c");
    /* Neither a layer nor anybody else's as long as the box is there. */
    CHECK_INT(warden_layer_seal(&rig_warden, "tree1", &layer, &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK_INT(warden_layer_delete(&rig_warden, "tree1", &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    user = spec_on("tree1");
    CHECK_INT(box_start(&rig_warden.boxes, &user, &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK_INT(warden_layer_list(&rig_warden, "", layers, 4, &err), 0);
    rig_kill(filler.id);
    seal("tree1", &layer);
    CHECK_STR(str_of(layer.name), "tree1");
    CHECK(layer.bytes >= 4096 && layer.bytes < 65536);
    seal("tree1", &layer); /* again, should the answer be lost */
    CHECK_INT(warden_layer_list(&rig_warden, "", layers, 4, &err), 1);
    CHECK_STR(str_of(layers[0].name), "tree1");
    CHECK_INT(warden_layer_check(&rig_warden, "tree1", &err), 0);
    rig_start(&user, &info);
    RIG_CHECK_ASK("ok image", user.id, "get /etc/name");
    RIG_CHECK_ASK("ok lower", user.id, "get /lower/file");
    CHECK(strstr(rig_ask(user.id, "stat /tool"), " 104755 1 1000"));
    RIG_CHECK_ASK("ok", user.id, "put /etc/name mine");
    /* The lowest layer may be one too. */
    alone = rig_spec();
    (void)snprintf(alone.layers[0], LAYER_NAME_SIZE, "tree1");
    rig_start(&alone, &info);
    RIG_CHECK_ASK("ok image", alone.id, "get /etc/name");
    RIG_CHECK_ASK("errno 2", alone.id, "get /lower/file");
    rig_kill(alone.id);
    rig_stop(user.id);
    CHECK_INT(warden_layer_delete(&rig_warden, "tree1", &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    rig_restart();
    CHECK_INT(warden_layer_delete(&rig_warden, "tree1", &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    rig_kill(user.id);
    rig_layer_delete("tree1");
    CHECK_INT(rig_count("layers"), 1);
    tend_until_clean();
    rig_layer_delete("tree1");
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(a_published_snapshot_is_what_it_was, 60)
{
    struct box_spec parent, child, on_top;
    char seen[128];
    struct layer_info layer;
    struct box_info info;
    struct error err;

    rig_open();
    parent = rig_spec();
    rig_start(&parent, &info);
    RIG_CHECK_ASK("ok", parent.id, "put /file one");
    RIG_CHECK_ASK("ok", parent.id, "link /file /twin");
    RIG_CHECK_ASK("ok", parent.id, "symlink /etc/passwd /link");
    RIG_CHECK_ASK("ok", parent.id, "special /pipe p");
    RIG_CHECK_ASK("ok", parent.id, "special /socket s");
    RIG_CHECK_ASK("ok", parent.id, "put /cap x");
    RIG_CHECK_ASK("ok", parent.id, "chmod /cap 755");
    RIG_CHECK_ASK("ok", parent.id, "setcap /cap");
    RIG_CHECK_ASK("ok", parent.id, "setxattr /file user.note");
    RIG_CHECK_ASK("ok", parent.id, "sparse /sparse 1000000000");
    RIG_CHECK_ASK("ok", parent.id, "put /owned x");
    RIG_CHECK_ASK("ok", parent.id, "chown /owned 1234");
    RIG_CHECK_ASK("ok", parent.id, "chmod /owned 6755");
    RIG_CHECK_ASK("ok", parent.id, "remove /lower/file");
    RIG_CHECK_ASK("ok", parent.id, "remove /lower/dir/x");
    RIG_CHECK_ASK("ok", parent.id, "rename /lower/dir /lower/moved");
    RIG_CHECK_ASK("ok", parent.id, "mkdir /lower/dir");
    RIG_CHECK_ASK("ok", parent.id, "put /lower/dir/new new");
    rig_snapshot(parent.id, "snap1", &layer);
    publish("snap1", "tree1", &layer);
    CHECK(layer.bytes < 1 << 20);
    CHECK_INT(warden_layer_publish(&rig_warden, "snap1", "tree1", 0, &layer, &err), -1);
    CHECK_INT(err.code, ERROR_EXISTS);
    CHECK_INT(warden_layer_publish(&rig_warden, "snap2", "tree2", 0, &layer, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK_INT(warden_layer_check(&rig_warden, "tree1", &err), 0);
    rig_kill(parent.id);
    rig_layer_delete("snap1");
    child = spec_on("tree1");
    rig_start(&child, &info);
    RIG_CHECK_ASK("ok one", child.id, "get /file");
    (void)snprintf(seen, sizeof(seen), "%s", rig_ask(child.id, "stat /file"));
    RIG_CHECK_ASK(seen, child.id, "stat /twin");
    RIG_CHECK_ASK("ok value", child.id, "getxattr /file user.note");
    CHECK(strstr(rig_ask(child.id, "stat /sparse"), " 100644 1000000000 0"));
    CHECK(strstr(rig_ask(child.id, "stat /owned"), " 106755 1 1234"));
    CHECK(strstr(rig_ask(child.id, "stat /pipe"), " 10644 0 0"));
    CHECK(strstr(rig_ask(child.id, "stat /link"), " 120777 11 0"));
    RIG_CHECK_ASK("ok 20 02000001 00002000", child.id, "getcap /cap");
    RIG_CHECK_ASK("errno 2", child.id, "get /lower/file");
    RIG_CHECK_ASK("errno 2", child.id, "get /lower/moved/x");
    RIG_CHECK_ASK("ok lower", child.id, "get /lower/moved/y");
    RIG_CHECK_ASK("ok 1", child.id, "count /lower/dir");
    RIG_CHECK_ASK("ok new", child.id, "get /lower/dir/new");
    RIG_CHECK_ASK("ok 2", child.id, "count /lower");
    /* A snapshot lies on it, and what is published of that too. */
    RIG_CHECK_ASK("ok", child.id, "put /second two");
    RIG_CHECK_ASK("ok", child.id, "remove /pipe");
    rig_snapshot(child.id, "snap2", &layer);
    publish("snap2", "tree2", &layer);
    on_top = spec_on("tree1");
    (void)snprintf(on_top.layers[on_top.layer_count++], LAYER_NAME_SIZE, "tree2");
    rig_start(&on_top, &info);
    RIG_CHECK_ASK("ok one", on_top.id, "get /file");
    RIG_CHECK_ASK("ok two", on_top.id, "get /second");
    RIG_CHECK_ASK("errno 2", on_top.id, "stat /pipe");
    RIG_CHECK_ASK("ok lower", on_top.id, "get /lower/moved/y");
    rig_kill(on_top.id);
    rig_kill(child.id);
    rig_layer_delete("snap2");
    rig_layer_delete("tree1");
    rig_layer_delete("tree2");
    tend_until_clean();
    rig_check_nothing_left();
    rig_close();
}

static struct box_spec spec_with_feed_and_tree(void)
{
    struct box_spec spec = spec_filling("tree1");

    spec.feed = true;
    write_feed(spec.id, "blob", "text", 0600);
    return spec;
}

static int start(const struct box_spec *spec, struct error *err)
{
    struct box_info info;

    return box_start(&rig_warden.boxes, spec, &info, err);
}

static void after_start(const struct box_spec *spec, const struct error *why)
{
    if (why) {
        rig_check_nothing_left();
    } else {
        rig_kill(spec->id);
        rig_layer_delete("tree1");
    }
    tend_until_clean();
}

/* Starting a box that fills a tree: none may be left. */
TEST_TIMEOUT(a_box_with_feed_and_tree_fails_cleanly_at_every_step, 120)
{
    static const struct rig_sweep sweep = {spec_with_feed_and_tree, start, after_start};

    rig_open();
    CHECK(rig_fail_everywhere(&sweep) >= 12);
    rig_close();
}

TEST_TIMEOUT(two_boxes_cannot_fill_one_tree, 60)
{
    struct box_spec spec, other;
    struct box_info info;

    rig_open();
    spec = spec_filling("tree1");
    other = spec_filling("tree1");
    rig_start(&spec, &info);
    FAILS(box_start(&rig_warden.boxes, &other, &info, &err), ERROR_EXISTS);
    RIG_CHECK_ASK("ok", spec.id, "put /run/layer/file text");
    rig_kill(spec.id);
    rig_layer_delete("tree1");
    tend_until_clean();
    rig_check_nothing_left();
    rig_close();
}

/* There is no quota where trees are, so a box that goes on and on is ended. */
TEST_TIMEOUT(a_box_that_fills_more_than_it_may_is_ended, 60)
{
    struct engine_event event;
    struct box_spec spec;
    struct layer_info layer;
    struct box_info info;
    struct pollfd ended;
    struct error err;

    rig_open();
    ended = (struct pollfd){.fd = rig_warden.boxes.engine.event_fd, .events = POLLIN};
    spec = spec_filling("tree1");
    spec.limits.disk_bytes = 16 << 20;
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "fill /run/layer/some 8000000");
    warden_trees_tend(&rig_warden);
    CHECK_INT(boxes_count(&rig_warden.boxes), 1);
    RIG_CHECK_ASK("ok", spec.id, "fill /run/layer/more 16000000");
    clock_test_pass(6000000);
    warden_trees_tend(&rig_warden);
    CHECK_INT(poll(&ended, 1, 5000 * (int)test_patience()), 1);
    CHECK(boxes_exited(&rig_warden.boxes, rig_box(spec.id)->slot, &event));
    CHECK_INT(event.end, BOX_END_EXITED);
    rig_kill(spec.id);
    CHECK_INT(warden_layer_seal(&rig_warden, "tree1", &layer, &err), -1);
    CHECK_INT(err.code, ERROR_LIMIT);
    tend_until_clean();
    rig_check_nothing_left();
    rig_close();
}

/* With the warden went the server, and whoever waited for the tree. */
TEST_TIMEOUT(a_restarted_warden_ends_boxes_that_fill_trees, 60)
{
    struct box_spec running, stopped, other;
    struct layer_info layer;
    struct box_info info;
    struct error err;

    rig_open();
    running = spec_filling("tree1");
    stopped = spec_filling("tree2");
    other = rig_spec();
    rig_start(&running, &info);
    rig_start(&stopped, &info);
    rig_start(&other, &info);
    RIG_CHECK_ASK("ok", running.id, "put /run/layer/file text");
    rig_stop(stopped.id);
    rig_restart();
    CHECK_INT(boxes_count(&rig_warden.boxes), 1);
    CHECK_INT(warden_layer_seal(&rig_warden, "tree1", &layer, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK_INT(rig_count("layers"), 1);
    tend_until_clean();
    RIG_CHECK_ASK("ok", other.id, "put /file text");
    rig_kill(other.id);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    rig_check_nothing_left();
    rig_close();
}

/* Hostile, but only to itself: what a box cannot do to its tree, and what does no harm. */
TEST_TIMEOUT(a_tree_cannot_be_used_against_the_host, 60)
{
    struct box_spec filler, user;
    struct layer_info layer;
    struct box_info info;
    struct stat st;
    char path[256];

    rig_open();
    filler = spec_filling("tree1");
    rig_start(&filler, &info);
    RIG_CHECK_ASK("errno 1", filler.id, "opaque /run/layer");
    RIG_CHECK_ASK("errno 1", filler.id, "setxattr /run/layer trusted.quicksand.stamp");
    RIG_CHECK_ASK("errno 1", filler.id, "special /run/layer/null c");
    RIG_CHECK_ASK("errno 22", filler.id, "chown /run/layer 70000");
    RIG_CHECK_ASK("ok", filler.id, "symlink /etc/shadow /run/layer/shadow");
    RIG_CHECK_ASK("ok", filler.id, "symlink / /run/layer/lower");
    RIG_CHECK_ASK("ok", filler.id, "put /run/layer/set x");
    RIG_CHECK_ASK("ok", filler.id, "chmod /run/layer/set 4755");
    rig_kill(filler.id);
    seal("tree1", &layer);
    (void)snprintf(path, sizeof(path), "%s/layers", rig_data_dir);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 0700 && st.st_uid == 0);
    (void)snprintf(path, sizeof(path), "%s/layers/tree1/set", rig_data_dir);
    CHECK(stat(path, &st) == 0 && st.st_uid == 0);
    user = spec_on("tree1");
    rig_start(&user, &info);
    RIG_CHECK_ASK("errno 2", user.id, "get /shadow"); /* its own root has none */
    rig_kill(user.id);
    rig_layer_delete("tree1");
    tend_until_clean();
    rig_check_nothing_left();
    rig_close();
}

/* On the disk they are root's, whichever ids its box had. */
TEST_TIMEOUT(capabilities_of_files_work_in_every_box, 60)
{
    struct box_spec writer, filler, user;
    struct layer_info layer;
    struct box_info info;

    rig_open();
    writer = rig_spec();
    rig_start(&writer, &info);
    RIG_CHECK_ASK("ok", writer.id, "put /program x");
    RIG_CHECK_ASK("ok", writer.id, "setcap /program");
    rig_snapshot(writer.id, "snap1", &layer);
    publish("snap1", "tree1", &layer);
    filler = spec_filling("tree2");
    rig_start(&filler, &info);
    RIG_CHECK_ASK("ok", filler.id, "put /run/layer/filled x");
    RIG_CHECK_ASK("ok", filler.id, "setcap /run/layer/filled");
    rig_kill(filler.id);
    seal("tree2", &layer);
    user = spec_on("tree1");
    (void)snprintf(user.layers[user.layer_count++], LAYER_NAME_SIZE, "tree2");
    rig_start(&user, &info);
    /* Shown as root's own inside; of another namespace it would have an id, and not count. */
    RIG_CHECK_ASK("ok 20 02000001 00002000", user.id, "getcap /program");
    RIG_CHECK_ASK("ok 20 02000001 00002000", user.id, "getcap /filled");
    rig_kill(writer.id);
    rig_kill(user.id);
    rig_layer_delete("snap1");
    rig_layer_delete("tree1");
    rig_layer_delete("tree2");
    tend_until_clean();
    rig_check_nothing_left();
    rig_close();
}

TEST_TIMEOUT(a_layer_that_is_gone_does_not_pass_for_a_snapshot, 60)
{
    struct box_spec spec, kept;
    struct layer_info layer;
    struct box_info info;
    struct error err;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    rig_snapshot(spec.id, "snap1", &layer);
    rig_stop(spec.id);
    kept = spec;
    kept.keep_disk = true;
    (void)snprintf(kept.layers[kept.layer_count++], LAYER_NAME_SIZE, "treegone");
    CHECK_INT(box_start(&rig_warden.boxes, &kept, &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    spec = spec_on("treegone");
    (void)snprintf(spec.layers[spec.layer_count++], LAYER_NAME_SIZE, "snap1");
    CHECK_INT(box_start(&rig_warden.boxes, &spec, &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    spec = spec_on("snap1");
    publish("snap1", "tree1", &layer);
    (void)snprintf(spec.layers[spec.layer_count++], LAYER_NAME_SIZE, "tree1");
    CHECK_INT(box_start(&rig_warden.boxes, &spec, &info, &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
    rig_kill(kept.id);
    rig_layer_delete("snap1");
    rig_layer_delete("tree1");
    tend_until_clean();
    rig_check_nothing_left();
    rig_close();
}

/* What a taken-over server could ask for. */
TEST_TIMEOUT(malformed_requests_for_trees_are_refused, 60)
{
    static const struct {
        enum engine_op op;
        const char *name, *snapshot, *fill;
        bool keep_disk;
    } cases[] = {
        {ENGINE_OP_LAYER_SEAL, "base", "", "", false},
        {ENGINE_OP_LAYER_SEAL, "tree/../base", "", "", false},
        {ENGINE_OP_LAYER_SEAL, "", "", "", false},
        {ENGINE_OP_LAYER_PUBLISH, "base", "snap1", "", false},
        {ENGINE_OP_LAYER_PUBLISH, "tree1", "../boxes", "", false},
        {ENGINE_OP_LAYER_PUBLISH, "tree1", "tree2", "", false},
        {ENGINE_OP_LAYER_CHECK, "..", "", "", false},
        {ENGINE_OP_SNAPSHOT, "tree1", "", "", false},
        {ENGINE_OP_START, "", "base", "base", false},
        {ENGINE_OP_START, "", "base", "tree/x", false},
        {ENGINE_OP_START, "", "base", "tree1", true},
    };
    struct error err;
    int pair[2];

    rig_open();
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    CHECK_INT(warden_serve_channel(&rig_warden, pair[0], false, &err), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct engine_request request = {.op = cases[i].op, .serial = i};
        struct engine_reply reply;
        struct box_spec spec = rig_spec();
        char name[LAYER_NAME_SIZE] = "";

        (void)snprintf(name, LAYER_NAME_SIZE, "%s", cases[i].name);
        (void)snprintf(spec.layers[0], LAYER_NAME_SIZE, "%s", cases[i].snapshot);
        (void)snprintf(spec.fill, LAYER_NAME_SIZE, "%s", cases[i].fill);
        spec.keep_disk = cases[i].keep_disk;
        any_request_fill(&request, &(struct any_request){.name = name, .spec = &spec});
        CHECK_INT(fd_send(pair[1], &request, sizeof(request), NULL, 0), 0);
        CHECK_INT(fd_recv(pair[1], &reply, sizeof(reply), NULL, NULL, 0), sizeof(reply));
        CHECK_INT(reply.status, -1);
        CHECK_INT(reply.err.code, ERROR_INVALID);
    }
    (void)close(pair[1]);
    rig_check_nothing_left();
    rig_close();
}

/* All of it over the wire, as the server asks for it. */
TEST_TIMEOUT(trees_are_made_over_the_wire, 60)
{
    int fds[WARDEN_CONTROL_CHANNELS];
    struct layer_info layer, *layers;
    struct engine *engine;
    struct box_spec spec;
    struct box_info info;
    struct error err;
    size_t count;

    rig_open();
    for (size_t i = 0; i < WARDEN_CONTROL_CHANNELS; i++) {
        int pair[2];

        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
        CHECK_INT(warden_serve_channel(&rig_warden, pair[0], false, &err), 0);
        fds[i] = pair[1];
    }
    engine = engine_warden_new(fds, WARDEN_CONTROL_CHANNELS, dup(0), rig_warden.run_dir);
    spec = spec_filling("tree1");
    CHECK_INT(engine->ops->start(engine, &spec, &info, &err), 0);
    RIG_CHECK_ASK("ok", spec.id, "put /run/layer/file text");
    RIG_CHECK_ASK("ok", spec.id, "put /file text");
    CHECK_INT(engine->ops->snapshot(engine, spec.id, "snap1", &layer, &err), 0);
    CHECK_INT(engine->ops->kill(engine, spec.id, &err), 0);
    CHECK_INT(engine->ops->layer_seal(engine, "tree1", &layer, &err), 0);
    CHECK_STR(str_of(layer.name), "tree1");
    CHECK_INT(engine->ops->layer_publish(engine, "snap1", "tree2", 1 << 20, &layer, &err), 0);
    CHECK_STR(str_of(layer.name), "tree2");
    CHECK_INT(engine->ops->layer_check(engine, "tree2", &err), 0);
    CHECK_INT(engine->ops->layer_check(engine, "snap1", &err), 0);
    CHECK_INT(engine->ops->layer_check(engine, "base", &err), 0);
    CHECK_INT(engine->ops->layer_check(engine, "tree3", &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK_INT(engine->ops->layer_list(engine, &layers, &count, &err), 0);
    CHECK_INT(count, 3);
    CHECK_STR(str_of(layers[0].name), "snap1");
    CHECK_STR(str_of(layers[2].name), "tree2");
    CHECK(layers[1].bytes >= 4096);
    free(layers);
    CHECK_INT(engine->ops->layer_delete(engine, "tree1", &err), 0);
    CHECK_INT(engine->ops->layer_delete(engine, "tree2", &err), 0);
    CHECK_INT(engine->ops->layer_delete(engine, "snap1", &err), 0);
    engine_close(engine);
    tend_until_clean();
    rig_check_nothing_left();
    rig_close();
}

/* Two different files must not look like one: a new file of the box and one of the layer. */
TEST_TIMEOUT(files_of_tree_and_box_can_be_told_apart, 120)
{
    enum { FILES = 150 };
    static char seen[2 * FILES][64];
    struct box_spec filler, user;
    struct layer_info layer;
    struct box_info info;

    rig_open();
    filler = spec_filling("tree1");
    rig_start(&filler, &info);
    for (int i = 0; i < FILES; i++)
        RIG_CHECK_ASK("ok", filler.id, "put /run/layer/old%d x", i);
    rig_kill(filler.id);
    seal("tree1", &layer);
    user = spec_on("tree1");
    rig_start(&user, &info);
    for (int i = 0; i < FILES; i++)
        RIG_CHECK_ASK("ok", user.id, "put /new%d x", i);
    for (int i = 0; i < 2 * FILES; i++) {
        const char *answer = rig_ask(user.id, "stat /%s%d", i < FILES ? "old" : "new", i % FILES);

        CHECK(strncmp(answer, "ok ", 3) == 0);
        (void)snprintf(seen[i], sizeof(seen[i]), "%.*s", (int)strcspn(answer + 3, " "), answer + 3);
        for (int j = 0; j < i; j++)
            CHECK(strcmp(seen[i], seen[j]) != 0);
    }
    rig_kill(user.id);
    rig_layer_delete("tree1");
    tend_until_clean();
    rig_check_nothing_left();
    rig_close();
}
