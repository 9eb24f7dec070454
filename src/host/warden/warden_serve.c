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

static int check_disk(const struct box_limits *limits, struct error *err)
{
    if (limits->disk_bytes > (UINT64_C(1) << 50))
        return error_set(err, ERROR_INVALID, "disk limit out of range");
    return 0;
}

static int check_limits(const struct box_limits *limits, struct error *err)
{
    if (limits->mem_bytes < (16u << 20) || limits->mem_bytes > (UINT64_C(1) << 44))
        return error_set(err, ERROR_INVALID, "memory limit out of range");
    if (check_disk(limits, err) < 0)
        return -1;
    if (limits->cpu_count == 0 || limits->cpu_count > 1024)
        return error_set(err, ERROR_INVALID, "cpu limit out of range");
    if (limits->pids_max < 8 || limits->pids_max > 1000000)
        return error_set(err, ERROR_INVALID, "process limit out of range");
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

/* Anything but 0 and 1 in a bool is undefined behaviour waiting to happen. */
static bool flag_valid(const bool *flag)
{
    unsigned char byte;

    memcpy(&byte, flag, 1);
    return byte <= 1;
}

static int check_flags(const struct box_spec *spec, struct error *err)
{
    if (!flag_valid(&spec->internet) || !flag_valid(&spec->keep_disk) ||
        !flag_valid(&spec->background))
        return error_set(err, ERROR_INVALID, "a flag is neither true nor false");
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

static int check_spec(const struct box_spec *spec, struct error *err)
{
    if (spec->layer_count == 0 || spec->layer_count > BOX_LAYERS_MAX)
        return error_set(err, ERROR_INVALID, "%u layers", spec->layer_count);
    for (uint32_t i = 0; i < spec->layer_count; i++)
        if (!name_valid(spec->layers[i]))
            return error_set(err, ERROR_INVALID, "layer %u has no valid name", i);
    if (check_flags(spec, err) < 0 || check_source(spec, err) < 0 || check_volumes(spec, err) < 0)
        return -1;
    return check_limits(&spec->limits, err);
}

static int check_name(const char name[LAYER_NAME_SIZE], struct error *err)
{
    return name_valid(name) ? 0 : error_set(err, ERROR_INVALID, "not a name");
}

static int list_layers(struct boxes *boxes, const char after[LAYER_NAME_SIZE],
                       struct engine_reply *reply, struct error *err)
{
    int count;

    if (after[0] && check_name(after, err) < 0)
        return -1;
    count = box_layer_list(boxes, after, reply->layers, ENGINE_LIST_PAGE, err);
    reply->count = count < 0 ? 0 : (uint32_t)count;
    return count < 0 ? -1 : 0;
}

/* Those on one box. */
static int dispatch_box(struct boxes *boxes, const struct engine_request *request,
                        struct engine_reply *reply, struct error *err)
{
    const struct box_spec *spec = &request->spec;

    if (check_id(spec->id, err) < 0)
        return -1;
    switch (request->op) {
    case ENGINE_OP_START:
        return check_spec(spec, err) < 0 ? -1 : box_start(boxes, spec, &reply->boxes[0], err);
    case ENGINE_OP_KILL:
        return box_kill(boxes, spec->id, err);
    case ENGINE_OP_STOP:
        return box_stop(boxes, spec->id, err);
    case ENGINE_OP_LIMIT:
        return check_flags(spec, err) < 0 || check_limits(&spec->limits, err) < 0
                   ? -1
                   : box_limit(boxes, spec->id, &spec->limits, spec->internet, err);
    case ENGINE_OP_FREEZE:
        return box_freeze(boxes, spec->id, request->frozen, err);
    case ENGINE_OP_USAGE:
        return box_usage(boxes, spec->id, &reply->usage, err);
    case ENGINE_OP_SNAPSHOT:
        return check_name(request->name, err) < 0
                   ? -1
                   : box_snapshot(boxes, spec->id, request->name, &reply->layers[0], err);
    default:
        return error_set(err, ERROR_INVALID, "unknown operation %u", request->op);
    }
}

static int dispatch(struct boxes *boxes, const struct engine_request *request,
                    struct engine_reply *reply, struct error *err)
{
    switch (request->op) {
    case ENGINE_OP_LIST:
        reply->count = (uint32_t)boxes_list(boxes, request->offset, reply->boxes, ENGINE_LIST_PAGE);
        return 0;
    case ENGINE_OP_SPACE:
        return box_space(boxes, &reply->space, err);
    case ENGINE_OP_LAYER_LIST:
        return list_layers(boxes, request->name, reply, err);
    case ENGINE_OP_LAYER_DELETE:
        return check_name(request->name, err) < 0 ? -1
                                                  : box_layer_delete(boxes, request->name, err);
    case ENGINE_OP_VOLUME_CREATE:
        return check_name(request->name, err) < 0 || check_disk(&request->spec.limits, err) < 0
                   ? -1
                   : box_volume_create(boxes, request->name, request->spec.limits.disk_bytes, err);
    case ENGINE_OP_VOLUME_DELETE:
        return check_name(request->name, err) < 0 ? -1
                                                  : box_volume_delete(boxes, request->name, err);
    default:
        return dispatch_box(boxes, request, reply, err);
    }
}

static int dispatch_dial(struct boxes *boxes, const struct engine_dial_request *request,
                         int *out_fd, struct error *err)
{
    if (check_id(request->id, err) < 0)
        return -1;
    if (request->port == 0 || request->port > 65535)
        return error_set(err, ERROR_INVALID, "port %u out of range", request->port);
    return box_dial(boxes, request->id, (uint16_t)request->port, request->v6, out_fd, err);
}

enum { END_WAIT_S = 120 }; /* longer than any operation takes */

struct channel {
    struct list link;
    struct warden *warden;
    struct boxes *boxes;
    int fd;
    bool dial;
};

static void serve_control(const struct channel *channel)
{
    struct engine_request request;
    struct engine_reply reply;
    struct error err;

    if (box_seccomp_fill(&err) < 0)
        log_warn("warden", "%s; ignoring", err.message);
    while (fd_recv(channel->fd, &request, sizeof(request), NULL, NULL, 0) ==
           (ssize_t)sizeof(request)) {
        memset(&reply, 0, sizeof(reply));
        reply.serial = request.serial;
        reply.status = dispatch(channel->boxes, &request, &reply, &reply.err);
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

        reply.status = dispatch_dial(channel->boxes, &request, &socket_fd, &err);
        reply.errnum = err.errnum;
        if (fd_send(channel->fd, &reply, sizeof(reply), &socket_fd, socket_fd >= 0) < 0)
            break;
    }
}

/* From here on nothing of the warden is used. */
static void forget(struct channel *channel)
{
    struct warden *warden = channel->warden;

    (void)pthread_mutex_lock(&warden->boxes.lock);
    list_remove(&channel->link);
    (void)close(channel->fd);
    free(channel);
    (void)pthread_cond_broadcast(&warden->channel_ended);
    (void)pthread_mutex_unlock(&warden->boxes.lock);
}

static void *serve(void *arg)
{
    struct channel *channel = arg;

    if (channel->dial)
        serve_dial(channel);
    else
        serve_control(channel);
    forget(channel);
    return NULL;
}

int warden_serve_channel(struct warden *warden, int fd_consume, bool dial, struct error *err)
{
    struct channel *channel = xcalloc(1, sizeof(*channel));
    pthread_attr_t attr;
    pthread_t thread;
    int r;

    *channel =
        (struct channel){.warden = warden, .boxes = &warden->boxes, .fd = fd_consume, .dial = dial};
    (void)pthread_mutex_lock(&warden->boxes.lock);
    list_push_back(&warden->channels, &channel->link);
    (void)pthread_mutex_unlock(&warden->boxes.lock);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, 256 * 1024);
    r = pthread_create(&thread, &attr, serve, channel);
    (void)pthread_attr_destroy(&attr);
    if (r != 0) {
        forget(channel);
        return error_set_errno(err, r, "start a channel thread");
    }
    return 0;
}

bool warden_serve_end(struct warden *warden)
{
    int64_t deadline_us = clock_mono_us() + END_WAIT_S * INT64_C(1000000);
    struct list *node;
    bool ended;

    (void)pthread_mutex_lock(&warden->boxes.lock);
    list_for_each (node, &warden->channels)
        (void)shutdown(container_of(node, struct channel, link)->fd, SHUT_RDWR);
    while (!list_empty(&warden->channels) &&
           cond_wait_until(&warden->channel_ended, &warden->boxes.lock, deadline_us))
        ;
    ended = list_empty(&warden->channels);
    (void)pthread_mutex_unlock(&warden->boxes.lock);
    return ended;
}
