/* Output of a process as events, for those who watch now. */
#pragma once

#include "agent/agent_event.h"

struct agent_output_rest {
    char bytes[4]; /* the beginning of a character */
    size_t len;
};

/* Of one process, for one thread. */
struct agent_output {
    struct agents *agents;
    const struct agent_caller *caller;
    struct agent_event event; /* what all of them have */
    struct agent_output_rest rest[2];
    int64_t second_us; /* the present one began; monotonic */
    size_t told;       /* bytes in it */
    int64_t dropped;   /* bytes since the last one that was told */
};

/* about: the ids; borrowed, as is the caller. */
void agent_output_init(struct agent_output *output, struct agents *agents,
                       const struct agent_caller *caller, const struct agent_event *about);
/* Somebody would be told. */
bool agent_output_watched(const struct agent_output *output);
void agent_output_tell(struct agent_output *output, bool is_err, struct str data);
