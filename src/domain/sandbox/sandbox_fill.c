/* Keeps the pools of sandbox_warm.c full. That has a low priority: one box at a time, not
 * while creates are running, and not right after one while a pool is still half
 * full: the answer goes out first. Once few are left it goes on beside creates, and a second thread helps: one start after another
 * cannot follow a client that never pauses. A start that fails is tried again with growing pauses. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_room.h"
#include "domain/sandbox/sandbox_table.h"

enum {
    PAUSE_MAX_US = 30 * 1000 * 1000,
    SETTLED_MAX = 4,   /* boxes of a pool in which programs run */
    SETTLING_MAX = 4,  /* boxes in which programs are being started, */
    SETTLING_EACH = 2, /* and of one pool */
    SCARCE_PART = 4,   /* of what there could be */
};

struct starting { /* a box for a pool, on its way */
    struct list link;
    const struct box_spec *spec;
    struct str setup;
    struct warm_box *box;
};

void fill_started(struct warm *warm, const struct warm_box *box)
{
    struct list *pos;

    list_for_each (pos, &warm->starting)
        if (container_of(pos, struct starting, link)->box == box) {
            list_remove(pos);
            return;
        }
}

static size_t starting_count(const struct warm *warm, const struct warm_pool *pool)
{
    struct list *pos;
    size_t count = 0;

    list_for_each (pos, &warm->starting) {
        const struct starting *starting = container_of(pos, struct starting, link);

        count += warm_same_kind(starting->spec, starting->setup, &pool->spec, str_of(pool->setup));
    }
    return count;
}

bool fill_died(struct warm *warm, const char *id)
{
    struct list *pos;

    list_for_each (pos, &warm->starting) {
        struct warm_box *box = container_of(pos, struct starting, link)->box;

        if (strcmp(box->id, id) == 0) {
            box->died = true;
            return true;
        }
    }
    return false;
}

/* Boxes in which programs run cost more than others. */
static size_t pool_max(const struct sandboxes *all, const struct warm_pool *pool)
{
    size_t max = pool->uses < warm_target_of(all, pool) ? pool->uses : warm_target_of(all, pool);

    return pool->setup[0] && max > SETTLED_MAX ? SETTLED_MAX : max;
}

/* Not now: its programs failed lately, or others are being started. */
static bool must_wait(const struct warm *warm, const struct warm_pool *pool)
{
    return pool->setup[0] &&
           (warm->settling_count >= SETTLING_MAX || pool->not_before_us > clock_mono_us() ||
            settle_count(warm, &pool->spec, str_of(pool->setup)) >= SETTLING_EACH);
}

static int64_t idle_at_us(const struct sandboxes *all, const struct warm_pool *pool)
{
    return pool->used_at_us + all->idle_s * 1000000;
}

/* Boxes in which programs run although nobody asked for one for long go to `dropped`. */
static bool drop_idle(struct sandboxes *all, struct list *dropped)
{
    struct warm *warm = &all->warm;
    int64_t now = clock_mono_us();
    bool any = false;
    struct list *node;

    for (size_t i = 0; i < warm->pool_count; i++) {
        struct warm_pool *pool = &warm->pools[i];

        if (!pool->setup[0] || idle_at_us(all, pool) > now)
            continue;
        pool->uses = pool->count = 0;
        while ((node = list_pop_front(&pool->boxes))) {
            list_push_back(dropped, node);
            any = true;
        }
    }
    return any;
}

/* How long until there may be something to do again; 0 = nothing. */
static int64_t pick_later(const struct sandboxes *all)
{
    const struct warm *warm = &all->warm;
    int64_t now = clock_mono_us(), wait = 0;

    for (size_t i = 0; i < warm->pool_count; i++) {
        const struct warm_pool *pool = &warm->pools[i];
        int64_t left = pool->not_before_us - now;

        if (left <= 0 && pool->setup[0] && pool->count > 0)
            left = idle_at_us(all, pool) - now;
        if (left > 0 && (wait == 0 || left < wait))
            wait = left;
    }
    return wait;
}

/* Few boxes are left that a create of its kind could have, blank ones included. */
static bool is_scarce(const struct sandboxes *all, const struct warm_pool *pool)
{
    const struct warm_pool *blank = &all->warm.pools[0];
    size_t left = pool->count, most = pool_max(all, pool);

    if (pool != blank && blank->spec.blank) {
        left += blank->count;
        most += pool_max(all, blank);
    }
    return left * SCARCE_PART <= most;
}

/* What to start next: the emptiest pool, the one used last among equals. *out_full: it can wait. */
static bool pick(struct sandboxes *all, struct box_spec *out, char **out_setup, bool *out_full,
                 bool *out_scarce)
{
    const struct warm *warm = &all->warm;
    const struct warm_pool *best = NULL;
    bool busy = atomic_load(&all->creates) > 0;

    for (size_t i = 0; i < warm->pool_count; i++) {
        const struct warm_pool *pool = &warm->pools[i];

        if (pool->count + starting_count(warm, pool) +
                    settle_count(warm, &pool->spec, str_of(pool->setup)) >=
                pool_max(all, pool) ||
            (busy && !is_scarce(all, pool)) || must_wait(warm, pool))
            continue;
        if (!best || pool->count < best->count ||
            (pool->count == best->count && pool->used_at_us > best->used_at_us))
            best = pool;
    }
    if (best) {
        *out = best->spec;
        *out_setup = xstrdup(best->setup);
        out->background = true;
        out->limits.yields = best->setup[0]; /* until they are ready */
        *out_full = best->count * 2 > warm_target_of(all, best);
        *out_scarce = is_scarce(all, best);
    }
    return best != NULL;
}

static int start_box(struct sandboxes *all, const struct box_spec *spec, struct str setup,
                     struct warm_box *box, struct error *err)
{
    struct box_info info;

    if (space_check(all, err) == 0 && all->engine->ops->start(all->engine, spec, &info, err) == 0 &&
        envd_ready(all->engine, box->id, &box->envd_fd, err) == 0) {
        box->address = info.address;
        if (setup.len)
            settle_box(all, spec, setup, box);
        else
            warm_put_back(all, spec, setup, box);
        return 0;
    }
    (void)pthread_mutex_lock(&all->warm.lock);
    fill_started(&all->warm, box);
    (void)pthread_mutex_unlock(&all->warm.lock);
    table_condemn(all, box->id, END_WARM_FAILED);
    warm_box_free(box);
    if (spec->blank && err->code == ERROR_UNSUPPORTED) { /* and will be */
        log_info("sandbox", "%s", err->message);
        (void)pthread_mutex_lock(&all->warm.lock);
        all->warm.pools[0].uses = 0;
        (void)pthread_mutex_unlock(&all->warm.lock);
        return 0;
    }
    return -1;
}

static struct warm_box *new_box(struct box_spec *spec)
{
    struct warm_box *box = xcalloc(1, sizeof(*box));

    id_make(box->id);
    memcpy(spec->id, box->id, ID_SIZE);
    box->limits = spec->limits;
    box->blank = spec->blank;
    box->refuses_clones = spec->refuse_clones;
    box->envd_fd = -1;
    return box;
}

/* With the lock, which is let go meanwhile. */
static int fill(struct sandboxes *all, struct box_spec *spec, const char *setup, bool scarce,
                struct error *err)
{
    struct starting starting = {.spec = spec, .setup = str_of(setup), .box = new_box(spec)};
    int r;

    list_push_back(&all->warm.starting, &starting.link);
    if (scarce)
        (void)pthread_cond_signal(&all->warm.scarce);
    (void)pthread_mutex_unlock(&all->warm.lock);
    r = start_box(all, spec, starting.setup, starting.box, err);
    (void)pthread_mutex_lock(&all->warm.lock);
    return r;
}

/* The second thread. What fails is left to the first one, which tries again. */
static void help_run(void *arg)
{
    struct sandboxes *all = arg;
    struct warm *warm = &all->warm;
    bool idle = true;

    (void)pthread_mutex_lock(&warm->lock);
    while (!atomic_load(&warm->stopping)) {
        auto_free char *setup = NULL;
        struct error err = {0};
        struct box_spec spec;
        bool full, scarce;

        if (idle)
            (void)pthread_cond_wait(&warm->scarce, &warm->lock);
        idle = atomic_load(&warm->stopping) || !pick(all, &spec, &setup, &full, &scarce) ||
               !scarce || fill(all, &spec, setup, true, &err) < 0;
    }
    (void)pthread_mutex_unlock(&warm->lock);
}

static void fill_run(void *arg)
{
    struct sandboxes *all = arg;
    struct warm *warm = &all->warm;
    int64_t pause = 0, not_before = 0;

    (void)pthread_mutex_lock(&warm->lock);
    while (!atomic_load(&warm->stopping)) {
        auto_free char *setup = NULL;
        int64_t wait = not_before - clock_mono_us();
        struct error err = {0};
        struct box_spec spec;
        struct list dropped;
        bool full = false, scarce = false;

        list_init(&dropped);
        if (drop_idle(all, &dropped)) {
            (void)pthread_mutex_unlock(&warm->lock);
            warm_condemn(all, &dropped);
            (void)pthread_mutex_lock(&warm->lock);
            continue;
        }
        if (wait > 0) {
            (void)cond_wait_us(&warm->changed, &warm->lock, wait);
            continue;
        }
        if (!pick(all, &spec, &setup, &full, &scarce)) {
            wait = pick_later(all);
            if (wait)
                (void)cond_wait_us(&warm->changed, &warm->lock, wait);
            else
                (void)pthread_cond_wait(&warm->changed, &warm->lock);
            continue;
        }
        wait = warm->quiet_until_us - clock_mono_us();
        if (full && wait > 0) {
            (void)cond_wait_us(&warm->changed, &warm->lock, wait);
            continue;
        }
        if (fill(all, &spec, setup, scarce, &err) < 0) {
            pause = pause ? (pause * 2 < PAUSE_MAX_US ? pause * 2 : PAUSE_MAX_US) : WARM_PAUSE_US;
            not_before = clock_mono_us() + pause;
            log_warn("sandbox", "warm box: %s, trying again", err.message);
        } else {
            pause = 0;
        }
    }
    (void)pthread_mutex_unlock(&warm->lock);
}

int fill_start(struct sandboxes *all, struct error *err)
{
    static thread_fn *const runs[WARM_THREADS] = {fill_run, help_run};

    for (size_t i = 0; i < WARM_THREADS; i++)
        if (thread_start(&all->warm.threads[i], "warm", THREAD_STACK_DEFAULT, runs[i], all, err) <
            0)
            return -1;
    return 0;
}

void fill_stop(struct warm *warm)
{
    (void)pthread_mutex_lock(&warm->lock);
    atomic_store(&warm->stopping, true);
    (void)pthread_cond_signal(&warm->changed);
    (void)pthread_cond_signal(&warm->scarce);
    (void)pthread_mutex_unlock(&warm->lock);
    for (size_t i = 0; i < WARM_THREADS; i++)
        thread_join(&warm->threads[i]);
}
