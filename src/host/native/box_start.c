/* Starting a box: a list of steps on one struct. Whatever fails, box_teardown() removes what the
 * steps before it made. */
#include "host/engine/engine_wire.h"
#include "host/native/box.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "host/disk/disk.h"
#include "host/disk/tree.h"
#include "host/native/box_syscalls.h"
#include "host/network/network.h"

enum { CHILD_TIMEOUT_MS = 10000, BACKGROUND_NICE = 10, ENVD_NICE = -20 };

struct start {
    struct boxes *all;
    const struct box_spec *spec;
    struct box *box;
    int cgroup_fd, disk_fd, listen_fd;
    int doors[BOX_DOORS];
    int channel, their_channel; /* our end, and the first process's */
    int userns_fd;
    int root_fd;
    int fill_fd;
    bool raised;           /* its disk is full, and has room for the start only */
    const char *top_layer; /* snapshot it begins with, or NULL */
    struct box_places places;
};

_Thread_local int box_fault_at;
_Thread_local bool box_fault_crash;

int box_fault(const char *step, struct error *err)
{
    if (box_fault_at == 0 || --box_fault_at != 0)
        return 0;
    if (box_fault_crash)
        _exit(BOX_FAULT_STATUS);
    return error_set(err, ERROR_INTERNAL, "fault injected at '%s'", step);
}

static int check_layers(struct start *start, struct error *err)
{
    if (!start->spec->blank)
        return box_layers_check(start->all, start->spec, &start->top_layer, err);
    return start->all->attach_layers
               ? error_set(err, ERROR_UNSUPPORTED, "this kernel has no blank boxes")
               : 0;
}

static int make_record(struct start *start, struct error *err)
{
    return box_record_write(start->all, start->box, err);
}

int box_make_disk(struct boxes *all, const struct box_spec *spec, const char *top_layer,
                  int *out_fd, bool *out_raised, struct error *err)
{
    uint64_t limit = spec->limits.disk_bytes;

    *out_raised = false;
    if (spec->keep_disk)
        return disk_box_reopen(all->disk, spec->id, limit, out_fd, out_raised, err);
    if (spec->source[0])
        return box_copy_disk(all, spec, out_fd, err);
    if (top_layer)
        return disk_box_clone(all->disk, spec->id, top_layer, limit, out_fd, err);
    return disk_box_create(all->disk, spec->id, limit, out_fd, err);
}

/* That of a blank one waits to be claimed, as it does itself. */
static int make_disk(struct start *start, struct error *err)
{
    return box_make_disk(start->all, start->spec, start->top_layer, &start->disk_fd, &start->raised,
                         err);
}

static int make_fill(struct start *start, struct error *err)
{
    return box_places_fill(start->all, start->spec, &start->fill_fd, err);
}

static int make_cgroup(struct start *start, struct error *err)
{
    struct box_cgroups *cgroups = start->all->cgroups;

    if (box_cgroup_create(cgroups, start->spec->id, &start->spec->limits, &start->cgroup_fd, err) <
        0)
        return -1;
    return box_cgroup_doors(cgroups, start->spec->id, start->doors, err);
}

/* Listening before envd exists: the server can connect at once and waits in the backlog. */
static int make_socket(struct start *start, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[ID_SIZE + 8];
    int fd;

    if (engine_socket_path(start->all->run_dir, start->spec->id, address.sun_path) < 0)
        return error_set(err, ERROR_INTERNAL, "the data directory's path is too long");
    (void)snprintf(name, sizeof(name), "%s.sock", start->spec->id);
    (void)unlinkat(start->all->run_fd, name, 0);
    start->listen_fd = fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || fchmod(fd, 0600) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        fchownat(start->all->run_fd, name, start->all->server_uid, start->all->server_uid,
                 AT_SYMLINK_NOFOLLOW) < 0 ||
        listen(fd, 512) < 0)
        return error_set_errno(err, errno, "make envd's socket");
    return 0;
}

static int load_filter(const struct boxes *all, struct sock_filter *out, size_t *out_len,
                       struct error *err)
{
    ssize_t n = pread(all->seccomp_fd, out, BOX_FILTER_MAX * sizeof(*out), 0);

    if (n <= 0 || (size_t)n % sizeof(*out) || (size_t)n == BOX_FILTER_MAX * sizeof(*out))
        return error_set(err, ERROR_INTERNAL, "the seccomp filter is unreadable");
    *out_len = (size_t)n / sizeof(*out);
    return 0;
}

/* A clone with its namespaces is a millisecond or two in the kernel, which some kernels do not interrupt: of those that nobody waits for
 * there is one at a time, so that they never have all processors. The child goes on without the lock. */
static pid_t clone_in_turn(const struct start *start, struct clone_args *args, struct error *err)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    uid_t base = BOX_UID_FIRST + start->box->slot * BOX_IDS_PER_SLOT;
    pid_t pid;

    if (!start->spec->background)
        return box_seed_clone(start->all, args, base, err);
    (void)pthread_mutex_lock(&turn);
    pid = box_seed_clone(start->all, args, base, err);
    if (pid != 0)
        (void)pthread_mutex_unlock(&turn);
    return pid;
}

static int clone_child(struct start *start, struct error *err)
{
    struct sock_filter filter[BOX_FILTER_MAX];
    struct boxes *all = start->all;
    int pidfd = -1, pair[2];
    struct clone_args args = {
        .flags = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS |
                 CLONE_NEWIPC | CLONE_FILES | CLONE_PIDFD | CLONE_INTO_CGROUP,
        .pidfd = (uint64_t)(uintptr_t)&pidfd,
        .exit_signal = SIGCHLD,
        .cgroup = (uint64_t)start->cgroup_fd,
    };
    struct box_child child = {
        .listen_fd = start->listen_fd,
        .envd_fd = all->envd_fd,
        .device_fd = all->dev_tree_fd,
        .cgroup_version = box_cgroup_version(all->cgroups),
        .mem_bytes = start->spec->limits.mem_bytes,
        .pids_max = start->spec->limits.pids_max,
        .cpu_count = start->spec->limits.cpu_count,
        .cpu_first = start->box->slot * start->spec->limits.cpu_count,
        .host_cpus = all->host_cpus,
        .cpuinfo = all->cpuinfo,
        .capabilities = box_capabilities(),
        .resolv_conf = all->resolv_conf,
        .filter = filter,
        .volumes = start->places.at,
        .volume_count = start->places.count,
        .refuse_clones = start->spec->refuse_clones || box_spec_refuses_clones(start->spec),
        .blank = start->spec->blank,
        .seeded = box_seeded(all),
    };
    pid_t pid;

    if (load_filter(all, filter, &child.filter_len, err) < 0)
        return -1;
    memcpy(child.doors, start->doors, sizeof(child.doors));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set_errno(err, errno, "socketpair");
    start->channel = pair[0];
    child.channel = start->their_channel = pair[1];
    pid = clone_in_turn(start, &args, err);
    if (pid == 0)
        box_child_run(&child);
    if (pid < 0)
        return -1;
    start->box->pid = pid;
    start->box->pidfd = box_keep_fd(pidfd);
    start->box->child = true;
    return 0;
}

/* With its ids the child can prepare all that does not need the root, while we make that. */
static int map_ids(struct start *start, struct error *err)
{
    int r;

    if (box_namespace_map(start->box->pid, BOX_UID_FIRST + start->box->slot * BOX_IDS_PER_SLOT,
                          err) < 0)
        return -1;
    r = fd_send(start->channel, "m", 1, NULL, 0);
    return r < 0 ? error_set_errno(err, -r, "wake the first process") : 0;
}

static int mount_root(struct start *start, struct error *err)
{
    auto_close int mntns = -1;
    struct box_place place = {.slot = start->box->slot, .disk_fd = start->disk_fd};

    if (start->spec->blank)
        return box_mount_blank(start->all, &start->root_fd, err);
    start->userns_fd = box_namespace_open(start->box->pid, "user", err);
    if (start->userns_fd < 0)
        return -1;
    if (start->all->attach_layers && (mntns = box_namespace_open(start->box->pid, "mnt", err)) < 0)
        return -1;
    place.userns_fd = start->userns_fd;
    place.mntns_fd = mntns;
    return box_mount_root(start->all, start->spec, &place, &start->root_fd, err);
}

static int connect_network(struct start *start, struct error *err)
{
    start->box->netns_fd = box_keep_fd(box_namespace_open(start->box->pid, "net", err));
    if (start->box->netns_fd < 0)
        return -1;
    return network_connect(start->all->network, start->box->slot, start->box->netns_fd,
                           &start->spec->network, err);
}

/* A child that died before it had read all we sent shows as a reset first; its report comes then. */
static bool receive_report(int channel, struct box_child_report *out)
{
    ssize_t n = fd_recv(channel, out, sizeof(*out), NULL, NULL, MSG_DONTWAIT);

    if (n == -ECONNRESET)
        n = fd_recv(channel, out, sizeof(*out), NULL, NULL, MSG_DONTWAIT);
    out->step[sizeof(out->step) - 1] = '\0';
    return n == (ssize_t)sizeof(*out);
}

static int hear(struct start *start, struct box_child_report *out, struct error *err)
{
    /* Its end of the channel is open here too, so that its death does not show there. */
    struct pollfd poll_fds[] = {{.fd = start->channel, .events = POLLIN},
                                {.fd = start->box->pidfd, .events = POLLIN}};
    int r;

    do
        r = poll(poll_fds, 2, CHILD_TIMEOUT_MS);
    while (r < 0 && errno == EINTR);
    if (r == 0)
        return error_set(err, ERROR_TIMEOUT, "the first process did not start in time");
    if (!receive_report(start->channel, out))
        return error_set(err, ERROR_INTERNAL, "the first process died while it was set up");
    return out->errnum ? error_set_errno(err, out->errnum, "inside: %s", out->step) : 0;
}

/* One that died already has left its report. */
static int sent(int r, struct error *err)
{
    return r < 0 && r != -EPIPE ? error_set_errno(err, -r, "start the first process") : 0;
}

static int send_cgroups(struct start *start, struct error *err)
{
    int fds[BOX_CGROUP_TREES] = {0};
    size_t count = 0;
    int r = box_mount_cgroup_trees(start->all, start->spec->id, fds, &count, err);

    if (r == 0)
        r = sent(fd_send(start->channel, "c", 1, fds, count), err);
    while (count)
        (void)close(fds[--count]);
    return r;
}

static int send_places(struct start *start, struct error *err)
{
    const struct box_place of = {.userns_fd = start->userns_fd, .fill_fd = start->fill_fd};
    int r = 0;

    for (size_t i = 0; r == 0 && i < start->places.count; i++) {
        auto_close int mount_fd = -1;

        if (box_places_mount(start->all, start->spec, i, &of, &mount_fd, err) < 0)
            return -1;
        r = sent(fd_send(start->channel, "v", 1, &mount_fd, 1), err);
    }
    return r;
}

/* The word to go on, with the root and the device tree; then cgroups and volumes. The child
 * reads when it is ready, the messages wait in the channel. */
static int send_mounts(struct start *start, struct error *err)
{
    auto_close int dev = -1, cgroup = -1;
    struct box_child_go go = {0};

    if (box_mount_dev(start->all, &dev, err) < 0 || box_mount_cgroup(start->all, &cgroup, err) < 0)
        return -1;
    if (start->spec->blank)
        disk_groups(start->all->disk, go.group);
    else if (disk_box_group(start->all->disk, start->spec->id, go.group, err) < 0)
        return -1;
    if (sent(fd_send(start->channel, &go, sizeof(go), (int[]){start->root_fd, dev, cgroup}, 3),
             err) < 0 ||
        send_cgroups(start, err) < 0)
        return -1;
    return send_places(start, err);
}

/* However busy its programs are, envd gets its turn: it has more weight than all of them. It counts within
 * the box's own share only, that of its cgroup. As a batch task it does not interrupt a program at each small
 * write, but takes what has come together. Before it runs, so that its threads have it too. */
static void prefer_envd(pid_t pid)
{
    (void)sched_setscheduler(pid, SCHED_BATCH, &(struct sched_param){0});
    (void)setpriority(PRIO_PROCESS, (id_t)pid, ENVD_NICE);
}

static int let_go(struct start *start, struct error *err)
{
    struct box_child_report report;

    prefer_envd(start->box->pid);
    if (send_mounts(start, err) < 0 || hear(start, &report, err) < 0)
        return -1;
    memcpy(start->box->fuse, report.fuse, sizeof(report.fuse));
    if (start->spec->blank) {
        start->box->claim_fd = box_keep_fd(take_fd(&start->channel));
        start->box->limits = start->spec->limits;
        start->box->refuses_clones = start->spec->refuse_clones;
    }
    return 0;
}

struct step {
    const char *name;
    int (*run)(struct start *start, struct error *err);
};

static const struct step steps[] = {
    {"layers", check_layers},
    {"record", make_record},
    {"cgroup", make_cgroup},
    {"socket", make_socket},
    {"clone", clone_child},
    {"id maps", map_ids},
    {"disk", make_disk},
    {"tree", make_fill},
    {"root", mount_root},
    {"network", connect_network},
    {"record process", make_record},
    {"go", let_go},
};

static int run_steps(struct start *start, struct error *err)
{
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        if (box_fault(steps[i].name, err) < 0)
            return -1;
        if (steps[i].run(start, err) < 0)
            return error_prefix(err, "%s", steps[i].name);
    }
    return 0;
}

/* Nice values are per thread. The child inherits ours, and may not lower it by itself. */
static void set_nice(pid_t thread, int nice)
{
    (void)setpriority(PRIO_PROCESS, (id_t)thread, nice);
}

static void close_parts(struct start *start)
{
    close_fd(&start->cgroup_fd);
    for (size_t i = 0; i < BOX_DOORS; i++)
        close_fd(&start->doors[i]);
    close_fd(&start->disk_fd);
    close_fd(&start->listen_fd);
    close_fd(&start->channel);
    close_fd(&start->their_channel);
    close_fd(&start->userns_fd);
    close_fd(&start->root_fd);
    close_fd(&start->fill_fd);
}

int box_make_ready(struct boxes *all, const char *id, struct error *err)
{
    struct box *box;

    if (boxes_in_state(all, id, BOX_DEAD) && box_end_but_disk(all, id, err) < 0)
        return -1;
    if (!boxes_in_state(all, id, BOX_STOPPED))
        return 0;
    if (boxes_hold(all, id, true, &box, err) < 0)
        return -1;
    boxes_release(all, box);
    return 0;
}

int box_start(struct boxes *all, const struct box_spec *spec, struct box_info *out,
              struct error *err)
{
    struct start start = {.all = all,
                          .spec = spec,
                          .cgroup_fd = -1,
                          .doors = {-1, -1, -1},
                          .disk_fd = -1,
                          .listen_fd = -1,
                          .channel = -1,
                          .their_channel = -1,
                          .userns_fd = -1,
                          .root_fd = -1,
                          .fill_fd = -1};
    struct error ignored;
    bool filling;
    int r;

    if (spec->keep_disk && box_make_ready(all, spec->id, err) < 0)
        return -1;
    if (boxes_add(all, spec, &start.box, err) < 0)
        return -1;
    box_places_choose(spec, &start.places);
    if (spec->background)
        set_nice(0, BACKGROUND_NICE);
    r = run_steps(&start, err);
    if (r == 0 && start.raised)
        r = disk_box_limit(all->disk, spec->id, spec->limits.disk_bytes, err);
    if (spec->background)
        set_nice(0, 0);
    filling = start.fill_fd >= 0;
    close_parts(&start);
    if (r < 0) {
        /* What it cannot remove stays listed as a dead box, and is removed by the next kill. */
        (void)(spec->keep_disk ? box_teardown_but_disk(all, start.box, &ignored)
                               : box_teardown(all, start.box, &ignored));
        if (filling)
            (void)tree_delete(all->trees, spec->fill, &ignored);
        return error_prefix(err, "start box '%s'", spec->id);
    }
    *out = (struct box_info){.running = true, .address = network_address_of(start.box->slot)};
    memcpy(out->id, spec->id, ID_SIZE);
    boxes_set_running(all, start.box);
    return 0;
}
