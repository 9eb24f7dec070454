/* The native engine: its table for the warden, and what all of its boxes share, made once. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/cond.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "host/native/box.h"
#include "host/network/network.h"

static struct boxes *boxes_of(struct box_engine *engine)
{
    return container_of(engine, struct boxes, engine);
}

/* ---- the table ---- */

static bool native_has(struct box_engine *engine, const char *id)
{
    return boxes_has(boxes_of(engine), id);
}

static int native_start(struct box_engine *engine, const struct box_spec *spec,
                        struct box_info *out, struct error *err)
{
    return box_start(boxes_of(engine), spec, out, err);
}

static int native_claim(struct box_engine *engine, const struct box_spec *spec,
                        struct box_info *out, struct error *err)
{
    return box_claim(boxes_of(engine), spec, out, err);
}

static int native_kill(struct box_engine *engine, const char *id, struct error *err)
{
    return box_kill(boxes_of(engine), id, err);
}

static int native_stop(struct box_engine *engine, const char *id, struct error *err)
{
    return box_stop(boxes_of(engine), id, err);
}

static int native_limit(struct box_engine *engine, const char *id, const struct box_limits *limits,
                        struct error *err)
{
    return box_limit(boxes_of(engine), id, limits, err);
}

static int native_network(struct box_engine *engine, const char *id,
                          const struct box_network *network, struct error *err)
{
    return box_network(boxes_of(engine), id, network, err);
}

static int native_freeze(struct box_engine *engine, const char *id, bool frozen, struct error *err)
{
    return box_freeze(boxes_of(engine), id, frozen, err);
}

static int native_usage(struct box_engine *engine, const char *id, struct box_usage *out,
                        struct error *err)
{
    return box_usage(boxes_of(engine), id, out, err);
}

static int native_ports(struct box_engine *engine, const char *id, struct box_ports *out,
                        struct error *err)
{
    return box_ports(boxes_of(engine), id, out, err);
}

static int native_snapshot(struct box_engine *engine, const char *id, const char *layer,
                           struct layer_info *out, struct error *err)
{
    return box_snapshot(boxes_of(engine), id, layer, out, err);
}

static int native_dial(struct box_engine *engine, const char *id, uint16_t port,
                       enum engine_dial_kind kind, int *out_fd, struct error *err)
{
    return box_dial(boxes_of(engine), id, port, kind, out_fd, err);
}

static size_t native_list(struct box_engine *engine, size_t offset, struct box_info *out,
                          size_t max)
{
    return boxes_list(boxes_of(engine), offset, out, max);
}

static void count_one(const char *id, void *arg)
{
    (void)id;
    ++*(size_t *)arg;
}

/* Before the boxes were looked for: whoever has processes has a cgroup. */
static size_t count_cgroups(struct boxes *all)
{
    size_t count = 0;

    if (!all->cgroups)
        return 1; /* nobody knows */
    box_cgroup_each(all->cgroups, count_one, &count);
    return count;
}

static size_t native_count(struct box_engine *engine, bool live)
{
    struct boxes *all = boxes_of(engine);

    if (!live)
        return boxes_count(all);
    return all->recovered ? boxes_count_live(all) : count_cgroups(all);
}

static bool native_uses_layer(struct box_engine *engine, const char *layer)
{
    return boxes_use_layer(boxes_of(engine), layer);
}

static bool native_uses_volume(struct box_engine *engine, const char *volume)
{
    return boxes_use_volume(boxes_of(engine), volume);
}

static void native_end_filler(struct box_engine *engine, const char *layer)
{
    struct boxes *all = boxes_of(engine);
    char id[ID_SIZE];
    struct error err;

    if (boxes_find_filler(all, layer, id) && box_cgroup_kill(all->cgroups, id, &err) < 0)
        log_error("warden", "box=%s fills '%s' and does not end: %s", id, layer, err.message);
}

static bool native_next_event(struct box_engine *engine, struct engine_event *out)
{
    struct epoll_event event;

    while (epoll_wait(engine->event_fd, &event, 1, 0) == 1)
        if (boxes_exited(boxes_of(engine), event.data.u32, out))
            return true;
    return false;
}

/* Of the dead ones, the first that takes its time is not waited for by the others: nobody wants to wait long at the
 * end. */
static size_t native_end_all(struct box_engine *engine, bool dead_only, struct error *err)
{
    struct boxes *all = boxes_of(engine);
    struct box_info infos[64];
    size_t count, left = 0;
    struct error why;

    for (size_t seen = 0; (count = boxes_list(all, seen, infos, 64)); seen += count)
        for (size_t i = 0; i < count; i++) {
            if (dead_only && !boxes_in_state(all, infos[i].id, BOX_DEAD))
                continue;
            if ((dead_only && left > 0) || box_end_but_disk(all, infos[i].id, &why) < 0)
                if (left++ == 0)
                    *err = why;
        }
    return left;
}

static void native_enter_thread(struct box_engine *engine)
{
    struct error err;

    (void)engine;
    if (box_seccomp_fill(&err) < 0)
        log_warn("warden", "%s; ignoring", err.message);
}

static void native_tend(struct box_engine *engine)
{
    box_spare_fill(boxes_of(engine));
}

static const struct box_engine_ops native_ops = {
    .has = native_has,
    .start = native_start,
    .claim = native_claim,
    .kill = native_kill,
    .stop = native_stop,
    .limit = native_limit,
    .network = native_network,
    .freeze = native_freeze,
    .usage = native_usage,
    .ports = native_ports,
    .snapshot = native_snapshot,
    .dial = native_dial,
    .list = native_list,
    .count = native_count,
    .uses_layer = native_uses_layer,
    .uses_volume = native_uses_volume,
    .end_filler = native_end_filler,
    .next_event = native_next_event,
    .end_all = native_end_all,
    .enter_thread = native_enter_thread,
    .tend = native_tend,
};

/* ---- opening ---- */

static int read_boot_id(struct boxes *all, struct error *err)
{
    auto_buf struct buf text = {0};
    int r;

    buf_init(&text, 64);
    r = fd_read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &text);
    if (r < 0 || !str_copy(str_trim(buf_str(&text)), all->boot_id, sizeof(all->boot_id)))
        return error_set_errno(err, r < 0 ? -r : EINVAL, "read the boot id");
    return 0;
}

static void make_resolv_conf(struct boxes *all, const struct native_config *config)
{
    const struct in_addr router = {htonl(NETWORK_ROUTER)};
    size_t used = 0, size = sizeof(all->resolv_conf);
    char text[INET_ADDRSTRLEN];

    for (size_t i = 0; i < config->resolver_count && i < 3; i++)
        used += (size_t)snprintf(all->resolv_conf + used, size - used, "nameserver %s\n",
                                 config->resolvers[i]);
    if (used)
        return;
    log_warn("warden", "no DNS server found: names will not resolve in sandboxes, but for those of "
                       "private networks; set --resolvers");
    (void)snprintf(all->resolv_conf, size, "nameserver %s\n",
                   inet_ntop(AF_INET, &router, text, sizeof(text)));
}

/* Once: it is long on a large host, and slow to read. */
static void read_cpuinfo(struct boxes *all)
{
    enum { CPUINFO_MAX = 4 << 20 };
    auto_buf struct buf text = {0};

    buf_init(&text, CPUINFO_MAX);
    if (fd_read_file_at(AT_FDCWD, "/proc/cpuinfo", &text) == 0 && text.len > 0)
        all->cpuinfo = buf_take(&text);
    else
        log_warn("warden", "cannot read /proc/cpuinfo: sandboxes see the host's, ignoring");
}

void native_init(struct boxes *all)
{
    all->engine = (struct box_engine){.kind = ENGINE_NATIVE, .ops = &native_ops, .event_fd = -1};
    all->run_fd = all->layers_fd = all->feeds_fd = all->envd_fd = all->dev_tree_fd = -1;
    all->seccomp_fd = all->fuse_fd = all->seed_fd = -1;
    (void)pthread_mutex_init(&all->lock, NULL);
    cond_init(&all->idle);
    map_init(&all->table);
}

int native_open(struct boxes *all, const struct native_config *config, struct error *err)
{
    uint32_t seed = (uint32_t)strtoul(config->instance, NULL, 16);

    /* Two servers on one host start in different corners of the slot space. */
    all->next_slot = 1 + seed % (BOX_SLOT_COUNT - 1);
    make_resolv_conf(all, config);
    all->host_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    read_cpuinfo(all);
    all->engine.event_fd = epoll_create1(EPOLL_CLOEXEC);
    if (all->engine.event_fd < 0)
        return error_set_errno(err, errno, "epoll");
    if (read_boot_id(all, err) < 0 || box_make_dev_tree(&all->dev_tree_fd, err) < 0 ||
        box_fuse_open(&all->fuse_fd, err) < 0 || box_seccomp_compile(&all->seccomp_fd, err) < 0)
        return -1;
    if (!config->going_down && !all->attach_layers && box_seed_open(all, &all->seed_fd, err) < 0)
        return -1;
    return box_cgroups_open(config->instance, &all->cgroups, err);
}

void native_close(struct boxes *all, bool remove)
{
    if (all->cgroups && remove)
        box_cgroups_destroy(all->cgroups);
    if (all->cgroups)
        box_cgroups_close(all->cgroups);
    free(take_ptr(&all->cpuinfo));
    close_fd(&all->dev_tree_fd);
    close_fd(&all->seccomp_fd);
    close_fd(&all->fuse_fd);
    close_fd(&all->seed_fd);
    close_fd(&all->envd_fd);
    close_fd(&all->engine.event_fd);
    close_fd(&all->layers_fd);
    close_fd(&all->feeds_fd);
    close_fd(&all->run_fd);
    boxes_done(all);
}
