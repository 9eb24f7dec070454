/* Boxes made ahead. One thread keeps up to `blank` blank boxes, which become anything when they are claimed, a few more for
 * boxes with volumes, whose filter of system calls is another, once there were such, and `warm`
 * for each of the few sets of layers (and of what templates run in them: sandbox_settle.c) that were asked for last, so that
 * a create only has to hand one over; of those not more than the set was asked for so far, because a snapshot may be used
 * just once. Filling up has a low priority: one box at a time, not
 * while creates are running, and not right after one while a pool is still half
 * full: the answer goes out first. Once few are left it goes on beside creates, and a second thread helps: one start after another
 * cannot follow a client that never pauses. A start that fails is tried again with growing pauses.
 *
 * Boxes in the pool have no row, no route and no entry in the table. One that is no longer wanted
 * goes the way of all leftovers, by table_condemn(). */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "domain/sandbox/sandbox_internal.h"

enum {
    PAUSE_MIN_US = 500 * 1000,
    PAUSE_MAX_US = 30 * 1000 * 1000,
    QUIET_US = 3000, /* after a box was taken */
    SETTLED_MAX = 4, /* boxes of a pool in which programs run */
    SETTLING_MAX = 4,
    FOR_VOLUMES_PART = 4, /* of the number of blank boxes */
    SCARCE_PART = 4,      /* of what there could be */
};

void warm_box_free(struct warm_box *box)
{
    if (!box)
        return;
    close_fd(&box->envd_fd);
    free(box);
}

/* Blank ones have none. */
static bool same_layers(const struct box_spec *a, const struct box_spec *b)
{
    if (a->layer_count != b->layer_count)
        return false;
    for (uint32_t i = 0; i < a->layer_count; i++)
        if (strcmp(a->layers[i], b->layers[i]) != 0)
            return false;
    return true;
}

bool warm_same_kind(const struct box_spec *a, struct str a_setup, const struct box_spec *b,
                    struct str b_setup)
{
    return same_layers(a, b) && a->refuse_clones == b->refuse_clones && str_eq(a_setup, b_setup);
}

static struct warm_pool *find_pool(struct warm *warm, const struct box_spec *spec, struct str setup)
{
    for (size_t i = 0; i < warm->pool_count; i++)
        if (warm_same_kind(&warm->pools[i].spec, str_of(warm->pools[i].setup), spec, setup))
            return &warm->pools[i];
    return NULL;
}

/* The one that was asked for longest ago makes room; its boxes go to `dropped`. */
static struct warm_pool *replace_oldest(struct warm *warm, struct list *dropped)
{
    struct warm_pool *oldest = &warm->pools[BLANK_POOLS];
    struct list *node;

    for (size_t i = BLANK_POOLS + 1; i < warm->pool_count; i++)
        if (warm->pools[i].used_at_us < oldest->used_at_us)
            oldest = &warm->pools[i];
    while ((node = list_pop_front(&oldest->boxes)))
        list_push_back(dropped, node);
    free(oldest->setup);
    return oldest;
}

/* Makes the layers hot. Boxes of a set of layers that had to go are put in `dropped`. */
static struct warm_pool *heat(struct warm *warm, const struct box_spec *spec, struct str setup,
                              struct list *dropped)
{
    struct warm_pool *pool = find_pool(warm, spec, setup);

    if (!pool) {
        if (warm->pool_count < WARM_POOLS_MAX)
            pool = &warm->pools[warm->pool_count++];
        else
            pool = replace_oldest(warm, dropped);
        *pool = (struct warm_pool){.setup = str_dup(setup)};
        list_init(&pool->boxes);
    }
    pool->spec = *spec;
    pool->spec.network = (struct box_network){.mode = warm->network_mode};
    pool->uses++;
    pool->used_at_us = clock_mono_us();
    return pool;
}

static void condemn_dropped(struct sandboxes *all, struct list *dropped)
{
    struct list *node;

    while ((node = list_pop_front(dropped))) {
        struct warm_box *box = container_of(node, struct warm_box, link);

        table_condemn(all, box->id, END_WARM_UNWANTED);
        warm_box_free(box);
    }
}

static struct list *take_from(struct warm *warm, struct warm_pool *pool)
{
    struct list *node = list_pop_front(&pool->boxes);

    if (node)
        pool->count--;
    warm->quiet_until_us = pool->used_at_us + QUIET_US;
    if (pool->count == 0)
        (void)pthread_cond_signal(&warm->changed);
    return node;
}

struct warm_box *warm_take(struct sandboxes *all, const struct box_spec *spec,
                           const struct setup *setup)
{
    struct warm *warm = &all->warm;
    struct list dropped, *node = NULL;
    struct warm_pool *pool;

    if (all->warm_target == 0)
        return NULL;
    list_init(&dropped);
    (void)pthread_mutex_lock(&warm->lock);
    pool = heat(warm, spec, setup_key(setup), &dropped);
    node = take_from(warm, pool);
    (void)pthread_mutex_unlock(&warm->lock);
    condemn_dropped(all, &dropped);
    return node ? container_of(node, struct warm_box, link) : NULL;
}

void warm_expect(struct sandboxes *all, struct str team_id, struct str template_id)
{
    struct warm *warm = &all->warm;
    auto_arena struct arena arena = {0};
    struct store_template template;
    struct error ignored = {0};
    struct box_spec spec;
    struct setup setup;
    struct list dropped;

    if (all->warm_target == 0 ||
        store_template_find(all->store, team_id, template_id, &arena, &template, &ignored) < 0 ||
        spec_from_template(&template, &spec, &ignored) < 0)
        return;
    setup_of_template(&template, &arena, &setup);
    list_init(&dropped);
    (void)pthread_mutex_lock(&warm->lock);
    (void)heat(warm, &spec, setup_key(&setup), &dropped);
    (void)pthread_cond_signal(&warm->changed);
    (void)pthread_mutex_unlock(&warm->lock);
    condemn_dropped(all, &dropped);
}

bool warm_has(struct sandboxes *all, const struct box_spec *spec, const struct setup *setup)
{
    const struct warm_pool *pool;
    bool has;

    (void)pthread_mutex_lock(&all->warm.lock);
    pool = find_pool(&all->warm, spec, setup_key(setup));
    has = pool && pool->count > 0;
    (void)pthread_mutex_unlock(&all->warm.lock);
    return has;
}

/* With the lock; NULL where there are none. */
static struct warm_pool *blank_pool(struct warm *warm, bool refuses_clones)
{
    struct warm_pool *pool = &warm->pools[refuses_clones ? 1 : 0];

    return warm->pool_count >= BLANK_POOLS && warm->pools[0].uses ? pool : NULL;
}

static size_t target_of(const struct sandboxes *all, const struct warm_pool *pool)
{
    if (!pool->spec.blank)
        return all->warm_target;
    return pool->spec.refuse_clones ? (all->blank_target + FOR_VOLUMES_PART - 1) / FOR_VOLUMES_PART
                                    : all->blank_target;
}

/* With the lock. */
static struct list *take_blank(const struct sandboxes *all, struct warm *warm,
                               const struct box_spec *spec)
{
    struct warm_pool *pool = blank_pool(warm, box_spec_refuses_clones(spec));

    if (!pool)
        return NULL;
    if (pool->uses < SIZE_MAX)
        pool->uses++;
    if (spec->limits.yields && pool->count * 2 <= target_of(all, pool))
        return NULL;
    pool->used_at_us = clock_mono_us();
    return take_from(warm, pool);
}

struct warm_box *warm_take_blank(struct sandboxes *all, const struct box_spec *spec)
{
    struct warm *warm = &all->warm;
    struct list *node;

    if (all->blank_target == 0)
        return NULL;
    (void)pthread_mutex_lock(&warm->lock);
    node = take_blank(all, warm, spec);
    (void)pthread_mutex_unlock(&warm->lock);
    return node ? container_of(node, struct warm_box, link) : NULL;
}

int warm_claim(struct sandboxes *all, struct warm_box *box_consume, struct box_spec *spec,
               struct box_info *out, int *out_fd, struct error *err)
{
    struct warm_box *box = box_consume;
    int r;

    memcpy(spec->keep_disk ? spec->blank_id : spec->id, box->id, ID_SIZE);
    r = all->engine->ops->claim(all->engine, spec, out, err);
    spec->blank_id[0] = '\0';
    if (r == 0)
        *out_fd = take_fd(&box->envd_fd);
    else
        table_condemn(all, box->id, END_WARM_FAILED);
    warm_box_free(box);
    warm_kick(all);
    return r;
}

void warm_started(struct warm *warm, const struct warm_box *box)
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

void warm_put_back(struct sandboxes *all, const struct box_spec *spec, struct str setup,
                   struct warm_box *box)
{
    struct warm *warm = &all->warm;
    struct warm_pool *pool = NULL;

    (void)pthread_mutex_lock(&warm->lock);
    warm_started(warm, box);
    settle_forget(warm, box);
    if (!box->died)
        pool = box->blank ? blank_pool(warm, box->refuses_clones) : find_pool(warm, spec, setup);
    if (pool) {
        pool->failures = 0;
        list_push_back(&pool->boxes, &box->link);
        pool->count++;
    }
    (void)pthread_mutex_unlock(&warm->lock);
    if (pool)
        return;
    table_condemn(all, box->id, END_WARM_UNWANTED);
    warm_box_free(box);
}

void warm_failed(struct sandboxes *all, const struct box_spec *spec, struct str setup,
                 struct warm_box *box)
{
    struct warm *warm = &all->warm;
    struct warm_pool *pool;

    (void)pthread_mutex_lock(&warm->lock);
    settle_forget(warm, box);
    pool = find_pool(warm, spec, setup);
    if (pool) {
        unsigned shift = pool->failures < 6 ? pool->failures : 6;

        pool->failures++;
        pool->not_before_us = clock_mono_us() + ((int64_t)PAUSE_MIN_US << shift);
    }
    (void)pthread_cond_signal(&warm->changed);
    (void)pthread_mutex_unlock(&warm->lock);
    table_condemn(all, box->id, END_WARM_FAILED);
    warm_box_free(box);
}

static bool has_layer(const struct box_spec *spec, const char *layer)
{
    for (uint32_t i = 0; i < spec->layer_count; i++)
        if (strcmp(spec->layers[i], layer) == 0)
            return true;
    return false;
}

void warm_drop_layer(struct sandboxes *all, const char *layer)
{
    struct warm *warm = &all->warm;
    struct list dropped, *node;

    list_init(&dropped);
    (void)pthread_mutex_lock(&warm->lock);
    for (size_t i = 0; i < warm->pool_count;) {
        struct warm_pool *pool = &warm->pools[i];

        if (!has_layer(&pool->spec, layer)) {
            i++;
            continue;
        }
        while ((node = list_pop_front(&pool->boxes)))
            list_push_back(&dropped, node);
        /* The last one takes its place; its list has to be linked anew. */
        free(pool->setup);
        *pool = (struct warm_pool){0};
        list_init(&pool->boxes);
        if (--warm->pool_count != i) {
            struct warm_pool *last = &warm->pools[warm->pool_count];

            *pool = *last;
            list_init(&pool->boxes);
            while ((node = list_pop_front(&last->boxes)))
                list_push_back(&pool->boxes, node);
        }
    }
    (void)pthread_mutex_unlock(&warm->lock);
    condemn_dropped(all, &dropped);
}

void warm_kick(struct sandboxes *all)
{
    if (all->warm.thread_count == 0)
        return;
    (void)pthread_mutex_lock(&all->warm.lock);
    (void)pthread_cond_signal(&all->warm.changed);
    (void)pthread_mutex_unlock(&all->warm.lock);
}

static struct warm_box *pull_box(struct warm *warm, const char *id)
{
    struct list *pos;

    for (size_t i = 0; i < warm->pool_count; i++)
        list_for_each (pos, &warm->pools[i].boxes) {
            struct warm_box *box = container_of(pos, struct warm_box, link);

            if (strcmp(box->id, id) == 0) {
                list_remove(pos);
                warm->pools[i].count--;
                return box;
            }
        }
    return NULL;
}

/* With the lock. It is left to the thread that starts it. */
static bool starting_died(struct warm *warm, const char *id)
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

bool warm_died(struct sandboxes *all, const char *id)
{
    struct warm *warm = &all->warm;
    struct warm_box *box;
    bool starting;

    (void)pthread_mutex_lock(&warm->lock);
    starting = starting_died(warm, id) | settle_died(warm, id);
    box = pull_box(warm, id);
    (void)pthread_cond_signal(&warm->changed);
    (void)pthread_mutex_unlock(&warm->lock);
    warm_box_free(box); /* the caller condemns it */
    return starting;
}

/* Boxes in which programs run cost more than others. */
static size_t pool_max(const struct sandboxes *all, const struct warm_pool *pool)
{
    size_t max = pool->uses < target_of(all, pool) ? pool->uses : target_of(all, pool);

    return pool->setup[0] && max > SETTLED_MAX ? SETTLED_MAX : max;
}

/* Not now: its programs failed lately, or others are being started. */
static bool must_wait(const struct warm *warm, const struct warm_pool *pool)
{
    return pool->setup[0] &&
           (warm->settling_count >= SETTLING_MAX || pool->not_before_us > clock_mono_us());
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
        *out_full = best->count * 2 > target_of(all, best);
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
    warm_started(&all->warm, box);
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
static void *help_run(void *arg)
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
    return NULL;
}

static void *warm_run(void *arg)
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
            condemn_dropped(all, &dropped);
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
            pause = pause ? (pause * 2 < PAUSE_MAX_US ? pause * 2 : PAUSE_MAX_US) : PAUSE_MIN_US;
            not_before = clock_mono_us() + pause;
            log_warn("sandbox", "warm box: %s, trying again", err.message);
        } else {
            pause = 0;
        }
    }
    (void)pthread_mutex_unlock(&warm->lock);
    return NULL;
}

/* Blank boxes have the base template's limits. Of those for volumes there is none until one was asked for. */
static void heat_blank(struct sandboxes *all, const struct box_spec *base, struct list *dropped)
{
    struct box_spec blank = {
        .engine = base->engine, .limits = base->limits, .blank = true, .network = base->network};

    heat(&all->warm, &blank, STR(""), dropped)->uses = SIZE_MAX;
    blank.refuse_clones = true;
    heat(&all->warm, &blank, STR(""), dropped)->uses = 0;
}

/* The base template is hot from the start. */
static int heat_base(struct sandboxes *all, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_template template;
    struct box_spec spec;
    struct list dropped;

    if (store_template_find(all->store, STR(""), STR("base"), &arena, &template, err) < 0)
        return err->code == ERROR_NOT_FOUND ? 0 : -1;
    if (spec_from_template(&template, &spec, err) < 0)
        return -1;
    list_init(&dropped);
    (void)pthread_mutex_lock(&all->warm.lock); /* the keeper may drop layers already */
    heat_blank(all, &spec, &dropped);
    heat(&all->warm, &spec, STR(""), &dropped)->uses = all->warm_target; /* there is room for it */
    (void)pthread_mutex_unlock(&all->warm.lock);
    return 0;
}

int warm_start(struct sandboxes *all, struct error *err)
{
    static void *(*const runs[WARM_THREADS])(void *) = {warm_run, help_run};
    struct warm *warm = &all->warm;

    if (all->warm_target == 0 && all->blank_target == 0)
        return 0;
    if (heat_base(all, err) < 0)
        return -1;
    for (; warm->thread_count < WARM_THREADS; warm->thread_count++) {
        size_t i = warm->thread_count;
        int errnum = pthread_create(&warm->threads[i], NULL, runs[i], all);

        if (errnum)
            return error_set_errno(err, errnum, "start the warm pool");
    }
    return 0;
}

void warm_stop(struct sandboxes *all)
{
    struct warm *warm = &all->warm;
    struct list *node;

    (void)pthread_mutex_lock(&warm->lock);
    atomic_store(&warm->stopping, true);
    (void)pthread_cond_signal(&warm->changed);
    (void)pthread_cond_signal(&warm->scarce);
    (void)pthread_mutex_unlock(&warm->lock);
    for (size_t i = 0; i < warm->thread_count; i++)
        (void)pthread_join(warm->threads[i], NULL);
    warm->thread_count = 0;
    settle_stop(warm);
    for (size_t i = 0; i < warm->pool_count; i++) {
        while ((node = list_pop_front(&warm->pools[i].boxes))) {
            struct warm_box *box = container_of(node, struct warm_box, link);
            struct error err = {0};

            if (all->engine->ops->kill(all->engine, box->id, &err) < 0)
                log_warn("sandbox", "warm box: %s; the next start removes it", err.message);
            warm_box_free(box);
        }
        free(warm->pools[i].setup);
        warm->pools[i].setup = NULL;
    }
    warm->pool_count = 0;
}
