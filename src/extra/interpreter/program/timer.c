#include "base/alloc.h"
#include "extra/interpreter/program/interpreter.h"

uv_timer_t *timer_start(struct loop *loop, uint64_t ms, uint64_t again_ms, uv_timer_cb fn,
                        void *arg)
{
    uv_timer_t *timer = xcalloc(1, sizeof(*timer));

    (void)uv_timer_init(loop_uv(loop), timer);
    timer->data = arg;
    (void)uv_timer_start(timer, fn, ms, again_ms);
    return timer;
}

static void freed(uv_handle_t *handle)
{
    free(handle);
}

void timer_stop(uv_timer_t **timer)
{
    if (*timer)
        uv_close((uv_handle_t *)*timer, freed);
    *timer = NULL;
}
