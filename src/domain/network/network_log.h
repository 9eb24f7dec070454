/* What sandboxes reached and what was refused to them: the last lines of each, in memory. Any thread.
 *
 * Guests decide how much there is of it, so each sandbox has a limit and all together have one: the oldest lines go. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/arena.h"
#include "base/str.h"

enum { NETWORK_LOG_LINES = 500, NETWORK_LOG_ALL = 100000, NETWORK_LOG_TEXT = 1024 };

struct network_line {
    int64_t at_us;
    bool denied;
    struct str message; /* for people */
    struct str fields;  /* JSON: name, address, port, protocol, verdict, rule, reason */
};

struct network_log;

struct network_log *network_log_new(void);
void network_log_free(struct network_log *log);
/* Longer texts are left out. */
void network_log_add(struct network_log *log, struct str sandbox_id,
                     const struct network_line *line);
/* A record of the egress process; one that is none is left out. */
void network_log_take(struct network_log *log, json_t *json);
/* Of one sandbox, the oldest first; returns how many were written. */
size_t network_log_read(struct network_log *log, struct str sandbox_id, struct arena *arena,
                        struct network_line *out, size_t max);
