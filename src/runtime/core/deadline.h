/* One limit for everything that a thread asks of providers in one operation: calls, and the waits
 * between tries. */
#pragma once

#include "base/clock.h"
#include "protocol/fetch/fetch.h"

struct deadline {
    int64_t before_ms;
};

/* Inside of another one the earlier end holds. */
static inline void deadline_begin(struct deadline *deadline, int64_t seconds)
{
    int64_t end_ms = clock_mono_ms() + seconds * 1000;

    deadline->before_ms = fetch_deadline();
    if (!deadline->before_ms || end_ms < deadline->before_ms)
        fetch_deadline_set(end_ms);
}

/* For what has limits of its own: until the end there is none. */
static inline void deadline_lift(struct deadline *deadline)
{
    deadline->before_ms = fetch_deadline();
    fetch_deadline_set(0);
}

static inline void deadline_end(const struct deadline *deadline)
{
    fetch_deadline_set(deadline->before_ms);
}

/* Milliseconds that are left, at most most_ms. */
static inline int64_t deadline_left(int64_t most_ms)
{
    int64_t end_ms = fetch_deadline(), left_ms = end_ms - clock_mono_ms();

    if (!end_ms || left_ms > most_ms)
        return most_ms;
    return left_ms > 0 ? left_ms : 0;
}
