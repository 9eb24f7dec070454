/* Boxes made ahead: up to `blank` blank boxes, which become anything when they are claimed, a few more for
 * boxes with volumes, whose filter of system calls is another, once there were such, and `warm`
 * for each of the few sets of layers (and of what templates run in them: sandbox_settle.c) that were asked for last, so that
 * a create only has to hand one over; of those not more than the set was asked for so far, because a snapshot may be used
 * just once. sandbox_fill.c makes them.
 *
 * Boxes in the pool have no row, no route and no entry in the table. One that is no longer wanted
 * goes the way of all leftovers, by table_condemn(). */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_table.h"

enum {
    QUIET_US = 3000,      /* after a box was taken */
    FOR_VOLUMES_PART = 4, /* of the number of blank boxes */
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

void warm_condemn(struct sandboxes *all, struct list *dropped)
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
    warm_condemn(all, &dropped);
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
    warm_condemn(all, &dropped);
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

size_t warm_target_of(const struct sandboxes *all, const struct warm_pool *pool)
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
    if (spec->limits.yields && pool->count * 2 <= warm_target_of(all, pool))
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

void warm_put_back(struct sandboxes *all, const struct box_spec *spec, struct str setup,
                   struct warm_box *box)
{
    struct warm *warm = &all->warm;
    struct warm_pool *pool = NULL;

    (void)pthread_mutex_lock(&warm->lock);
    fill_started(warm, box);
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
        pool->not_before_us = clock_mono_us() + ((int64_t)WARM_PAUSE_US << shift);
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
    warm_condemn(all, &dropped);
}

void warm_kick(struct sandboxes *all)
{
    if (!all->warm.threads[0].started)
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

bool warm_died(struct sandboxes *all, const char *id)
{
    struct warm *warm = &all->warm;
    struct warm_box *box;
    bool starting;

    (void)pthread_mutex_lock(&warm->lock);
    starting = fill_died(warm, id) | settle_died(warm, id);
    box = pull_box(warm, id);
    (void)pthread_cond_signal(&warm->changed);
    (void)pthread_mutex_unlock(&warm->lock);
    warm_box_free(box); /* the caller condemns it */
    return starting;
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
    if (all->warm_target == 0 && all->blank_target == 0)
        return 0;
    if (heat_base(all, err) < 0)
        return -1;
    return fill_start(all, err);
}

void warm_stop(struct sandboxes *all)
{
    struct warm *warm = &all->warm;
    struct list *node;

    fill_stop(warm);
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
