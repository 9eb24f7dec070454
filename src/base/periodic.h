/* The periodic service of the process: jobs that are due again and again, run by a few shared threads. One thread runs the
 * jobs that never wait for long; jobs that may block share PERIODIC_BLOCKING_THREADS others, so a slow one does not delay a
 * prompt one. The threads start with the first jobs and end with the last. Times are those of clock_mono_us(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"

enum { PERIODIC_BLOCKING_THREADS = 3 };

/* Embedded in its owner. The owner sets the members before periodic_add() and leaves them alone until periodic_remove(). */
struct periodic {
    const char *name; /* static; in metrics and the log */
    /* Between the times at which it is due, which stay on one grid however long it runs. Of several times that
     * have passed one turn makes up for all. 0: only when periodic_at() asks for a turn. */
    int64_t period_us;
    bool may_block; /* waits for a provider, an engine or the disk */
    void (*run)(void *arg);
    void *arg;

    /* The service's, guarded by its lock. */
    struct list link;
    bool added, running;
    int64_t grid_us; /* the turn of the period that comes next */
    int64_t due_us;
    int64_t began_us, took_us,
        late_us;    /* of the last turn; late: it began so long after it was due */
    uint64_t turns; /* that have ended */
};

#define PERIODIC_ON_WISH INT64_MAX
/* The first turn is due after first_us; PERIODIC_ON_WISH: of a job without a period, when periodic_at() asks for it. Fails
 * when there is no thread for it. */
int periodic_add(struct periodic *job, int64_t first_us, struct error *err);
/* Makes a turn due at this time, or at once, in addition to the period's; of several wishes the earliest counts. During a
 * turn it is a wish for one after it. Without effect on a job that was not added. */
void periodic_at(struct periodic *job, int64_t due_us);
void periodic_soon(struct periodic *job);
/* Waits for a turn under way; afterwards there is none. Not from a turn of any job. Without effect on one that was not
 * added. */
void periodic_remove(struct periodic *job);

struct periodic_state {
    const char *name;
    bool running;
    uint64_t turns;
    int64_t began_us; /* of the last turn or the one under way; 0: none */
    int64_t took_us;  /* the last turn that ended */
    int64_t late_us;
};
/* Of at most max jobs; returns how many. */
size_t periodic_states(struct periodic_state *out, size_t max);

/* Tests: the threads look at the clock again, after clock_test_pass(). */
void periodic_test_wake(void);
/* Tests: makes a turn that begins after the call, and waits for its end. */
void periodic_test_turn(struct periodic *job);
