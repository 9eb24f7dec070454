/* The workers of the server's lanes: docs/internals/lanes.md. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "edge/api_e2b/api.h"
#include "extra/core/extra.h"

struct server_lanes {
    struct workers *quick, *list, *control, *create, *wait, *slow;
    struct workers *wake; /* sandboxes that traffic resumes */
};

/* threads: the setting `workers`. */
void server_lanes_open(struct server_lanes *lanes, int64_t threads);
/* What the E2B API gets of them. */
void server_lanes_assign(const struct server_lanes *lanes, int64_t threads, struct api_config *api);
/* What extras get of them: workers of the same lanes. */
void server_lanes_share(const struct server_lanes *lanes, int64_t threads, struct extra_host *out);
/* Waits for what is under way. */
void server_lanes_close(struct server_lanes *lanes);

/* From now on the process has so many milliseconds to end by itself; then it is ended, whatever it waits for. */
void server_stop_within(uint32_t limit_ms);
