/* Operations on a box that runs. */
#include "host/native/box.h"

#include <string.h>

#include "host/disk/disk.h"
#include "host/network/network.h"

/* What it has as long as it runs. */
struct running {
    uint32_t slot;
    char cgroup[ID_SIZE];
};

static int find_running(struct boxes *all, const char *id, struct running *out, struct error *err)
{
    struct box *box;
    bool running;

    (void)pthread_mutex_lock(&all->lock);
    box = map_get(&all->table, str_of(id));
    running = box && box->state == BOX_RUNNING;
    if (running) {
        out->slot = box->slot;
        memcpy(out->cgroup, box->cgroup, ID_SIZE);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return running ? 0 : error_set(err, ERROR_NOT_FOUND, "no running box '%s'", id);
}

int box_limit(struct boxes *all, const char *id, const struct box_limits *limits, struct error *err)
{
    struct running box = {0};

    if (find_running(all, id, &box, err) < 0 ||
        box_cgroup_limit(all->cgroups, box.cgroup, limits, err) < 0)
        return -1;
    return disk_box_limit(all->disk, id, limits->disk_bytes, err);
}

int box_network(struct boxes *all, const char *id, const struct box_network *network,
                struct error *err)
{
    struct running box = {0};

    if (find_running(all, id, &box, err) < 0)
        return -1;
    return network_set(all->network, box.slot, network, err);
}

/* A pause promises that nothing gets lost: without that it is none, and the box goes on. */
static int sync_still(struct boxes *all, const struct box *box, struct error *err)
{
    struct error ignored;

    if (box_fault("disk sync", err) == 0 && disk_box_sync(all->disk, box->id, err) == 0)
        return 0;
    (void)box_cgroup_freeze(all->cgroups, box->cgroup, false, &ignored);
    return -1;
}

int box_freeze(struct boxes *all, const char *id, bool frozen, struct error *err)
{
    struct box *box;
    int r;

    if (boxes_hold(all, id, false, &box, err) < 0)
        return -1;
    /* It stands still (or not) for its own sake from now on. */
    r = box_record_still(all, id, false, err);
    if (r == 0)
        r = box_cgroup_freeze(all->cgroups, box->cgroup, frozen, err);
    if (r == 0 && frozen && sync_still(all, box, err) < 0)
        r = -1;
    boxes_release(all, box);
    return r;
}

int box_usage(struct boxes *all, const char *id, struct box_usage *out, struct error *err)
{
    struct running box = {0};

    if (find_running(all, id, &box, err) < 0 ||
        box_cgroup_usage(all->cgroups, box.cgroup, out, err) < 0)
        return -1;
    boxes_look_for_oom(all, id);
    if (network_usage(all->network, box.slot, &out->network, err) < 0)
        return -1;
    return disk_box_used(all->disk, id, &out->disk_bytes, err);
}
