/* What sandboxes use, sampled every few seconds and kept in memory for about an hour. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "host/engine/engine.h"

struct sandboxes;

struct sandbox_sample {
    int64_t at_us;
    double cpu_pct; /* 100 = all cpus of the sandbox */
    uint64_t mem_used, mem_cache, disk_used;
    struct box_traffic network; /* since it was created, as far as this server saw it */
};

struct sandbox_metrics {
    struct sandbox_sample *samples; /* oldest first */
    size_t count;
    int64_t cpu_count;
    uint64_t mem_total, disk_total;
};

struct team_sample {
    int64_t at_us;
    size_t running;
    double start_rate; /* sandboxes per second */
};

/* Samples of the time from..until (0 = any). A running sandbox that was not sampled yet is, now. */
int sandbox_metrics(struct sandboxes *all, struct str team_id, struct str id, int64_t from_us,
                    int64_t until_us, struct arena *arena, struct sandbox_metrics *out,
                    struct error *err);
/* The TCP ports that a running sandbox listens on now. Does not count as use. */
int sandbox_ports(struct sandboxes *all, struct str team_id, struct str id, struct box_ports *out,
                  struct error *err);
/* Of all sandboxes together, also of those that are gone. */
void metrics_network_total(struct sandboxes *all, struct box_traffic *out);
/* The last sample of each; malloc()ed. */
struct sandbox_network_use {
    char id[ID_SIZE];
    struct box_traffic traffic;
};
size_t metrics_network_each(struct sandboxes *all, struct sandbox_network_use **out);
/* Oldest first. */
size_t team_metrics(struct sandboxes *all, struct str team_id, int64_t from_us, int64_t until_us,
                    struct arena *arena, struct team_sample **out);
