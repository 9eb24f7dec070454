/* RUN/<id>.box: a line "slot boot-id pid start-time", then the names of its layers and volumes, then the number
 * of its engine's kind (a record without one is of a time with one engine only: native), then the tree it fills, then
 * its cgroup's name. The slot is written before anything of the box exists, the process once it runs. A pid alone proves
 * nothing after a crash or a reboot: boot id, start time and cgroup must agree. Slot 0 is a stopped
 * box's: written last, it says that only the writable layer is left.
 *
 * RUN/spare is a file with some blocks and no use, but for the case that others filled the disk: then
 * records take their blocks from it, and paused boxes can be started. */
#include "host/native/box.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

enum { RECORD_MAX = 4096, SPARE_BYTES = 1 << 20, SPARE_STEP = 64 << 10 };

enum { STAT_FLAGS = 9, STAT_START_TIME = 22, STAT_PENDING = 31 };

/* Of the kernel: flags of a process that ends, or was ended by a signal. */
#define PF_EXITING  0x4ULL
#define PF_SIGNALED 0x400ULL

/* A field of /proc/PID/stat, counted behind the last ')': the name before it is the process's own
 * choice. 0 when it cannot be told. */
static unsigned long long stat_field(pid_t pid, int number)
{
    char path[32];
    auto_buf struct buf text = {0};
    char *field;

    buf_init(&text, 4096);
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (fd_read_file_at(AT_FDCWD, path, &text) < 0 || !text.p || !(field = strrchr(text.p, ')')))
        return 0;
    field++;
    for (int i = 3; i < number && field; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
}

static void add_names(struct buf *text, const char *key, const char (*names)[LAYER_NAME_SIZE],
                      uint32_t count)
{
    (void)buf_add_str(text, str_of(key));
    for (uint32_t i = 0; i < count; i++)
        (void)buf_printf(text, " %s", names[i]);
    (void)buf_add_char(text, '\n');
}

void box_spare_fill(struct boxes *all)
{
    auto_close int fd = openat(all->run_fd, "spare", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd >= 0)
        (void)fallocate(fd, 0, 0, SPARE_BYTES);
}

static bool use_spare(const struct boxes *all)
{
    auto_close int fd = openat(all->run_fd, "spare", O_WRONLY | O_CLOEXEC);
    struct stat st;

    return fd >= 0 && fstat(fd, &st) == 0 && st.st_size >= SPARE_STEP &&
           ftruncate(fd, st.st_size - SPARE_STEP) == 0;
}

static int write_file(const struct boxes *all, const char *name, const struct buf *text)
{
    auto_close int fd = openat(all->run_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    return fd < 0 ? -errno : fd_write_full(fd, text->p, text->len);
}

/* A record that is there gets its new text by one write of less than a page, which is there as a whole or not at all for
 * whoever comes after a crash of ours. (When a file takes another's name, file systems begin to write it to the disk.) Blanks
 * fill it up to the length that it had. After a crash of the host any mixture of the two says the same: that its
 * processes are gone. */
static int write_over(const struct boxes *all, const char *name, struct buf *text)
{
    auto_close int fd = openat(all->run_fd, name, O_WRONLY | O_CLOEXEC);
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    while (text->len < (size_t)st.st_size)
        (void)buf_add_char(text, '\n');
    n = pwrite(fd, text->p, text->len, 0);
    return n < 0 ? -errno : (size_t)n == text->len ? 0 : -ENOSPC;
}

static int write_record(const struct boxes *all, const struct box *box, uint32_t slot, pid_t pid,
                        struct error *err)
{
    char name[ID_SIZE + 8], temporary[ID_SIZE + 8];
    auto_buf struct buf text = {0};
    int r;

    (void)snprintf(name, sizeof(name), "%s.box", box->id);
    (void)snprintf(temporary, sizeof(temporary), "%s.new", box->id);
    buf_init(&text, RECORD_MAX);
    (void)buf_printf(&text, "%u %s %d %llu\n", slot, all->boot_id, (int)pid,
                     pid ? stat_field(pid, STAT_START_TIME) : 0);
    add_names(&text, "layers", box->layers, box->layer_count);
    add_names(&text, "volumes", box->volumes, box->volume_count);
    (void)buf_printf(&text, "engine %d\nfill %s\ncgroup %s\n", ENGINE_NATIVE, box->fill,
                     slot ? box->cgroup : box->id);
    if (pid && write_over(all, name, &text) == 0)
        return 0;
    do
        r = write_file(all, temporary, &text);
    while (r == -ENOSPC && use_spare(all));
    if (r == 0 && renameat(all->run_fd, temporary, all->run_fd, name) < 0)
        r = -errno;
    return r < 0 ? error_set_errno(err, -r, "write the record of '%s'", box->id) : 0;
}

int box_record_write(const struct boxes *all, const struct box *box, struct error *err)
{
    return write_record(all, box, box->slot, box->pid, err);
}

int box_record_stop(const struct boxes *all, const struct box *box, struct error *err)
{
    return write_record(all, box, 0, 0, err);
}

/* It ends, or was killed and waits in the kernel for something before it can. */
static bool is_ending(pid_t pid)
{
    return stat_field(pid, STAT_PENDING) & (1ULL << (SIGKILL - 1)) ||
           stat_field(pid, STAT_FLAGS) & (PF_EXITING | PF_SIGNALED);
}

/* Is its process still there? If so, it is held. */
static bool adopt(const struct boxes *all, struct box *box, unsigned long long started)
{
    char path[40];

    box->pidfd = box_keep_fd((int)syscall(SYS_pidfd_open, box->pid, 0));
    if (box->pidfd < 0)
        return false;
    /* From here on the pid cannot be reused without the checks failing. */
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)box->pid);
    if (stat_field(box->pid, STAT_START_TIME) == started && started &&
        box_cgroup_holds(all->cgroups, box->cgroup, box->pid) &&
        ((box->netns_fd = box_keep_fd(open(path, O_RDONLY | O_CLOEXEC))) >= 0 ||
         is_ending(box->pid)))
        return true;
    close_fd(&box->pidfd);
    return false;
}

static uint32_t read_names(struct str line, const char *key, char (*out)[LAYER_NAME_SIZE],
                           uint32_t max)
{
    uint32_t count = 0;

    if (!str_is(str_split(&line, ' '), key))
        return 0;
    while (line.p && count < max && str_copy(str_split(&line, ' '), out[count], LAYER_NAME_SIZE))
        count++;
    return count;
}

/* Its first line. */
static enum box_state read_process(const struct boxes *all, struct box *box, struct str line)
{
    uint64_t slot, pid, started;
    struct str boot;

    if (!str_to_u64(str_split(&line, ' '), &slot) || slot >= BOX_SLOT_COUNT)
        return BOX_DEAD;
    if (slot == 0)
        return BOX_STOPPED;
    box->slot = (uint32_t)slot;
    boot = str_split(&line, ' ');
    box->end = str_is(boot, all->boot_id) ? BOX_END_EXITED : BOX_END_HOST;
    if (!str_to_u64(str_split(&line, ' '), &pid) || !str_to_u64(str_split(&line, ' '), &started) ||
        box->end == BOX_END_HOST || pid == 0 || pid > INT32_MAX)
        return BOX_DEAD;
    box->pid = (pid_t)pid;
    if (adopt(all, box, started)) {
        if (is_ending(box->pid))
            return BOX_DEAD; /* its removal waits for it */
        box->end = BOX_END_NONE;
        return BOX_RUNNING;
    }
    box->pid = 0;
    return BOX_DEAD;
}

/* A record without one is of a box whose cgroup has its id. */
static void read_cgroup(struct box *box, struct str line)
{
    if (str_is(str_split(&line, ' '), "cgroup") && id_valid(line))
        (void)str_copy(line, box->cgroup, sizeof(box->cgroup));
}

static bool is_ours(struct str line)
{
    uint64_t kind;

    return !str_is(str_split(&line, ' '), "engine") || !str_to_u64(line, &kind) ||
           kind == ENGINE_NATIVE;
}

bool box_record_read(const struct boxes *all, struct box *box)
{
    char name[ID_SIZE + 8];
    auto_buf struct buf text = {0};
    struct str rest, line;

    box->state = BOX_DEAD;
    buf_init(&text, RECORD_MAX);
    (void)snprintf(name, sizeof(name), "%s.box", box->id);
    if (fd_read_file_at(all->run_fd, name, &text) < 0)
        return true;
    rest = buf_str(&text);
    line = str_split(&rest, '\n');
    box->layer_count = read_names(str_split(&rest, '\n'), "layers", box->layers, BOX_LAYERS_MAX);
    box->volume_count =
        read_names(str_split(&rest, '\n'), "volumes", box->volumes, BOX_VOLUMES_MAX);
    if (!is_ours(str_split(&rest, '\n')))
        return false;
    (void)read_names(str_split(&rest, '\n'), "fill", &box->fill, 1);
    read_cgroup(box, str_split(&rest, '\n'));
    box->state = read_process(all, box, line);
    return true;
}

static void still_name(const char *id, char out[ID_SIZE + 8])
{
    (void)snprintf(out, ID_SIZE + 8, "%s.still", id);
}

int box_record_still(const struct boxes *all, const char *id, bool still, struct error *err)
{
    char name[ID_SIZE + 8], record[ID_SIZE + 8];

    still_name(id, name);
    if (!still) {
        if (unlinkat(all->run_fd, name, 0) < 0 && errno != ENOENT)
            return error_set_errno(err, errno, "remove '%s'", name);
        return 0;
    }
    /* A name is made faster than a file, and the box waits. */
    (void)snprintf(record, sizeof(record), "%s.box", id);
    if (linkat(all->run_fd, record, all->run_fd, name, 0) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make '%s'", name);
    return 0;
}

bool box_record_is_still(const struct boxes *all, const char *id)
{
    char name[ID_SIZE + 8];

    still_name(id, name);
    return faccessat(all->run_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}
