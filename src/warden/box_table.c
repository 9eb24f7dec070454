/* Which boxes there are. One mutex guards the table and the state of every box; a box in
 * BOX_STARTING or BOX_ENDING belongs to the one thread that put it there. */
#include "warden/box.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "disk/disk.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static struct box *box_new(const char *id)
{
    struct box *box = xcalloc(1, sizeof(*box));

    memcpy(box->id, id, ID_SIZE);
    box->pidfd = box->netns_fd = -1;
    return box;
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

int boxes_add(struct boxes *all, const char *id, struct box **out, struct error *err)
{
    struct box *box = NULL;
    uint32_t slot = 0;
    bool known;

    (void)pthread_mutex_lock(&all->lock);
    known = map_get(&all->table, str_of(id));
    if (!known && (slot = find_slot(all))) {
        box = box_new(id);
        box->state = BOX_STARTING;
        box->slot = slot;
        all->slots[slot] = box;
        (void)map_put(&all->table, str_of(id), box);
    }
    (void)pthread_mutex_unlock(&all->lock);
    if (known)
        return error_set(err, ERROR_EXISTS, "box '%s' exists", id);
    if (!box)
        return error_set(err, ERROR_QUOTA, "this host runs %d sandboxes already",
                         BOX_SLOT_COUNT - 1);
    *out = box;
    return 0;
}

int boxes_take(struct boxes *all, const char *id, struct box **out, struct error *err)
{
    struct box *box;
    int r = 0;

    (void)pthread_mutex_lock(&all->lock);
    box = map_get(&all->table, str_of(id));
    if (box && (box->state == BOX_STARTING || box->state == BOX_ENDING))
        r = error_set(err, ERROR_CONFLICT, "box '%s' is being %s", id,
                      box->state == BOX_STARTING ? "started" : "removed");
    else if (box)
        box->state = BOX_ENDING;
    (void)pthread_mutex_unlock(&all->lock);
    *out = r == 0 ? box : NULL;
    return r;
}

void boxes_remove(struct boxes *all, struct box *box)
{
    (void)pthread_mutex_lock(&all->lock);
    (void)map_remove(&all->table, str_of(box->id));
    if (box->slot && all->slots[box->slot] == box)
        all->slots[box->slot] = NULL;
    (void)pthread_mutex_unlock(&all->lock);
    close_fd(&box->pidfd);
    close_fd(&box->netns_fd);
    free(box);
}

void boxes_forget(struct boxes *all)
{
    struct map_entry *entry;

    map_for_each (&all->table, entry) {
        struct box *box = entry->value;

        close_fd(&box->pidfd);
        close_fd(&box->netns_fd);
        free(box);
    }
    map_done(&all->table);
}

static void watch_exit(struct boxes *all, const struct box *box)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = box->slot};

    if (epoll_ctl(all->exit_epoll_fd, EPOLL_CTL_ADD, box->pidfd, &event) < 0)
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

bool boxes_exited(struct boxes *all, uint32_t slot, struct engine_event *out)
{
    struct box *box;
    bool tell = false;

    (void)pthread_mutex_lock(&all->lock);
    box = slot < BOX_SLOT_COUNT ? all->slots[slot] : NULL;
    if (box && box->pidfd >= 0)
        (void)epoll_ctl(all->exit_epoll_fd, EPOLL_CTL_DEL, box->pidfd, NULL);
    if (box && box->state == BOX_RUNNING) {
        siginfo_t ignored;

        if (box->child)
            (void)waitid(P_PIDFD, (id_t)box->pidfd, &ignored, WEXITED | WNOHANG);
        box->child = false;
        box->state = BOX_DEAD;
        memcpy(out->id, box->id, ID_SIZE);
        out->end = box_cgroup_oom(all->cgroups, box->id) ? BOX_END_OOM : BOX_END_EXITED;
        tell = true;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return tell;
}

/* The order of a hash table is stable while nothing is added or removed, which is enough: the
 * server lists at start, before it changes anything. */
size_t boxes_list(struct boxes *all, size_t offset, struct box_info *out, size_t max)
{
    struct map_entry *entry;
    size_t seen = 0, count = 0;

    (void)pthread_mutex_lock(&all->lock);
    map_for_each (&all->table, entry) {
        const struct box *box = entry->value;

        if (seen++ < offset || count == max)
            continue;
        out[count] = (struct box_info){
            .slot = box->slot, .pid = box->pid, .running = box->state == BOX_RUNNING};
        memcpy(out[count].id, box->id, ID_SIZE);
        count++;
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

/* ---- recovery: before any other thread runs ---- */

static void found(const char *id, void *arg)
{
    struct boxes *all = arg;
    struct box *box;

    if (map_get(&all->table, str_of(id)))
        return;
    box = box_new(id);
    box->state = box_record_read(all, box) ? BOX_RUNNING : BOX_DEAD;
    if (box->slot && all->slots[box->slot])
        box->slot = 0; /* two records claim one slot: the first keeps it */
    if (box->slot)
        all->slots[box->slot] = box;
    else if (box->state == BOX_RUNNING)
        box->state = BOX_DEAD;
    if (box->state == BOX_RUNNING)
        watch_exit(all, box);
    (void)map_put(&all->table, str_of(id), box);
}

/* RUN holds "<id>.box" and "<id>.sock". */
static void found_in_run(struct boxes *all)
{
    int fd = openat(all->run_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!dir) {
        close_fd(&fd);
        return;
    }
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
    box_cgroup_each(all->cgroups, found, all);
    if (disk_box_list(all->disk, &names, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (id_valid(str_of(names[i])))
            found(names[i], all);
        free(names[i]);
    }
    free(names);
    return 0;
}
