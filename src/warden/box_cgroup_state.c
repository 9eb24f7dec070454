/* What goes on in a box's cgroups: standing still, and what is used.
 *
 * Freezing is asked for by a knob and done when `cgroup.events` says so. Each process stops where it
 * would take a signal, so one in the middle of a long write stops after it. One that waits for an answer
 * of another that is frozen already (a reader of the agent's /proc/meminfo) never gets there: then
 * all go on for a moment and are stopped anew. */
#include "warden/box_cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"

enum { TEXT_MAX = 8192 };

/* How long each try to freeze may take. */
static const int tries_ms[] = {1000, 2000, 4000};

static int read_knob(struct box_cgroups *cgroups, enum hierarchy h, const char *id,
                     const char *knob, char out[TEXT_MAX])
{
    char path[96];
    auto_close int fd = -1;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "%s/%s", id, knob);
    fd = openat(cgroups->roots[h], path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    n = fd_read_full(fd, out, TEXT_MAX - 1);
    if (n < 0)
        return (int)n;
    out[n] = '\0';
    return 0;
}

/* Value of the line "key value"; false when there is none. */
static bool find_value(const char *text, const char *key, uint64_t *out)
{
    struct str rest = str_of(text);

    while (rest.p) {
        struct str line = str_split(&rest, '\n');

        if (str_is(str_split(&line, ' '), key))
            return str_to_u64(str_trim(line), out);
    }
    return false;
}

static int write_freeze(struct box_cgroups *cgroups, const char *id, bool frozen)
{
    char path[96];

    (void)snprintf(path, sizeof(path), "%s/cgroup.freeze", id);
    return fd_write_value_at(cgroups->roots[V2], path, frozen ? "1" : "0");
}

/* 1 frozen, 0 not. */
static int read_events(int fd)
{
    char text[256];
    uint64_t value;
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

    if (n < 0)
        return -errno;
    text[n] = '\0';
    return find_value(text, "frozen", &value) ? (int)value : -EINVAL;
}

static int wait_frozen(int events_fd, int wait_ms)
{
    int64_t deadline = clock_mono_ms() + wait_ms;

    for (;;) {
        struct pollfd poll_fd = {.fd = events_fd, .events = POLLPRI};
        int r = read_events(events_fd);
        int64_t left = deadline - clock_mono_ms();

        if (r != 0)
            return r < 0 ? r : 0;
        if (left <= 0)
            return -ETIMEDOUT;
        if (poll(&poll_fd, 1, (int)left) < 0 && errno != EINTR)
            return -errno;
    }
}

static int freeze(struct box_cgroups *cgroups, const char *id, int events_fd)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    int r = 0;

    for (size_t i = 0; i < sizeof(tries_ms) / sizeof(*tries_ms); i++) {
        r = write_freeze(cgroups, id, true);
        if (r == 0)
            r = wait_frozen(events_fd, tries_ms[i]);
        if (r == 0)
            return 0;
        (void)write_freeze(cgroups, id, false);
        if (r != -ETIMEDOUT)
            break;
        (void)nanosleep(&moment, NULL);
    }
    return r;
}

int box_cgroup_freeze(struct box_cgroups *cgroups, const char *id, bool frozen, struct error *err)
{
    auto_close int events = -1;
    char path[96];
    int r;

    if (!frozen) {
        r = write_freeze(cgroups, id, false);
        return r < 0 ? error_set_errno(err, -r, "let box '%s' go on", id) : 0;
    }
    (void)snprintf(path, sizeof(path), "%s/cgroup.events", id);
    events = openat(cgroups->roots[V2], path, O_RDONLY | O_CLOEXEC);
    if (events < 0)
        return error_set_errno(err, errno, "freeze box '%s'", id);
    r = freeze(cgroups, id, events);
    return r < 0 ? error_set_errno(err, -r, "freeze box '%s'", id) : 0;
}

bool box_cgroup_frozen(struct box_cgroups *cgroups, const char *id)
{
    char text[TEXT_MAX];

    return read_knob(cgroups, V2, id, "cgroup.freeze", text) == 0 && text[0] == '1';
}

static bool read_number(struct box_cgroups *cgroups, enum hierarchy h, const char *id,
                        const char *knob, uint64_t *out)
{
    char text[TEXT_MAX];

    return read_knob(cgroups, h, id, knob, text) == 0 && str_to_u64(str_trim(str_of(text)), out);
}

int box_cgroup_usage(struct box_cgroups *cgroups, const char *id, struct box_usage *out,
                     struct error *err)
{
    bool v2 = cgroups->v2_limits;
    char text[TEXT_MAX];
    uint64_t memory, pids;

    *out = (struct box_usage){0};
    if (read_knob(cgroups, V2, id, "cpu.stat", text) < 0 ||
        !find_value(text, "usage_usec", &out->cpu_us) ||
        !read_number(cgroups, v2 ? V2 : V1_MEMORY, id,
                     v2 ? "memory.current" : "memory.usage_in_bytes", &memory) ||
        read_knob(cgroups, v2 ? V2 : V1_MEMORY, id, "memory.stat", text) < 0 ||
        !find_value(text, v2 ? "file" : "total_cache", &out->mem_cache_bytes) ||
        !read_number(cgroups, v2 ? V2 : V1_PIDS, id, "pids.current", &pids))
        return error_set(err, ERROR_NOT_FOUND, "box '%s' has no usage to tell", id);
    /* The two are not read at the same moment. */
    out->mem_bytes = memory > out->mem_cache_bytes ? memory - out->mem_cache_bytes : 0;
    out->pids = (uint32_t)pids;
    out->frozen = box_cgroup_frozen(cgroups, id);
    return 0;
}

bool box_cgroup_oom(struct box_cgroups *cgroups, const char *id)
{
    bool v2 = cgroups->v2_limits;
    char text[TEXT_MAX];
    uint64_t kills;

    return read_knob(cgroups, v2 ? V2 : V1_MEMORY, id, v2 ? "memory.events" : "memory.oom_control",
                     text) == 0 &&
           find_value(text, "oom_kill", &kills) && kills > 0;
}
