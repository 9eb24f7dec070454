/* RUN/<id>.box: one line "slot boot-id pid start-time". The slot is written before anything of the
 * box exists, the process once it runs. A pid alone proves nothing after a crash or a reboot: boot
 * id, start time and cgroup must agree. */
#include "warden/box.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

/* Field 22 of /proc/PID/stat, counted behind the last ')': the name before it is the process's own
 * choice. 0 when it cannot be told. */
static unsigned long long start_time(pid_t pid)
{
    char path[32];
    auto_buf struct buf text;
    char *field;

    buf_init(&text, 4096);
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (fd_read_file_at(AT_FDCWD, path, &text) < 0 || !text.p || !(field = strrchr(text.p, ')')))
        return 0;
    field++;
    for (int i = 3; i < 22 && field; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
}

int box_record_write(const struct boxes *all, const struct box *box, struct error *err)
{
    char name[ID_SIZE + 8], temporary[ID_SIZE + 8], line[160];
    auto_close int fd = -1;
    int r, len;

    (void)snprintf(name, sizeof(name), "%s.box", box->id);
    (void)snprintf(temporary, sizeof(temporary), "%s.new", box->id);
    len = snprintf(line, sizeof(line), "%u %s %d %llu\n", box->slot, all->boot_id, (int)box->pid,
                   box->pid ? start_time(box->pid) : 0);
    fd = openat(all->run_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set_errno(err, errno, "write the record of '%s'", box->id);
    r = fd_write_full(fd, line, (size_t)len);
    if (r == 0 && renameat(all->run_fd, temporary, all->run_fd, name) < 0)
        r = -errno;
    return r < 0 ? error_set_errno(err, -r, "write the record of '%s'", box->id) : 0;
}

static bool adopt(const struct boxes *all, struct box *box, unsigned long long started)
{
    char path[40];

    box->pidfd = (int)syscall(SYS_pidfd_open, box->pid, 0);
    if (box->pidfd < 0)
        return false;
    /* From here on the pid cannot be reused without the checks failing. */
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)box->pid);
    if (start_time(box->pid) == started && started &&
        box_cgroup_holds(all->cgroups, box->id, box->pid) &&
        (box->netns_fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0)
        return true;
    close_fd(&box->pidfd);
    return false;
}

bool box_record_read(const struct boxes *all, struct box *box)
{
    char name[ID_SIZE + 8];
    auto_buf struct buf text;
    struct str rest, boot;
    uint64_t slot, pid, started;

    buf_init(&text, 256);
    (void)snprintf(name, sizeof(name), "%s.box", box->id);
    if (fd_read_file_at(all->run_fd, name, &text) < 0)
        return false;
    rest = str_trim(buf_str(&text));
    if (!str_to_u64(str_split(&rest, ' '), &slot) || slot == 0 || slot >= BOX_SLOT_COUNT)
        return false;
    box->slot = (uint32_t)slot;
    boot = str_split(&rest, ' ');
    if (!str_to_u64(str_split(&rest, ' '), &pid) || !str_to_u64(rest, &started) ||
        !str_is(boot, all->boot_id) || pid == 0 || pid > INT32_MAX)
        return false;
    box->pid = (pid_t)pid;
    return adopt(all, box, started);
}
