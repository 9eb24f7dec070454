/* The warden's main loop: signals, the server process, boxes that end by themselves. */
#include "host/warden/warden_internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "host/disk/disk.h"
#include "host/disk/tree.h"

enum {
    STOP_TIMEOUT_MS = 15000, /* the server has its own, shorter one */
    RESTART_MIN_MS = 20,
    RESTART_MAX_MS = 10000,
    STABLE_MS = 30000, /* a server that ran this long failed for a new reason */
    TICK_MS = 2000,
    PROCESS_WAIT_MS = 1000, /* between two starts of envd outside of sandboxes */
    FIXED_FDS = 5,          /* that are waited for besides engines */
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
    int64_t egress_at_ms;  /* last start of the egress process */
    int64_t egress_wait_ms;
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

/* Certificates are handed over; the rest the server reads itself. */
static void reload(struct run *run)
{
    struct warden *warden = run->warden;

    if (warden->tls_listen_fd >= 0)
        warden_tls_reload(warden);
    if (warden->server.pid)
        (void)kill(warden->server.pid, SIGHUP);
    else
        log_warn("warden", "the server is being started: it reads its settings anyway");
}

static void on_signal(struct run *run)
{
    struct signalfd_siginfo info;

    if (read(run->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info) ||
        info.ssi_signo == SIGCHLD)
        return;
    /* The kernel's own means that the terminal is gone. */
    if (info.ssi_signo == SIGHUP && info.ssi_code != SI_KERNEL) {
        reload(run);
        return;
    }
    run->stopping = true;
    if (run->warden->server.pid)
        (void)kill(run->warden->server.pid, SIGTERM);
    if (run->kill_at_ms == 0)
        run->kill_at_ms = clock_mono_ms() + STOP_TIMEOUT_MS;
}

static void on_server_exit(struct run *run)
{
    struct warden *warden = run->warden;
    int64_t now = clock_mono_ms();
    char how[WARDEN_HOW_SIZE];
    int status = warden_child_ended(&warden->server, how);

    close_fd(&warden->tls_fd);
    if (run->stopping || status == 78) {
        /* 78: the server itself says that starting it again is pointless (EX_CONFIG). */
        run->exit_status = status < 0 ? 1 : status;
        run->stopping = true;
        return;
    }
    if (now - run->started_at_ms > STABLE_MS)
        run->restart_wait_ms = RESTART_MIN_MS;
    log_error("warden", "the server ended (%s); starting it again in %lld ms, sandboxes go on", how,
              (long long)run->restart_wait_ms);
    run->restart_at_ms = now + run->restart_wait_ms;
    run->restart_wait_ms *= 2;
    if (run->restart_wait_ms > RESTART_MAX_MS)
        run->restart_wait_ms = RESTART_MAX_MS;
}

static void on_box_exit(struct run *run, struct box_engine *engine)
{
    struct engine_event event;

    while (engine->ops->next_event(engine, &event)) {
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

    if (!run->warden->config->process_provider || run->warden->process.pid || run->stopping ||
        (run->process_at_ms && now - run->process_at_ms < PROCESS_WAIT_MS))
        return;
    run->process_at_ms = now;
    if (warden_process_start(run->warden, &err) < 0)
        log_error("warden", "%s", err.message);
}

static bool needs_egress(const struct warden *warden)
{
    return warden->config->egress_argv && warden->boxes.network && !warden->egress.pid;
}

static void start_egress(struct run *run)
{
    struct warden *warden = run->warden;
    int64_t now = clock_mono_ms();
    struct error err;

    if (!needs_egress(warden) || run->stopping || now < run->egress_at_ms + run->egress_wait_ms)
        return;
    if (now - run->egress_at_ms > STABLE_MS)
        run->egress_wait_ms = RESTART_MIN_MS;
    else if (run->egress_wait_ms < RESTART_MAX_MS)
        run->egress_wait_ms *= 2;
    run->egress_at_ms = now;
    if (warden_egress_start(warden, &err) < 0)
        log_error("warden", "%s", err.message);
}

static void on_tick(struct run *run)
{
    int64_t now = clock_mono_ms();

    if (run->restart_at_ms && now >= run->restart_at_ms && !run->stopping && start_server(run) < 0)
        run->restart_at_ms = now + RESTART_MAX_MS;
    if (run->kill_at_ms && now >= run->kill_at_ms && run->warden->server.pid) {
        log_warn("warden", "the server did not stop in time; ending it");
        (void)kill(run->warden->server.pid, SIGKILL);
        run->kill_at_ms = now + STOP_TIMEOUT_MS;
    }
    start_process_envd(run);
    start_egress(run);
}

static int wait_ms(const struct run *run)
{
    int64_t now = clock_mono_ms(), wait = TICK_MS;

    if (run->restart_at_ms && run->restart_at_ms - now < wait)
        wait = run->restart_at_ms - now;
    if (run->kill_at_ms && run->kill_at_ms - now < wait)
        wait = run->kill_at_ms - now;
    if (needs_egress(run->warden) && !run->stopping &&
        run->egress_at_ms + run->egress_wait_ms - now < wait)
        wait = run->egress_at_ms + run->egress_wait_ms - now;
    return wait < 0 ? 0 : (int)wait;
}

static int run_loop(struct run *run)
{
    struct warden *warden = run->warden;

    while (!run->stopping || warden->server.pid) {
        struct pollfd fds[FIXED_FDS + WARDEN_ENGINES_MAX] = {
            {.fd = run->signal_fd, .events = POLLIN},
            {.fd = warden_child_poll(&warden->server), .events = POLLIN},
            {.fd = warden_child_poll(&warden->process), .events = POLLIN},
            {.fd = warden->tls_listen_fd, .events = POLLIN},
            {.fd = warden_child_poll(&warden->egress), .events = POLLIN},
        };

        for (size_t i = 0; i < warden->engine_count; i++)
            fds[FIXED_FDS + i] =
                (struct pollfd){.fd = warden->engines[i]->event_fd, .events = POLLIN};
        if (poll(fds, FIXED_FDS + warden->engine_count, wait_ms(run)) < 0 && errno != EINTR)
            return 1;
        if (fds[0].revents)
            on_signal(run);
        if (fds[1].revents)
            on_server_exit(run);
        if (fds[2].revents)
            warden_process_ended(warden);
        if (fds[3].revents)
            warden_tls_asked(warden);
        if (fds[4].revents)
            warden_egress_ended(warden);
        for (size_t i = 0; i < warden->engine_count; i++)
            if (fds[FIXED_FDS + i].revents)
                on_box_exit(run, warden->engines[i]);
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

/* The rest of boxes whose removal was begun and whose processes took their time. Stopped, not killed: whether
 * their files are still wanted is for the server to say. */
static void finish_dead(struct warden *warden)
{
    struct error err = {0};
    size_t left = warden_end_all(warden, true, &err);

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
    warden_child_kill(&warden->server); /* when the loop ended early, by an error */
    warden_tls_stop(warden);
    warden_process_stop(warden);
    warden_egress_stop(warden);
    warden_disk_stop(warden);
    if (warden->trees)
        trees_stop(warden->trees);
    if (!warden_serve_end(warden)) {
        log_error("warden", "an operation does not end; leaving it to the next start");
        _exit(1);
    }
    finish_dead(warden);
    warden_close_host(warden, !warden_runs_boxes(warden));
}

int warden_run(const struct warden_config *config)
{
    static struct warden warden;
    struct run run = {
        .warden = &warden, .restart_wait_ms = RESTART_MIN_MS, .egress_wait_ms = RESTART_MIN_MS};
    struct error err;
    int status;

    (void)umask(022);
    warden.config = config;
    warden.server = warden.process = warden.egress = WARDEN_CHILD_NONE;
    warden.event_fd = warden.egress_fd = warden.process_fd = warden.process_parent_fd = -1;
    warden.tls_listen_fd = warden.tls_fd = warden.tls_bundle_fd = -1;
    run.signal_fd = block_signals();
    if (warden_open_host(&warden, &err) < 0 || warden_listen(config->sockets, &err) < 0 ||
        (config->tls_sockets && warden_listen(config->tls_sockets, &err) < 0) ||
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
    if (needs_egress(&warden)) {
        char path[WARDEN_PATH_SIZE];

        (void)snprintf(path, sizeof(path), "%s/" WARDEN_EGRESS_SOCKET, config->data_dir);
        (void)setenv(WARDEN_EGRESS_ENV, path, 1);
    }
    start_process_envd(&run);
    start_egress(&run);
    status = start_server(&run) < 0 ? 1 : run_loop(&run);
    leave(&warden);
    return status;
}

int warden_down(const struct warden_config *config, struct error *err)
{
    static struct warden warden;
    size_t failed;

    (void)umask(022);
    warden.config = config;
    warden.server = WARDEN_CHILD_NONE;
    warden.event_fd = -1;
    warden.going_down = true;
    if (warden_open_host(&warden, err) < 0) {
        warden_close_host(&warden, false);
        return -1;
    }
    /* Stopped, not killed: whether their files are still wanted is for the server to say. They get to
     * disk with everything else that is in the pool. */
    failed = warden_end_all(&warden, false, err);
    warden_close_host(&warden, failed == 0);
    return failed ? error_prefix(err, "%zu sandboxes are left, try again", failed) : 0;
}
