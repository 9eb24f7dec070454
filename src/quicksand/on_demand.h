/* Recipes that come with quicksand, built because a create asks for one (build-on-demand). */
#pragma once

#include <stdint.h>

struct builds;
struct on_demand;
struct sandboxes;
struct store;

struct on_demand_config {
    struct builds *builds;
    struct sandboxes *sandboxes;
    struct store *store;
    const char *store_dir; /* for files on their way into builds */
    int64_t wait_s;        /* how long a create waits for the build; 0 = nothing is built */
};

/* From now on creates build what they need. Before the first one. */
struct on_demand *on_demand_open(const struct on_demand_config *config);
/* The process is about to end: nobody waits any more. */
void on_demand_hurry(struct on_demand *demand);
/* When no create is under way any more. */
void on_demand_close(struct on_demand *demand);
