/* Answering the server's requests. Every field that an operation uses is checked here, whatever the
 * server checked before: the server is the part that an attacker could have taken over. The worst it
 * can ask for is what the API offers anyway: start, stop, copy, limit and end sandboxes. */
#include "host/warden/warden_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/cond.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"
#include "host/engine/engine_wire.h"

static bool name_valid(const char name[LAYER_NAME_SIZE])
{
    size_t len = strnlen(name, LAYER_NAME_SIZE);

    if (len == 0 || len == LAYER_NAME_SIZE)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9')))
            return false;
    return true;
}

/* Anything but 0 and 1 in a bool is undefined behaviour waiting to happen. */
static bool flag_valid(const bool *flag)
{
    unsigned char byte;

    memcpy(&byte, flag, 1);
    return byte <= 1;
}

static int check_disk(uint64_t bytes, struct error *err)
{
    if (bytes > (UINT64_C(1) << 50))
        return error_set(err, ERROR_INVALID, "disk limit out of range");
    return 0;
}

static int check_limits(const struct box_limits *limits, struct error *err)
{
    if (limits->mem_bytes < (16u << 20) || limits->mem_bytes > (UINT64_C(1) << 44))
        return error_set(err, ERROR_INVALID, "memory limit out of range");
    if (check_disk(limits->disk_bytes, err) < 0)
        return -1;
    if (limits->cpu_count == 0 || limits->cpu_count > 1024)
        return error_set(err, ERROR_INVALID, "cpu limit out of range");
    if (limits->pids_max < 8 || limits->pids_max > 1000000)
        return error_set(err, ERROR_INVALID, "process limit out of range");
    if (!flag_valid(&limits->yields))
        return error_set(err, ERROR_INVALID, "a flag is neither true nor false");
    return 0;
}

/* Places that belong to the box's own mounts. */
static bool path_reserved(struct str path)
{
    static const char *const tops[] = {"proc", "sys", "dev"};
    struct str rest = str_skip(path, 1);
    struct str top = str_split(&rest, '/');

    for (size_t i = 0; i < sizeof(tops) / sizeof(*tops); i++)
        if (str_is(top, tops[i]))
            return true;
    return false;
}

/* Absolute, and every component a name. */
static bool path_valid(const char path[VOLUME_PATH_SIZE])
{
    size_t len = strnlen(path, VOLUME_PATH_SIZE);
    struct str rest = str_n(path, len);

    if (len < 2 || len == VOLUME_PATH_SIZE || path[0] != '/' || path_reserved(rest))
        return false;
    rest = str_skip(rest, 1);
    while (rest.p) {
        struct str name = str_split(&rest, '/');

        if (name.len == 0 || str_is(name, ".") || str_is(name, ".."))
            return false;
    }
    return true;
}

static int check_volumes(const struct box_spec *spec, struct error *err)
{
    if (spec->volume_count > BOX_VOLUMES_MAX)
        return error_set(err, ERROR_INVALID, "%u volumes", spec->volume_count);
    for (uint32_t i = 0; i < spec->volume_count; i++) {
        if (!name_valid(spec->volumes[i].name))
            return error_set(err, ERROR_INVALID, "volume %u has no valid name", i);
        if (!path_valid(spec->volumes[i].path))
            return error_set(err, ERROR_INVALID, "volume %u has no valid path", i);
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(spec->volumes[i].path, spec->volumes[j].path) == 0)
                return error_set(err, ERROR_INVALID, "two volumes on one path");
    }
    return 0;
}

static int check_flags(const struct box_spec *spec, struct error *err)
{
    if (!flag_valid(&spec->keep_disk) || !flag_valid(&spec->background) ||
        !flag_valid(&spec->blank) || !flag_valid(&spec->feed) || !flag_valid(&spec->refuse_clones))
        return error_set(err, ERROR_INVALID, "a flag is neither true nor false");
    return 0;
}

static int check_network(const struct box_network *network, struct error *err)
{
    uint64_t count = (uint64_t)network->allow_count + network->deny_count;

    if (network->mode > NETWORK_FILTERED)
        return error_set(err, ERROR_INVALID, "no mode %u of the network", network->mode);
    if (count > BOX_RANGES_MAX)
        return error_set(err, ERROR_INVALID, "more than %d ranges of addresses", BOX_RANGES_MAX);
    for (uint64_t i = 0; i < count; i++) {
        const struct box_range *range = &network->ranges[i];

        if (range->prefix > 32 || (uint64_t)range->address << range->prefix & UINT32_MAX)
            return error_set(err, ERROR_INVALID, "not a range of addresses");
    }
    return 0;
}

static int check_id(const char id[ID_SIZE], struct error *err)
{
    if (strnlen(id, ID_SIZE) != ID_LEN || !id_valid(str_of(id)))
        return error_set(err, ERROR_INVALID, "not a sandbox id");
    return 0;
}

static int check_source(const struct box_spec *spec, struct error *err)
{
    if (spec->source[0] == '\0')
        return 0;
    if (spec->keep_disk || check_id(spec->source, err) < 0 || strcmp(spec->source, spec->id) == 0)
        return error_set(err, ERROR_INVALID, "not a box to copy");
    return 0;
}

/* Who goes on from its files has an id, and the blank box that it goes on in another. */
static int check_claim(const struct box_spec *spec, struct error *err)
{
    if (spec->blank)
        return error_set(err, ERROR_INVALID, "not a box to make of a blank one");
    if (!spec->keep_disk && spec->blank_id[0] == '\0')
        return 0;
    if (!spec->keep_disk || check_id(spec->blank_id, err) < 0 ||
        strcmp(spec->blank_id, spec->id) == 0)
        return error_set(err, ERROR_INVALID, "not a blank box to go on in");
    return 0;
}

static bool tree_name_valid(const char name[LAYER_NAME_SIZE])
{
    return name_valid(name) && layer_is_tree(name);
}

/* Only a new box fills a tree, and none fills what it lies on. */
static int check_fill(const struct box_spec *spec, struct error *err)
{
    if (spec->fill[0] == '\0')
        return 0;
    if (!tree_name_valid(spec->fill) || spec->keep_disk)
        return error_set(err, ERROR_INVALID, "not a tree to fill");
    return 0;
}

static int check_blank(const struct box_spec *spec, struct error *err)
{
    if (spec->layer_count || spec->volume_count || spec->source[0] || spec->keep_disk ||
        spec->feed || spec->fill[0])
        return error_set(err, ERROR_INVALID, "a blank box has no files");
    return 0;
}

static int check_spec(const struct box_spec *spec, struct error *err)
{
    if (check_flags(spec, err) < 0 || check_network(&spec->network, err) < 0 ||
        check_limits(&spec->limits, err) < 0)
        return -1;
    if (spec->blank)
        return check_blank(spec, err);
    if (spec->layer_count == 0 || spec->layer_count > BOX_LAYERS_MAX)
        return error_set(err, ERROR_INVALID, "%u layers", spec->layer_count);
    for (uint32_t i = 0; i < spec->layer_count; i++)
        if (!name_valid(spec->layers[i]))
            return error_set(err, ERROR_INVALID, "layer %u has no valid name", i);
    return check_source(spec, err) < 0 || check_volumes(spec, err) < 0 ? -1 : check_fill(spec, err);
}

static int check_name(const char name[LAYER_NAME_SIZE], struct error *err)
{
    return name_valid(name) ? 0 : error_set(err, ERROR_INVALID, "not a name");
}

static int check_tree_name(const char name[LAYER_NAME_SIZE], struct error *err)
{
    return tree_name_valid(name) ? 0 : error_set(err, ERROR_INVALID, "not the name of a tree");
}

static int check_snapshot_name(const char name[LAYER_NAME_SIZE], struct error *err)
{
    return name_valid(name) && !layer_is_tree(name)
               ? 0
               : error_set(err, ERROR_INVALID, "not the name of a snapshot");
}

enum {
    END_WAIT_S = 120, /* longer than any operation takes */
    STACK_SIZE = 256 * 1024,
};

struct channel {
    struct list link;
    struct warden *warden;
    int fd;
    bool dial;
    /* the box that is being started on it; NULL = none */
    struct box_engine *starting;
    char starting_id[ID_SIZE];
};

static int list_layers(struct warden *warden, const char after[LAYER_NAME_SIZE],
                       struct engine_reply *reply, struct error *err)
{
    int count;

    if (after[0] && check_name(after, err) < 0)
        return -1;
    count = warden_layer_list(warden, after, reply->layers, ENGINE_LIST_PAGE, err);
    reply->count = count < 0 ? 0 : (uint32_t)count;
    return count < 0 ? -1 : 0;
}

/* With the lock. Has another engine a box of this id, or is it about to? */
static bool is_anothers(const struct warden *warden, const struct box_engine *engine,
                        const char *id)
{
    struct list *node;

    for (size_t i = 0; i < warden->engine_count; i++)
        if (warden->engines[i] != engine && warden->engines[i]->ops->has(warden->engines[i], id))
            return true;
    list_for_each (node, &warden->channels) {
        const struct channel *channel = container_of(node, struct channel, link);

        if (channel->starting && channel->starting != engine &&
            strcmp(channel->starting_id, id) == 0)
            return true;
    }
    return false;
}

static int start(struct channel *channel, const struct box_spec *spec, struct box_info *out,
                 struct error *err)
{
    struct warden *warden = channel->warden;
    struct box_engine *engine = warden_engine(warden, spec->engine);
    bool taken;
    int r;

    if (!engine)
        return error_set(err, ERROR_INVALID, "no engine of kind %u", spec->engine);
    if (spec->blank && !engine->ops->claim)
        return error_set(err, ERROR_UNSUPPORTED, "this engine has no blank boxes");
    (void)pthread_mutex_lock(&warden->lock);
    taken = is_anothers(warden, engine, spec->id);
    if (!taken) {
        memcpy(channel->starting_id, spec->id, ID_SIZE);
        channel->starting = engine;
    }
    (void)pthread_mutex_unlock(&warden->lock);
    if (taken)
        return error_set(err, ERROR_EXISTS, "box '%s' exists", spec->id);
    r = engine->ops->start(engine, spec, out, err);
    (void)pthread_mutex_lock(&warden->lock);
    channel->starting = NULL;
    (void)pthread_mutex_unlock(&warden->lock);
    return r;
}

/* Those on one box that is there, or not. */
static int dispatch_box(const struct warden *warden, const struct engine_request *request,
                        struct engine_reply *reply, struct error *err)
{
    const struct box_spec *spec = &request->spec;
    const char *id = request->box.id;
    struct box_engine *engine = warden_engine_of(warden, id);
    const struct box_engine_ops *ops = engine->ops;

    switch (request->op) {
    case ENGINE_OP_CLAIM:
        if (check_spec(spec, err) < 0 || check_claim(spec, err) < 0)
            return -1;
        if (!ops->claim)
            return error_set(err, ERROR_UNSUPPORTED, "this engine has no blank boxes");
        return ops->claim(engine, spec, &reply->box, err);
    case ENGINE_OP_KILL:
        return ops->kill(engine, id, err);
    case ENGINE_OP_STOP:
        return ops->stop(engine, id, err);
    case ENGINE_OP_LIMIT:
        return check_limits(&request->limit.limits, err) < 0
                   ? -1
                   : ops->limit(engine, id, &request->limit.limits, err);
    case ENGINE_OP_NETWORK:
        return check_network(&request->network.network, err) < 0
                   ? -1
                   : ops->network(engine, id, &request->network.network, err);
    case ENGINE_OP_FREEZE:
        return ops->freeze(engine, id, request->freeze.frozen, err);
    case ENGINE_OP_USAGE:
        return ops->usage(engine, id, &reply->usage, err);
    case ENGINE_OP_PORTS:
        return ops->ports(engine, id, &reply->ports, err);
    case ENGINE_OP_SNAPSHOT:
        return check_snapshot_name(request->snapshot.layer, err) < 0
                   ? -1
                   : ops->snapshot(engine, id, request->snapshot.layer, &reply->layer, err);
    default:
        return error_set(err, ERROR_INVALID, "unknown operation %u", request->op);
    }
}

static int publish(struct warden *warden, const struct engine_request *request,
                   struct layer_info *out, struct error *err)
{
    const char *snapshot = request->layer_publish.snapshot, *layer = request->layer_publish.layer;
    uint64_t limit_bytes = request->layer_publish.limit_bytes;

    if (check_snapshot_name(snapshot, err) < 0 || check_tree_name(layer, err) < 0 ||
        check_disk(limit_bytes, err) < 0)
        return -1;
    return warden_layer_publish(warden, snapshot, layer, limit_bytes, out, err);
}

static int create_volume(struct warden *warden, const struct engine_request *request,
                         struct error *err)
{
    const char *name = request->volume_create.name;
    uint64_t disk_bytes = request->volume_create.disk_bytes;

    if (check_name(name, err) < 0 || check_disk(disk_bytes, err) < 0)
        return -1;
    return warden_volume_create(warden, name, disk_bytes, err);
}

/* Those on layers and volumes. */
static int dispatch_pool(struct warden *warden, const struct engine_request *request,
                         struct engine_reply *reply, struct error *err)
{
    const char *name = request->named.name;

    switch (request->op) {
    case ENGINE_OP_LAYER_LIST:
        return list_layers(warden, request->layer_list.after, reply, err);
    case ENGINE_OP_LAYER_DELETE:
        return check_name(name, err) < 0 ? -1 : warden_layer_delete(warden, name, err);
    case ENGINE_OP_LAYER_SEAL:
        return check_tree_name(name, err) < 0 ? -1
                                              : warden_layer_seal(warden, name, &reply->layer, err);
    case ENGINE_OP_LAYER_PUBLISH:
        return publish(warden, request, &reply->layer, err);
    case ENGINE_OP_LAYER_CHECK:
        return check_name(name, err) < 0 ? -1 : warden_layer_check(warden, name, err);
    case ENGINE_OP_VOLUME_CREATE:
        return create_volume(warden, request, err);
    case ENGINE_OP_VOLUME_USAGE:
        return check_name(name, err) < 0 ? -1
                                         : warden_volume_usage(warden, name, &reply->bytes, err);
    default:
        return check_name(name, err) < 0 ? -1 : warden_volume_delete(warden, name, err);
    }
}

static int dispatch(struct channel *channel, const struct engine_request *request,
                    struct engine_reply *reply, struct error *err)
{
    struct warden *warden = channel->warden;

    switch (request->op) {
    case ENGINE_OP_LIST:
        reply->count =
            (uint32_t)warden_list(warden, request->list.offset, reply->boxes, ENGINE_LIST_PAGE);
        return 0;
    case ENGINE_OP_SPACE:
        return warden_space(warden, &reply->space, err);
    case ENGINE_OP_LAYER_LIST:
    case ENGINE_OP_LAYER_DELETE:
    case ENGINE_OP_LAYER_SEAL:
    case ENGINE_OP_LAYER_PUBLISH:
    case ENGINE_OP_LAYER_CHECK:
    case ENGINE_OP_VOLUME_CREATE:
    case ENGINE_OP_VOLUME_DELETE:
    case ENGINE_OP_VOLUME_USAGE:
        return dispatch_pool(warden, request, reply, err);
    case ENGINE_OP_START:
        return check_id(request->spec.id, err) < 0 || check_spec(&request->spec, err) < 0
                   ? -1
                   : start(channel, &request->spec, &reply->box, err);
    default:
        return check_id(request->box.id, err) < 0 ? -1 : dispatch_box(warden, request, reply, err);
    }
}

static int dispatch_dial(const struct warden *warden, const struct engine_dial_request *request,
                         int *out_fd, struct error *err)
{
    struct box_engine *engine;

    if (check_id(request->id, err) < 0)
        return -1;
    if (request->port == 0 || request->port > 65535)
        return error_set(err, ERROR_INVALID, "port %u out of range", request->port);
    if (request->kind > ENGINE_DIAL_UDP)
        return error_set(err, ERROR_INVALID, "no such kind of socket");
    engine = warden_engine_of(warden, request->id);
    return engine->ops->dial(engine, request->id, (uint16_t)request->port,
                             (enum engine_dial_kind)request->kind, out_fd, err);
}

/* A whole request; false when the other end is gone or sends anything else. */
static bool receive(int fd, struct engine_request *out)
{
    ssize_t got = fd_recv(fd, out, sizeof(*out), NULL, NULL, 0);

    return got >= (ssize_t)offsetof(struct engine_request, spec) &&
           got >= (ssize_t)engine_request_size(out);
}

static void serve_control(struct channel *channel)
{
    struct engine_request request;
    struct engine_reply reply;

    for (size_t i = 0; i < channel->warden->engine_count; i++)
        channel->warden->engines[i]->ops->enter_thread(channel->warden->engines[i]);
    while (receive(channel->fd, &request)) {
        memset(&reply, 0, sizeof(reply));
        reply.serial = request.serial;
        reply.status = dispatch(channel, &request, &reply, &reply.err);
        if (fd_send(channel->fd, &reply, sizeof(reply), NULL, 0) < 0)
            break;
    }
}

static void serve_dial(const struct channel *channel)
{
    struct engine_dial_request request;

    while (fd_recv(channel->fd, &request, sizeof(request), NULL, NULL, 0) ==
           (ssize_t)sizeof(request)) {
        struct engine_dial_reply reply = {.serial = request.serial};
        auto_close int socket_fd = -1;
        struct error err = {0};

        reply.status = dispatch_dial(channel->warden, &request, &socket_fd, &err);
        reply.errnum = err.errnum;
        if (fd_send(channel->fd, &reply, sizeof(reply), &socket_fd, socket_fd >= 0) < 0)
            break;
    }
}

/* From here on nothing of the warden is used. */
static void forget(struct channel *channel)
{
    struct warden *warden = channel->warden;

    (void)pthread_mutex_lock(&warden->lock);
    list_remove(&channel->link);
    (void)close(channel->fd);
    free(channel);
    (void)pthread_cond_broadcast(&warden->channel_ended);
    (void)pthread_mutex_unlock(&warden->lock);
}

static void serve(void *arg)
{
    struct channel *channel = arg;

    if (channel->dial)
        serve_dial(channel);
    else
        serve_control(channel);
    forget(channel);
}

int warden_serve_channel(struct warden *warden, int fd_consume, bool dial, struct error *err)
{
    struct channel *channel = xcalloc(1, sizeof(*channel));

    *channel = (struct channel){.warden = warden, .fd = fd_consume, .dial = dial};
    (void)pthread_mutex_lock(&warden->lock);
    list_push_back(&warden->channels, &channel->link);
    (void)pthread_mutex_unlock(&warden->lock);
    if (thread_start_detached("channel", STACK_SIZE, serve, channel, err) == 0)
        return 0;
    forget(channel);
    return -1;
}

bool warden_serve_end(struct warden *warden)
{
    int64_t deadline_us = clock_mono_us() + END_WAIT_S * INT64_C(1000000);
    struct list *node;
    bool ended;

    (void)pthread_mutex_lock(&warden->lock);
    list_for_each (node, &warden->channels)
        (void)shutdown(container_of(node, struct channel, link)->fd, SHUT_RDWR);
    while (!list_empty(&warden->channels) &&
           cond_wait_until(&warden->channel_ended, &warden->lock, deadline_us))
        ;
    ended = list_empty(&warden->channels);
    (void)pthread_mutex_unlock(&warden->lock);
    return ended;
}
