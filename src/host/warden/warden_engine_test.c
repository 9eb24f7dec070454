/* Two engines side by side in one warden: the native one, and one whose boxes are names in a list. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "host/engine/engine_wire.h"
#include "host/warden/test/warden_rig.h"

enum { KIND_PAPER = 2, PAPER_MAX = 80 };

static struct paper {
    struct box_engine engine;
    char ids[PAPER_MAX][ID_SIZE];
    size_t count, frozen;
    struct box_limits limits;
    struct box_network network;
} paper;

static int find(const char *id)
{
    for (size_t i = 0; i < paper.count; i++)
        if (strcmp(paper.ids[i], id) == 0)
            return (int)i;
    return -1;
}

static bool paper_has(struct box_engine *engine, const char *id)
{
    CHECK(engine == &paper.engine);
    return find(id) >= 0;
}

static int paper_start(struct box_engine *engine, const struct box_spec *spec, struct box_info *out,
                       struct error *err)
{
    CHECK(engine == &paper.engine && spec->engine == KIND_PAPER);
    if (paper.count == PAPER_MAX)
        return error_set(err, ERROR_QUOTA, "no paper left");
    memcpy(paper.ids[paper.count++], spec->id, ID_SIZE);
    out->running = true;
    memcpy(out->id, spec->id, ID_SIZE);
    return 0;
}

static int paper_kill(struct box_engine *engine, const char *id, struct error *err)
{
    int at = find(id);

    (void)engine;
    (void)err;
    if (at >= 0)
        memcpy(paper.ids[at], paper.ids[--paper.count], ID_SIZE);
    return 0;
}

static int paper_stop(struct box_engine *engine, const char *id, struct error *err)
{
    (void)engine;
    return error_set(err, ERROR_UNSUPPORTED, "paper box '%s' cannot be stopped", id);
}

static int paper_limit(struct box_engine *engine, const char *id, const struct box_limits *limits,
                       struct error *err)
{
    (void)engine;
    (void)id;
    (void)err;
    paper.limits = *limits;
    return 0;
}

static int paper_network(struct box_engine *engine, const char *id,
                         const struct box_network *network, struct error *err)
{
    (void)engine;
    (void)id;
    (void)err;
    paper.network = *network;
    return 0;
}

static int paper_freeze(struct box_engine *engine, const char *id, bool frozen, struct error *err)
{
    (void)engine;
    (void)id;
    (void)err;
    paper.frozen += frozen;
    return 0;
}

static int paper_dial(struct box_engine *engine, const char *id, uint16_t port,
                      enum engine_dial_kind kind, int *out_fd, struct error *err)
{
    (void)engine;
    (void)id;
    (void)port;
    (void)kind;
    *out_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    return *out_fd >= 0 ? 0 : error_set(err, ERROR_INTERNAL, "no socket");
}

static size_t paper_list(struct box_engine *engine, size_t offset, struct box_info *out, size_t max)
{
    size_t count = 0;

    (void)engine;
    for (size_t i = offset; i < paper.count && count < max; i++) {
        out[count] = (struct box_info){.running = true};
        memcpy(out[count++].id, paper.ids[i], ID_SIZE);
    }
    return count;
}

static size_t paper_count(struct box_engine *engine, bool live)
{
    (void)engine;
    (void)live;
    return paper.count;
}

static bool paper_uses(struct box_engine *engine, const char *name)
{
    (void)engine;
    return paper.count > 0 && strcmp(name, "papers") == 0;
}

static size_t paper_end_all(struct box_engine *engine, bool dead_only, struct error *err)
{
    (void)engine;
    (void)err;
    if (!dead_only)
        paper.count = 0;
    return 0;
}

static void paper_nothing(struct box_engine *engine)
{
    (void)engine;
}

static const struct box_engine_ops paper_ops = {
    .has = paper_has,
    .start = paper_start,
    .kill = paper_kill,
    .stop = paper_stop,
    .limit = paper_limit,
    .network = paper_network,
    .freeze = paper_freeze,
    .dial = paper_dial,
    .list = paper_list,
    .count = paper_count,
    .uses_layer = paper_uses,
    .uses_volume = paper_uses,
    .end_all = paper_end_all,
    .enter_thread = paper_nothing,
    .tend = paper_nothing,
};

static struct engine *engine; /* as the server has it: over a channel */
static int dial_fd;

static void open_both(void)
{
    int control[2], dial[2], event[2];
    struct error err;

    rig_open();
    paper = (struct paper){
        .engine = {.kind = (enum engine_kind)KIND_PAPER, .ops = &paper_ops, .event_fd = -1}};
    warden_engine_add(&rig_warden, &paper.engine);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) == 0 &&
          socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, dial) == 0 &&
          socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, event) == 0);
    CHECK_INT(warden_serve_channel(&rig_warden, control[0], false, &err), 0);
    CHECK_INT(warden_serve_channel(&rig_warden, dial[0], true, &err), 0);
    (void)close(event[0]);
    engine = engine_warden_new(&control[1], 1, event[1], rig_warden.run_dir);
    dial_fd = dial[1];
}

static void close_both(void)
{
    engine_close(engine);
    (void)close(dial_fd);
    rig_check_nothing_left();
    rig_close();
}

static struct box_spec spec_of(uint32_t kind)
{
    struct box_spec spec = rig_spec();

    spec.engine = kind;
    return spec;
}

static int dial(const char *id)
{
    struct engine_dial_request request = {.port = 80};
    struct engine_dial_reply reply;
    int fds[1] = {-1};
    size_t count = 1;

    memcpy(request.id, id, ID_SIZE);
    CHECK_INT(fd_send(dial_fd, &request, sizeof(request), NULL, 0), 0);
    CHECK_INT(fd_recv(dial_fd, &reply, sizeof(reply), fds, &count, 0), sizeof(reply));
    return count ? fds[0] : -1;
}

static bool is_socket(int fd)
{
    int type = 0;
    socklen_t size = sizeof(type);

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

TEST_TIMEOUT(each_box_is_served_by_the_engine_of_its_kind, 60)
{
    struct box_spec native, other;
    struct box_info info, *list;
    struct box_usage usage;
    size_t count;
    int fd;

    open_both();
    native = spec_of(ENGINE_NATIVE);
    other = spec_of(KIND_PAPER);
    OK(engine->ops->start(engine, &native, &info, &err));
    OK(engine->ops->start(engine, &other, &info, &err));
    CHECK(info.running && strcmp(info.id, other.id) == 0);
    CHECK_INT(boxes_count(&rig_warden.boxes), 1);
    CHECK_INT(paper.count, 1);

    OK(engine->ops->list(engine, &list, &count, &err));
    CHECK_INT(count, 2);
    CHECK_STR(str_of(list[0].id), native.id);
    CHECK_STR(str_of(list[1].id), other.id);
    free(list);

    OK(engine->ops->usage(engine, native.id, &usage, &err));
    other.limits.cpu_count = 7;
    OK(engine->ops->limit(engine, other.id, &other.limits, &err));
    CHECK_INT(paper.limits.cpu_count, 7);
    OK(engine->ops->network(engine, other.id, &(struct box_network){.mode = NETWORK_OPEN}, &err));
    CHECK_INT(paper.network.mode, NETWORK_OPEN);
    OK(engine->ops->freeze(engine, native.id, true, &err));
    OK(engine->ops->freeze(engine, native.id, false, &err));
    CHECK_INT(paper.frozen, 0);
    OK(engine->ops->freeze(engine, other.id, true, &err));
    CHECK_INT(paper.frozen, 1);

    fd = dial(native.id);
    CHECK(is_socket(fd) && close(fd) == 0);
    fd = dial(other.id);
    CHECK(fd >= 0 && !is_socket(fd) && close(fd) == 0);

    OK(engine->ops->kill(engine, other.id, &err));
    CHECK_INT(paper.count, 0);
    CHECK_INT(boxes_count(&rig_warden.boxes), 1);
    OK(engine->ops->kill(engine, native.id, &err));
    OK(engine->ops->kill(engine, other.id, &err)); /* nobody has it */
    close_both();
}

TEST_TIMEOUT(a_kind_that_is_not_there_is_refused, 60)
{
    static const uint32_t kinds[] = {0, 3, UINT32_MAX};
    struct box_info info;

    open_both();
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        struct box_spec spec = spec_of(kinds[i]);

        FAILS(engine->ops->start(engine, &spec, &info, &err), ERROR_INVALID);
    }
    close_both();
}

TEST_TIMEOUT(one_id_is_one_box_whatever_its_engine, 60)
{
    struct box_spec spec;
    struct box_info info;

    open_both();
    spec = spec_of(KIND_PAPER);
    OK(engine->ops->start(engine, &spec, &info, &err));
    spec.engine = ENGINE_NATIVE;
    FAILS(engine->ops->start(engine, &spec, &info, &err), ERROR_EXISTS);
    OK(engine->ops->kill(engine, spec.id, &err));
    OK(engine->ops->start(engine, &spec, &info, &err));
    spec.engine = KIND_PAPER;
    FAILS(engine->ops->start(engine, &spec, &info, &err), ERROR_EXISTS);
    OK(engine->ops->kill(engine, spec.id, &err));
    close_both();
}

/* Lists come in pages, layers and volumes are of all. */
TEST_TIMEOUT(lists_and_what_is_in_use_are_of_all_engines, 60)
{
    struct box_spec native, other;
    struct box_info info, *list;
    size_t count;

    open_both();
    native = spec_of(ENGINE_NATIVE);
    OK(engine->ops->start(engine, &native, &info, &err));
    for (int i = 0; i < PAPER_MAX; i++) {
        other = spec_of(KIND_PAPER);
        OK(engine->ops->start(engine, &other, &info, &err));
    }
    OK(engine->ops->list(engine, &list, &count, &err));
    CHECK_INT(count, PAPER_MAX + 1);
    for (size_t i = 1; i < count; i++)
        CHECK_STR(str_of(list[i].id), paper.ids[i - 1]);
    free(list);
    FAILS(engine->ops->layer_delete(engine, "papers", &err), ERROR_CONFLICT);
    FAILS(engine->ops->volume_delete(engine, "papers", &err), ERROR_CONFLICT);
    OK(engine->ops->kill(engine, native.id, &err));
    CHECK(warden_runs_boxes(&rig_warden));
    CHECK_INT(warden_end_all(&rig_warden, false, &(struct error){0}), 0);
    CHECK(!warden_runs_boxes(&rig_warden));
    OK(engine->ops->layer_delete(engine, "papers", &err));
    close_both();
}

/* A record says whose box it is: native neither lists nor cleans up what another engine keeps. */
TEST_TIMEOUT(records_of_another_engine_are_left_alone, 60)
{
    static const char text[] = "5 other 0 0\nlayers base\nvolumes\nengine 2\n";
    struct box_spec mine, theirs;
    struct box_info info;
    char path[128];
    int fd;

    rig_open();
    mine = rig_spec();
    theirs = rig_spec();
    rig_start(&mine, &info);
    (void)snprintf(path, sizeof(path), "%s/run/%s.box", rig_data_dir, theirs.id);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fd_write_full(fd, text, sizeof(text) - 1) == 0 && close(fd) == 0);
    rig_restart();
    CHECK(boxes_has(&rig_warden.boxes, mine.id) && !boxes_has(&rig_warden.boxes, theirs.id));
    OK(box_kill(&rig_warden.boxes, theirs.id, &err));
    CHECK(access(path, F_OK) == 0);

    /* One of a time without kinds is native's. */
    fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    CHECK(fd >= 0 && fd_write_full(fd, text, strlen("5 other 0 0\n")) == 0 && close(fd) == 0);
    rig_restart();
    CHECK(boxes_has(&rig_warden.boxes, theirs.id));
    rig_kill(theirs.id);
    rig_kill(mine.id);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
    rig_check_nothing_left();
    rig_close();
}
