/* Volumes, and the new operations as the server asks for them. */
#include "host/warden/test/any_request.h"
#include "host/warden/test/warden_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "host/engine/engine_wire.h"

static void add_volume(struct box_spec *spec, const char *name, const char *path)
{
    struct box_volume *volume = &spec->volumes[spec->volume_count++];

    CHECK(str_copy(str_of(name), volume->name, sizeof(volume->name)));
    CHECK(str_copy(str_of(path), volume->path, sizeof(volume->path)));
}

TEST_TIMEOUT(boxes_share_a_volume_that_outlives_them, 60)
{
    struct box_spec one, two;
    struct box_info info;
    struct error err;
    struct stat st;
    uint64_t bytes = 0;
    char path[256];

    rig_open();
    one = rig_spec();
    two = rig_spec();
    CHECK_INT(warden_volume_create(&rig_warden, "data", 0, &err), 0);
    CHECK_INT(warden_volume_create(&rig_warden, "data", 0, &err), 0);
    CHECK_INT(warden_volume_create(&rig_warden, "more", 0, &err), 0);
    add_volume(&one, "data", "/mnt/deep/data");
    add_volume(&one, "more", "/mnt/deep/data/more");
    add_volume(&two, "data", "/lower/dir");
    rig_start(&one, &info);
    rig_start(&two, &info);
    RIG_CHECK_ASK("ok", one.id, "put /mnt/deep/data/f text");
    RIG_CHECK_ASK("ok text", two.id, "get /lower/dir/f");
    CHECK_INT(warden_volume_usage(&rig_warden, "data", &bytes, &err), 0);
    CHECK(bytes > 0 && bytes < 1 << 20);
    CHECK_INT(warden_volume_usage(&rig_warden, "none", &bytes, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    RIG_CHECK_ASK("errno 2", two.id, "get /lower/dir/x");
    /* Root inside is root on the disk and in the other box, and nobody on the host between. */
    (void)snprintf(path, sizeof(path), "%s/pool/volumes/data/data/f", rig_data_dir);
    CHECK(stat(path, &st) == 0);
    CHECK_INT(st.st_uid, 0);
    CHECK(strstr(rig_ask(two.id, "stat /lower/dir/f"), " 4 0"));
    /* No subvolumes, which would have no quota, and no copies by reference, which escape it. */
    RIG_CHECK_ASK("errno 25", one.id, "subvolume /mnt/deep/data nested");
    RIG_CHECK_ASK("errno 95", one.id, "clone /mnt/deep/data/f /mnt/deep/data/more/g");
    RIG_CHECK_ASK("errno 18", one.id, "range /mnt/deep/data/f /mnt/deep/data/more/g");
    RIG_CHECK_ASK("errno 95", two.id, "clone /lower/dir/f /lower/dir/g");
    CHECK_INT(warden_volume_delete(&rig_warden, "data", &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    rig_restart();
    CHECK_INT(warden_volume_delete(&rig_warden, "data", &err), -1);
    rig_kill(two.id);
    rig_stop(one.id);
    one.keep_disk = true;
    rig_start(&one, &info);
    RIG_CHECK_ASK("ok text", one.id, "get /mnt/deep/data/f");
    rig_kill(one.id);
    CHECK_INT(warden_volume_delete(&rig_warden, "data", &err), 0);
    CHECK_INT(warden_volume_delete(&rig_warden, "data", &err), 0);
    one.keep_disk = false;
    id_make(one.id);
    CHECK_INT(box_start(&rig_warden.boxes, &one, &info, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK_INT(warden_volume_delete(&rig_warden, "more", &err), 0);
    rig_close();
}

TEST_TIMEOUT(boxes_without_a_volume_copy_by_reference, 60)
{
    struct box_spec spec;
    struct box_info info;

    rig_open();
    spec = rig_spec();
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "put /f text");
    RIG_CHECK_ASK("ok", spec.id, "clone /f /g");
    RIG_CHECK_ASK("ok text", spec.id, "get /g");
    RIG_CHECK_ASK("ok", spec.id, "range /f /h");
    RIG_CHECK_ASK("ok text", spec.id, "get /h");
    rig_kill(spec.id);
    rig_close();
}

/* The way to a volume's place leads through files that guests wrote. */
TEST_TIMEOUT(links_do_not_lead_volumes_astray, 60)
{
    struct layer_info layer;
    struct box_spec spec;
    struct box_info info;
    struct error err;

    rig_open();
    spec = rig_spec();
    CHECK_INT(warden_volume_create(&rig_warden, "data", 0, &err), 0);
    rig_start(&spec, &info);
    RIG_CHECK_ASK("ok", spec.id, "symlink /proc /mnt");
    RIG_CHECK_ASK("ok", spec.id, "put /plain text");
    rig_snapshot(spec.id, "snap", &layer);
    rig_kill(spec.id);
    for (int i = 0; i < 3; i++) {
        static const char *const paths[] = {"/mnt", "/mnt/sub", "/plain/sub"};

        spec = rig_spec();
        (void)snprintf(spec.layers[spec.layer_count++], LAYER_NAME_SIZE, "snap");
        add_volume(&spec, "data", paths[i]);
        CHECK_INT(box_start(&rig_warden.boxes, &spec, &info, &err), -1);
        rig_check_nothing_left();
    }
    rig_close();
}

static int pair[2];

static struct engine *open_engine(void)
{
    int events[2];
    struct error err;

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, events) == 0);
    CHECK_INT(warden_serve_channel(&rig_warden, pair[0], false, &err), 0);
    return engine_warden_new(&pair[1], 1, events[0], rig_warden.run_dir);
}

TEST_TIMEOUT(the_server_can_ask_for_everything, 60)
{
    struct layer_info layer, *layers;
    struct box_info info, *boxes;
    struct box_usage usage;
    struct engine *engine;
    struct box_spec spec;
    struct error err;
    size_t count;

    rig_open();
    engine = open_engine();
    spec = rig_spec();
    CHECK_INT(engine->ops->volume_create(engine, "data", 64 << 20, &err), 0);
    add_volume(&spec, "data", "/data");
    CHECK_INT(engine->ops->start(engine, &spec, &info, &err), 0);
    RIG_CHECK_ASK("ok", spec.id, "put /data/f text");
    CHECK_INT(engine->ops->usage(engine, spec.id, &usage, &err), 0);
    CHECK(usage.pids == 1 && !usage.frozen);
    CHECK_INT(engine->ops->freeze(engine, spec.id, true, &err), 0);
    CHECK_INT(engine->ops->usage(engine, spec.id, &usage, &err), 0);
    CHECK(usage.frozen);
    CHECK_INT(engine->ops->snapshot(engine, spec.id, "snap", &layer, &err), 0);
    CHECK_INT(engine->ops->usage(engine, spec.id, &usage, &err), 0);
    CHECK(usage.disk_bytes > 0);
    CHECK_STR(str_of(layer.name), "snap");
    CHECK_INT(engine->ops->layer_list(engine, &layers, &count, &err), 0);
    CHECK_INT(count, 1);
    CHECK_STR(str_of(layers[0].name), "snap");
    CHECK_INT(layers[0].bytes, layer.bytes);
    free(layers);
    CHECK_INT(engine->ops->stop(engine, spec.id, &err), 0);
    CHECK_INT(engine->ops->list(engine, &boxes, &count, &err), 0);
    CHECK(count == 1 && !boxes[0].running);
    free(boxes);
    spec.keep_disk = true;
    CHECK_INT(engine->ops->start(engine, &spec, &info, &err), 0);
    CHECK_INT(engine->ops->volume_delete(engine, "data", &err), -1);
    CHECK_INT(err.code, ERROR_CONFLICT);
    CHECK_INT(engine->ops->kill(engine, spec.id, &err), 0);
    CHECK_INT(engine->ops->volume_delete(engine, "data", &err), 0);
    CHECK_INT(engine->ops->layer_delete(engine, "snap", &err), 0);
    CHECK_INT(engine->ops->layer_delete(engine, "../snap", &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
    CHECK_INT(engine->ops->volume_create(engine, "", 0, &err), -1);
    CHECK_INT(
        engine->ops->volume_create(engine, "a-name-that-is-far-too-long-for-a-volume", 0, &err),
        -1);
    CHECK_INT(engine->ops->layer_list(engine, &layers, &count, &err), 0);
    CHECK_INT(count, 0);
    free(layers);
    engine_close(engine);
    rig_check_nothing_left();
    rig_close();
}

static void check_refused(const struct engine_request *request)
{
    struct engine_reply reply;

    CHECK_INT(fd_send(pair[1], request, sizeof(*request), NULL, 0), 0);
    CHECK_INT(fd_recv(pair[1], &reply, sizeof(reply), NULL, NULL, 0), sizeof(reply));
    CHECK_INT(reply.status, -1);
    CHECK_INT(reply.err.code, ERROR_INVALID);
}

TEST_TIMEOUT(malformed_volumes_and_names_are_refused, 60)
{
    static const char *const paths[] = {"",      "/",    "data",    "/a//b", "/a/",   "/../x",
                                        "/a/..", "/./a", "/proc/x", "/sys",  "/dev/x"};
    static const uint32_t named[] = {ENGINE_OP_LAYER_DELETE, ENGINE_OP_VOLUME_CREATE,
                                     ENGINE_OP_VOLUME_DELETE, ENGINE_OP_VOLUME_USAGE,
                                     ENGINE_OP_SNAPSHOT};
    static const char *const names[] = {"", "..", "a/b", "A", "a.b", "a_b"};
    struct engine_request request;
    struct error err;

    rig_open();
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    CHECK_INT(warden_serve_channel(&rig_warden, pair[0], false, &err), 0);
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        request = (struct engine_request){.op = ENGINE_OP_START, .spec = rig_spec()};
        add_volume(&request.spec, "data", paths[i]);
        check_refused(&request);
    }
    request.spec.volumes[0].path[0] = '/';
    memset(request.spec.volumes[0].path + 1, 'a', VOLUME_PATH_SIZE - 1);
    check_refused(&request);
    request.spec = rig_spec();
    request.spec.volume_count = BOX_VOLUMES_MAX + 1;
    check_refused(&request);
    request.spec = rig_spec();
    add_volume(&request.spec, "data", "/a");
    add_volume(&request.spec, "data", "/a");
    check_refused(&request);
    request.spec = rig_spec();
    memset(&request.spec.keep_disk, 2, 1);
    check_refused(&request);
    for (size_t i = 0; i < sizeof(named) / sizeof(*named); i++)
        for (size_t j = 0; j <= sizeof(names) / sizeof(*names); j++) {
            struct box_spec spec = rig_spec();
            char name[LAYER_NAME_SIZE] = "";

            request = (struct engine_request){.op = named[i]};
            if (j < sizeof(names) / sizeof(*names))
                (void)snprintf(name, sizeof(name), "%s", names[j]);
            else
                memset(name, 'a', sizeof(name));
            any_request_fill(&request, &(struct any_request){.name = name, .spec = &spec});
            check_refused(&request);
        }
    (void)close(pair[1]);
    rig_check_nothing_left();
    rig_close();
}
