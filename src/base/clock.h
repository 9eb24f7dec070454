/* Time. Wall time is what is stored and shown; monotonic time is what waits are measured with. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/str.h"

int64_t clock_wall_us(void); /* microseconds since the epoch */
int64_t clock_mono_us(void);
int64_t clock_boot_us(void); /* since the host booted, also while it slept */
/* Tests: as if somebody had set the clock. */
void clock_test_step(int64_t us);
/* Tests: as if so much time had passed, for code that compares times. Threads that wait are not woken. */
void clock_test_pass(int64_t us);
/* A time of clock_mono_us() as the kernel's CLOCK_MONOTONIC has it. */
struct timespec clock_mono_at(int64_t mono_us);
static inline int64_t clock_mono_ms(void)
{
    return clock_mono_us() / 1000;
}

/* A deadline is a time of clock_mono_us(); 0 = none. It is a parameter or a member wherever it holds: nothing inherits one.
 * Returns the deadline in so many seconds from now, or the outer one when that is earlier. */
int64_t clock_deadline(int64_t seconds, int64_t outer_us);
/* Milliseconds until the deadline: at least 0, at most most_ms. */
int64_t clock_left_ms(int64_t deadline_us, int64_t most_ms);

enum { CLOCK_TEXT_SIZE = 80 };
/* "2026-08-01T12:34:56.123456Z"; never rounds up. */
void clock_format(int64_t wall_us, char out[CLOCK_TEXT_SIZE]);
/* RFC 3339 with any fraction and any offset. */
bool clock_parse(struct str text, int64_t *out_wall_us);
