/* Requests of a server that somebody has taken over: whatever the bytes are, what reaches the host's side
 * has names that are names, paths that stay inside, numbers within their limits. The bytes are the request
 * from its beginning; the rest of it is zero. A first byte of 255: the rest is one to dial. */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "host/engine/engine_wire.h"
#include "host/warden/warden_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
    if (!good)
        abort();
}

static void check_id(const char *id)
{
    check(strnlen(id, ID_SIZE) == ID_LEN && id_valid(str_of(id)));
}

static void check_name(const char *name)
{
    check(name[0] && strnlen(name, LAYER_NAME_SIZE) < LAYER_NAME_SIZE && !strpbrk(name, "./"));
}

static void check_tree(const char *name)
{
    check_name(name);
    check(strncmp(name, "tree", 4) == 0);
}

static void check_limits(const struct box_limits *limits)
{
    check(limits->mem_bytes >= 1 << 20 && limits->cpu_count > 0 && limits->pids_max > 0);
}

static void check_path(const char *path)
{
    struct str rest = str_n(path, strnlen(path, VOLUME_PATH_SIZE));

    check(rest.len < VOLUME_PATH_SIZE && path[0] == '/');
    check(strncmp(path, "/proc", 5) != 0 || (path[5] && path[5] != '/'));
    rest = str_skip(rest, 1);
    while (rest.p) {
        struct str part = str_split(&rest, '/');

        check(part.len > 0 && !str_is(part, ".") && !str_is(part, ".."));
    }
}

/* ---- the host's side ---- */

static void check_network(const struct box_network *network)
{
    uint64_t count = (uint64_t)network->allow_count + network->deny_count;

    check(network->mode <= NETWORK_FILTERED && count <= BOX_RANGES_MAX);
    for (uint64_t i = 0; i < count; i++)
        check(network->ranges[i].prefix <= 32 &&
              box_range_has(&network->ranges[i], network->ranges[i].address));
}

static int fuzz_start(struct box_engine *engine, const struct box_spec *spec, struct box_info *out,
                      struct error *err)
{
    (void)engine;
    (void)out;
    (void)err;
    check_id(spec->id);
    check_limits(&spec->limits);
    check_network(&spec->network);
    if (spec->blank) {
        check(!spec->layer_count && !spec->volume_count && !spec->source[0] && !spec->fill[0]);
        return 0;
    }
    check(spec->layer_count > 0 && spec->layer_count <= BOX_LAYERS_MAX &&
          spec->volume_count <= BOX_VOLUMES_MAX);
    for (uint32_t i = 0; i < spec->layer_count; i++)
        check_name(spec->layers[i]);
    for (uint32_t i = 0; i < spec->volume_count; i++) {
        check_name(spec->volumes[i].name);
        check_path(spec->volumes[i].path);
    }
    if (spec->source[0])
        check_id(spec->source);
    if (spec->fill[0])
        check_tree(spec->fill);
    check(!spec->fill[0] || !spec->keep_disk);
    return 0;
}

static int fuzz_claim(struct box_engine *engine, const struct box_spec *spec, struct box_info *out,
                      struct error *err)
{
    check(!spec->blank && spec->keep_disk == (spec->blank_id[0] != '\0'));
    if (spec->keep_disk) {
        check_id(spec->blank_id);
        check(strcmp(spec->blank_id, spec->id) != 0);
    }
    return fuzz_start(engine, spec, out, err);
}

static int fuzz_kill(struct box_engine *engine, const char *id, struct error *err)
{
    (void)engine;
    (void)err;
    check_id(id);
    return 0;
}

static int fuzz_stop(struct box_engine *engine, const char *id, struct error *err)
{
    return fuzz_kill(engine, id, err);
}

static int fuzz_limit(struct box_engine *engine, const char *id, const struct box_limits *limits,
                      struct error *err)
{
    check_limits(limits);
    return fuzz_kill(engine, id, err);
}

static int fuzz_network(struct box_engine *engine, const char *id,
                        const struct box_network *network, struct error *err)
{
    check_network(network);
    return fuzz_kill(engine, id, err);
}

static int fuzz_freeze(struct box_engine *engine, const char *id, bool frozen, struct error *err)
{
    (void)frozen;
    return fuzz_kill(engine, id, err);
}

static int fuzz_usage(struct box_engine *engine, const char *id, struct box_usage *out,
                      struct error *err)
{
    (void)out;
    return fuzz_kill(engine, id, err);
}

int warden_space(struct warden *warden, struct engine_space *out, struct error *err)
{
    (void)warden;
    (void)out;
    (void)err;
    return 0;
}

static int fuzz_snapshot(struct box_engine *engine, const char *id, const char *layer,
                         struct layer_info *out, struct error *err)
{
    (void)out;
    check_name(layer);
    return fuzz_kill(engine, id, err);
}

int warden_layer_delete(struct warden *warden, const char *layer, struct error *err)
{
    (void)warden;
    (void)err;
    check_name(layer);
    return 0;
}

int warden_layer_seal(struct warden *warden, const char *layer, struct layer_info *out,
                      struct error *err)
{
    (void)warden;
    (void)out;
    (void)err;
    check_tree(layer);
    return 0;
}

int warden_layer_publish(struct warden *warden, const char *snapshot, const char *layer,
                         uint64_t limit_bytes, struct layer_info *out, struct error *err)
{
    check(limit_bytes <= UINT64_C(1) << 50);
    check_name(snapshot);
    check(strncmp(snapshot, "tree", 4) != 0);
    return warden_layer_seal(warden, layer, out, err);
}

int warden_layer_check(struct warden *warden, const char *layer, struct error *err)
{
    return warden_layer_delete(warden, layer, err);
}

int warden_layer_list(struct warden *warden, const char *after, struct layer_info *out, size_t max,
                      struct error *err)
{
    (void)out;
    check(max == ENGINE_LIST_PAGE);
    return after[0] ? warden_layer_delete(warden, after, err) : 0;
}

int warden_volume_create(struct warden *warden, const char *name, uint64_t limit_bytes,
                         struct error *err)
{
    check(limit_bytes <= UINT64_C(1) << 50);
    return warden_layer_delete(warden, name, err);
}

int warden_volume_delete(struct warden *warden, const char *name, struct error *err)
{
    return warden_layer_delete(warden, name, err);
}

int warden_volume_usage(struct warden *warden, const char *name, uint64_t *out_bytes,
                        struct error *err)
{
    *out_bytes = 1;
    return warden_layer_delete(warden, name, err);
}

static int fuzz_dial(struct box_engine *engine, const char *id, uint16_t port,
                     enum engine_dial_kind kind, int *out_fd, struct error *err)
{
    (void)out_fd;
    check(port > 0 && kind <= ENGINE_DIAL_UDP);
    return fuzz_kill(engine, id, err);
}

static size_t fuzz_list(struct box_engine *engine, size_t offset, struct box_info *out, size_t max)
{
    (void)engine;
    (void)offset;
    (void)out;
    return max == ENGINE_LIST_PAGE ? 0 : max;
}

static bool fuzz_has(struct box_engine *engine, const char *id)
{
    (void)engine;
    check_id(id);
    return false;
}

static size_t fuzz_count(struct box_engine *engine, bool live)
{
    (void)engine;
    (void)live;
    return SIZE_MAX;
}

static void fuzz_enter_thread(struct box_engine *engine)
{
    (void)engine;
}

static struct box_engine fuzz_engine = {
    .kind = ENGINE_NATIVE,
    .ops =
        &(const struct box_engine_ops){
            .has = fuzz_has,
            .start = fuzz_start,
            .claim = fuzz_claim,
            .kill = fuzz_kill,
            .stop = fuzz_stop,
            .limit = fuzz_limit,
            .network = fuzz_network,
            .freeze = fuzz_freeze,
            .usage = fuzz_usage,
            .snapshot = fuzz_snapshot,
            .dial = fuzz_dial,
            .list = fuzz_list,
            .count = fuzz_count,
            .enter_thread = fuzz_enter_thread,
        },
};

/* ---- the server's side ---- */

static int channels[2] = {-1, -1}; /* control, dial */

static void open_channels(void)
{
    static struct warden warden;

    list_init(&warden.channels);
    warden_engine_add(&warden, &fuzz_engine);
    check(pthread_mutex_init(&warden.lock, NULL) == 0);
    for (int dial = 0; dial < 2; dial++) {
        struct error err;
        int pair[2];

        check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
        check(warden_serve_channel(&warden, pair[1], dial, &err) == 0);
        channels[dial] = pair[0];
    }
}

static void dial(const uint8_t *data, size_t size)
{
    struct engine_dial_request request = {0};
    struct engine_dial_reply reply;

    memcpy(&request, data, size < sizeof(request) ? size : sizeof(request));
    check(fd_send(channels[1], &request, sizeof(request), NULL, 0) >= 0);
    check(fd_recv(channels[1], &reply, sizeof(reply), NULL, NULL, 0) == (ssize_t)sizeof(reply));
    check(reply.serial == request.serial && (reply.status == 0 || reply.status == -1));
}

static void ask(const uint8_t *data, size_t size)
{
    static struct engine_request request;
    static struct engine_reply reply;

    memset(&request, 0, sizeof(request));
    memcpy(&request, data, size < sizeof(request) ? size : sizeof(request));
    check(fd_send(channels[0], &request, sizeof(request), NULL, 0) >= 0);
    check(fd_recv(channels[0], &reply, sizeof(reply), NULL, NULL, 0) == (ssize_t)sizeof(reply));
    check(reply.serial == request.serial && (reply.status == 0 || reply.status == -1) &&
          reply.count <= ENGINE_LIST_PAGE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (channels[0] < 0)
        open_channels();
    if (size > 0 && data[0] == 255)
        dial(data + 1, size - 1);
    else
        ask(data, size);
    return 0;
}
