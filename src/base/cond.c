#include "base/cond.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"

void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &attr);
    (void)pthread_condattr_destroy(&attr);
}

bool cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_us)
{
    struct timespec at = clock_mono_at(until_us);

    return pthread_cond_timedwait(cond, lock, &at) != ETIMEDOUT;
}

bool cond_wait_us(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t timeout_us)
{
    return cond_wait_until(cond, lock, clock_mono_us() + timeout_us);
}
