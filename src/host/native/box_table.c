/* Which boxes there are. One mutex guards the table and the state of every box; a box in
 * BOX_STARTING or BOX_ENDING belongs to the one thread that put it there. In the other states threads
 * take turns by boxes_hold(); one that wants to end the box goes ahead with its processes and waits for
 * the holder before it takes anything else away. */
#include "host/native/box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/path.h"
#include "host/disk/disk.h"
#include "host/network/network.h"

enum { KEPT_FROM = 1024 };

int box_keep_fd(int fd)
{
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, KEPT_FROM);

    if (high < 0)
        return fd;
    (void)close(fd);
    return high;
}

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

enum { HOLD_WAIT_MS = 50000 }; /* less than the server waits for an answer */

static struct box *box_new(const char *id)
{
    struct box *box = xcalloc(1, sizeof(*box));

    memcpy(box->id, id, ID_SIZE);
    memcpy(box->cgroup, id, ID_SIZE);
    box->pidfd = box->netns_fd = box->claim_fd = -1;
    return box;
}

static void box_free(struct box *box)
{
    close_fd(&box->pidfd);
    close_fd(&box->netns_fd);
    close_fd(&box->claim_fd);
    free(box);
}

/* A free slot, searched round robin so that one just freed rests as long as possible: its link may
 * still be on its way out. */
static uint32_t find_slot(struct boxes *all)
{
    for (uint32_t i = 0; i < BOX_SLOT_COUNT; i++) {
        uint32_t slot = (all->next_slot + i) % BOX_SLOT_COUNT;

        if (slot && !all->slots[slot]) {
            all->next_slot = slot + 1;
            return slot;
        }
    }
    return 0;
}

static void copy_names(struct box *box, const struct box_spec *spec)
{
    box->layer_count = spec->layer_count;
    memcpy(box->layers, spec->layers, sizeof(box->layers));
    memcpy(box->fill, spec->fill, sizeof(box->fill));
    box->volume_count = spec->volume_count;
    for (uint32_t i = 0; i < spec->volume_count; i++)
        memcpy(box->volumes[i], spec->volumes[i].name, LAYER_NAME_SIZE);
}

/* With the lock: one that can go on from its files. */
static struct box *find_stopped(struct boxes *all, const char *id, struct error *err)
{
    struct box *box = map_get(&all->table, str_of(id));

    if (!box)
        (void)error_set(err, ERROR_NOT_FOUND, "no stopped box '%s'", id);
    else if (box->state != BOX_STOPPED)
        (void)error_set(err, ERROR_EXISTS, "box '%s' exists", id);
    else if (box->busy)
        (void)error_set(err, ERROR_CONFLICT, "box '%s' is being copied", id);
    else
        return box;
    return NULL;
}

static int add_locked(struct boxes *all, const struct box_spec *spec, struct box **out,
                      struct error *err)
{
    struct box *box = spec->keep_disk ? find_stopped(all, spec->id, err) : NULL;
    uint32_t slot;

    if (spec->keep_disk && !box)
        return -1;
    if (!box && map_get(&all->table, str_of(spec->id)))
        return error_set(err, ERROR_EXISTS, "box '%s' exists", spec->id);
    slot = find_slot(all);
    if (slot == 0)
        return error_set(err, ERROR_QUOTA, "this host runs %d sandboxes already",
                         BOX_SLOT_COUNT - 1);
    if (!box) {
        box = box_new(spec->id);
        (void)map_put(&all->table, str_of(spec->id), box);
    }
    box->state = BOX_STARTING;
    box->slot = slot;
    all->slots[slot] = box;
    copy_names(box, spec);
    *out = box;
    return 0;
}

int boxes_add(struct boxes *all, const struct box_spec *spec, struct box **out, struct error *err)
{
    int r;

    (void)pthread_mutex_lock(&all->lock);
    r = add_locked(all, spec, out, err);
    (void)pthread_mutex_unlock(&all->lock);
    return r;
}

/* With the lock. */
static struct box *find_blank(struct boxes *all, const struct box_spec *spec, struct error *err)
{
    const char *id = spec->keep_disk ? spec->blank_id : spec->id;
    struct box *box = map_get(&all->table, str_of(id));

    if (!box || box->state != BOX_RUNNING || box->claim_fd < 0)
        (void)error_set(err, ERROR_NOT_FOUND, "no blank box '%s'", id);
    else if (box->busy)
        (void)error_set(err, ERROR_CONFLICT, "box '%s' is busy", id);
    else if (box->refuses_clones != box_spec_refuses_clones(spec))
        (void)error_set(err, ERROR_UNSUPPORTED, "blank box '%s' has another filter", id);
    else
        return box;
    return NULL;
}

/* With the lock: a stopped box gets all that a blank one has. */
static void take_over(struct boxes *all, struct box *box, struct box *blank)
{
    box->slot = blank->slot;
    box->pid = blank->pid;
    box->pidfd = take_fd(&blank->pidfd);
    box->netns_fd = take_fd(&blank->netns_fd);
    box->claim_fd = take_fd(&blank->claim_fd);
    box->limits = blank->limits;
    box->child = blank->child;
    box->oom_kills = blank->oom_kills;
    box->oom_kills_before = blank->oom_kills_before;
    memcpy(box->fuse, blank->fuse, sizeof(box->fuse));
    memcpy(box->cgroup, blank->id, ID_SIZE);
    all->slots[box->slot] = box;
    (void)map_remove(&all->table, str_of(blank->id));
    box_free(blank);
}

static int claim_locked(struct boxes *all, const struct box_spec *spec, struct box **out,
                        struct error *err)
{
    struct box *blank = find_blank(all, spec, err);
    struct box *box = blank && spec->keep_disk ? find_stopped(all, spec->id, err) : blank;

    if (!box)
        return -1;
    if (box != blank)
        take_over(all, box, blank);
    box->state = BOX_STARTING;
    copy_names(box, spec);
    *out = box;
    return 0;
}

int boxes_claim(struct boxes *all, const struct box_spec *spec, struct box **out, struct error *err)
{
    int r;

    (void)pthread_mutex_lock(&all->lock);
    r = claim_locked(all, spec, out, err);
    (void)pthread_mutex_unlock(&all->lock);
    return r;
}

static bool owned(const struct box *box)
{
    return box->state == BOX_STARTING || box->state == BOX_ENDING;
}

int boxes_take(struct boxes *all, const char *id, struct box **out, struct error *err)
{
    struct box *box;
    int r = 0;

    (void)pthread_mutex_lock(&all->lock);
    box = map_get(&all->table, str_of(id));
    if (box && owned(box))
        r = error_set(err, ERROR_CONFLICT, "box '%s' is being %s", id,
                      box->state == BOX_STARTING ? "started" : "removed");
    else if (box)
        box->state = BOX_ENDING;
    (void)pthread_mutex_unlock(&all->lock);
    *out = r == 0 ? box : NULL;
    return r;
}

/* Looked up again after each wait: the box may be gone by then. */
static int hold_locked(struct boxes *all, const char *id, bool any, struct box **out,
                       struct error *err)
{
    int64_t deadline_us = clock_mono_us() + HOLD_WAIT_MS * INT64_C(1000);

    for (;;) {
        struct box *box = map_get(&all->table, str_of(id));

        if (!box || (!any && (box->state == BOX_DEAD || box->state == BOX_STOPPED)))
            return error_set(err, ERROR_NOT_FOUND, "no %s '%s'", any ? "box" : "running box", id);
        if (owned(box))
            return error_set(err, ERROR_CONFLICT, "box '%s' is being %s", id,
                             box->state == BOX_STARTING ? "started" : "removed");
        if (!box->busy) {
            box->busy = true;
            *out = box;
            return 0;
        }
        if (!cond_wait_until(&all->idle, &all->lock, deadline_us))
            return error_set(err, ERROR_CONFLICT, "box '%s' is busy", id);
    }
}

int boxes_hold(struct boxes *all, const char *id, bool any, struct box **out, struct error *err)
{
    int r;

    (void)pthread_mutex_lock(&all->lock);
    r = hold_locked(all, id, any, out, err);
    (void)pthread_mutex_unlock(&all->lock);
    return r;
}

void boxes_release(struct boxes *all, struct box *box)
{
    (void)pthread_mutex_lock(&all->lock);
    box->busy = false;
    (void)pthread_cond_broadcast(&all->idle);
    (void)pthread_mutex_unlock(&all->lock);
}

int boxes_wait_idle(struct boxes *all, struct box *box, struct error *err)
{
    int64_t deadline_us = clock_mono_us() + HOLD_WAIT_MS * INT64_C(1000);
    bool late = false;

    (void)pthread_mutex_lock(&all->lock);
    while (box->busy && !late)
        late = !cond_wait_until(&all->idle, &all->lock, deadline_us);
    (void)pthread_mutex_unlock(&all->lock);
    return late ? error_set(err, ERROR_TIMEOUT, "box '%s' is busy", box->id) : 0;
}

void boxes_remove(struct boxes *all, struct box *box)
{
    (void)pthread_mutex_lock(&all->lock);
    (void)map_remove(&all->table, str_of(box->id));
    if (box->slot && all->slots[box->slot] == box)
        all->slots[box->slot] = NULL;
    (void)pthread_mutex_unlock(&all->lock);
    box_free(box);
}

void boxes_done(struct boxes *all)
{
    struct map_entry *entry;

    map_for_each (&all->table, entry)
        box_free(entry->value);
    map_done(&all->table);
}

static void watch_exit(struct boxes *all, const struct box *box)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = box->slot};

    /* One that was blank is watched already, but may have ended since. */
    if (epoll_ctl(all->engine.event_fd, EPOLL_CTL_ADD, box->pidfd, &event) < 0 &&
        (errno != EEXIST || epoll_ctl(all->engine.event_fd, EPOLL_CTL_MOD, box->pidfd, &event) < 0))
        log_warn("warden", "box=%s cannot watch its process: %s; ignoring", box->id,
                 strerror(errno));
}

void boxes_set_running(struct boxes *all, struct box *box)
{
    (void)pthread_mutex_lock(&all->lock);
    box->state = BOX_RUNNING;
    watch_exit(all, box);
    (void)pthread_mutex_unlock(&all->lock);
}

void boxes_set_dead(struct boxes *all, struct box *box)
{
    (void)pthread_mutex_lock(&all->lock);
    box->state = BOX_DEAD;
    (void)pthread_mutex_unlock(&all->lock);
}

void boxes_set_stopped(struct boxes *all, struct box *box)
{
    (void)pthread_mutex_lock(&all->lock);
    if (box->slot && all->slots[box->slot] == box)
        all->slots[box->slot] = NULL;
    box->slot = 0;
    memcpy(box->cgroup, box->id, ID_SIZE);
    box->state = BOX_STOPPED;
    (void)pthread_mutex_unlock(&all->lock);
}

bool boxes_has(struct boxes *all, const char *id)
{
    bool has;

    (void)pthread_mutex_lock(&all->lock);
    has = map_get(&all->table, str_of(id)) != NULL;
    (void)pthread_mutex_unlock(&all->lock);
    return has;
}

bool boxes_in_state(struct boxes *all, const char *id, enum box_state state)
{
    const struct box *box;
    bool is;

    (void)pthread_mutex_lock(&all->lock);
    box = map_get(&all->table, str_of(id));
    is = box && box->state == state;
    (void)pthread_mutex_unlock(&all->lock);
    return is;
}

bool boxes_use_layer(struct boxes *all, const char *layer)
{
    struct map_entry *entry;
    bool used = false;

    (void)pthread_mutex_lock(&all->lock);
    map_for_each (&all->table, entry) {
        const struct box *box = entry->value;

        for (uint32_t i = 0; i < box->layer_count; i++)
            used |= strcmp(box->layers[i], layer) == 0;
        used |= strcmp(box->fill, layer) == 0;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return used;
}

/* layer: NULL = any. */
static const struct box *find_filler(struct boxes *all, const char *layer)
{
    struct map_entry *entry;

    map_for_each (&all->table, entry) {
        const struct box *box = entry->value;

        if (box->fill[0] && (!layer || strcmp(box->fill, layer) == 0))
            return box;
    }
    return NULL;
}

bool boxes_find_filler(struct boxes *all, const char *layer, char out_id[ID_SIZE])
{
    const struct box *box;

    (void)pthread_mutex_lock(&all->lock);
    box = find_filler(all, layer);
    if (box)
        memcpy(out_id, box->id, ID_SIZE);
    (void)pthread_mutex_unlock(&all->lock);
    return box;
}

void boxes_end_fillers(struct boxes *all)
{
    char id[ID_SIZE];
    struct error err;

    while (boxes_find_filler(all, NULL, id)) {
        log_info("warden", "box=%s filled a layer for a server that is gone", id);
        if (box_kill(all, id, &err) == 0)
            continue;
        log_error("warden", "box=%s %s", id, err.message);
        return;
    }
}

bool boxes_use_volume(struct boxes *all, const char *volume)
{
    struct map_entry *entry;
    bool used = false;

    (void)pthread_mutex_lock(&all->lock);
    map_for_each (&all->table, entry) {
        const struct box *box = entry->value;

        for (uint32_t i = 0; box->state != BOX_STOPPED && i < box->volume_count; i++)
            used |= strcmp(box->volumes[i], volume) == 0;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return used;
}

/* Was it ended by SIGKILL, as those are for whom there is no memory? Of one that an earlier warden
 * started only its parent could tell. */
static bool was_killed(const struct box *box, int flags)
{
    siginfo_t how = {0};
    bool told = box->child &&
                waitid(P_PIDFD, (id_t)box->pidfd, &how, WEXITED | WNOHANG | flags) == 0 &&
                how.si_pid;

    return !told || (how.si_code == CLD_KILLED && how.si_status == SIGKILL);
}

static bool reap(struct box *box)
{
    bool killed = was_killed(box, 0);

    box->child = false;
    return killed;
}

static enum box_end end_of(const struct boxes *all, const struct box *box, bool killed)
{
    return killed && box_cgroup_oom_kills(all->cgroups, box->cgroup) > box->oom_kills_before
               ? BOX_END_OOM
               : BOX_END_EXITED;
}

void boxes_look_for_oom(struct boxes *all, const char *id)
{
    struct box *box;

    (void)pthread_mutex_lock(&all->lock);
    box = map_get(&all->table, str_of(id));
    if (box && box->state == BOX_RUNNING) {
        box->oom_kills_before = box->oom_kills;
        box->oom_kills = box_cgroup_oom_kills(all->cgroups, box->cgroup);
    }
    (void)pthread_mutex_unlock(&all->lock);
}

/* By the time that the event is looked at, the slot may be another box's. */
static bool has_ended(const struct box *box)
{
    struct pollfd poll_fd = {.fd = box->pidfd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) > 0;
}

bool boxes_exited(struct boxes *all, uint32_t slot, struct engine_event *out)
{
    struct box *box;
    bool tell = false;

    (void)pthread_mutex_lock(&all->lock);
    box = slot < BOX_SLOT_COUNT ? all->slots[slot] : NULL;
    if (box && box->state == BOX_RUNNING && has_ended(box)) {
        box->end = end_of(all, box, reap(box));
        box->state = BOX_DEAD;
        memcpy(out->id, box->id, ID_SIZE);
        out->end = box->end;
        tell = true;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return tell;
}

/* Also of one whose end nobody was told of yet. */
static struct box_info info_of(struct boxes *all, const struct box *box)
{
    struct box_info info = {0};

    memcpy(info.id, box->id, ID_SIZE);
    info.scratch = box->layer_count == 0 || box->fill[0];
    if (box->state == BOX_DEAD) {
        info.end = box->end;
    } else if (box->state == BOX_RUNNING && has_ended(box)) {
        info.end = end_of(all, box, was_killed(box, WNOWAIT));
    } else if (box->state == BOX_RUNNING) {
        info.running = true;
        info.address = network_address_of(box->slot);
        info.group = network_group_of(all->network, box->slot);
    }
    return info;
}

/* The order of a hash table is stable while nothing is added or removed, which is enough: the
 * server lists at start, before it changes anything. */
size_t boxes_list(struct boxes *all, size_t offset, struct box_info *out, size_t max)
{
    struct map_entry *entry;
    size_t seen = 0, count = 0;

    (void)pthread_mutex_lock(&all->lock);
    map_for_each (&all->table, entry) {
        if (seen++ < offset || count == max)
            continue;
        out[count++] = info_of(all, entry->value);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return count;
}

size_t boxes_count(struct boxes *all)
{
    size_t count;

    (void)pthread_mutex_lock(&all->lock);
    count = all->table.count;
    (void)pthread_mutex_unlock(&all->lock);
    return count;
}

size_t boxes_count_live(struct boxes *all)
{
    struct map_entry *entry;
    size_t count = 0;

    (void)pthread_mutex_lock(&all->lock);
    map_for_each (&all->table, entry)
        count += ((const struct box *)entry->value)->state != BOX_STOPPED;
    (void)pthread_mutex_unlock(&all->lock);
    return count;
}

/* ---- recovery: before any other thread runs ---- */

static void found(const char *id, void *arg)
{
    struct boxes *all = arg;
    struct box *box;

    if (map_get(&all->table, str_of(id)))
        return;
    box = box_new(id);
    if (!box_record_read(all, box)) {
        box_free(box);
        return;
    }
    if (box->slot && all->slots[box->slot])
        box->slot = 0; /* two records claim one slot: the first keeps it */
    if (box->slot)
        all->slots[box->slot] = box;
    else if (box->state == BOX_RUNNING)
        box->state = BOX_DEAD;
    box->oom_kills = box->oom_kills_before = box_cgroup_oom_kills(all->cgroups, box->cgroup);
    if (box->state == BOX_RUNNING)
        watch_exit(all, box);
    else if (box->end == BOX_END_EXITED && box->oom_kills > 0)
        box->end = BOX_END_OOM;
    (void)map_put(&all->table, str_of(id), box);
    box_snapshot_recover(all, box);
}

/* After the records: who has another's cgroup is known. */
static void found_cgroup(const char *id, void *arg)
{
    struct boxes *all = arg;
    struct map_entry *entry;

    if (map_get(&all->table, str_of(id)))
        return;
    map_for_each (&all->table, entry)
        if (strcmp(((const struct box *)entry->value)->cgroup, id) == 0)
            return;
    found(id, all);
}

/* RUN holds "<id>.box", "<id>.sock" and the like. */
static void found_in_run(struct boxes *all)
{
    DIR *dir = path_open_dir(all->run_fd, ".");
    struct dirent *entry;

    if (!dir)
        return;
    while ((entry = readdir(dir))) {
        char id[ID_SIZE] = "";
        struct str name = str_of(entry->d_name);

        if (name.len > ID_LEN && name.p[ID_LEN] == '.' && id_valid(str_n(name.p, ID_LEN))) {
            memcpy(id, name.p, ID_LEN);
            found(id, all);
        }
    }
    (void)closedir(dir);
}

int boxes_recover(struct boxes *all, struct error *err)
{
    char **names = NULL;
    size_t count = 0;

    found_in_run(all);
    box_cgroup_each(all->cgroups, found_cgroup, all);
    if (disk_box_list(all->disk, &names, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (id_valid(str_of(names[i])))
            found(names[i], all);
        free(names[i]);
    }
    free(names);
    all->recovered = true;
    return 0;
}
