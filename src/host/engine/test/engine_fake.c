/* An engine without machines: boxes are entries of a map, envds are one thread that answers every HTTP request on the boxes'
 * sockets, without pipelining. A frozen box's envd answers when it is thawed. A box's files are one number, so that tests
 * can see what was kept and what was lost.
 *
 * One mutex guards everything. The thread waits in epoll; closed sockets vanish from the set by themselves, and what an event
 * points to is looked up by descriptor, so that a box may be killed while its events are under way. */
#include "host/engine/test/engine_fake_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/str.h"

enum { REQUEST_MAX = 256 * 1024, EVENT_WAIT_MS = 5 };

void fake_sleep(struct fake *fake, const int *ms)
{
    int64_t began_ms = clock_mono_ms();

    fake->waiting++;
    while (clock_mono_ms() - began_ms < *ms) {
        (void)pthread_mutex_unlock(&fake->lock);
        (void)usleep(1000);
        (void)pthread_mutex_lock(&fake->lock);
    }
    fake->waiting--;
}

bool fake_must_fail(struct fake *fake)
{
    bool fails = fake->fail_at > 0 && --fake->fail_at == 0;

    fake->calls++;
    fake->failures += fails;
    return fails;
}

int fake_not_found(const char *id, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND, "fake engine: no box '%s'", id);
}

static void client_free(struct fake_client *client)
{
    list_remove(&client->link);
    close_fd(&client->fd);
    free(client->data);
    free(client);
}

void fake_silence(struct fake_box *box)
{
    struct list *pos, *next;

    list_for_each_safe (pos, next, &box->clients)
        client_free(container_of(pos, struct fake_client, link));
    close_fd(&box->listener);
    if (box->socket_path[0])
        (void)unlink(box->socket_path);
}

static int watch(struct fake *fake, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return epoll_ctl(fake->epoll, EPOLL_CTL_ADD, fd, &event);
}

static int box_listen(struct fake *fake, struct fake_box *box, struct error *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    box->listener = -1;
    if (!fake->run_dir)
        return 0;
    if (engine_socket_path(fake->run_dir, box->spec.id, box->socket_path) < 0)
        return error_set(err, ERROR_INTERNAL, "fake engine: path too long");
    memcpy(addr.sun_path, box->socket_path, sizeof(addr.sun_path));
    box->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (box->listener < 0 ||
        bind(box->listener, (const struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        listen(box->listener, 64) < 0 || watch(fake, box->listener) < 0) {
        int errnum = errno;

        fake_silence(box);
        return error_set_errno(err, errnum, "fake engine: socket '%s'", box->socket_path);
    }
    return 0;
}

int fake_check_layers(struct fake *fake, const struct box_spec *spec, struct error *err)
{
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        const struct fake_layer *layer = map_get(&fake->layers, str_of(spec->layers[i]));

        if (layer ? layer->deleted || layer->filling : layer_is_tree(spec->layers[i]))
            return error_set(err, ERROR_NOT_FOUND, "fake engine: layer '%s' is gone",
                             spec->layers[i]);
    }
    for (uint32_t i = 0; i < spec->volume_count; i++)
        if (!map_get(&fake->volumes, str_of(spec->volumes[i].name)))
            return error_set(err, ERROR_NOT_FOUND, "fake engine: no volume '%s'",
                             spec->volumes[i].name);
    return 0;
}

uint64_t fake_new_disk(struct fake *fake, const struct box_spec *spec)
{
    const struct fake_box *source = map_get(&fake->boxes, str_of(spec->source));
    const struct fake_layer *top = NULL;

    if (spec->source[0])
        return source->disk;
    if (spec->layer_count)
        top = map_get(&fake->layers, str_of(spec->layers[spec->layer_count - 1]));
    return top ? top->disk : 0;
}

/* The box to start: a new one, or the one whose disk is kept. */
static struct fake_box *box_to_start(struct fake *fake, const struct box_spec *spec,
                                     struct error *err)
{
    struct fake_box *box = map_get(&fake->boxes, str_of(spec->id));
    const struct fake_box *source = map_get(&fake->boxes, str_of(spec->source));

    if (!id_valid(str_of(spec->id)) || (box && (box->running || !spec->keep_disk))) {
        (void)error_set(err, ERROR_EXISTS, "fake engine: bad or known id '%s'", spec->id);
        return NULL;
    }
    if (!box && spec->keep_disk) {
        (void)error_set(err, ERROR_NOT_FOUND, "fake engine: no disk of '%s'", spec->id);
        return NULL;
    }
    if (box)
        return box;
    if (spec->source[0] && !source) {
        (void)error_set(err, ERROR_NOT_FOUND, "fake engine: no box '%s'", spec->source);
        return NULL;
    }
    box = xcalloc(1, sizeof(*box));
    box->listener = -1;
    box->disk = fake_new_disk(fake, spec);
    list_init(&box->clients);
    (void)map_put(&fake->boxes, str_of(spec->id), box);
    return box;
}

static int fake_start(struct engine *engine, const struct box_spec *spec, struct box_info *out,
                      struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct fake_box *box;

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: start fails");
    if (fake->full)
        return error_set_errno(err, ENOSPC, "fake engine: start box '%s'", spec->id);
    if (spec->engine != ENGINE_NATIVE)
        return error_set(err, ERROR_INVALID, "fake engine: no engine of kind %u", spec->engine);
    fake_sleep(fake, &fake->start_ms);
    if (fake_check_layers(fake, spec, err) < 0)
        return -1;
    box = box_to_start(fake, spec, err);
    if (!box)
        return -1;
    box->spec = *spec;
    if (box_listen(fake, box, err) < 0) {
        if (!spec->keep_disk)
            free(map_remove(&fake->boxes, str_of(spec->id)));
        return -1;
    }
    if (spec->fill[0])
        fake_fill(fake, spec->fill);
    box->running = true;
    box->frozen = false;
    box->address = 0x0ad54000 + ++fake->started;
    *out = (struct box_info){.running = true, .address = box->address};
    memcpy(out->id, spec->id, ID_SIZE);
    return 0;
}

static int fake_kill(struct engine *engine, const char *id, struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct fake_box *box;

    if (fake_must_fail(fake) || fake->fail_kills > 0) {
        fake->fail_kills -= fake->fail_kills > 0;
        return error_set(err, ERROR_INTERNAL, "fake engine: kill fails");
    }
    box = map_remove(&fake->boxes, str_of(id));
    if (box)
        fake_silence(box);
    free(box);
    return 0;
}

static int fake_limit(struct engine *engine, const char *id, const struct box_limits *limits,
                      struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct fake_box *box = map_get(&fake->boxes, str_of(id));

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: limit fails");
    if (!box)
        return fake_not_found(id, err);
    box->spec.limits = *limits;
    return 0;
}

static int fake_network(struct engine *engine, const char *id, const struct box_network *network,
                        struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct fake_box *box = map_get(&fake->boxes, str_of(id));

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: network fails");
    if (!box || !box->running)
        return fake_not_found(id, err);
    box->spec.network = *network;
    return 0;
}

static int fake_list(struct engine *engine, struct box_info **out, size_t *out_count,
                     struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct map_entry *entry;
    size_t count = 0;

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: list fails");
    *out = xcalloc(fake->boxes.count + 1, sizeof(**out));
    map_for_each (&fake->boxes, entry) {
        const struct fake_box *box = entry->value;

        (*out)[count] = (struct box_info){.running = box->running,
                                          .scratch = box->spec.blank || box->spec.fill[0],
                                          .end = box->running ? BOX_END_NONE : box->end,
                                          .address = box->running ? box->address : 0,
                                          .group = box->running ? box->spec.network.group : 0};
        memcpy((*out)[count++].id, box->spec.id, ID_SIZE);
    }
    *out_count = count;
    return 0;
}

/* What came while it was frozen is answered now. */
static void rearm(struct fake *fake, struct fake_box *box)
{
    struct list *pos;

    if (box->listener >= 0)
        (void)watch(fake, box->listener);
    list_for_each (pos, &box->clients)
        (void)watch(fake, container_of(pos, struct fake_client, link)->fd);
}

static void unwatch(struct fake *fake, struct fake_box *box)
{
    struct list *pos;

    if (box->listener >= 0)
        (void)epoll_ctl(fake->epoll, EPOLL_CTL_DEL, box->listener, NULL);
    list_for_each (pos, &box->clients)
        (void)epoll_ctl(fake->epoll, EPOLL_CTL_DEL, container_of(pos, struct fake_client, link)->fd,
                        NULL);
}

static int fake_freeze(struct engine *engine, const char *id, bool frozen, struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct fake_box *box = map_get(&fake->boxes, str_of(id));

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: freeze fails");
    if (!box || !box->running)
        return fake_not_found(id, err);
    fake->waiting++;
    while (frozen && fake->hold_freezes)
        (void)pthread_cond_wait(&fake->happened, &fake->lock);
    fake->waiting--;
    if (frozen && fake->fail_freezes > 0) {
        fake->fail_freezes--;
        return error_set(err, ERROR_TIMEOUT, "fake engine: it does not stand still");
    }
    if (box->frozen == frozen)
        return 0;
    box->frozen = frozen;
    if (frozen)
        unwatch(fake, box);
    else
        rearm(fake, box);
    return 0;
}

static int fake_connect_envd(struct engine *engine, const char *id)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    int fd = fake->run_dir ? engine_socket_connect(fake->run_dir, id) : -ENOENT;

    fake->connects_failed += fd < 0;
    return fd;
}

static int fake_find_envd(struct engine *engine, const char *id, char *out, size_t size)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    char path[ENGINE_SOCKET_PATH_SIZE];

    return fake->run_dir && engine_socket_path(fake->run_dir, id, path) == 0 &&
                   str_copy(str_of(path), out, size)
               ? 0
               : -ENOENT;
}

static int fake_next_event(struct engine *engine, uint32_t timeout_ms, struct engine_event *out,
                           struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    /* Less than asked for: whoever waits here is to be stopped hundreds of times by the tests. */
    int64_t until =
        clock_mono_us() + (timeout_ms < EVENT_WAIT_MS ? timeout_ms : EVENT_WAIT_MS) * 1000;
    struct fake_event *event;

    fake->told = fake->taken;
    while (list_empty(&fake->events))
        if (!cond_wait_until(&fake->happened, &fake->lock, until))
            return error_set(err, ERROR_TIMEOUT, "fake engine: no event");
    event = container_of(list_pop_front(&fake->events), struct fake_event, link);
    *out = event->event;
    free(event);
    fake->taken++;
    return 0;
}

/* Length of the first whole request in the client's data, or 0. */
static size_t request_len(const struct fake_client *client)
{
    static const char name[] = "content-length:";
    struct str rest = str_n(client->data, client->len);
    ptrdiff_t head = str_find_str(rest, STR("\r\n\r\n"));
    int64_t body = 0;

    if (head < 0)
        return 0;
    rest.len = (size_t)head;
    while (rest.p) {
        struct str line = str_split(&rest, '\n');

        if (line.len > sizeof(name) - 1 &&
            str_eq_nocase(str_n(line.p, sizeof(name) - 1), str_of(name)))
            (void)str_to_i64(str_trim(str_skip(line, sizeof(name) - 1)), &body);
    }
    if (body < 0 || (size_t)head + 4 + (size_t)body > client->len)
        return 0;
    return (size_t)head + 4 + (size_t)body;
}

/* False when the connection is to be closed. */
static bool answer(struct fake *fake, const struct fake_box *box, struct fake_client *client)
{
    size_t len = request_len(client);
    int status = fake->envd_status;
    auto_buf struct buf own = {0};
    char text[96];

    if (len == 0)
        return client->len < REQUEST_MAX;
    free(fake->last_request);
    fake->last_request = xstrndup(client->data, len);
    client->len = 0;
    if (fake_must_fail(fake))
        status = 500;
    if (status == 0)
        return false;
    buf_init(&own, REQUEST_MAX);
    if (fake->envd_fn && status == 204)
        fake->envd_fn(fake->envd_arg, box->spec.id, str_n(client->data, len), &own);
    if (own.len)
        return send(client->fd, own.p, own.len, MSG_NOSIGNAL) == (ssize_t)own.len;
    (void)snprintf(text, sizeof(text), "HTTP/1.1 %d Fake\r\n%s\r\n", status,
                   status == 204 ? "" : "Content-Length: 0\r\n");
    return send(client->fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

static void client_ready(struct fake *fake, const struct fake_box *box, struct fake_client *client)
{
    char part[4096];
    ssize_t got = recv(client->fd, part, sizeof(part), MSG_DONTWAIT);

    if (got < 0 && errno == EAGAIN)
        return;
    if (got > 0) {
        client->data = xrealloc(client->data, client->len + (size_t)got);
        memcpy(client->data + client->len, part, (size_t)got);
        client->len += (size_t)got;
    }
    if (got <= 0 || !answer(fake, box, client))
        client_free(client);
}

static void accept_client(struct fake *fake, struct fake_box *box)
{
    int fd = accept4(box->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct fake_client *client;

    if (fd < 0)
        return;
    client = xcalloc(1, sizeof(*client));
    client->fd = fd;
    list_push_back(&box->clients, &client->link);
    if (watch(fake, fd) < 0)
        client_free(client);
}

static void socket_ready(struct fake *fake, int fd)
{
    struct map_entry *entry;

    map_for_each (&fake->boxes, entry) {
        struct fake_box *box = entry->value;
        struct list *pos;

        if (box->listener == fd) {
            accept_client(fake, box);
            return;
        }
        list_for_each (pos, &box->clients)
            if (container_of(pos, struct fake_client, link)->fd == fd) {
                client_ready(fake, box, container_of(pos, struct fake_client, link));
                return;
            }
    }
}

static void *serve(void *arg)
{
    struct fake *fake = arg;
    struct epoll_event events[16];
    bool stopping = false;

    while (!stopping) {
        int count = epoll_wait(fake->epoll, events, 16, -1);

        (void)pthread_mutex_lock(&fake->lock);
        for (int i = 0; i < count; i++)
            socket_ready(fake, events[i].data.fd);
        stopping = fake->stopping;
        (void)pthread_mutex_unlock(&fake->lock);
    }
    return NULL;
}

static void fake_close(struct engine *engine)
{
    struct fake *fake = fake_lock(engine);
    struct map_entry *entry;
    struct list *node;

    fake->stopping = true;
    (void)eventfd_write(fake->wake, 1);
    (void)pthread_mutex_unlock(&fake->lock);
    (void)pthread_join(fake->thread, NULL);
    map_for_each (&fake->boxes, entry) {
        fake_silence(entry->value);
        free(entry->value);
    }
    map_done(&fake->boxes);
    map_for_each (&fake->layers, entry)
        free(entry->value);
    map_done(&fake->layers);
    map_done(&fake->volumes);
    while ((node = list_pop_front(&fake->events)))
        free(container_of(node, struct fake_event, link));
    close_fd(&fake->epoll);
    close_fd(&fake->wake);
    free(fake->run_dir);
    free(fake->last_request);
    (void)pthread_mutex_destroy(&fake->lock);
    (void)pthread_cond_destroy(&fake->happened);
    free(fake);
}

void engine_fake_envd(struct engine *engine, engine_fake_envd_fn *fn, void *arg)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    fake->envd_fn = fn;
    fake->envd_arg = arg;
}

struct engine *engine_fake_new(void)
{
    static const struct engine_ops ops = {
        .start = fake_start,
        .claim = fake_claim,
        .kill = fake_kill,
        .limit = fake_limit,
        .network = fake_network,
        .list = fake_list,
        .freeze = fake_freeze,
        .stop = fake_stop,
        .snapshot = fake_snapshot,
        .layer_delete = fake_layer_delete,
        .layer_list = fake_layer_list,
        .layer_seal = fake_layer_seal,
        .layer_publish = fake_layer_publish,
        .layer_check = fake_layer_check,
        .connect_envd = fake_connect_envd,
        .find_envd = fake_find_envd,
        .usage = fake_usage,
        .ports = fake_ports,
        .space = fake_space,
        .volume_create = fake_volume_create,
        .volume_delete = fake_volume_delete,
        .volume_usage = fake_volume_usage,
        .next_event = fake_next_event,
        .close = fake_close,
    };
    struct fake *fake = xcalloc(1, sizeof(*fake));

    fake->engine.ops = &ops;
    fake->envd_status = 204;
    (void)pthread_mutex_init(&fake->lock, NULL);
    cond_init(&fake->happened);
    map_init(&fake->boxes);
    map_init(&fake->layers);
    map_init(&fake->volumes);
    list_init(&fake->events);
    fake->epoll = epoll_create1(EPOLL_CLOEXEC);
    fake->wake = eventfd(0, EFD_CLOEXEC);
    if (fake->epoll < 0 || fake->wake < 0 || watch(fake, fake->wake) < 0 ||
        pthread_create(&fake->thread, NULL, serve, fake) != 0)
        abort();
    return &fake->engine;
}

void engine_fake_serve(struct engine *engine, const char *run_dir)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    free(fake->run_dir);
    fake->run_dir = xstrdup(run_dir);
}

void engine_fake_fail_at(struct engine *engine, int nth_call)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    fake->fail_at = nth_call;
}

void engine_fake_fail_kills(struct engine *engine, int count)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    fake->fail_kills = count;
}

void engine_fake_fail_freezes(struct engine *engine, int count)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    fake->fail_freezes = count;
}

void engine_fake_hold_freezes(struct engine *engine, bool hold)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    fake->hold_freezes = hold;
    (void)pthread_cond_broadcast(&fake->happened);
}

void engine_fake_fail_stops(struct engine *engine, int count)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    fake->fail_stops = count;
}

void engine_fake_envd_status(struct engine *engine, int status)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    fake->envd_status = status;
}

int engine_fake_calls(struct engine *engine)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    return fake->calls;
}

int engine_fake_failures(struct engine *engine)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    return fake->failures;
}

int engine_fake_told(struct engine *engine)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    return fake->told;
}

int engine_fake_waiting(struct engine *engine)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    return fake->waiting;
}

size_t engine_fake_boxes(const struct engine *engine)
{
    auto_unlock struct fake *fake = fake_lock((struct engine *)(uintptr_t)engine);

    return fake->boxes.count;
}

bool engine_fake_spec(struct engine *engine, const char *id, struct box_spec *out)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    const struct fake_box *box = map_get(&fake->boxes, str_of(id));

    if (box)
        *out = box->spec;
    return box != NULL;
}

bool engine_fake_runs(struct engine *engine, const char *id, bool *out_frozen)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    const struct fake_box *box = map_get(&fake->boxes, str_of(id));

    *out_frozen = box && box->frozen;
    return box && box->running;
}

void engine_fake_reboot(struct engine *engine)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct map_entry *entry;

    map_for_each (&fake->boxes, entry) {
        struct fake_box *box = entry->value;

        if (box->running)
            box->end = BOX_END_HOST;
        box->running = box->frozen = false;
        fake_silence(box);
    }
}

size_t engine_fake_connects_failed(struct engine *engine)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    return fake->connects_failed;
}

void engine_fake_last_request(struct engine *engine, char *out, size_t size)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    (void)snprintf(out, size, "%s", fake->last_request ? fake->last_request : "");
}

void engine_fake_die(struct engine *engine, const char *id, enum box_end end)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct fake_box *box = map_get(&fake->boxes, str_of(id));
    struct fake_event *event;

    if (!box)
        return;
    box->running = box->frozen = false;
    box->end = end;
    fake_silence(box);
    event = xcalloc(1, sizeof(*event));
    memcpy(event->event.id, box->spec.id, ID_SIZE);
    event->event.end = end;
    list_push_back(&fake->events, &event->link);
    (void)pthread_cond_broadcast(&fake->happened);
}
