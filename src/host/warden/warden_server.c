/* Starting the unprivileged server, and what it finds there. */
#include "host/warden/warden_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/process.h"

#define FDS_ENV "QUICKSAND_SERVER_FDS"
#define TLS_ENV "QUICKSAND_SERVER_TLS" /* "1": with TLS */

enum { FIRST_FD = 3, SERVER_NICE = -10 };

/* The child's descriptors stand in a row from FIRST_FD: listeners, dial channels, control channels,
 * the event channel, the credentials file; with TLS also its listeners and its channel. */
static size_t collect(const struct server_fds *fds, int *out)
{
    size_t n = 0;

    for (size_t i = 0; i < fds->loops; i++)
        out[n++] = fds->listen[i];
    for (size_t i = 0; i < fds->loops; i++)
        out[n++] = fds->dial[i];
    for (size_t i = 0; i < WARDEN_CONTROL_CHANNELS; i++)
        out[n++] = fds->control[i];
    out[n++] = fds->event;
    out[n++] = fds->credentials;
    for (size_t i = 0; i < fds->loops && fds->tls >= 0; i++)
        out[n++] = fds->listen_tls[i];
    if (fds->tls >= 0)
        out[n++] = fds->tls;
    return n;
}

enum { FDS_MAX = 3 * WARDEN_LOOPS_MAX + WARDEN_CONTROL_CHANNELS + 3 };

/* In the child. Answers come before sandboxes' own work and the kernel's cleaning up behind them. A host that does not let us
 * say so is slower under load, nothing else. */
static int prepare_server(void *arg)
{
    (void)arg;
    (void)setpriority(PRIO_PROCESS, 0, SERVER_NICE);
    return 0;
}

static int spawn_server(const struct warden *warden, const struct server_fds *fds, pid_t *out_pid)
{
    char loops[sizeof(FDS_ENV) + 16], tls[sizeof(TLS_ENV) + 2];
    auto_free char **env = NULL;
    int list[FDS_MAX];
    size_t n = 0;

    while (environ[n])
        n++;
    env = xcalloc(n + 3, sizeof(*env));
    memcpy(env + 2, environ, n * sizeof(*env));
    env[0] = loops; /* the first of a name counts */
    env[1] = tls;
    (void)snprintf(loops, sizeof(loops), FDS_ENV "=%zu", fds->loops);
    (void)snprintf(tls, sizeof(tls), TLS_ENV "=%d", fds->tls >= 0);
    return process_spawn(
        &(struct process_spec){.argv = (const char *const *)(uintptr_t)warden->config->server_argv,
                               .path = "/proc/self/exe",
                               .prepare = prepare_server,
                               .fds = list,
                               .fd_count = collect(fds, list),
                               .first_fd = FIRST_FD,
                               .close_rest = true,
                               .uid = warden->config->server_uid,
                               .end_with_parent = true,
                               .env = env},
        out_pid);
}

/* Both ends of a channel: ours and the server's. */
static int make_pair(int *out_ours, int *out_theirs, struct error *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set_errno(err, errno, "socketpair");
    *out_ours = pair[0];
    *out_theirs = pair[1];
    return 0;
}

static int make_channels(struct warden *warden, struct server_fds *fds, struct error *err)
{
    int ours = -1;

    for (size_t i = 0; i < fds->loops; i++) {
        fds->listen[i] = warden->config->sockets->fds[i];
        fds->listen_tls[i] = warden->config->tls_sockets ? warden->config->tls_sockets->fds[i] : -1;
        if (make_pair(&ours, &fds->dial[i], err) < 0 ||
            warden_serve_channel(warden, ours, true, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < WARDEN_CONTROL_CHANNELS; i++)
        if (make_pair(&ours, &fds->control[i], err) < 0 ||
            warden_serve_channel(warden, ours, false, err) < 0)
            return -1;
    close_fd(&warden->event_fd);
    if (make_pair(&warden->event_fd, &fds->event, err) < 0 ||
        warden_tls_channel(warden, &fds->tls, err) < 0)
        return -1;
    return fd_set_nonblocking(warden->event_fd, true);
}

int warden_start_server(struct warden *warden, struct error *err)
{
    struct server_fds fds = {
        .loops = warden->config->loops,
        .event = -1,
        .credentials = warden->config->credentials_fd,
        .tls = -1,
    };
    pid_t pid;
    int r;

    for (size_t i = 0; i < WARDEN_LOOPS_MAX; i++)
        fds.dial[i] = -1;
    for (size_t i = 0; i < WARDEN_CONTROL_CHANNELS; i++)
        fds.control[i] = -1;
    r = make_channels(warden, &fds, err);
    if (r == 0 && (r = spawn_server(warden, &fds, &pid)) < 0)
        r = error_set_errno(err, -r, "start the server");
    for (size_t i = 0; i < fds.loops; i++)
        close_fd(&fds.dial[i]);
    for (size_t i = 0; i < WARDEN_CONTROL_CHANNELS; i++)
        close_fd(&fds.control[i]);
    close_fd(&fds.event);
    close_fd(&fds.tls);
    if (r < 0)
        return -1;
    return warden_child_watch(&warden->server, pid, "the server", err);
}

int warden_server_fds(struct server_fds *out, struct error *err)
{
    bool tls = str_is(str_of(getenv(TLS_ENV)), "1");
    uint64_t loops;
    int fd = FIRST_FD;

    if (!str_to_u64(str_of(getenv(FDS_ENV)), &loops) || loops == 0 || loops > WARDEN_LOOPS_MAX)
        return error_set(err, ERROR_INVALID,
                         "this role is started by 'quicksand serve', not by hand");
    out->loops = (size_t)loops;
    for (size_t i = 0; i < out->loops; i++)
        out->listen[i] = fd++;
    for (size_t i = 0; i < out->loops; i++)
        out->dial[i] = fd++;
    for (size_t i = 0; i < WARDEN_CONTROL_CHANNELS; i++)
        out->control[i] = fd++;
    out->event = fd++;
    out->credentials = fd++;
    for (size_t i = 0; i < out->loops; i++)
        out->listen_tls[i] = tls ? fd++ : -1;
    out->tls = tls ? fd++ : -1;
    for (int i = FIRST_FD; i < fd; i++)
        if (fcntl(i, F_SETFD, FD_CLOEXEC) < 0)
            return error_set_errno(err, errno, "descriptor %d is missing", i);
    (void)unsetenv(FDS_ENV);
    (void)unsetenv(TLS_ENV);
    return 0;
}
