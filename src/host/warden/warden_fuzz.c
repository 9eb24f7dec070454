/* Requests of a server that somebody has taken over: whatever it sends, what reaches the host's side has names that are
 * names, paths that stay inside, numbers within their limits, and the warden neither ends nor keeps what it was given.
 *
 * The first byte of an input chooses its form:
 *   255  the rest is one request to dial
 *   254  the rest is a program of steps (below): well-formed requests with some fields changed, wrong lengths,
 *        descriptors, several channels, channels that end
 *   else all of it is one request, from its beginning; the rest of the request is zero */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "host/warden/test/any_request.h"
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

static int fuzz_ports(struct box_engine *engine, const char *id, struct box_ports *out,
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
            .ports = fuzz_ports,
            .snapshot = fuzz_snapshot,
            .dial = fuzz_dial,
            .list = fuzz_list,
            .count = fuzz_count,
            .enter_thread = fuzz_enter_thread,
        },
};

/* ---- the server's side ---- */

enum { CONTROL_0, CONTROL_1, DIAL, CHANNELS, STEPS_MAX = 24 };

static struct warden warden;
static int channels[CHANNELS] = {-1, -1, -1};

static void open_channel(int which)
{
    struct error err;
    int pair[2];

    check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    check(warden_serve_channel(&warden, pair[1], which == DIAL, &err) == 0);
    channels[which] = pair[0];
}

static void open_channels(void)
{
    list_init(&warden.channels);
    warden_engine_add(&warden, &fuzz_engine);
    check(pthread_mutex_init(&warden.lock, NULL) == 0 &&
          pthread_cond_init(&warden.channel_ended, NULL) == 0);
    for (int i = 0; i < CHANNELS; i++)
        open_channel(i);
}

/* The other end is served no more; nothing else suffers. */
static void close_channel(int which)
{
    (void)close(channels[which]);
    open_channel(which);
}

static void dial(const uint8_t *data, size_t size)
{
    struct engine_dial_request request = {0};
    struct engine_dial_reply reply;

    memcpy(&request, data, size < sizeof(request) ? size : sizeof(request));
    check(fd_send(channels[DIAL], &request, sizeof(request), NULL, 0) >= 0);
    check(fd_recv(channels[DIAL], &reply, sizeof(reply), NULL, NULL, 0) == (ssize_t)sizeof(reply));
    check(reply.serial == request.serial && (reply.status == 0 || reply.status == -1));
}

static void check_reply(const struct engine_request *request, const struct engine_reply *reply)
{
    check(reply->serial == request->serial && (reply->status == 0 || reply->status == -1) &&
          reply->count <= ENGINE_LIST_PAGE &&
          memchr(reply->err.message, '\0', sizeof(reply->err.message)));
}

static void ask(const uint8_t *data, size_t size)
{
    static struct engine_request request;
    static struct engine_reply reply;

    memset(&request, 0, sizeof(request));
    memcpy(&request, data, size < sizeof(request) ? size : sizeof(request));
    check(fd_send(channels[CONTROL_0], &request, sizeof(request), NULL, 0) >= 0);
    check(fd_recv(channels[CONTROL_0], &reply, sizeof(reply), NULL, NULL, 0) ==
          (ssize_t)sizeof(reply));
    check_reply(&request, &reply);
}

/* ---- programs ---- */

struct input {
    const uint8_t *p;
    size_t left;
};

static uint8_t next(struct input *input)
{
    if (!input->left)
        return 0;
    input->left--;
    return *input->p++;
}

static uint64_t next_number(struct input *input)
{
    static const uint64_t numbers[] = {0,         1,          2,         7,          8,
                                       63,        64,         65,        1 << 20,    16 << 20,
                                       INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX, 1ULL << 44};
    uint8_t choice = next(input);

    return choice < 128 ? numbers[choice % (sizeof(numbers) / sizeof(*numbers))]
                        : (uint64_t)next(input) << (choice & 63);
}

/* One of the words, in a field that need not end. Every bit of it is defined by the word. */
static void put_word(struct input *input, char *out, size_t size, const char *const *words,
                     size_t count)
{
    uint8_t choice = next(input);

    memset(out, 0, size);
    if (choice == 255)
        memset(out, 'a', size); /* no end */
    else
        (void)memcpy(out, words[choice % count], strnlen(words[choice % count], size));
}

#define PUT_WORD(input, field, words) \
    put_word(input, field, sizeof(field), words, sizeof(words) / sizeof(*(words)))

static const char *const ids[] = {"iaaaaaaaaaaaaaaaaaaa",
                                  "ibbbbbbbbbbbbbbbbbbb",
                                  "i0000000000000000000",
                                  "",
                                  "i",
                                  "../../../../etc/pass",
                                  "iaaaaaaaaaaaaaaaaaa/",
                                  "Iaaaaaaaaaaaaaaaaaaa",
                                  "iaaaaaaaaaaaaaaaaaaa\n"};
static const char *const names[] = {"base", "tree1", "snap1", "treex", "v1",    "",     "..",  ".",
                                    "a/b",  "/etc",  "Tree",  "tree.", "tree-", "a\nb", "tree"};
static const char *const paths[] = {"/data",     "/a/b",   "/",  "",     "data",      "/proc",
                                    "/proc/x",   "/procs", "//", "/a/",  "/a/../b",   "/a/./b",
                                    "/dev/null", "/..",    "/.", "/sys", "/run/feed", "/run/layer"};

static void put_network(struct input *input, struct box_network *network)
{
    network->mode = next(input) % 5;
    network->allow_count = next(input) % 8;
    network->deny_count = next(input) % 8;
    if (next(input) > 240)
        network->deny_count = (uint32_t)next_number(input);
    for (size_t i = 0; i < 16; i++)
        network->ranges[i] =
            (struct box_range){.address = (uint32_t)next(input) << 24, .prefix = next(input) % 40};
    network->group = (uint32_t)next_number(input);
}

/* A box that could be; some of its fields are changed afterwards. */
static void put_spec(struct input *input, struct box_spec *spec)
{
    *spec = (struct box_spec){
        .engine = ENGINE_NATIVE,
        .limits = {.mem_bytes = 64 << 20, .disk_bytes = 64 << 20, .cpu_count = 1, .pids_max = 64},
        .layer_count = 1,
        .layers = {"base"}};
    PUT_WORD(input, spec->id, ids);
    for (unsigned i = next(input) % 8; i; i--) {
        switch (next(input) % 12) {
        case 0:
            spec->engine = (uint32_t)next_number(input);
            break;
        case 1:
            spec->limits = (struct box_limits){.mem_bytes = next_number(input),
                                               .disk_bytes = next_number(input),
                                               .cpu_count = (uint32_t)next_number(input),
                                               .pids_max = (uint32_t)next_number(input)};
            break;
        case 2:
            spec->layer_count = (uint32_t)next_number(input);
            break;
        case 3:
            PUT_WORD(input, spec->layers[next(input) % BOX_LAYERS_MAX], names);
            break;
        case 4:
            spec->volume_count = (uint32_t)next_number(input);
            break;
        case 5: {
            struct box_volume *volume = &spec->volumes[next(input) % BOX_VOLUMES_MAX];

            PUT_WORD(input, volume->name, names);
            PUT_WORD(input, volume->path, paths);
            break;
        }
        case 6:
            PUT_WORD(input, spec->source, ids);
            break;
        case 7:
            PUT_WORD(input, spec->blank_id, ids);
            break;
        case 8:
            PUT_WORD(input, spec->fill, names);
            break;
        case 9:
            put_network(input, &spec->network);
            break;
        case 10: { /* flags, also those that are neither true nor false */
            bool *const flags[] = {&spec->background, &spec->blank, &spec->refuse_clones,
                                   &spec->keep_disk, &spec->feed};
            uint8_t which = next(input) % 5, value = next(input);

            memcpy(flags[which], &value, 1);
            break;
        }
        default: { /* any byte of it */
            uint8_t *byte = (uint8_t *)spec + next_number(input) % sizeof(*spec);

            *byte = next(input);
        }
        }
    }
}

/* How much of it is sent, and whether the warden has to answer that. */
static size_t put_length(struct input *input, const struct engine_request *request, bool *out_whole)
{
    size_t whole = engine_request_size(request);
    uint8_t choice = next(input);

    *out_whole = true;
    if (choice < 200)
        return whole;
    if (choice < 210)
        return sizeof(*request);
    *out_whole = false;
    if (choice < 220)
        return whole - 1;
    return 1 + next_number(input) % (whole - 1);
}

static void step_request(struct input *input, int which)
{
    static struct engine_request request;
    static struct engine_reply reply;
    static struct box_spec spec;
    char name[LAYER_NAME_SIZE];
    struct any_request any = {.name = name, .spec = &spec};
    int fds[4] = {STDERR_FILENO, STDERR_FILENO, channels[CONTROL_1], channels[DIAL]};
    size_t fd_count, size;
    bool whole;

    memset(&request, 0, sizeof(request));
    request.op = next(input) % (ENGINE_OP_LAYER_CHECK + 2);
    any.offset = (uint32_t)next_number(input);
    request.serial = next_number(input);
    any.frozen = next(input);
    PUT_WORD(input, name, names);
    put_spec(input, &spec);
    any_request_fill(&request, &any);
    size = put_length(input, &request, &whole);
    fd_count = next(input);
    fd_count = fd_count > 240 ? 1 + fd_count % 4 : 0;
    check(fd_send(channels[which], &request, size, fds, fd_count) >= 0);
    if (whole && !fd_count) {
        check(fd_recv(channels[which], &reply, sizeof(reply), NULL, NULL, 0) ==
              (ssize_t)sizeof(reply));
        check_reply(&request, &reply);
    } else { /* not a request: the channel ends, without an answer */
        check(fd_recv(channels[which], &reply, sizeof(reply), NULL, NULL, 0) <= 0);
        close_channel(which);
    }
}

static void step_dial(struct input *input)
{
    struct engine_dial_request request = {.serial = next_number(input)};
    struct engine_dial_reply reply;
    int fd = STDERR_FILENO;
    size_t size = sizeof(request);
    uint8_t how;

    request.port = (uint32_t)next_number(input);
    request.kind = next(input) % 4;
    PUT_WORD(input, request.id, ids);
    how = next(input);
    if (how > 240)
        size = 1 + next_number(input) % (sizeof(request) - 1);
    check(fd_send(channels[DIAL], &request, size, &fd, how % 16 == 15) >= 0);
    if (size == sizeof(request) && how % 16 != 15) {
        check(fd_recv(channels[DIAL], &reply, sizeof(reply), NULL, NULL, 0) ==
              (ssize_t)sizeof(reply));
        check(reply.serial == request.serial && (reply.status == 0 || reply.status == -1));
    } else {
        check(fd_recv(channels[DIAL], &reply, sizeof(reply), NULL, NULL, 0) <= 0);
        close_channel(DIAL);
    }
}

/* Every channel has an end here and an end there, and each end one descriptor. */
static size_t count_sockets(void)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    size_t count = 0;

    check(dir != NULL);
    while ((entry = readdir(dir))) {
        char target[64] = "";

        if (readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1) > 0)
            count += strncmp(target, "socket:", 7) == 0;
    }
    (void)closedir(dir);
    return count;
}

/* Until the threads of channels that ended have closed them. */
static void check_nothing_kept(size_t before)
{
    for (int i = 0; i < 1000 && count_sockets() != before; i++)
        (void)usleep(1000);
    check(count_sockets() == before);
}

static void run_program(struct input *input)
{
    size_t sockets = count_sockets();

    for (int i = 0; i < STEPS_MAX && input->left; i++) {
        uint8_t what = next(input);

        if (what < 200)
            step_request(input, what & 1 ? CONTROL_1 : CONTROL_0);
        else if (what < 240)
            step_dial(input);
        else
            close_channel(what % CHANNELS);
    }
    check_nothing_kept(sockets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (channels[0] < 0)
        open_channels();
    if (size > 0 && data[0] == 255)
        dial(data + 1, size - 1);
    else if (size > 0 && data[0] == 254)
        run_program(&(struct input){data + 1, size - 1});
    else
        ask(data, size);
    return 0;
}
