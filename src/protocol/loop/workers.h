/* A bounded pool of threads for blocking work. Work runs from start to end on one worker; when it
 * is done, its completion is posted to the loop it came from. Work cannot fail: failure is a field
 * of the struct that embeds it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "protocol/loop/loop.h"

struct workers;

struct work {
    void (*run)(struct work *work);  /* on a worker */
    void (*done)(struct work *work); /* on `loop`; may be NULL */
    struct loop *loop;
    struct loop_errand errand; /* private */
    struct work *next;         /* private */
};

struct workers *workers_new(size_t threads, size_t queue_max);
/* For work that mostly waits (for minutes, perhaps): a thread starts when some comes and none is
 * idle, and ends after 10 s without one. Their stacks are small (256 KiB). */
struct workers *workers_new_elastic(size_t max_threads, size_t queue_max);
/* 0, or -EAGAIN when queue_max wait already: the caller answers "busy". */
int workers_run(struct workers *workers, struct work *work);
/* Finishes everything queued, joins the threads, frees. */
void workers_free(struct workers *workers);
/* The same with a limit: -ETIMEDOUT when some still runs after it. Then nothing was freed, and the
 * process must end before what it uses goes. */
int workers_free_within(struct workers *workers, uint32_t limit_ms);
/* Threads alive now, those of them that have nothing to do, work that waits. */
size_t workers_threads(struct workers *workers);
size_t workers_idle(struct workers *workers);
size_t workers_waiting(struct workers *workers);
