/* How a caller of something long says that it need not go on: a function that is asked every now and then, by the thread
 * that works. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct cancel {
    bool (*asked)(void *arg);
    void *arg;
};

enum { CANCEL_LOOK_MS = 200 }; /* how often a thread that waits asks */

/* NULL: it is never cancelled. */
static inline bool cancel_asked(const struct cancel *cancel)
{
    return cancel && cancel->asked(cancel->arg);
}
