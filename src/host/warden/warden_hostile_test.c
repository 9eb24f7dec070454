/* A server that somebody has taken over, against a real warden: random sequences of requests with real boxes, layers and
 * volumes, and links that lead out of the data directory wherever the server, or a guest, can put one. The warden has to
 * survive, every request with the right length gets an answer, and nothing outside the data directory is read into a box,
 * changed or removed.
 *
 * HOSTILE_SEED chooses another sequence, HOSTILE_STEPS another length. */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "host/warden/test/any_request.h"
#include "host/warden/test/warden_rig.h"

enum { STEPS = 1000, BOXES = 3, SERVER_UID = 64737 };

static struct {
    char outside[32];
    char before[4096]; /* how it looked */
    char ids[BOXES][ID_SIZE];
    uint64_t seed;
    int channels[2]; /* control, dial */
    unsigned started, succeeded;
} world;

static uint64_t number(uint64_t below)
{
    world.seed ^= world.seed << 13;
    world.seed ^= world.seed >> 7;
    world.seed ^= world.seed << 17;
    return world.seed % below;
}

#define PICK(list) (list)[number(sizeof(list) / sizeof(*(list)))]

/* ---- what must not be touched ---- */

static void put_file(const char *dir, const char *name, const char *text)
{
    char path[256];
    auto_close int fd = -1;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fd_write_full(fd, text, strlen(text)) == 0);
}

static char *description;
static size_t description_size;

static int describe_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    size_t len = strlen(description);

    (void)type;
    (void)at;
    (void)snprintf(description + len, description_size - len, "%s %u %o %lu %lld %lld.%09ld\n",
                   path, st->st_uid, st->st_mode, (unsigned long)st->st_nlink,
                   (long long)st->st_size, (long long)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
    return 0;
}

/* Names, owners, modes, links, sizes and times of change of all that is there. */
static void describe(const char *path, char *out, size_t size)
{
    out[0] = '\0';
    description = out;
    description_size = size;
    CHECK(nftw(path, describe_one, 8, FTW_PHYS) == 0 && out[0]);
}

static void make_outside(void)
{
    char path[64];

    (void)snprintf(world.outside, sizeof(world.outside), "/var/tmp/qs-outside-XXXXXX");
    CHECK(mkdtemp(world.outside));
    put_file(world.outside, "secret", "of the host");
    (void)snprintf(path, sizeof(path), "%s/upper", world.outside);
    CHECK(mkdir(path, 0755) == 0);
    put_file(path, "deep", "of the host");
    describe(world.outside, world.before, sizeof(world.before));
}

static void check_outside(void)
{
    char now[sizeof(world.before)], layer[128];

    describe(world.outside, now, sizeof(now));
    CHECK_STR(str_of(now), world.before);
    /* What the operator installed is not the server's to delete. */
    (void)snprintf(layer, sizeof(layer), "%s/layer/lower/dir/x", rig_data_dir);
    CHECK(access(layer, F_OK) == 0);
}

/* ---- links that lead there ---- */

static void put_link(const char *dir, const char *name, const char *to)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s/%s", rig_data_dir, dir, name);
    (void)path_remove_tree(AT_FDCWD, path);
    CHECK(symlink(to, path) == 0);
}

/* In the base layer, where volumes, the feed and the tree to fill get their mount points. */
static void put_guest_links(void)
{
    char target[128];

    (void)snprintf(target, sizeof(target), "../../../../../../../..%s", world.outside);
    put_link("layer", "data", world.outside);
    put_link("layer", "up", target);
    put_link("layer", "self", "/proc/self/root");
}

/* What the server may do with its own directory, for the box that it starts next. */
static void put_feed(const char *id)
{
    char path[256], inner[300];

    (void)snprintf(path, sizeof(path), "%s/feeds/%s", rig_data_dir, id);
    (void)path_remove_tree(AT_FDCWD, path);
    switch (number(6)) {
    case 0:
        CHECK(symlink(world.outside, path) == 0);
        break;
    case 1:
        CHECK(mkfifo(path, 0600) == 0 && chown(path, SERVER_UID, SERVER_UID) == 0);
        break;
    case 2: /* not the server's */
        CHECK(mkdir(path, 0755) == 0);
        break;
    case 3:
        break;
    default:
        CHECK(mkdir(path, 0755) == 0 && chown(path, SERVER_UID, SERVER_UID) == 0);
        (void)snprintf(inner, sizeof(inner), "%s/link", path);
        CHECK(symlink(world.outside, inner) == 0);
    }
}

/* ---- requests ---- */

static const char *const names[] = {"base", "treea", "treeb", "snapa", "snapb", "vola",
                                    "volb", "",      "..",    "a/b",   "tree",  "BASE"};
static const char *const paths[] = {
    "/data", "/data/upper", "/up/upper", "/self/tmp", "/lower",    "/lower/dir", "/new/deep",
    "/..",   "/a/../b",     "/proc/x",   "",          "/run/feed", "/run/layer"};

static void put_spec(struct box_spec *spec)
{
    static const char *const bad_ids[] = {"", "../../../../etc/pass", "i", "IAAAAAAAAAAAAAAAAAAA"};

    *spec = rig_spec();
    memcpy(spec->id, world.ids[number(BOXES)], ID_SIZE);
    if (number(16) == 0)
        (void)snprintf(spec->id, sizeof(spec->id), "%s", PICK(bad_ids));
    spec->layer_count += number(8) == 0;
    (void)snprintf(spec->layers[1], sizeof(spec->layers[1]), "%s", PICK(names));
    spec->volume_count = number(3) == 0 ? (uint32_t)number(3) : 0;
    for (uint32_t i = 0; i < spec->volume_count; i++) {
        (void)snprintf(spec->volumes[i].name, sizeof(spec->volumes[i].name), "%s", PICK(names));
        (void)snprintf(spec->volumes[i].path, sizeof(spec->volumes[i].path), "%s", PICK(paths));
    }
    spec->feed = number(5) == 0;
    spec->keep_disk = number(10) == 0;
    spec->blank = number(8) == 0;
    if (spec->blank) {
        spec->layer_count = spec->volume_count = 0;
        spec->feed = spec->keep_disk = false;
    }
    if (number(12) == 0)
        memcpy(spec->source, world.ids[number(BOXES)], ID_SIZE);
    if (number(12) == 0)
        memcpy(spec->blank_id, world.ids[number(BOXES)], ID_SIZE);
    if (!spec->blank && number(8) == 0)
        (void)snprintf(spec->fill, sizeof(spec->fill), "%s", PICK(names));
    spec->network.mode = (uint32_t)number(3);
}

static void send_request(const struct engine_request *request)
{
    static struct engine_reply reply;

    CHECK_INT(fd_send(world.channels[0], request, engine_request_size(request), NULL, 0), 0);
    CHECK_INT(fd_recv(world.channels[0], &reply, sizeof(reply), NULL, NULL, 0), (int)sizeof(reply));
    CHECK(reply.serial == request->serial);
    world.started += reply.status == 0 && request->op == ENGINE_OP_START;
    world.succeeded += reply.status == 0;
}

static void send_kill(const char *id)
{
    static struct engine_request request;

    memset(&request, 0, sizeof(request));
    request.op = ENGINE_OP_KILL;
    memcpy(request.box.id, id, ID_SIZE);
    send_request(&request);
}

static void send_random(uint64_t serial)
{
    static const uint32_t often[] = {ENGINE_OP_START, ENGINE_OP_START, ENGINE_OP_CLAIM,
                                     ENGINE_OP_KILL};
    static struct engine_request request;
    static struct box_spec spec;
    char name[LAYER_NAME_SIZE] = "";

    memset(&request, 0, sizeof(request));
    request.op =
        number(3) == 0 ? PICK(often) : 1 + (uint32_t)number(ENGINE_OP_LAYER_CHECK + UINT64_C(1));
    request.serial = serial;
    (void)snprintf(name, sizeof(name), "%s", PICK(names));
    memset(&spec, 0, sizeof(spec));
    put_spec(&spec);
    if (request.op == ENGINE_OP_START && number(4))
        send_kill(spec.id); /* else most ids are taken */
    if (spec.feed && id_valid(str_of(spec.id)))
        put_feed(spec.id);
    /* Never frozen: a frozen box does not answer, but that is all. */
    any_request_fill(&request, &(struct any_request){.name = name, .spec = &spec});
    send_request(&request);
}

static void dial_random(uint64_t serial)
{
    struct engine_dial_request request = {
        .serial = serial, .port = (uint32_t)number(70000), .kind = (uint8_t)number(4)};
    struct engine_dial_reply reply;
    size_t fd_count = 1;
    int fd = -1;

    memcpy(request.id, world.ids[number(BOXES)], ID_SIZE);
    CHECK_INT(fd_send(world.channels[1], &request, sizeof(request), NULL, 0), 0);
    CHECK_INT(fd_recv(world.channels[1], &reply, sizeof(reply), &fd, &fd_count, 0),
              (int)sizeof(reply));
    CHECK(reply.serial == serial && fd_count == (reply.status == 0));
    if (fd_count)
        (void)close(fd);
}

static void open_channels(void)
{
    for (int i = 0; i < 2; i++) {
        int pair[2];

        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
        OK(warden_serve_channel(&rig_warden, pair[1], i == 1, &err));
        world.channels[i] = pair[0];
    }
}

static uint64_t setting(const char *name, uint64_t usual)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : usual;
}

static void end_all(void)
{
    for (int i = 0; i < BOXES; i++)
        send_kill(world.ids[i]);
    for (int i = 0; i < 2; i++)
        (void)close(world.channels[i]);
}

TEST_TIMEOUT(a_hostile_server_cannot_lead_the_warden_out_of_the_data_directory, 120)
{
    uint64_t steps = setting("HOSTILE_STEPS", STEPS);

    world.seed = setting("HOSTILE_SEED", 20261118) | 1;
    (void)printf("HOSTILE_SEED=%llu\n", (unsigned long long)world.seed);
    rig_open();
    make_outside();
    put_guest_links();
    for (int i = 0; i < BOXES; i++)
        id_make(world.ids[i]);
    open_channels();
    for (uint64_t i = 0; i < steps; i++) {
        if (number(8) == 0)
            dial_random(i);
        else
            send_random(i);
        if (i % 25 == 0)
            check_outside();
    }
    end_all();
    check_outside();
    (void)printf("%u of %llu requests succeeded, %u boxes\n", world.succeeded,
                 (unsigned long long)steps, world.started);
    CHECK(world.started > 30); /* not everything was refused at the door */
    rig_check_nothing_left();
    rig_close();
    (void)path_remove_tree(AT_FDCWD, world.outside);
}

/* A link in the place of what is mounted or filled leads nowhere: the box sees no file of the host. */
TEST(a_box_whose_mount_points_are_links_sees_nothing_of_the_host)
{
    struct box_spec spec;
    struct box_info info;
    struct error why;

    rig_open();
    make_outside();
    put_guest_links();
    OK(warden_volume_create(&rig_warden, "vola", 1 << 20, &err));
    for (size_t i = 0; i < 3; i++) {
        static const char *const where[] = {"/data", "/up/upper", "/self/tmp"};

        spec = rig_spec();
        spec.volume_count = 1;
        (void)snprintf(spec.volumes[0].name, sizeof(spec.volumes[0].name), "vola");
        (void)snprintf(spec.volumes[0].path, sizeof(spec.volumes[0].path), "%s", where[i]);
        if (box_start(&rig_warden.boxes, &spec, &info, &why) == 0)
            rig_kill(spec.id);
        check_outside();
    }
    spec = rig_spec();
    spec.feed = true;
    put_link("feeds", spec.id, world.outside);
    FAILS(box_start(&rig_warden.boxes, &spec, &info, &err), ERROR_INTERNAL);
    check_outside();
    put_link("layer", "run", world.outside); /* every box has something mounted there */
    spec = rig_spec();
    FAILS(box_start(&rig_warden.boxes, &spec, &info, &err), ERROR_INTERNAL);
    check_outside();
    rig_close();
    (void)path_remove_tree(AT_FDCWD, world.outside);
}
