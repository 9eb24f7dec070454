#include "envd/process/usage.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/sysinfo.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"

enum { FILE_MAX = 16 * 1024 };

static bool read_text(const char *root, const char *name, struct buf *out)
{
    char path[256];

    buf_init(out, FILE_MAX);
    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    return fd_read_file_at(AT_FDCWD, path, out) == 0;
}

static bool read_number(const char *root, const char *name, uint64_t *out)
{
    auto_buf struct buf text = {0};

    return read_text(root, name, &text) && str_to_u64(str_trim(buf_str(&text)), out);
}

/* "key value" lines. */
static uint64_t value_of(struct str text, const char *key)
{
    while (text.p) {
        struct str line = str_split(&text, '\n');
        uint64_t value;

        if (str_is(str_split(&line, ' '), key) && str_to_u64(str_trim(line), &value))
            return value;
    }
    return 0;
}

static void read_v2(const char *root, struct usage *out)
{
    auto_buf struct buf memory = {0};
    struct str text;

    if (!read_number(root, "memory.max", &out->mem_total))
        out->mem_total = UINT64_MAX;
    if (read_text(root, "memory.stat", &memory)) {
        text = buf_str(&memory);
        out->mem_cache = value_of(text, "file");
        out->mem_shmem = value_of(text, "shmem");
        out->mem_anon = value_of(text, "anon");
        out->mem_active_file = value_of(text, "active_file");
        out->mem_inactive_file = value_of(text, "inactive_file");
        out->mem_slab_reclaimable = value_of(text, "slab_reclaimable");
    }
}

static void read_v1(const char *root, struct usage *out)
{
    auto_buf struct buf memory = {0};
    struct str text;

    if (!read_number(root, "memory/memory.limit_in_bytes", &out->mem_total))
        out->mem_total = UINT64_MAX;
    (void)read_number(root, "memory/memory.usage_in_bytes", &out->mem_used);
    if (read_text(root, "memory/memory.stat", &memory)) {
        text = buf_str(&memory);
        out->mem_cache = value_of(text, "total_cache");
        out->mem_shmem = value_of(text, "total_shmem");
        out->mem_anon = value_of(text, "total_rss");
        out->mem_active_file = value_of(text, "total_active_file");
        out->mem_inactive_file = value_of(text, "total_inactive_file");
    }
}

/* Machines with v1 controllers have a v2 tree beside them, which counts time as well. */
uint64_t usage_cpu_us(const char *root)
{
    static const char *const v2[] = {"cpu.stat", "unified/cpu.stat"};
    static const char *const v1[] = {"cpuacct/cpuacct.usage", "cpu,cpuacct/cpuacct.usage",
                                     "cpu/cpuacct.usage"};
    uint64_t number;

    for (size_t i = 0; i < sizeof(v2) / sizeof(v2[0]); i++) {
        auto_buf struct buf text = {0};

        if (read_text(root, v2[i], &text) && (number = value_of(buf_str(&text), "usage_usec")) > 0)
            return number;
    }
    for (size_t i = 0; i < sizeof(v1) / sizeof(v1[0]); i++)
        if (read_number(root, v1[i], &number))
            return number / 1000;
    return 0;
}

struct usage_times usage_cpu_times(const char *root)
{
    static const char *const v2[] = {"cpu.stat", "unified/cpu.stat"};
    struct usage_times times = {0};

    for (size_t i = 0; i < sizeof(v2) / sizeof(v2[0]); i++) {
        auto_buf struct buf text = {0};

        if (!read_text(root, v2[i], &text))
            continue;
        times.user_us = value_of(buf_str(&text), "user_usec");
        times.system_us = value_of(buf_str(&text), "system_usec");
        if (times.user_us + times.system_us > 0)
            return times;
    }
    times.user_us = usage_cpu_us(root);
    return times;
}

void usage_read(const char *root, uint64_t mem_bytes, struct usage *out)
{
    struct sysinfo host;
    uint64_t limit = mem_bytes;

    *out = (struct usage){0};
    if (read_number(root, "memory.current", &out->mem_used))
        read_v2(root, out);
    else
        read_v1(root, out);
    out->cpu_us = usage_cpu_us(root);
    if (limit == 0 && sysinfo(&host) == 0)
        limit = (uint64_t)host.totalram * host.mem_unit;
    /* No limit, or v1's "no limit", is a very large number. */
    if (limit != 0 && out->mem_total > limit)
        out->mem_total = limit;
    if (out->mem_used > out->mem_total)
        out->mem_used = out->mem_total;
    if (out->mem_cache > out->mem_used)
        out->mem_cache = out->mem_used;
}

/* Quota and period in microseconds; no quota is 0. */
static uint64_t quota_cpus(const char *root)
{
    auto_buf struct buf text = {0};
    uint64_t quota = 0, period = 0;

    if (read_text(root, "cpu.max", &text)) {
        struct str rest = str_trim(buf_str(&text));

        if (!str_to_u64(str_split(&rest, ' '), &quota) || !str_to_u64(rest, &period))
            return 0;
    } else if (!read_number(root, "cpu/cpu.cfs_quota_us", &quota) ||
               !read_number(root, "cpu/cpu.cfs_period_us", &period)) {
        return 0; /* without a quota, v1 says -1 */
    }
    return period > 0 ? (quota + period - 1) / period : 0;
}

unsigned usage_cpu_count(const char *root)
{
    uint64_t quota = quota_cpus(root);
    unsigned host = 1;
    cpu_set_t set;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        host = (unsigned)CPU_COUNT(&set);
    return quota > 0 && quota < host ? (unsigned)quota : host;
}

/* One line each. */
static size_t count_lines(const char *root, const char *name, size_t enough)
{
    char path[256], text[4096];
    auto_close int fd = -1;
    size_t count = 0;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && count < enough && (n = read(fd, text, sizeof(text))) > 0)
        for (ssize_t i = 0; i < n; i++)
            count += text[i] == '\n';
    return count;
}

size_t usage_tasks(const char *root, size_t enough)
{
    uint64_t number;

    if (read_number(root, "pids.current", &number))
        return number;
    return count_lines(root, "unified/cgroup.threads", enough);
}

static char state_of(uint64_t task)
{
    char path[48], text[512];
    auto_close int fd = -1;
    const char *end;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%llu/stat", (unsigned long long)task);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return '\0';
    text[n] = '\0';
    end = strrchr(text, ')'); /* of its name, in which there may be others */
    return end && end[1] == ' ' ? end[2] : '\0';
}

/* Up to USAGE_LOOK_MAX of their ids. */
static size_t list_tasks(const char *root, uint64_t *out)
{
    static const char *const names[] = {"cgroup.threads", "unified/cgroup.threads"};
    auto_close int fd = -1;
    char path[256], text[4096];
    size_t count = 0;
    struct str rest;
    ssize_t n;

    for (size_t i = 0; fd < 0 && i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", root, names[i]);
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    rest = str_n(text, n < 0 ? 0 : (size_t)n);
    while (count < USAGE_LOOK_MAX) {
        struct str line = str_split(&rest, '\n');

        if (!rest.p || !str_to_u64(line, &out[count])) /* the end, or only a part of a line */
            break;
        count++;
    }
    return count;
}

void usage_tasks_look(const char *root, struct usage_tasks_state *out)
{
    uint64_t tasks[USAGE_LOOK_MAX];
    size_t count = list_tasks(root, tasks), total = usage_tasks(root, SIZE_MAX);

    *out = (struct usage_tasks_state){.total = (unsigned)(total > count ? total : count)};
    for (size_t i = 0; i < count; i++) {
        char state = tasks[i] == (uint64_t)getpid() ? '\0' : state_of(tasks[i]);

        out->running += state == 'R';
        out->blocked += state == 'D';
        if (tasks[i] > out->last)
            out->last = tasks[i];
    }
    if (count == USAGE_LOOK_MAX) {
        out->running = (unsigned)(out->running * (uint64_t)out->total / count);
        out->blocked = (unsigned)(out->blocked * (uint64_t)out->total / count);
    }
    (void)read_number("/proc/sys/kernel", "ns_last_pid", &out->last);
}

uint64_t usage_oom_kills(const char *root)
{
    static const char *const names[] = {"memory.events", "memory/memory.oom_control"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        auto_buf struct buf text = {0};

        if (read_text(root, names[i], &text))
            return value_of(buf_str(&text), "oom_kill");
    }
    return 0;
}
