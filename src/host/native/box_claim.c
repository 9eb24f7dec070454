/* Claiming a blank box: what a start does besides, on a box whose envd runs already. A list of steps on one struct, as in
 * box_start.c; whatever fails, box_teardown() removes all of the box, or all but the files that it had before. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/claim_message.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "host/disk/disk.h"
#include "host/disk/tree.h"
#include "host/native/box.h"
#include "host/network/network.h"

struct claim {
    struct boxes *all;
    const struct box_spec *spec;
    struct box *box;
    const char *top_layer;
    struct box_places places;
    int disk_fd, userns_fd, root_fd, fill_fd;
};

static int check_layers(struct claim *claim, struct error *err)
{
    return box_layers_check(claim->all, claim->spec, &claim->top_layer, err);
}

static int write_record(struct claim *claim, struct error *err)
{
    return box_record_write(claim->all, claim->box, err);
}

/* What goes on from its files has an id already: envd's socket gets that name, and nothing keeps the blank box's but the
 * cgroup. */
static int name_socket(struct claim *claim, struct error *err)
{
    const struct box *box = claim->box;
    char from[ID_SIZE + 8], to[ID_SIZE + 8];

    if (!claim->spec->keep_disk)
        return 0;
    (void)snprintf(from, sizeof(from), "%s.sock", box->cgroup);
    (void)snprintf(to, sizeof(to), "%s.sock", box->id);
    if (renameat(claim->all->run_fd, from, claim->all->run_fd, to) < 0)
        return error_set_errno(err, errno, "rename envd's socket");
    return 0;
}

static int forget_blank(struct claim *claim, struct error *err)
{
    return box_forget_blank(claim->all, claim->box, err);
}

/* It has an empty one, unless it goes on from its files. */
static int make_disk(struct claim *claim, struct error *err)
{
    const struct box_spec *spec = claim->spec;
    struct disk *disk = claim->all->disk;
    bool raised;

    if (!spec->keep_disk && !spec->source[0] && !claim->top_layer)
        return disk_box_begin(disk, spec->id, claim->box->limits.disk_bytes,
                              spec->limits.disk_bytes, &claim->disk_fd, err);
    if (box_make_disk(claim->all, spec, claim->top_layer, &claim->disk_fd, &raised, err) < 0)
        return -1;
    /* The limit may go down once nothing writes for the start any more. Here envd would, when the claim has ended. */
    return raised ? error_set(err, ERROR_CONFLICT, "a full disk needs a start") : 0;
}

static int make_fill(struct claim *claim, struct error *err)
{
    return box_places_fill(claim->all, claim->spec, &claim->fill_fd, err);
}

static int mount_root(struct claim *claim, struct error *err)
{
    struct box_place place = {.slot = claim->box->slot, .disk_fd = claim->disk_fd, .mntns_fd = -1};

    claim->userns_fd = box_namespace_open(claim->box->pid, "user", err);
    if (claim->userns_fd < 0)
        return -1;
    place.userns_fd = claim->userns_fd;
    return box_mount_root(claim->all, claim->spec, &place, &claim->root_fd, err);
}

static int set_limits(struct claim *claim, struct error *err)
{
    const struct box_limits *had = &claim->box->limits, *has = &claim->spec->limits;

    if (had->mem_bytes == has->mem_bytes && had->cpu_count == has->cpu_count &&
        had->pids_max == has->pids_max && had->yields == has->yields)
        return 0;
    return box_cgroup_limit(claim->all->cgroups, claim->box->cgroup, has, err);
}

static int move_to(struct claim *claim, const int *place_fds, struct error *err)
{
    auto_close int mntns = box_namespace_open(claim->box->pid, "mnt", err);

    if (mntns < 0)
        return -1;
    return box_inside_move(&(struct box_move){.all = claim->all,
                                              .box = claim->box,
                                              .spec = claim->spec,
                                              .mntns_fd = mntns,
                                              .root_fd = claim->root_fd,
                                              .places = &claim->places,
                                              .place_fds = place_fds},
                           err);
}

static int move(struct claim *claim, struct error *err)
{
    const struct box_place of = {.userns_fd = claim->userns_fd, .fill_fd = claim->fill_fd};
    int fds[BOX_VOLUMES_MAX + 2];
    size_t count = 0;
    int r = 0;

    for (; r == 0 && count < claim->places.count; count += r == 0)
        r = box_places_mount(claim->all, claim->spec, count, &of, &fds[count], err);
    if (r == 0)
        r = move_to(claim, fds, err);
    while (count)
        (void)close(fds[--count]);
    return r;
}

static int set_network(struct claim *claim, struct error *err)
{
    const struct box_network *network = &claim->spec->network;

    /* Blank boxes are open, where they can be. */
    return claim->all->network && network->mode == NETWORK_OPEN && !network->team &&
                   !box_network_has_rules(network)
               ? 0
               : network_set(claim->all->network, claim->box->slot, network, err);
}

static int fill_message(const struct claim *claim, struct claim_message *out, struct error *err)
{
    const struct box_limits *limits = &claim->spec->limits;
    char group[DISK_GROUP_SIZE];
    struct rlimit processes;

    if (disk_box_group(claim->all->disk, claim->box->id, group, err) < 0)
        return -1;
    if (getrlimit(RLIMIT_NPROC, &processes) < 0)
        return error_set_errno(err, errno, "getrlimit");
    box_processes_limit(limits->mem_bytes, limits->pids_max, &processes);
    *out = (struct claim_message){.mem_bytes = limits->mem_bytes,
                                  .processes = processes.rlim_cur,
                                  .processes_max = processes.rlim_max,
                                  .host_cpus = (uint32_t)claim->all->host_cpus,
                                  .cpu_first = claim->box->slot * limits->cpu_count};
    if (limits->cpu_count != claim->box->limits.cpu_count)
        out->cpu_count = limits->cpu_count;
    (void)str_copy(str_of(strrchr(group, '/') + 1), out->group, sizeof(out->group));
    (void)str_copy(str_of(claim->all->resolv_conf), out->resolv_conf, sizeof(out->resolv_conf));
    return 0;
}

/* envd reads it before anything else that it is told from now on. */
static int tell_envd(struct claim *claim, struct error *err)
{
    struct claim_message message;
    int r;

    if (fill_message(claim, &message, err) < 0)
        return -1;
    r = fd_send(claim->box->claim_fd, &message, sizeof(message), &claim->root_fd, 1);
    if (r < 0)
        return error_set_errno(err, -r, "tell envd");
    close_fd(&claim->box->claim_fd);
    return 0;
}

struct step {
    const char *name;
    int (*run)(struct claim *claim, struct error *err);
};

static const struct step steps[] = {
    {"layers", check_layers},    {"record", write_record}, {"socket", name_socket},
    {"blank box", forget_blank}, {"disk", make_disk},      {"tree", make_fill},
    {"root", mount_root},        {"limits", set_limits},   {"move", move},
    {"network", set_network},    {"envd", tell_envd},
};

static int run_steps(struct claim *claim, struct error *err)
{
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        if (box_fault(steps[i].name, err) < 0)
            return -1;
        if (steps[i].run(claim, err) < 0)
            return error_prefix(err, "%s", steps[i].name);
    }
    return 0;
}

static void undo(struct claim *claim)
{
    const struct box_spec *spec = claim->spec;
    struct error ignored;

    (void)(spec->keep_disk ? box_teardown_but_disk(claim->all, claim->box, &ignored)
                           : box_teardown(claim->all, claim->box, &ignored));
    if (claim->fill_fd >= 0)
        (void)tree_delete(claim->all->trees, spec->fill, &ignored);
}

int box_claim(struct boxes *all, const struct box_spec *spec, struct box_info *out,
              struct error *err)
{
    struct claim claim = {
        .all = all, .spec = spec, .disk_fd = -1, .userns_fd = -1, .root_fd = -1, .fill_fd = -1};
    int r;

    if ((spec->keep_disk && box_make_ready(all, spec->id, err) < 0) ||
        boxes_claim(all, spec, &claim.box, err) < 0)
        return -1;
    box_places_choose(spec, &claim.places);
    r = run_steps(&claim, err);
    close_fd(&claim.disk_fd);
    close_fd(&claim.userns_fd);
    close_fd(&claim.root_fd);
    if (r < 0)
        undo(&claim);
    close_fd(&claim.fill_fd);
    if (r < 0)
        return error_prefix(err, "claim box '%s'", spec->id);
    *out = (struct box_info){.running = true, .address = network_address_of(claim.box->slot)};
    memcpy(out->id, spec->id, ID_SIZE);
    boxes_set_running(all, claim.box);
    return 0;
}
