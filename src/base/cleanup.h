/* Scope-bound release: auto_free, auto_close, and take_* to hand a resource on. */
#pragma once

#include <stdlib.h>
#include <unistd.h>

#define auto_free  __attribute__((cleanup(free_cleanup)))
#define auto_close __attribute__((cleanup(close_cleanup)))

static inline void free_cleanup(void *p)
{
    free(*(void **)p);
}

static inline void close_cleanup(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

static inline int take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

/* Closes and forgets; for descriptors that live in structs. */
static inline void close_fd(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

#define take_ptr(pp)                  \
    __extension__({                   \
        __typeof__(*(pp)) p_ = *(pp); \
        *(pp) = NULL;                 \
        p_;                           \
    })
