/* Answering the server's requests. Every field is checked here, whatever the server checked before:
 * the server is the part that an attacker could have taken over. The worst it can ask for is what
 * the API offers anyway: start, limit and end sandboxes. */
#include "warden/warden_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "engine/engine_wire.h"

static bool layer_name_valid(const char *name)
{
    size_t len = strnlen(name, LAYER_NAME_SIZE);

    if (len == 0 || len == LAYER_NAME_SIZE)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= '0' && name[i] <= '9')))
            return false;
    return true;
}

static int check_limits(const struct box_limits *limits, struct error *err)
{
    if (limits->mem_bytes < (16u << 20) || limits->mem_bytes > (UINT64_C(1) << 44))
        return error_set(err, ERROR_INVALID, "memory limit out of range");
    if (limits->disk_bytes > (UINT64_C(1) << 50))
        return error_set(err, ERROR_INVALID, "disk limit out of range");
    if (limits->cpu_count == 0 || limits->cpu_count > 1024)
        return error_set(err, ERROR_INVALID, "cpu limit out of range");
    if (limits->pids_max < 8 || limits->pids_max > 1000000)
        return error_set(err, ERROR_INVALID, "process limit out of range");
    return 0;
}

static int check_spec(const struct box_spec *spec, struct error *err)
{
    if (spec->layer_count == 0 || spec->layer_count > BOX_LAYERS_MAX)
        return error_set(err, ERROR_INVALID, "%u layers", spec->layer_count);
    for (uint32_t i = 0; i < spec->layer_count; i++)
        if (!layer_name_valid(spec->layers[i]))
            return error_set(err, ERROR_INVALID, "layer %u has no valid name", i);
    return check_limits(&spec->limits, err);
}

static int check_id(const struct box_spec *spec, struct error *err)
{
    if (strnlen(spec->id, ID_SIZE) != ID_LEN || !id_valid(str_of(spec->id)))
        return error_set(err, ERROR_INVALID, "not a sandbox id");
    return 0;
}

static int dispatch(struct boxes *boxes, const struct engine_request *request,
                    struct engine_reply *reply, struct error *err)
{
    const struct box_spec *spec = &request->spec;

    if (request->op == ENGINE_OP_LIST) {
        reply->count = (uint32_t)boxes_list(boxes, request->offset, reply->boxes, ENGINE_LIST_PAGE);
        return 0;
    }
    if (check_id(spec, err) < 0)
        return -1;
    switch (request->op) {
    case ENGINE_OP_START:
        return check_spec(spec, err) < 0 ? -1 : box_start(boxes, spec, &reply->boxes[0], err);
    case ENGINE_OP_KILL:
        return box_kill(boxes, spec->id, err);
    case ENGINE_OP_LIMIT:
        return check_limits(&spec->limits, err) < 0
                   ? -1
                   : box_limit(boxes, spec->id, &spec->limits, spec->internet, err);
    case ENGINE_OP_FREEZE:
        return box_freeze(boxes, spec->id, request->frozen, err);
    default:
        return error_set(err, ERROR_INVALID, "unknown operation %u", request->op);
    }
}

static int dispatch_dial(struct boxes *boxes, const struct engine_request *request, int *out_fd,
                         struct error *err)
{
    if (request->op != ENGINE_OP_DIAL)
        return error_set(err, ERROR_INVALID, "unknown operation %u", request->op);
    if (check_id(&request->spec, err) < 0)
        return -1;
    if (request->port == 0 || request->port > 65535)
        return error_set(err, ERROR_INVALID, "port %u out of range", request->port);
    return box_dial(boxes, request->spec.id, (uint16_t)request->port, request->v6, out_fd, err);
}

struct channel {
    struct boxes *boxes;
    int fd;
    bool dial;
};

static void *serve(void *arg)
{
    struct channel *channel = arg;
    struct engine_request request;
    struct engine_reply reply;

    while (fd_recv(channel->fd, &request, sizeof(request), NULL, NULL, 0) ==
           (ssize_t)sizeof(request)) {
        auto_close int socket_fd = -1;

        memset(&reply, 0, sizeof(reply));
        reply.serial = request.serial;
        reply.status = channel->dial
                           ? dispatch_dial(channel->boxes, &request, &socket_fd, &reply.err)
                           : dispatch(channel->boxes, &request, &reply, &reply.err);
        if (fd_send(channel->fd, &reply, sizeof(reply), &socket_fd, socket_fd >= 0) < 0)
            break;
    }
    (void)close(channel->fd);
    free(channel);
    return NULL;
}

int warden_serve_channel(struct boxes *boxes, int fd_consume, bool dial, struct error *err)
{
    struct channel *channel = xcalloc(1, sizeof(*channel));
    pthread_attr_t attr;
    pthread_t thread;
    int r;

    *channel = (struct channel){.boxes = boxes, .fd = fd_consume, .dial = dial};
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, 256 * 1024);
    r = pthread_create(&thread, &attr, serve, channel);
    (void)pthread_attr_destroy(&attr);
    if (r != 0) {
        (void)close(fd_consume);
        free(channel);
        return error_set_errno(err, r, "start a channel thread");
    }
    return 0;
}
