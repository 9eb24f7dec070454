/* envd outside of any sandbox, for those who want plain processes on this host. Only when the
 * operator asks for it.
 *
 * It runs as an own user (the server's uid + 1): what it is asked to run can read neither the server's
 * store nor the sandboxes' files. It has a pid namespace, not for isolation but so that the kernel
 * ends all it has started when it ends; and it ends with us, by a pipe. The socket stays ours, so that
 * callers wait while it is started again. */
#include "host/warden/warden_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/process.h"

enum { FIRST_FD = 3, FDS = 4, BACKLOG = 128 };

static int make_root(const struct warden *warden, char *out, size_t size, struct error *err)
{
    uid_t uid = warden->config->server_uid + 1;

    (void)snprintf(out, size, "%s/process", warden->config->data_dir);
    if (mkdir(out, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make '%s'", out);
    if (chown(out, uid, uid) < 0 || chmod(out, 0700) < 0)
        return error_set_errno(err, errno, "give '%s' to uid %u", out, uid);
    return 0;
}

struct envd_child {
    char pool[WARDEN_PATH_SIZE + 16];
    int fds[FDS];
};

/* In the child, with mounts of its own. */
static int prepare_envd(void *arg)
{
    struct envd_child *child = arg;

    if (mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return -1;
    /* Not its business, and a copy of the mount would keep the pool alive after us. On a btrfs there is none. */
    (void)umount2(child->pool, MNT_DETACH | UMOUNT_NOFOLLOW);
    child->fds[FDS - 1] = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    return child->fds[FDS - 1];
}

static int spawn_envd(const struct warden *warden, const char *root, int parent_fd, pid_t *out_pid)
{
    static const char *const argv[] = {"envd", "--listen-fd", "3", "--parent-fd",
                                       "4",    "--oom-fd",    "6", NULL};
    struct envd_child child = {.fds = {warden->process_fd, parent_fd, warden->boxes.envd_fd, -1}};
    char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    char home[WARDEN_PATH_SIZE + 16], *envp[] = {path, home, NULL};

    (void)snprintf(home, sizeof(home), "HOME=%s", root);
    (void)snprintf(child.pool, sizeof(child.pool), "%s/pool", warden->config->data_dir);
    return process_spawn(
        &(struct process_spec){.argv = argv,
                               /* By descriptor: the program may stand where its user cannot go. */
                               .program_fd = FIRST_FD + 2,
                               .namespaces = CLONE_NEWPID | CLONE_NEWNS,
                               .prepare = prepare_envd,
                               .arg = &child,
                               .fds = child.fds,
                               .fd_count = FDS,
                               .first_fd = FIRST_FD,
                               .dir = root,
                               .close_rest = true,
                               .uid = warden->config->server_uid + 1,
                               .unblock = true,
                               .env = envp},
        out_pid);
}

int warden_process_start(struct warden *warden, struct error *err)
{
    char root[WARDEN_PATH_SIZE];
    auto_close int parent_read = -1, parent_write = -1;
    int pipes[2], r;
    pid_t pid;

    if (make_root(warden, root, sizeof(root), err) < 0 ||
        (warden->process_fd < 0 &&
         warden_listen_at(warden, WARDEN_PROCESS_SOCKET, warden->config->server_uid, BACKLOG,
                          &warden->process_fd, err) < 0))
        return -1;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return error_set_errno(err, errno, "pipe");
    parent_read = pipes[0];
    parent_write = pipes[1];
    r = spawn_envd(warden, root, parent_read, &pid);
    if (r < 0)
        return error_set_errno(err, -r, "start envd for processes");
    if (warden_child_watch(&warden->process, pid, "envd for processes", err) < 0)
        return -1;
    warden->process_parent_fd = take_fd(&parent_write);
    log_info("warden", "processes outside of sandboxes are served, as uid %u in '%s'",
             warden->config->server_uid + 1, root);
    return 0;
}

void warden_process_ended(struct warden *warden)
{
    char how[WARDEN_HOW_SIZE];

    (void)warden_child_ended(&warden->process, how);
    close_fd(&warden->process_parent_fd);
    log_error("warden", "envd for processes ended (%s)", how);
}

void warden_process_stop(struct warden *warden)
{
    warden_child_kill(&warden->process);
    close_fd(&warden->process_parent_fd);
    warden_unlisten_at(warden, WARDEN_PROCESS_SOCKET, &warden->process_fd);
}
