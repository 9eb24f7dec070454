/* The ways down. Steps that are idempotent, in an order in which a box that is half gone is found
 * again by the next warden: the record says the last word. */
#include "host/native/box.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "host/disk/disk.h"
#include "host/network/network.h"

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

enum { KILL_TIMEOUT_MS = 10000, HURRY_MS = 100, HURRY_STEP_MS = 1000 };

struct seen {
    int control_fd;
    uid_t owner;
    struct error *err;
    int result;
};

static void abort_seen(pid_t task, void *arg)
{
    struct seen *seen = arg;

    if (box_fuse_abort_seen(seen->control_fd, task, seen->owner, seen->err) < 0)
        seen->result = -1;
}

/* Of a box whose processes are gone there is none, and the number may be somebody else's. One whose warden was
 * killed while it started has no process in its record: its cgroup knows them. */
static int end_connections(struct boxes *all, struct box *box, struct error *err)
{
    struct pollfd poll_fd = {.fd = box->pidfd, .events = POLLIN};
    uid_t owner = BOX_UID_FIRST + box->slot * BOX_IDS_PER_SLOT;
    struct seen seen = {.control_fd = all->fuse_fd, .owner = owner, .err = err};
    int r = 0;

    if (!box->slot || (box->pidfd >= 0 && poll(&poll_fd, 1, 0) != 0))
        return 0;
    if (box->fuse[0] == 0 && box->pidfd >= 0)
        box_fuse_find(box->pid, box->fuse);
    if (box->fuse[0] == 0)
        box_cgroup_each_task(all->cgroups, box->cgroup, abort_seen, &seen);
    for (size_t i = 0; r == 0 && i < BOX_FUSE_MAX; i++)
        r = box_fuse_abort(all->fuse_fd, box->fuse[i], owner, err);
    return r < 0 ? r : seen.result;
}

/* The first process is the last to go: when it has ended, the pid namespace is empty. */
static int wait_ended(struct boxes *all, const struct box *box, struct error *err)
{
    struct pollfd poll_fd = {.fd = box->pidfd, .events = POLLIN};
    int64_t now = clock_mono_ms(), until = now + KILL_TIMEOUT_MS, next = now + HURRY_MS;

    while (poll(&poll_fd, 1, (int)(next - now)) <= 0) {
        now = clock_mono_ms();
        if (now >= until)
            return error_set(err, ERROR_TIMEOUT,
                             "its processes were killed, but did not leave the kernel in %d s",
                             KILL_TIMEOUT_MS / 1000);
        if (now < next)
            continue;
        box_cgroup_hurry(all->cgroups, box->cgroup);
        now = clock_mono_ms();
        next = now + HURRY_STEP_MS < until ? now + HURRY_STEP_MS : now > until ? now : until;
    }
    return 0;
}

static int end_processes(struct boxes *all, struct box *box, struct error *err)
{
    siginfo_t ignored;

    if (end_connections(all, box, err) < 0)
        log_warn("warden", "box=%s %s; ignoring", box->id, err->message);
    if (box_cgroup_kill(all->cgroups, box->cgroup, err) < 0)
        return -1;
    if (box->pidfd < 0)
        return 0;
    (void)epoll_ctl(all->engine.event_fd, EPOLL_CTL_DEL, box->pidfd, NULL);
    if (wait_ended(all, box, err) < 0)
        return -1;
    if (box->child)
        (void)waitid(P_PIDFD, (id_t)box->pidfd, &ignored, WEXITED);
    box->child = false;
    box->pid = 0;
    memset(box->fuse, 0, sizeof(box->fuse));
    close_fd(&box->pidfd);
    return 0;
}

/* The last process takes the box's mounts along, and what goes with an overlay (box_close.c) would be waited for here.
 * So its root is held meanwhile. Not of a box that is only stopped: its files must be free for the next overlay. */
static int hold_root(const struct box *box)
{
    char path[40];

    (void)snprintf(path, sizeof(path), "/proc/%d/root", (int)box->pid);
    return box->pidfd < 0 ? -1 : open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int end_for_good(struct boxes *all, struct box *box, struct error *err)
{
    int root_fd = hold_root(box), r = end_processes(all, box, err);

    box_close_root(root_fd);
    return r;
}

static int wait_idle(struct boxes *all, struct box *box, struct error *err)
{
    return boxes_wait_idle(all, box, err);
}

static int remove_cgroup(struct boxes *all, struct box *box, struct error *err)
{
    return box_cgroup_remove(all->cgroups, box->cgroup, err);
}

static int remove_network(struct boxes *all, struct box *box, struct error *err)
{
    close_fd(&box->netns_fd);
    return box->slot ? network_release(all->network, box->slot, err) : 0;
}

static int remove_disk(struct boxes *all, struct box *box, struct error *err)
{
    return disk_box_delete(all->disk, box->id, err);
}

static int remove_file(struct boxes *all, const char *id, const char *kind, struct error *err)
{
    char name[ID_SIZE + 8];

    (void)snprintf(name, sizeof(name), "%s.%s", id, kind);
    if (unlinkat(all->run_fd, name, 0) < 0 && errno != ENOENT)
        return error_set_errno(err, errno, "remove '%s'", name);
    return 0;
}

static int remove_files(struct boxes *all, struct box *box, struct error *err)
{
    if (remove_file(all, box->id, "sock", err) < 0 || remove_file(all, box->id, "still", err) < 0)
        return -1;
    return remove_file(all, box->id, "new", err);
}

/* The record last: as long as there is one, the rest is found. */
int box_forget_blank(struct boxes *all, struct box *box, struct error *err)
{
    const char *blank = box->cgroup;

    if (strcmp(blank, box->id) == 0)
        return 0;
    if (disk_box_delete(all->disk, blank, err) < 0 || remove_file(all, blank, "sock", err) < 0 ||
        remove_file(all, blank, "new", err) < 0)
        return -1;
    return remove_file(all, blank, "box", err);
}

static int remove_record(struct boxes *all, struct box *box, struct error *err)
{
    return remove_file(all, box->id, "box", err);
}

static int stop_record(struct boxes *all, struct box *box, struct error *err)
{
    return box_record_stop(all, box, err);
}

struct step {
    const char *name;
    int (*run)(struct boxes *all, struct box *box, struct error *err);
};

/* Nothing else can go before the first two; the last outlasts every other trace. */
static const struct step kill_steps[] = {
    {"processes", end_for_good},       {"holders", wait_idle},
    {"cgroup removal", remove_cgroup}, {"network release", remove_network},
    {"disk removal", remove_disk},     {"files", remove_files},
    {"blank box", box_forget_blank},   {"record", remove_record},
};

static const struct step stop_steps[] = {
    {"processes", end_processes},      {"holders", wait_idle},
    {"cgroup removal", remove_cgroup}, {"network release", remove_network},
    {"files", remove_files},           {"blank box", box_forget_blank},
    {"record", stop_record},
};

enum { FIRST_STEPS = 2 };

static int go_down(struct boxes *all, struct box *box, const struct step *steps, size_t count,
                   struct error *err)
{
    bool failed = false;

    for (size_t i = 0; i < count && !(failed && i == count - 1); i++) {
        struct error step_err;

        if (box_fault(steps[i].name, &step_err) == 0 && steps[i].run(all, box, &step_err) == 0)
            continue;
        log_warn("warden", "box=%s removal: %s: %s", box->id, steps[i].name, step_err.message);
        if (!failed)
            *err = step_err;
        failed = true;
        if (i < FIRST_STEPS)
            break;
    }
    if (!failed)
        return 0;
    boxes_set_dead(all, box);
    return error_prefix(err, "remove box '%s'", box->id);
}

int box_teardown(struct boxes *all, struct box *box, struct error *err)
{
    if (go_down(all, box, kill_steps, sizeof(kill_steps) / sizeof(*kill_steps), err) < 0)
        return -1;
    boxes_remove(all, box);
    return 0;
}

int box_teardown_but_disk(struct boxes *all, struct box *box, struct error *err)
{
    if (go_down(all, box, stop_steps, sizeof(stop_steps) / sizeof(*stop_steps), err) < 0)
        return -1;
    boxes_set_stopped(all, box);
    return 0;
}

int box_kill(struct boxes *all, const char *id, struct error *err)
{
    struct box *box;

    if (boxes_take(all, id, &box, err) < 0)
        return -1;
    return box ? box_teardown(all, box, err) : 0;
}

int box_end_but_disk(struct boxes *all, const char *id, struct error *err)
{
    struct box *box;

    if (boxes_in_state(all, id, BOX_STOPPED))
        return 0;
    if (boxes_take(all, id, &box, err) < 0)
        return -1;
    if (!box)
        return error_set(err, ERROR_NOT_FOUND, "no box '%s'", id);
    return box_teardown_but_disk(all, box, err);
}

int box_stop(struct boxes *all, const char *id, struct error *err)
{
    if (box_end_but_disk(all, id, err) < 0)
        return -1;
    if (box_fault("disk sync", err) == 0 &&
        (disk_box_sync(all->disk, id, err) == 0 || err->code == ERROR_NOT_FOUND))
        return 0;
    return error_prefix(err, "box '%s' ended, its last writes may not be on disk", id);
}
