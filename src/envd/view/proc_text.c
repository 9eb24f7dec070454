/* Processor times are those of the sandbox's cgroup, which does not tell of single processors: each has an
 * equal share. Time that was not used is idle.
 *
 * The load average: who reads it brings it up to date; nothing is sampled in between, so that sandboxes
 * in which nobody asks cost nothing. What is known of the time since the last read is the processor time
 * that was used in it, which is the average number of tasks that ran. Where reads follow each other
 * closely, tasks that wait for a processor or for a disk count as well, as Linux counts them. */
#include "envd/view/proc_text.h"

#include <time.h>

#include "base/clock.h"
#include "base/str.h"

enum {
    KIB = 1024,
    SECOND_US = 1000000,
    TICK_US = 10000, /* the unit of /proc/stat */
    TASKS_FRESH_US = 100 * 1000,
    CLOSE_READS_S = 5,         /* as often as Linux looks */
    LOAD_STEPS_MAX = 4 * 3600, /* after that, what was before does not count */
};

static void add_line(struct buf *out, const char *name, uint64_t bytes)
{
    char label[32];

    (void)snprintf(label, sizeof(label), "%s:", name);
    buf_printf(out, "%-16s%8llu kB\n", label, (unsigned long long)(bytes / KIB));
}

void proc_text_write_meminfo(const struct usage *usage, struct buf *out)
{
    uint64_t free_bytes = usage->mem_total - usage->mem_used;
    uint64_t reclaimable =
        usage->mem_active_file + usage->mem_inactive_file + usage->mem_slab_reclaimable;
    uint64_t available = free_bytes + reclaimable;

    if (available > usage->mem_total)
        available = usage->mem_total;
    add_line(out, "MemTotal", usage->mem_total);
    add_line(out, "MemFree", free_bytes);
    add_line(out, "MemAvailable", available);
    add_line(out, "Buffers", 0);
    add_line(out, "Cached", usage->mem_cache);
    add_line(out, "SwapCached", 0);
    add_line(out, "Active", usage->mem_active_file + usage->mem_anon);
    add_line(out, "Inactive", usage->mem_inactive_file);
    add_line(out, "Active(anon)", usage->mem_anon);
    add_line(out, "Inactive(anon)", 0);
    add_line(out, "Active(file)", usage->mem_active_file);
    add_line(out, "Inactive(file)", usage->mem_inactive_file);
    add_line(out, "SwapTotal", 0);
    add_line(out, "SwapFree", 0);
    add_line(out, "Dirty", 0);
    add_line(out, "Writeback", 0);
    add_line(out, "AnonPages", usage->mem_anon);
    add_line(out, "Mapped", 0);
    add_line(out, "Shmem", usage->mem_shmem);
    add_line(out, "KReclaimable", usage->mem_slab_reclaimable);
    add_line(out, "Slab", usage->mem_slab_reclaimable);
    add_line(out, "SReclaimable", usage->mem_slab_reclaimable);
    add_line(out, "SUnreclaim", 0);
}

static uint64_t uptime_us(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * SECOND_US + (uint64_t)now.tv_nsec / 1000;
}

void proc_text_init(struct proc_text *state, const char *root, uint64_t mem_bytes)
{
    *state = (struct proc_text){.root = root, .mem_bytes = mem_bytes};
    CPU_ZERO(&state->cpus);
    if (sched_getaffinity(0, sizeof(state->cpus), &state->cpus) != 0)
        CPU_SET(0, &state->cpus);
    state->boot_s = ((uint64_t)clock_wall_us() - uptime_us()) / SECOND_US;
}

void proc_text_meminfo(struct proc_text *state, struct buf *out)
{
    struct usage usage;

    usage_read(state->root, state->mem_bytes, &usage);
    proc_text_write_meminfo(&usage, out);
}

/* Looking at each task is work that readers must not be able to ask for without end. */
static const struct usage_tasks_state *current_tasks(struct proc_text *state)
{
    uint64_t now = uptime_us();

    if (state->tasks_at_us == 0 || now - state->tasks_at_us > TASKS_FRESH_US) {
        usage_tasks_look(state->root, &state->tasks);
        state->tasks_at_us = now;
    }
    return &state->tasks;
}

struct ticks {
    uint64_t user, kernel, idle;
};

static void add_cpu(struct buf *out, const char *name, struct ticks ticks)
{
    buf_printf(out, "%s %llu 0 %llu %llu 0 0 0 0 0 0\n", name, (unsigned long long)ticks.user,
               (unsigned long long)ticks.kernel, (unsigned long long)ticks.idle);
}

void proc_text_stat(struct proc_text *state, struct buf *out)
{
    const struct usage_tasks_state *tasks = current_tasks(state);
    unsigned count = (unsigned)CPU_COUNT(&state->cpus);
    struct usage_times times = usage_cpu_times(state->root);
    struct ticks all = {.user = times.user_us / TICK_US, .kernel = times.system_us / TICK_US};
    uint64_t whole = uptime_us() * count / TICK_US, used = all.user + all.kernel;

    if (whole > used && whole - used > state->idle)
        state->idle = whole - used;
    all.idle = state->idle;
    add_cpu(out, "cpu ", all);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        char name[16];

        if (!CPU_ISSET(cpu, &state->cpus))
            continue;
        (void)snprintf(name, sizeof(name), "cpu%u", cpu);
        add_cpu(out, name, (struct ticks){all.user / count, all.kernel / count, all.idle / count});
    }
    buf_printf(out,
               "intr 0\nctxt 0\nbtime %llu\nprocesses %llu\nprocs_running %u\n"
               "procs_blocked %u\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n",
               (unsigned long long)state->boot_s, (unsigned long long)tasks->last,
               tasks->running + 1 /* who reads */, tasks->blocked);
}

void proc_load_update(struct proc_load *load, uint64_t now_us, uint64_t cpu_us, unsigned runnable)
{
    /* What remains of an average after a second. */
    static const double kept[PROC_LOADS] = {0.983471453821617, 0.996672216162454,
                                            0.998889506016472};
    uint64_t elapsed = now_us > load->at_us ? (now_us - load->at_us) / SECOND_US : 0;
    double tasks;

    if (elapsed == 0)
        return;
    tasks = cpu_us > load->cpu_us ? (double)(cpu_us - load->cpu_us) / (double)(now_us - load->at_us)
                                  : 0;
    if (elapsed <= CLOSE_READS_S && tasks < runnable)
        tasks = runnable;
    for (uint64_t i = 0; i < elapsed && i < LOAD_STEPS_MAX; i++)
        for (size_t k = 0; k < PROC_LOADS; k++)
            load->average[k] = load->average[k] * kept[k] + tasks * (1 - kept[k]);
    load->at_us = now_us;
    load->cpu_us = cpu_us;
}

void proc_text_loadavg(struct proc_text *state, struct buf *out)
{
    const struct usage_tasks_state *tasks = current_tasks(state);

    proc_load_update(&state->load, uptime_us(), usage_cpu_us(state->root),
                     tasks->running + tasks->blocked);
    buf_printf(out, "%.2f %.2f %.2f %u/%u %llu\n", state->load.average[0], state->load.average[1],
               state->load.average[2], tasks->running + 1 /* who reads */, tasks->total,
               (unsigned long long)tasks->last);
}
