/* What /metrics has besides the API's own figures: who uses this server, its providers, its build and its process. */
#pragma once

#include <stdint.h>

#include "base/buf.h"

struct http_budget;
struct runtime_service;
struct sandboxes;

struct monitor_targets {
    struct sandboxes *sandboxes;
    struct http_budget *budget;
    struct runtime_service *runtime; /* NULL while it starts */
    int64_t started_us;              /* wall */
};

/* arg: struct monitor_targets. */
void server_monitor(void *arg, struct buf *out);
