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

int box_start(struct boxes *all, const struct box_spec *spec, struct box_info *out,
              struct error *err)
{
    (void)all;
    (void)out;
    (void)err;
    check_id(spec->id);
    check_limits(&spec->limits);
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
    return 0;
}

int box_kill(struct boxes *all, const char *id, struct error *err)
{
    (void)all;
    (void)err;
    check_id(id);
    return 0;
}

int box_stop(struct boxes *all, const char *id, struct error *err)
{
    return box_kill(all, id, err);
}

int box_limit(struct boxes *all, const char *id, const struct box_limits *limits, bool internet,
              struct error *err)
{
    (void)internet;
    check_limits(limits);
    return box_kill(all, id, err);
}

int box_freeze(struct boxes *all, const char *id, bool frozen, struct error *err)
{
    (void)frozen;
    return box_kill(all, id, err);
}

int box_usage(struct boxes *all, const char *id, struct box_usage *out, struct error *err)
{
    (void)out;
    return box_kill(all, id, err);
}

int box_space(struct boxes *all, struct engine_space *out, struct error *err)
{
    (void)all;
    (void)out;
    (void)err;
    return 0;
}

int box_snapshot(struct boxes *all, const char *id, const char *layer, struct layer_info *out,
                 struct error *err)
{
    (void)out;
    check_name(layer);
    return box_kill(all, id, err);
}

int box_layer_delete(struct boxes *all, const char *layer, struct error *err)
{
    (void)all;
    (void)err;
    check_name(layer);
    return 0;
}

int box_layer_list(struct boxes *all, const char *after, struct layer_info *out, size_t max,
                   struct error *err)
{
    (void)out;
    check(max == ENGINE_LIST_PAGE);
    return after[0] ? box_layer_delete(all, after, err) : 0;
}

int box_volume_create(struct boxes *all, const char *name, uint64_t limit_bytes, struct error *err)
{
    check(limit_bytes <= UINT64_C(1) << 50);
    return box_layer_delete(all, name, err);
}

int box_volume_delete(struct boxes *all, const char *name, struct error *err)
{
    return box_layer_delete(all, name, err);
}

int box_dial(struct boxes *all, const char *id, uint16_t port, bool v6, int *out_fd,
             struct error *err)
{
    (void)v6;
    (void)out_fd;
    check(port > 0);
    return box_kill(all, id, err);
}

size_t boxes_list(struct boxes *all, size_t offset, struct box_info *out, size_t max)
{
    (void)all;
    (void)offset;
    (void)out;
    return max == ENGINE_LIST_PAGE ? 0 : max;
}

int box_seccomp_fill(struct error *err)
{
    (void)err;
    return 0;
}

/* ---- the server's side ---- */

static int channels[2] = {-1, -1}; /* control, dial */

static void open_channels(void)
{
    static struct warden warden;

    list_init(&warden.channels);
    check(pthread_mutex_init(&warden.boxes.lock, NULL) == 0);
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
