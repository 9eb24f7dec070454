/* What goes on in a box's cgroups: standing still, and what is used.
 *
 * Freezing is asked for by a knob and done when `cgroup.events` says so. Each process stops where it
 * would take a signal, so one in the middle of a long write stops after it. One that waits inside the
 * kernel for the answer of another that is frozen already (a reader of /proc/meminfo, which envd
 * serves) never gets there, and need not: it stands still as well, and will stop before it runs a single
 * instruction of its own. So a box that was told to freeze, uses no processor time and wants none (its
 * quota may be used up, or the host busy) counts as frozen. */
#include "host/native/box_cgroup.h"

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

enum { TEXT_MAX = 8192, THREADS_MAX = 256 << 10, PAUSE_MAX_US = 5000 };

enum { FREEZE_MAX_US = 7000000, SAMPLE_US = 25000 };

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

static uint64_t cpu_time(struct box_cgroups *cgroups, const char *id)
{
    char text[TEXT_MAX];
    uint64_t value;

    return read_knob(cgroups, V2, id, "cpu.stat", text) == 0 &&
                   find_value(text, "usage_usec", &value)
               ? value
               : UINT64_MAX;
}

struct sample {
    int64_t at_us;
    uint64_t cpu_us;
};

/* Has no time been used since the last sample? A new one is taken when that is old enough. */
static bool uses_nothing(struct box_cgroups *cgroups, const char *id, struct sample *last)
{
    struct sample now = {.at_us = clock_mono_us()};
    bool same;

    if (now.at_us - last->at_us < SAMPLE_US)
        return false;
    now.cpu_us = cpu_time(cgroups, id);
    same = now.cpu_us == last->cpu_us && now.cpu_us != UINT64_MAX;
    *last = now;
    return same;
}

/* "tid (name) state …": the name is the thread's own choice. Of one that is gone there is nothing to wait for. */
static bool wants_to_run(struct str tid)
{
    char path[48], text[512];
    auto_close int fd = -1;
    const char *end;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%.*s/stat", STR_ARG(tid));
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : fd_read_full(fd, text, sizeof(text) - 1);
    if (n < 0)
        return false;
    text[n] = '\0';
    end = strrchr(text, ')');
    return end && strncmp(end, ") R", 3) == 0;
}

static bool somebody_wants_to_run(struct box_cgroups *cgroups, const char *id)
{
    auto_buf struct buf text = {0};
    struct str rest;
    char path[96];

    buf_init(&text, THREADS_MAX);
    (void)snprintf(path, sizeof(path), "%s/cgroup.threads", id);
    if (fd_read_file_at(cgroups->roots[V2], path, &text) < 0)
        return true;
    rest = buf_str(&text);
    while (rest.p) {
        struct str tid = str_split(&rest, '\n');

        if (tid.len && tid.len < 16 && wants_to_run(tid))
            return true;
    }
    return false;
}

/* The kernel tells of a change at most every 10 ms, which is longer than most freezes take: so it is
 * also looked at again after short and then longer pauses. */
static int wait_frozen(struct box_cgroups *cgroups, const char *id, int events_fd)
{
    struct sample sample = {.at_us = clock_mono_us(), .cpu_us = UINT64_MAX};
    int64_t deadline = sample.at_us + FREEZE_MAX_US, pause_us = 20;

    for (;;) {
        struct pollfd poll_fd = {.fd = events_fd, .events = POLLPRI};
        struct timespec pause = {.tv_nsec = (long)pause_us * 1000};
        int r = read_events(events_fd);

        if (r != 0)
            return r < 0 ? r : 0;
        if (uses_nothing(cgroups, id, &sample) && !somebody_wants_to_run(cgroups, id))
            return 0;
        if (clock_mono_us() >= deadline)
            return -ETIMEDOUT;
        if (ppoll(&poll_fd, 1, &pause, NULL) < 0 && errno != EINTR)
            return -errno;
        if (pause_us < PAUSE_MAX_US)
            pause_us *= 2;
    }
}

static int freeze(struct box_cgroups *cgroups, const char *id, int events_fd)
{
    int r = write_freeze(cgroups, id, true);

    if (r == 0)
        r = wait_frozen(cgroups, id, events_fd);
    if (r < 0)
        (void)write_freeze(cgroups, id, false);
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
    if (r == -ETIMEDOUT)
        return error_set(err, ERROR_TIMEOUT,
                         "freeze box '%s': its processes did not stand still within %d s", id,
                         FREEZE_MAX_US / 1000000);
    return r < 0 ? error_set_errno(err, -r, "freeze box '%s'", id) : 0;
}

bool box_cgroup_frozen(struct box_cgroups *cgroups, const char *id)
{
    char text[TEXT_MAX] = "";

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

uint64_t box_cgroup_oom_kills(struct box_cgroups *cgroups, const char *id)
{
    bool v2 = cgroups->v2_limits;
    char text[TEXT_MAX];
    uint64_t kills;

    return read_knob(cgroups, v2 ? V2 : V1_MEMORY, id, v2 ? "memory.events" : "memory.oom_control",
                     text) == 0 &&
                   find_value(text, "oom_kill", &kills)
               ? kills
               : 0;
}
