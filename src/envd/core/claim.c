/* envd of a blank box begins in a root of empty directories, and remembers nothing of it but what is renewed here: its
 * root and directory, the mount that df is about, its disk, memory, processors and limits. */
#include "envd/core/claim.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/claim_message.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "envd/core/envd.h"
#include "envd/process/spawn.h"
#include "envd/view/disk_use.h"
#include "envd/view/proc_files.h"
#include "envd/view/statfs_answer.h"

static int channel = -1, groups = -1;
static char resolv_conf[CLAIM_RESOLV_CONF_SIZE]; /* to be written */

void claim_init(int channel_fd_consume, int groups_fd)
{
    channel = channel_fd_consume;
    groups = groups_fd;
}

static void use_disk(const struct claim_message *message)
{
    int fd = openat(groups, message->group, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        log_error("envd", "cannot find the limits of the disk: errno %d", errno);
    disk_use_init(fd);
    close_fd(&groups);
    if (statfs_answer_renew() != 0)
        log_error("envd", "cannot find the root: errno %d", errno);
}

static void limit_processes(const struct claim_message *message)
{
    struct rlimit limit = {message->processes, message->processes_max};

    if (setrlimit(RLIMIT_NPROC, &limit) != 0)
        log_error("envd", "cannot limit processes: errno %d", errno);
    spawn_read_processes();
}

/* Of each thread; those that come have what their parents have. */
static void choose_cpus(const struct claim_message *message)
{
    DIR *dir = message->cpu_count ? opendir("/proc/self/task") : NULL;
    struct dirent *entry;
    cpu_set_t set;

    if (!dir)
        return;
    CPU_ZERO(&set);
    for (uint32_t i = 0; i < message->cpu_count && i < message->host_cpus; i++)
        CPU_SET((message->cpu_first + i) % message->host_cpus, &set);
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            (void)sched_setaffinity((pid_t)strtol(entry->d_name, NULL, 10), sizeof(set), &set);
    (void)closedir(dir);
}

static bool is_there(const char *path, struct str text)
{
    auto_close int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char old[CLAIM_RESOLV_CONF_SIZE];
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, old, sizeof(old));

    return n >= 0 && str_eq(str_n(old, (size_t)n), text);
}

/* As in a box that is started: what an image has there is replaced, and one without /etc has no use for it. */
static void write_resolv_conf(struct str text)
{
    static const char path[] = "/etc/resolv.conf";
    auto_close int fd = -1;
    int r;

    if (text.len == 0 || is_there(path, text))
        return;
    (void)unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && errno == ENOENT)
        return;
    r = fd < 0 ? -errno : fd_write_full(fd, text.p, text.len);
    if (r < 0)
        log_error("envd", "cannot write %s: errno %d", path, -r);
}

/* For all threads: they share both. One that is not inside must never start anything. */
static void enter(int root_fd)
{
    if (fchdir(root_fd) == 0 && chroot(".") == 0)
        return;
    log_error("envd", "cannot enter the root: errno %d", errno);
    _exit(1);
}

static int receive(struct claim_message *out, int *out_root, struct error *err)
{
    size_t count = 1;
    ssize_t n = fd_recv(channel, out, sizeof(*out), out_root, &count, MSG_DONTWAIT);

    if (n != (ssize_t)sizeof(*out) || count != 1)
        return error_set(err, ERROR_CONFLICT, "this box is nobody's yet");
    close_fd(&channel);
    return 0;
}

int claim_take(struct envd *envd, struct error *err)
{
    struct claim_message message;
    auto_close int root = -1;

    if (channel < 0)
        return 0;
    if (receive(&message, &root, err) < 0)
        return -1;
    enter(root);
    message.group[sizeof(message.group) - 1] = '\0';
    message.resolv_conf[sizeof(message.resolv_conf) - 1] = '\0';
    envd->mem_bytes = message.mem_bytes;
    proc_files_set_memory(message.mem_bytes);
    use_disk(&message);
    limit_processes(&message);
    choose_cpus(&message);
    memcpy(resolv_conf, message.resolv_conf, sizeof(resolv_conf));
    return 0;
}

/* A file that replaces one of the layers below costs as much as all else together. */
void claim_finish(void)
{
    write_resolv_conf(str_of(resolv_conf));
    resolv_conf[0] = '\0';
}
