/* Client of the warden. A call takes a free channel, sends its request, waits for the reply and
 * gives the channel back; with all channels busy it waits for one, for a while (engine_channels.c). The warden
 * runs one thread per channel, so as many operations go on at once as there are channels. */
#include "host/engine/engine.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "host/engine/engine_channels.h"
#include "host/engine/engine_wire.h"

enum {
    REPLY_TIMEOUT_MS = 60000,
    SLOW_TIMEOUT_MS = 600000, /* bringing gigabytes to a slow disk takes its time */
    CHANNEL_TIMEOUT_MS = 30000,
    USAGE_TIMEOUT_MS = 1000, /* of a look: there will be another */
};

struct warden_engine {
    struct engine base;
    struct engine_channels *channels;
    int event_fd;
    char *run_dir;
};

static struct warden_engine *warden_of(struct engine *engine)
{
    return (struct warden_engine *)engine;
}

static int copy_id(char out[ID_SIZE], const char *id, struct error *err)
{
    if (!id_valid(str_of(id)))
        return error_set(err, ERROR_INVALID, "'%.64s' is not a sandbox id", id);
    memcpy(out, id, ID_SIZE);
    return 0;
}

static int copy_name(char out[LAYER_NAME_SIZE], const char *name, struct error *err)
{
    if (!str_copy(str_of(name), out, LAYER_NAME_SIZE))
        return error_set(err, ERROR_INVALID, "'%.64s' is not a name", name);
    return 0;
}

/* Waits for the reply to one request. Replies to requests that were given up on before come first, in
 * order: they are dropped. */
static int await(int fd, uint64_t serial, int timeout_ms, struct engine_reply *reply,
                 struct error *err)
{
    int64_t deadline = clock_mono_ms() + timeout_ms;

    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        int64_t left = deadline - clock_mono_ms();
        int r = poll(&poll_fd, 1, left > 0 ? (int)left : 0);

        if (r < 0 && errno == EINTR)
            continue;
        if (r == 0)
            return error_set(err, ERROR_TIMEOUT, "the engine did not answer in %d s",
                             timeout_ms / 1000);
        if (fd_recv(fd, reply, sizeof(*reply), NULL, NULL, 0) != (ssize_t)sizeof(*reply))
            return error_set(err, ERROR_UNAVAILABLE, "the engine is gone");
        if (reply->serial == serial)
            return 0;
    }
}

static int exchange(int fd, const struct engine_request *request, int timeout_ms,
                    struct engine_reply *reply, bool *out_answered, struct error *err)
{
    int r = fd_send(fd, request, engine_request_size(request), NULL, 0);

    if (r < 0)
        return error_set(err, ERROR_UNAVAILABLE, "the engine is gone: %s", strerror(-r));
    if (await(fd, request->serial, timeout_ms, reply, err) < 0)
        return -1;
    *out_answered = true;
    reply->err.message[sizeof(reply->err.message) - 1] = '\0';
    if (reply->status < 0) {
        *err = reply->err;
        return -1;
    }
    return 0;
}

struct manner {
    enum engine_call kind;
    int channel_ms, reply_ms;
};

/* How long what is asked for may take. */
static struct manner manner_of(uint32_t op)
{
    switch (op) {
    case ENGINE_OP_SNAPSHOT:
    case ENGINE_OP_STOP:
    case ENGINE_OP_FREEZE:
        return (struct manner){ENGINE_CALL_LINGERING, CHANNEL_TIMEOUT_MS, SLOW_TIMEOUT_MS};
    case ENGINE_OP_KILL:
        return (struct manner){ENGINE_CALL_LINGERING, CHANNEL_TIMEOUT_MS, REPLY_TIMEOUT_MS};
    case ENGINE_OP_LAYER_SEAL:
    case ENGINE_OP_LAYER_PUBLISH:
    case ENGINE_OP_LAYER_CHECK:
        return (struct manner){ENGINE_CALL_LONG, SLOW_TIMEOUT_MS, SLOW_TIMEOUT_MS};
    case ENGINE_OP_USAGE:
    case ENGINE_OP_PORTS:
        return (struct manner){ENGINE_CALL_QUICK, USAGE_TIMEOUT_MS, USAGE_TIMEOUT_MS};
    default:
        return (struct manner){ENGINE_CALL_QUICK, CHANNEL_TIMEOUT_MS, REPLY_TIMEOUT_MS};
    }
}

static int call(struct engine *engine, struct engine_request *request, struct engine_reply *reply,
                struct error *err)
{
    struct engine_channels *channels = warden_of(engine)->channels;
    struct manner manner = manner_of(request->op);
    struct engine_channel channel;
    bool answered = false;
    int r;

    if (engine_channel_take(channels, manner.kind, manner.channel_ms, &channel, err) < 0)
        return -1;
    request->serial = channel.serial;
    r = exchange(channel.fd, request, manner.reply_ms, reply, &answered, err);
    engine_channel_give(channels, &channel, answered);
    return r;
}

/* For operations on one box, with nothing else to say. */
static int call_box(struct engine *engine, enum engine_op op, const char *id,
                    struct engine_reply *reply, struct error *err)
{
    struct engine_request request = {.op = op};

    if (copy_id(request.box.id, id, err) < 0)
        return -1;
    return call(engine, &request, reply, err);
}

/* For operations on one layer or volume. */
static int call_named(struct engine *engine, enum engine_op op, const char *name, struct error *err)
{
    struct engine_request request = {.op = op};
    struct engine_reply reply = {0};

    if (copy_name(request.named.name, name, err) < 0)
        return -1;
    return call(engine, &request, &reply, err);
}

/* For operations that make a layer. */
static int call_layer(struct engine *engine, struct engine_request *request, struct layer_info *out,
                      struct error *err)
{
    struct engine_reply reply = {0};

    if (call(engine, request, &reply, err) < 0)
        return -1;
    *out = reply.layer;
    out->name[LAYER_NAME_SIZE - 1] = '\0';
    return 0;
}

static int call_spec(struct engine *engine, enum engine_op op, const struct box_spec *spec,
                     struct box_info *out, struct error *err)
{
    struct engine_request request = {.op = op, .spec = *spec};
    struct engine_reply reply = {0};

    if (call(engine, &request, &reply, err) < 0)
        return -1;
    *out = reply.box;
    return 0;
}

static int warden_start(struct engine *engine, const struct box_spec *spec, struct box_info *out,
                        struct error *err)
{
    return call_spec(engine, ENGINE_OP_START, spec, out, err);
}

static int warden_claim(struct engine *engine, const struct box_spec *spec, struct box_info *out,
                        struct error *err)
{
    return call_spec(engine, ENGINE_OP_CLAIM, spec, out, err);
}

static int warden_kill(struct engine *engine, const char *id, struct error *err)
{
    struct engine_reply reply = {0};

    return call_box(engine, ENGINE_OP_KILL, id, &reply, err);
}

static int warden_stop(struct engine *engine, const char *id, struct error *err)
{
    struct engine_reply reply = {0};

    return call_box(engine, ENGINE_OP_STOP, id, &reply, err);
}

static int warden_usage(struct engine *engine, const char *id, struct box_usage *out,
                        struct error *err)
{
    struct engine_reply reply = {0};

    if (call_box(engine, ENGINE_OP_USAGE, id, &reply, err) < 0)
        return -1;
    *out = reply.usage;
    return 0;
}

static int warden_ports(struct engine *engine, const char *id, struct box_ports *out,
                        struct error *err)
{
    struct engine_reply reply = {0};

    if (call_box(engine, ENGINE_OP_PORTS, id, &reply, err) < 0)
        return -1;
    *out = reply.ports;
    if (out->count > BOX_PORTS_MAX)
        return error_set(err, ERROR_INTERNAL, "the engine's list of ports is broken");
    return 0;
}

static int warden_space(struct engine *engine, struct engine_space *out, struct error *err)
{
    struct engine_request request = {.op = ENGINE_OP_SPACE};
    struct engine_reply reply = {0};

    if (call(engine, &request, &reply, err) < 0)
        return -1;
    *out = reply.space;
    return 0;
}

static int warden_connect_envd(struct engine *engine, const char *id)
{
    return engine_socket_connect(warden_of(engine)->run_dir, id);
}

static int warden_find_envd(struct engine *engine, const char *id, char *out, size_t size)
{
    char path[ENGINE_SOCKET_PATH_SIZE];

    return engine_socket_path(warden_of(engine)->run_dir, id, path) == 0 &&
                   str_copy(str_of(path), out, size)
               ? 0
               : -ENAMETOOLONG;
}

static int warden_snapshot(struct engine *engine, const char *id, const char *layer,
                           struct layer_info *out, struct error *err)
{
    struct engine_request request = {.op = ENGINE_OP_SNAPSHOT};

    if (copy_id(request.snapshot.id, id, err) < 0 ||
        copy_name(request.snapshot.layer, layer, err) < 0)
        return -1;
    return call_layer(engine, &request, out, err);
}

static int warden_layer_delete(struct engine *engine, const char *layer, struct error *err)
{
    return call_named(engine, ENGINE_OP_LAYER_DELETE, layer, err);
}

static int warden_layer_list(struct engine *engine, struct layer_info **out, size_t *out_count,
                             struct error *err)
{
    auto_free struct layer_info *layers = NULL;
    struct engine_request request = {.op = ENGINE_OP_LAYER_LIST};
    struct engine_reply reply = {0};
    size_t count = 0;

    do {
        if (call(engine, &request, &reply, err) < 0)
            return -1;
        if (reply.count > ENGINE_LIST_PAGE)
            return error_set(err, ERROR_INTERNAL, "the engine's list is broken");
        layers = xrealloc(layers, (count + reply.count + 1) * sizeof(*layers));
        memcpy(layers + count, reply.layers, reply.count * sizeof(*layers));
        count += reply.count;
        if (count)
            memcpy(request.layer_list.after, layers[count - 1].name, LAYER_NAME_SIZE);
    } while (reply.count == ENGINE_LIST_PAGE);
    *out = take_ptr(&layers);
    *out_count = count;
    return 0;
}

static int warden_layer_seal(struct engine *engine, const char *layer, struct layer_info *out,
                             struct error *err)
{
    struct engine_request request = {.op = ENGINE_OP_LAYER_SEAL};

    if (copy_name(request.named.name, layer, err) < 0)
        return -1;
    return call_layer(engine, &request, out, err);
}

static int warden_layer_publish(struct engine *engine, const char *snapshot, const char *layer,
                                uint64_t limit_bytes, struct layer_info *out, struct error *err)
{
    struct engine_request request = {.op = ENGINE_OP_LAYER_PUBLISH,
                                     .layer_publish.limit_bytes = limit_bytes};

    if (copy_name(request.layer_publish.snapshot, snapshot, err) < 0 ||
        copy_name(request.layer_publish.layer, layer, err) < 0)
        return -1;
    return call_layer(engine, &request, out, err);
}

static int warden_layer_check(struct engine *engine, const char *layer, struct error *err)
{
    return call_named(engine, ENGINE_OP_LAYER_CHECK, layer, err);
}

static int warden_volume_create(struct engine *engine, const char *name, uint64_t disk_bytes,
                                struct error *err)
{
    struct engine_request request = {.op = ENGINE_OP_VOLUME_CREATE,
                                     .volume_create.disk_bytes = disk_bytes};
    struct engine_reply reply = {0};

    if (copy_name(request.volume_create.name, name, err) < 0)
        return -1;
    return call(engine, &request, &reply, err);
}

static int warden_volume_delete(struct engine *engine, const char *name, struct error *err)
{
    return call_named(engine, ENGINE_OP_VOLUME_DELETE, name, err);
}

static int warden_volume_usage(struct engine *engine, const char *name, uint64_t *out_bytes,
                               struct error *err)
{
    struct engine_request request = {.op = ENGINE_OP_VOLUME_USAGE};
    struct engine_reply reply = {0};

    if (copy_name(request.named.name, name, err) < 0 || call(engine, &request, &reply, err) < 0)
        return -1;
    *out_bytes = reply.bytes;
    return 0;
}

static int warden_limit(struct engine *engine, const char *id, const struct box_limits *limits,
                        struct error *err)
{
    struct engine_request request = {.op = ENGINE_OP_LIMIT, .limit.limits = *limits};
    struct engine_reply reply = {0};

    if (copy_id(request.limit.id, id, err) < 0)
        return -1;
    return call(engine, &request, &reply, err);
}

static int warden_network(struct engine *engine, const char *id, const struct box_network *network,
                          struct error *err)
{
    struct engine_request request = {.op = ENGINE_OP_NETWORK, .network.network = *network};
    struct engine_reply reply = {0};

    if (copy_id(request.network.id, id, err) < 0)
        return -1;
    return call(engine, &request, &reply, err);
}

static int warden_freeze(struct engine *engine, const char *id, bool frozen, struct error *err)
{
    struct engine_request request = {.op = ENGINE_OP_FREEZE, .freeze.frozen = frozen};
    struct engine_reply reply = {0};

    if (copy_id(request.freeze.id, id, err) < 0)
        return -1;
    return call(engine, &request, &reply, err);
}

static int warden_list(struct engine *engine, struct box_info **out, size_t *out_count,
                       struct error *err)
{
    auto_free struct box_info *boxes = NULL;
    size_t count = 0;
    struct engine_reply reply = {0};

    do {
        struct engine_request request = {.op = ENGINE_OP_LIST, .list.offset = (uint32_t)count};

        if (call(engine, &request, &reply, err) < 0)
            return -1;
        if (reply.count > ENGINE_LIST_PAGE)
            return error_set(err, ERROR_INTERNAL, "the engine's list is broken");
        boxes = xrealloc(boxes, (count + reply.count + 1) * sizeof(*boxes));
        memcpy(boxes + count, reply.boxes, reply.count * sizeof(*boxes));
        count += reply.count;
    } while (reply.count == ENGINE_LIST_PAGE);
    *out = take_ptr(&boxes);
    *out_count = count;
    return 0;
}

static int warden_next_event(struct engine *engine, uint32_t timeout_ms, struct engine_event *out,
                             struct error *err)
{
    int fd = warden_of(engine)->event_fd;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    int r;

    r = poll(&poll_fd, 1, (int)timeout_ms);
    if (r == 0 || (r < 0 && errno == EINTR))
        return error_set(err, ERROR_TIMEOUT, "no event");
    if (fd_recv(fd, out, sizeof(*out), NULL, NULL, 0) != (ssize_t)sizeof(*out))
        return error_set(err, ERROR_UNAVAILABLE, "the engine is gone");
    out->id[ID_SIZE - 1] = '\0';
    return 0;
}

static void warden_close(struct engine *engine)
{
    struct warden_engine *warden = warden_of(engine);

    engine_channels_free(warden->channels);
    (void)close(warden->event_fd);
    free(warden->run_dir);
    free(warden);
}

static const struct engine_ops warden_ops = {
    .start = warden_start,
    .claim = warden_claim,
    .kill = warden_kill,
    .limit = warden_limit,
    .network = warden_network,
    .list = warden_list,
    .freeze = warden_freeze,
    .stop = warden_stop,
    .snapshot = warden_snapshot,
    .layer_delete = warden_layer_delete,
    .layer_list = warden_layer_list,
    .layer_seal = warden_layer_seal,
    .layer_publish = warden_layer_publish,
    .layer_check = warden_layer_check,
    .connect_envd = warden_connect_envd,
    .find_envd = warden_find_envd,
    .usage = warden_usage,
    .ports = warden_ports,
    .space = warden_space,
    .volume_create = warden_volume_create,
    .volume_delete = warden_volume_delete,
    .volume_usage = warden_volume_usage,
    .next_event = warden_next_event,
    .close = warden_close,
};

struct engine *engine_warden_new(const int *control_fds, size_t count, int event_fd,
                                 const char *run_dir)
{
    struct warden_engine *warden = xcalloc(1, sizeof(*warden));

    warden->base.ops = &warden_ops;
    warden->event_fd = event_fd;
    warden->run_dir = xstrdup(run_dir);
    warden->channels = engine_channels_new(control_fds, count);
    return &warden->base;
}
