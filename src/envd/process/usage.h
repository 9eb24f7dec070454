/* How much of the host the sandbox uses, as its cgroup says. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct usage {
    uint64_t mem_total, mem_used; /* bytes; used includes the page cache */
    uint64_t mem_cache, mem_shmem;
    uint64_t mem_active_file, mem_inactive_file, mem_anon, mem_slab_reclaimable;
    uint64_t cpu_us; /* used since the start */
};

#define USAGE_ROOT "/sys/fs/cgroup"

/* root is USAGE_ROOT outside of tests. mem_bytes is the limit when the cgroup has none (0:
 * the host's memory). */
void usage_read(const char *root, uint64_t mem_bytes, struct usage *out);
uint64_t usage_cpu_us(const char *root);
struct usage_times {
    uint64_t user_us, system_us;
};
struct usage_times usage_cpu_times(const char *root);
/* Processors it may use: the cgroup's quota rounded up, or those of the host. */
unsigned usage_cpu_count(const char *root);
/* Processes and threads; counting ends when there are so many. 0: unknown. */
size_t usage_tasks(const char *root, size_t enough);
/* What the processes and threads do, but for the caller. Of more than USAGE_LOOK_MAX the rest is taken to
 * do the same. */
enum { USAGE_LOOK_MAX = 256 };
struct usage_tasks_state {
    unsigned total, running, blocked;
    uint64_t last; /* the newest process's id */
};
void usage_tasks_look(const char *root, struct usage_tasks_state *out);
/* How often memory has killed a process. */
uint64_t usage_oom_kills(const char *root);
