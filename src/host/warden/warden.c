/* The warden's main loop: signals, the server process, boxes that end by themselves. */
#include "host/warden/warden_internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "host/disk/disk.h"

enum {
    STOP_TIMEOUT_MS = 40000, /* the server has its own, shorter one */
    RESTART_MIN_MS = 20,
    RESTART_MAX_MS = 10000,
    STABLE_MS = 30000, /* a server that ran this long failed for a new reason */
    TICK_MS = 2000,
    PROCESS_WAIT_MS = 1000, /* between two starts of envd outside of sandboxes */
};

struct run {
    struct warden *warden;
    int signal_fd;
    bool stopping;
    int64_t kill_at_ms;    /* 0 = not */
    int64_t restart_at_ms; /* 0 = the server runs */
    int64_t started_at_ms;
    int64_t restart_wait_ms;
    int64_t process_at_ms; /* last start of envd outside of sandboxes */
    int exit_status;
};

static int start_server(struct run *run)
{
    struct error err;

    run->restart_at_ms = 0;
    run->started_at_ms = clock_mono_ms();
    if (warden_start_server(run->warden, &err) == 0)
        return 0;
    log_error("warden", "%s", err.message);
    return -1;
}

static void on_signal(struct run *run)
{
    struct signalfd_siginfo info;

    if (read(run->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info) ||
        info.ssi_signo == SIGCHLD)
        return;
    run->stopping = true;
    if (run->warden->server_pid)
        (void)kill(run->warden->server_pid, SIGTERM);
    if (run->kill_at_ms == 0)
        run->kill_at_ms = clock_mono_ms() + STOP_TIMEOUT_MS;
}

static void on_server_exit(struct run *run)
{
    struct warden *warden = run->warden;
    int64_t now = clock_mono_ms();
    int status = 0;

    (void)waitpid(warden->server_pid, &status, 0);
    warden->server_pid = 0;
    close_fd(&warden->server_pidfd);
    if (run->stopping || (WIFEXITED(status) && WEXITSTATUS(status) == 78)) {
        /* 78: the server itself says that starting it again is pointless (EX_CONFIG). */
        run->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        run->stopping = true;
        return;
    }
    if (now - run->started_at_ms > STABLE_MS)
        run->restart_wait_ms = RESTART_MIN_MS;
    log_error("warden", "the server ended (%s %d); starting it again in %lld ms, sandboxes go on",
              WIFSIGNALED(status) ? "signal" : "status",
              WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
              (long long)run->restart_wait_ms);
    run->restart_at_ms = now + run->restart_wait_ms;
    run->restart_wait_ms *= 2;
    if (run->restart_wait_ms > RESTART_MAX_MS)
        run->restart_wait_ms = RESTART_MAX_MS;
}

static void on_box_exit(struct run *run)
{
    struct boxes *boxes = &run->warden->boxes;
    struct epoll_event events[32];
    int count = epoll_wait(boxes->exit_epoll_fd, events, 32, 0);

    for (int i = 0; i < count; i++) {
        struct engine_event event = {0};

        if (!boxes_exited(boxes, events[i].data.u32, &event))
            continue;
        log_info("warden", "box=%s its first process ended (%s)", event.id,
                 event.end == BOX_END_OOM ? "out of memory" : "exit");
        /* A server that is away or slow finds the dead box in the list instead. */
        if (run->warden->event_fd >= 0)
            (void)fd_send(run->warden->event_fd, &event, sizeof(event), NULL, 0);
    }
}

static void start_process_envd(struct run *run)
{
    int64_t now = clock_mono_ms();
    struct error err;

    if (!run->warden->config->process_provider || run->warden->process_pid || run->stopping ||
        (run->process_at_ms && now - run->process_at_ms < PROCESS_WAIT_MS))
        return;
    run->process_at_ms = now;
    if (warden_process_start(run->warden, &err) < 0)
        log_error("warden", "%s", err.message);
}

static void on_tick(struct run *run)
{
    int64_t now = clock_mono_ms();

    if (run->restart_at_ms && now >= run->restart_at_ms && !run->stopping && start_server(run) < 0)
        run->restart_at_ms = now + RESTART_MAX_MS;
    if (run->kill_at_ms && now >= run->kill_at_ms && run->warden->server_pid) {
        log_warn("warden", "the server did not stop in time; ending it");
        (void)kill(run->warden->server_pid, SIGKILL);
        run->kill_at_ms = now + STOP_TIMEOUT_MS;
    }
    start_process_envd(run);
}

static int wait_ms(const struct run *run)
{
    int64_t now = clock_mono_ms(), wait = TICK_MS;

    if (run->restart_at_ms && run->restart_at_ms - now < wait)
        wait = run->restart_at_ms - now;
    if (run->kill_at_ms && run->kill_at_ms - now < wait)
        wait = run->kill_at_ms - now;
    return wait < 0 ? 0 : (int)wait;
}

static int run_loop(struct run *run)
{
    struct warden *warden = run->warden;

    while (!run->stopping || warden->server_pid) {
        struct pollfd fds[] = {
            {.fd = run->signal_fd, .events = POLLIN},
            {.fd = warden->server_pid ? warden->server_pidfd : -1, .events = POLLIN},
            {.fd = warden->boxes.exit_epoll_fd, .events = POLLIN},
            {.fd = warden->process_pid ? warden->process_pidfd : -1, .events = POLLIN},
        };

        if (poll(fds, 4, wait_ms(run)) < 0 && errno != EINTR)
            return 1;
        if (fds[0].revents)
            on_signal(run);
        if (fds[1].revents)
            on_server_exit(run);
        if (fds[2].revents)
            on_box_exit(run);
        if (fds[3].revents)
            warden_process_ended(warden);
        on_tick(run);
    }
    return run->exit_status;
}

static int block_signals(void)
{
    struct sigaction hangup;
    sigset_t set;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    /* nohup ignores it. Blocked, it would arrive here all the same. */
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* One that outlived the loop, which only an error ends early. */
static void end_server(struct warden *warden)
{
    if (warden->server_pid == 0)
        return;
    (void)kill(warden->server_pid, SIGKILL);
    (void)waitpid(warden->server_pid, NULL, 0);
    warden->server_pid = 0;
}

static void count_one(const char *id, void *arg)
{
    (void)id;
    ++*(size_t *)arg;
}

/* On a start that failed before the boxes were looked for, whoever has processes has a cgroup. */
static bool nothing_runs(struct warden *warden)
{
    size_t count = 0;

    if (warden->knows_boxes)
        return boxes_count_live(&warden->boxes) == 0;
    if (!warden->boxes.cgroups)
        return false;
    box_cgroup_each(warden->boxes.cgroups, count_one, &count);
    return count == 0;
}

/* The rest of boxes whose removal was begun and whose processes took their time. Stopped, not killed: whether
 * their files are still wanted is for the server to say. The first that takes its time again is not waited for
 * by the others: nobody wants to wait long at the end. */
static void finish_dead(struct boxes *boxes)
{
    struct box_info infos[64];
    size_t count, left = 0;
    struct error err = {0};

    for (size_t seen = 0; (count = boxes_list(boxes, seen, infos, 64)); seen += count)
        for (size_t i = 0; i < count; i++)
            if (boxes_in_state(boxes, infos[i].id, BOX_DEAD) &&
                (left > 0 || box_end_but_disk(boxes, infos[i].id, &err) < 0))
                left++;
    if (left)
        log_warn(
            "warden",
            "%zu sandboxes that ended leave processes, cgroups or mounts behind (%s); the next "
            "start or 'quicksand down' removes them",
            left, err.message);
}

/* Threads come before all that they use. With no sandbox running there is no reason to leave mounts, links
 * and cgroups behind. */
static void leave(struct warden *warden)
{
    end_server(warden);
    warden_process_stop(warden);
    warden_disk_stop(warden);
    if (!warden_serve_end(warden)) {
        log_error("warden", "an operation does not end; leaving it to the next start");
        _exit(1);
    }
    if (warden->knows_boxes)
        finish_dead(&warden->boxes);
    warden_close_host(warden, nothing_runs(warden));
}

int warden_run(const struct warden_config *config)
{
    static struct warden warden;
    struct run run = {.warden = &warden, .restart_wait_ms = RESTART_MIN_MS};
    struct error err;
    int status;

    (void)umask(022);
    warden.config = config;
    warden.event_fd = warden.server_pidfd = -1;
    warden.process_fd = warden.process_pidfd = warden.process_parent_fd = -1;
    run.signal_fd = block_signals();
    if (warden_open_host(&warden, &err) < 0 || warden_listen(config->sockets, &err) < 0 ||
        warden_disk_start(&warden, &err) < 0) {
        (void)fprintf(stderr, "quicksand: %s\n", err.message);
        leave(&warden);
        return 1;
    }
    (void)setenv("QUICKSAND_URL_SELF", config->sockets->url, 1);
    if (config->process_provider) {
        char path[WARDEN_PATH_SIZE];

        (void)snprintf(path, sizeof(path), "%s/" WARDEN_PROCESS_SOCKET, config->data_dir);
        (void)setenv("QUICKSAND_PROCESS_SOCKET", path, 1);
    }
    start_process_envd(&run);
    status = start_server(&run) < 0 ? 1 : run_loop(&run);
    leave(&warden);
    return status;
}

int warden_down(const struct warden_config *config, struct error *err)
{
    static struct warden warden;
    struct box_info boxes[64];
    size_t count, failed = 0;
    struct error why = {0};

    (void)umask(022);
    warden.config = config;
    warden.event_fd = warden.server_pidfd = -1;
    warden.going_down = true;
    if (warden_open_host(&warden, err) < 0) {
        warden_close_host(&warden, false);
        return -1;
    }
    /* Stopped, not killed: whether their files are still wanted is for the server to say. They get to
     * disk with everything else that is in the pool. */
    for (size_t seen = 0; (count = boxes_list(&warden.boxes, seen, boxes, 64)); seen += count)
        for (size_t i = 0; i < count; i++)
            if (box_end_but_disk(&warden.boxes, boxes[i].id, &why) < 0 && failed++ == 0)
                *err = why;
    warden_close_host(&warden, failed == 0);
    return failed ? error_prefix(err, "%zu sandboxes are left, try again", failed) : 0;
}
