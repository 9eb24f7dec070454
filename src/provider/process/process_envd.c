#include "provider/process/process_envd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/process.h"

enum { FIRST_FD = 3, FDS = 3, STOP_MS = 5000 };

static int spawn_envd(const struct process_envd_spec *spec, const char *root, int fds[FDS],
                      pid_t *out, struct error *err)
{
    /* The token is the last pair, left out when there is none. */
    const char *argv[] = {spec->program, "--listen-fd", "3", "--parent-fd",
                          "5",           "--token-fd",  "4", NULL};
    char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    char home[PATH_MAX + 8], *envp[] = {path, home, NULL};
    int r;

    if (!spec->token.len)
        argv[5] = NULL;
    (void)snprintf(home, sizeof(home), "HOME=%s", root);
    r = process_spawn(&(struct process_spec){.argv = argv,
                                             .path = spec->program,
                                             .fds = fds,
                                             .fd_count = FDS,
                                             .first_fd = FIRST_FD,
                                             .session = true,
                                             .env = envp},
                      out);
    return r == 0 ? 0 : error_set_errno(err, -r, "start envd '%.200s'", spec->program);
}

int process_envd_start(const struct process_envd_spec *spec, struct process_envd *out,
                       struct error *err)
{
    auto_close int token_read = -1, token_write = -1, parent_read = -1, parent_write = -1;
    int pipes[2];
    char root[PATH_MAX];

    *out = (struct process_envd){.parent_fd = -1};
    if (mkdir(spec->root, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make '%.200s'", spec->root);
    if (!realpath(spec->root, root))
        return error_set_errno(err, errno, "find '%.200s'", spec->root);
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return error_set_errno(err, errno, "pipe");
    parent_read = pipes[0];
    parent_write = pipes[1];
    if (spec->token.len) {
        if (pipe2(pipes, O_CLOEXEC) < 0)
            return error_set_errno(err, errno, "pipe");
        token_read = pipes[0];
        token_write = pipes[1];
        if (spec->token.len > 256 || fd_write_full(token_write, spec->token.p, spec->token.len) < 0)
            return error_set(err, ERROR_INVALID, "envd's token is too long");
        close_fd(&token_write);
    }
    if (spawn_envd(spec, root, (int[FDS]){spec->listen_fd, token_read, parent_read}, &out->pid,
                   err) < 0)
        return -1;
    out->parent_fd = take_fd(&parent_write);
    return 0;
}

void process_envd_stop(struct process_envd *envd)
{
    if (envd->pid <= 0)
        return;
    close_fd(&envd->parent_fd);
    (void)process_await(envd->pid, STOP_MS);
    envd->pid = 0;
}
