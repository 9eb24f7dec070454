/* Listens to the engine: a box whose first process ended by itself is torn down like any other. */
#include <time.h>

#include "base/log.h"
#include "base/thread.h"
#include "domain/sandbox/sandbox_hooks.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_life.h"
#include "domain/sandbox/sandbox_table.h"

enum {
    WAIT_MS = 100, /* how long a stop may take */
    PAUSE_MS = 200,
};

enum sandbox_end reason_of_end(enum box_end end)
{
    switch (end) {
    case BOX_END_OOM:
        return END_OUT_OF_MEMORY;
    case BOX_END_KILLED:
        return END_FROM_OUTSIDE;
    case BOX_END_HOST:
    case BOX_END_NONE: /* stopped, by `quicksand down` */
        return END_HOST_RESTART;
    case BOX_END_EXITED:
        break;
    }
    return END_CRASHED;
}

static void handle(struct sandboxes *all, const struct engine_event *event)
{
    if (!id_valid(str_of(event->id)))
        return;
    /* A sandbox that was booted again may be the one that runs now. */
    if (table_rebooted(all, event->id) && box_runs(all, event->id))
        return;
    log_info("sandbox", "box ended by itself id=%s reason='%s'", event->id,
             name_of(&sandbox_end_names, reason_of_end(event->end)));
    if (!hooks_box_ended(all, event->id) && !warm_died(all, event->id))
        table_condemn(all, event->id, reason_of_end(event->end));
}

static bool stopping(struct sandboxes *all)
{
    bool stop;

    (void)pthread_mutex_lock(&all->lock);
    stop = all->stopping;
    (void)pthread_mutex_unlock(&all->lock);
    return stop;
}

static void events_run(void *arg)
{
    struct sandboxes *all = arg;

    while (!stopping(all)) {
        struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
        struct engine_event event = {0};
        struct error err = {0};

        if (all->engine->ops->next_event(all->engine, WAIT_MS, &event, &err) == 0) {
            event.id[ID_SIZE - 1] = '\0';
            handle(all, &event);
        } else if (err.code == ERROR_UNAVAILABLE) {
            log_error("sandbox", "engine events: %s; deaths of boxes go unseen", err.message);
            break;
        } else if (err.code != ERROR_TIMEOUT) {
            log_warn("sandbox", "engine events: %s, trying again", err.message);
            (void)nanosleep(&pause, NULL);
        }
    }
}

int events_start(struct sandboxes *all, struct error *err)
{
    return thread_start(&all->event_thread, "events", THREAD_STACK_DEFAULT, events_run, all, err);
}

void events_stop(struct sandboxes *all)
{
    thread_join(&all->event_thread);
}
