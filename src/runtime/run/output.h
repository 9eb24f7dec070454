/* Output of a process as events, for those who watch now. */
#pragma once

#include "runtime/core/event.h"

struct runtime_output_rest {
    char bytes[4]; /* the beginning of a character */
    size_t len;
};

/* Of one process, for one thread. */
struct runtime_output {
    struct runtime *runtime;
    const struct runtime_caller *caller;
    struct runtime_event event; /* what all of them have */
    struct runtime_output_rest rest[2];
    int64_t second_us; /* the present one began; monotonic */
    size_t told;       /* bytes in it */
    int64_t dropped;   /* bytes since the last one that was told */
};

/* about: the ids; borrowed, as is the caller. */
void runtime_output_init(struct runtime_output *output, struct runtime *runtime,
                         const struct runtime_caller *caller, const struct runtime_event *about);
/* Somebody would be told. */
bool runtime_output_watched(const struct runtime_output *output);
void runtime_output_tell(struct runtime_output *output, bool is_err, struct str data);
