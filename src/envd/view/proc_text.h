/* What is in the files of /proc that envd serves (proc_files.h). */
#pragma once

#include <sched.h>
#include <stdint.h>

#include "base/buf.h"
#include "envd/process/usage.h"

/* 1, 5 and 15 minutes. */
enum { PROC_LOADS = 3 };

struct proc_load {
    double average[PROC_LOADS];
    uint64_t at_us, cpu_us; /* up to when, and the processor time used until then */
};

struct proc_text {
    const char *root; /* of the cgroups */
    uint64_t mem_bytes;
    cpu_set_t cpus;
    uint64_t boot_s; /* the wall clock's time when the sandbox's clock was 0 */
    uint64_t idle;   /* as told last: it never goes back */
    struct proc_load load;
    struct usage_tasks_state tasks;
    uint64_t tasks_at_us; /* when they were counted, 0 = never */
};

void proc_text_init(struct proc_text *state, const char *root, uint64_t mem_bytes);
void proc_text_meminfo(struct proc_text *state, struct buf *out);
void proc_text_stat(struct proc_text *state, struct buf *out);
void proc_text_loadavg(struct proc_text *state, struct buf *out);

/* ---- for tests ---- */

void proc_text_write_meminfo(const struct usage *usage, struct buf *out);
/* Of the time since the last call, with so many tasks that run or would. */
void proc_load_update(struct proc_load *load, uint64_t now_us, uint64_t cpu_us, unsigned runnable);
