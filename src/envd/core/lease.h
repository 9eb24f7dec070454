/* How long the sandbox may run without being told otherwise. */
#pragma once

#include <stdint.h>
#include <uv.h>

struct lease {
    uv_timer_t timer;
    int64_t left_ms, planned_ms;
    uint64_t since_ms;
    int64_t revision; /* of the last change; an older one is ignored */
};
