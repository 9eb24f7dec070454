/* Boxes of the warm pool in which the programs of their template are started. That may take as long as those like, so
 * each has a thread of its own, and others are made meanwhile. Such a box yields the processors to all sandboxes until its
 * programs are ready. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/thread.h"
#include "domain/sandbox/sandbox_internal.h"

struct settling {
    struct list link;
    struct sandboxes *all;
    struct warm_box *box;
    struct box_spec spec;
    char *setup; /* as setup_key() has it */
};

size_t settle_count(const struct warm *warm, const struct box_spec *spec, struct str setup)
{
    struct list *pos;
    size_t count = 0;

    list_for_each (pos, &warm->settling) {
        const struct settling *settling = container_of(pos, struct settling, link);

        count += warm_same_kind(&settling->spec, str_of(settling->setup), spec, setup);
    }
    return count;
}

void settle_forget(struct warm *warm, const struct warm_box *box)
{
    struct list *pos;

    list_for_each (pos, &warm->settling) {
        struct settling *settling = container_of(pos, struct settling, link);

        if (settling->box == box) {
            list_remove(&settling->link);
            list_init(&settling->link);
            return;
        }
    }
}

bool settle_died(struct warm *warm, const char *id)
{
    struct list *pos;

    list_for_each (pos, &warm->settling) {
        struct settling *settling = container_of(pos, struct settling, link);

        if (strcmp(settling->box->id, id) == 0) {
            settling->box->died = true; /* left to its thread */
            return true;
        }
    }
    return false;
}

static void settling_free(struct settling *settling)
{
    free(settling->setup);
    free(settling);
}

/* From here on it is like the sandbox that it will be. */
static int stop_yielding(struct settling *settling, struct error *err)
{
    struct engine *engine = settling->all->engine;
    struct warm_box *box = settling->box;

    settling->spec.limits.yields = box->limits.yields = false;
    return engine->ops->limit(engine, box->id, &box->limits, err);
}

static void settle(void *arg)
{
    struct settling *settling = arg;
    struct sandboxes *all = settling->all;
    struct warm_box *box = settling->box;
    auto_arena struct arena arena = {0};
    struct setup_how how = {.stop = &all->warm.stopping,
                            .ahead = true,
                            .spec = &settling->spec,
                            .out_port = &box->port};
    struct error err = {0};
    struct setup setup;

    how.disk_mb = (int64_t)(settling->spec.limits.disk_bytes >> 20);
    setup_read(str_of(settling->setup), &arena, &setup);
    if (setup_run(all, box->id, &setup, &how, &err) == 0 && stop_yielding(settling, &err) == 0) {
        box->settled = true;
        warm_put_back(all, &settling->spec, str_of(settling->setup), box);
    } else {
        log_warn("sandbox", "warm box: %s, trying again", err.message);
        warm_failed(all, &settling->spec, str_of(settling->setup), box);
    }
    (void)pthread_mutex_lock(&all->warm.lock);
    all->warm.settling_count--;
    (void)pthread_cond_broadcast(&all->warm.changed);
    (void)pthread_mutex_unlock(&all->warm.lock);
    settling_free(settling);
}

void settle_box(struct sandboxes *all, const struct box_spec *spec, struct str setup,
                struct warm_box *box)
{
    struct settling *settling = xcalloc(1, sizeof(*settling));
    struct warm *warm = &all->warm;

    *settling = (struct settling){.all = all, .box = box, .spec = *spec, .setup = str_dup(setup)};
    (void)pthread_mutex_lock(&warm->lock);
    fill_started(warm, box);
    list_push_back(&warm->settling, &settling->link);
    warm->settling_count++;
    (void)pthread_mutex_unlock(&warm->lock);
    if (thread_start_detached("settle", THREAD_STACK_DEFAULT, settle, settling, NULL) == 0)
        return;
    warm_failed(all, spec, setup, box);
    (void)pthread_mutex_lock(&warm->lock);
    warm->settling_count--;
    (void)pthread_mutex_unlock(&warm->lock);
    settling_free(settling);
}

void settle_stop(struct warm *warm)
{
    (void)pthread_mutex_lock(&warm->lock);
    while (warm->settling_count > 0)
        (void)pthread_cond_wait(&warm->changed, &warm->lock);
    (void)pthread_mutex_unlock(&warm->lock);
}
