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

enum { CLOCK_TEXT_SIZE = 80 };
/* "2026-08-01T12:34:56.123456Z"; never rounds up. */
void clock_format(int64_t wall_us, char out[CLOCK_TEXT_SIZE]);
/* RFC 3339 with any fraction and any offset. */
bool clock_parse(struct str text, int64_t *out_wall_us);
