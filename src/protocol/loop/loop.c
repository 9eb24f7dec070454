/* One uv_async wakes the loop for posted errands and for stop; posted errands wait in a list under a
 * mutex, are taken over as a whole and run in order. A prepare handle, which libuv calls once per
 * turn before it waits, does what loop_later() was given: at that point no callback is on the
 * stack.
 *
 * SIGPIPE is ignored from the first loop on, because sendfile(2) and splice(2) have no flag against
 * it. Whoever starts other programs has to set it back in the child. */
#include "protocol/loop/loop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/log.h"

struct later {
    void (*fn)(void *arg);
    void *arg;
};

struct loop {
    uv_loop_t uv;
    uv_async_t async;
    uv_prepare_t prepare;
    uv_mutex_t mutex; /* guards first and last */
    struct loop_errand *first, *last;
    atomic_bool stop;
    struct later *later;
    size_t later_count, later_cap;
    char *read_buffer;
    uint64_t numbers;
};

static void run_errands(struct loop *loop)
{
    struct loop_errand *errand;

    uv_mutex_lock(&loop->mutex);
    errand = loop->first;
    loop->first = loop->last = NULL;
    uv_mutex_unlock(&loop->mutex);
    while (errand) {
        struct loop_errand *next = errand->next; /* fn may free or post the errand again */

        errand->fn(errand);
        errand = next;
    }
}

static void run_later(struct loop *loop)
{
    for (size_t i = 0; i < loop->later_count; i++) { /* one may add another */
        struct later later = loop->later[i];

        later.fn(later.arg);
    }
    loop->later_count = 0;
}

static void on_async(uv_async_t *async)
{
    struct loop *loop = async->data;

    run_errands(loop);
    if (atomic_exchange(&loop->stop, false))
        uv_stop(&loop->uv);
}

static void on_prepare(uv_prepare_t *prepare)
{
    run_later(prepare->data);
}

static void must(int result, const char *what)
{
    if (result == 0)
        return;
    log_error("loop", "%s: %s", what, uv_strerror(result));
    abort();
}

struct loop *loop_new(void)
{
    struct loop *loop = xcalloc(1, sizeof(*loop));

    (void)signal(SIGPIPE, SIG_IGN);
    must(uv_loop_init(&loop->uv), "uv_loop_init");
    must(uv_mutex_init(&loop->mutex), "uv_mutex_init");
    must(uv_async_init(&loop->uv, &loop->async, on_async), "uv_async_init");
    must(uv_prepare_init(&loop->uv, &loop->prepare), "uv_prepare_init");
    must(uv_prepare_start(&loop->prepare, on_prepare), "uv_prepare_start");
    loop->async.data = loop->prepare.data = loop;
    loop->read_buffer = xmalloc_wide(LOOP_READ_WIDE);
    return loop;
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    run_errands(loop);
    uv_close((uv_handle_t *)&loop->async, NULL);
    uv_close((uv_handle_t *)&loop->prepare, NULL);
    for (int turn = 0; uv_loop_close(&loop->uv) == UV_EBUSY; turn++) {
        if (turn == 1000) { /* somebody above did not close a handle */
            log_error("loop", "handles left open, memory is not freed");
            return;
        }
        (void)uv_run(&loop->uv, UV_RUN_NOWAIT);
    }
    run_errands(loop);
    run_later(loop);
    free(loop->later);
    free_wide(loop->read_buffer);
    uv_mutex_destroy(&loop->mutex);
    free(loop);
}

uint64_t loop_number(struct loop *loop)
{
    return ++loop->numbers;
}

uv_loop_t *loop_uv(struct loop *loop)
{
    return &loop->uv;
}

void loop_run(struct loop *loop)
{
    (void)uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void loop_stop(struct loop *loop)
{
    atomic_store(&loop->stop, true);
    (void)uv_async_send(&loop->async);
}

void loop_post(struct loop *loop, struct loop_errand *errand)
{
    errand->next = NULL;
    uv_mutex_lock(&loop->mutex);
    if (loop->last)
        loop->last->next = errand;
    else
        loop->first = errand;
    loop->last = errand;
    uv_mutex_unlock(&loop->mutex);
    (void)uv_async_send(&loop->async);
}

void loop_later(struct loop *loop, void (*fn)(void *arg), void *arg)
{
    if (loop->later_count == loop->later_cap) {
        loop->later_cap = loop->later_cap ? loop->later_cap * 2 : 16;
        loop->later = xrealloc(loop->later, loop->later_cap * sizeof(*loop->later));
    }
    loop->later[loop->later_count++] = (struct later){fn, arg};
}

void loop_free_later(struct loop *loop, void *p)
{
    loop_later(loop, free, p);
}

char *loop_read_buffer(struct loop *loop)
{
    return loop->read_buffer;
}
