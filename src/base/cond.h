/* Waiting for a condition, measured by the monotonic clock: nobody who sets the host's clock delays or hurries it.
 * For conditions made by cond_init() only. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

void cond_init(pthread_cond_t *cond);
/* Until it is signalled (or for no reason, as always), at most until clock_mono_us() is until_us. False: the time
 * is over. */
bool cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_us);
bool cond_wait_us(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t timeout_us);
static inline bool cond_wait_ms(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t timeout_ms)
{
    return cond_wait_us(cond, lock, timeout_ms * 1000);
}
