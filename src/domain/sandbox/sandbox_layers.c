/* Layers made of sandboxes' files: how they come and how they go.
 *
 * The store counts the users of each layer (snapshots and sandboxes). Between the moment in which a
 * layer is looked up, or made, and the moment in which its user is in the store, a pin in memory
 * stands for that user. A layer is deleted when it has neither. The order of the checks matters:
 * first the pin is looked at and the layer marked, so that nobody can pin it; then the store is asked
 * again; then it is deleted. Who wants a pin meanwhile waits, and then finds no template that has it.
 *
 * Layers of the platform (base images) are not in the store's table and never deleted here. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "domain/sandbox/sandbox_aside.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "domain/sandbox/sandbox_life.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_table.h"
#include "store/platform/store_layer.h"

#define PREFIX      "snap"
#define TREE_PREFIX "tree"
enum { COLLECT_MAX = 256 };

struct pin {
    size_t count;
    bool deleting;
};

void layers_init(struct sandboxes *all)
{
    (void)pthread_mutex_init(&all->layers.lock, NULL);
    cond_init(&all->layers.changed);
    map_init(&all->layers.pins);
}

void layers_done(struct sandboxes *all)
{
    struct map_entry *entry;

    map_for_each (&all->layers.pins, entry)
        free(entry->value);
    map_done(&all->layers.pins);
    (void)pthread_mutex_destroy(&all->layers.lock);
    (void)pthread_cond_destroy(&all->layers.changed);
}

static struct pin *pin_of(struct layers *layers, const char *name)
{
    struct pin *pin = map_get(&layers->pins, str_of(name));

    if (!pin) {
        pin = xcalloc(1, sizeof(*pin));
        (void)map_put(&layers->pins, str_of(name), pin);
    }
    return pin;
}

static void forget_pin(struct layers *layers, const char *name)
{
    const struct pin *pin = map_get(&layers->pins, str_of(name));

    if (pin && pin->count == 0 && !pin->deleting)
        free(map_remove(&layers->pins, str_of(name)));
}

static bool any_deleting(const struct layers *layers, const struct box_spec *spec)
{
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        const struct pin *pin = map_get(&layers->pins, str_of(spec->layers[i]));

        if (pin && pin->deleting)
            return true;
    }
    return false;
}

void layers_pin(struct sandboxes *all, const struct box_spec *spec)
{
    struct layers *layers = &all->layers;

    (void)pthread_mutex_lock(&layers->lock);
    while (any_deleting(layers, spec))
        (void)pthread_cond_wait(&layers->changed, &layers->lock);
    for (uint32_t i = 0; i < spec->layer_count; i++)
        pin_of(layers, spec->layers[i])->count++;
    (void)pthread_mutex_unlock(&layers->lock);
}

void layers_unpin(struct sandboxes *all, const struct box_spec *spec)
{
    struct layers *layers = &all->layers;

    (void)pthread_mutex_lock(&layers->lock);
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        struct pin *pin = map_get(&layers->pins, str_of(spec->layers[i]));

        assert(pin && pin->count > 0);
        pin->count--;
        forget_pin(layers, spec->layers[i]);
    }
    (void)pthread_mutex_unlock(&layers->lock);
}

static bool mark(struct layers *layers, const char *name)
{
    struct pin *pin;
    bool marked;

    (void)pthread_mutex_lock(&layers->lock);
    pin = pin_of(layers, name);
    marked = pin->count == 0;
    if (marked)
        pin->deleting = true;
    (void)pthread_mutex_unlock(&layers->lock);
    return marked;
}

static void unmark(struct layers *layers, const char *name)
{
    (void)pthread_mutex_lock(&layers->lock);
    pin_of(layers, name)->deleting = false;
    forget_pin(layers, name);
    (void)pthread_cond_broadcast(&layers->changed);
    (void)pthread_mutex_unlock(&layers->lock);
}

/* A marked one. */
static int delete_marked(struct sandboxes *all, const char *name, struct error *err)
{
    bool known = false, used = false;

    if (store_layer_state(all->store, str_of(name), &known, &used, err) < 0)
        return -1;
    if (used)
        return 0;
    warm_drop_layer(all, name);
    if (all->engine->ops->layer_delete(all->engine, name, err) < 0)
        return -1;
    log_info("sandbox", "deleted layer=%s", name);
    return known ? store_layer_forget(all->store, str_of(name), err) : 0;
}

static bool delete_one(struct sandboxes *all, const char *name)
{
    struct error err = {0};
    int result;

    if (!mark(&all->layers, name))
        return true; /* whoever pins it uses it, or lets us know */
    result = delete_marked(all, name, &err);
    unmark(&all->layers, name);
    if (result == 0)
        return true;
    if (err.code != ERROR_CONFLICT) /* boxes of it are just going */
        log_warn("sandbox", "layer=%s: %s, trying again", name, err.message);
    return false;
}

bool layers_collect(struct sandboxes *all)
{
    auto_arena struct arena arena = {0};
    struct error err = {0};
    struct str *names;
    size_t count = 0;
    bool done = true;

    if (store_layer_unused(all->store, COLLECT_MAX, &arena, &names, &count, &err) < 0) {
        log_warn("sandbox", "find unused layers: %s, trying again", err.message);
        return false;
    }
    for (size_t i = 0; i < count; i++)
        done &= delete_one(all, names[i].p);
    return done && count < COLLECT_MAX;
}

/* By a snapshot or a build, not by the operator. */
static bool is_made(struct str layer)
{
    return str_starts(layer, STR(PREFIX)) || str_starts(layer, STR(TREE_PREFIX));
}

int layers_recover(struct sandboxes *all, struct aside *aside, struct layer_info **out,
                   size_t *out_count, struct error *err)
{
    size_t count = 0;

    *out_count = 0;
    if (all->engine->ops->layer_list(all->engine, out, &count, err) < 0)
        return error_prefix(err, "list layers");
    for (size_t i = 0; i < count; i++) {
        struct layer_info *layer = &(*out)[i];
        bool known, used;

        layer->name[LAYER_NAME_SIZE - 1] = '\0';
        if (!is_made(str_of(layer->name)))
            continue;
        if (store_layer_state(all->store, str_of(layer->name), &known, &used, err) < 0)
            return -1;
        /* A copy that was made during a snapshot knows the layer, but not yet its user. */
        if (known && !used && aside->strange) {
            if (store_layer_forget(all->store, str_of(layer->name), err) < 0)
                return -1;
            known = false;
        }
        if (!known && !aside_keeps(aside, "layer", layer->name))
            (*out)[(*out_count)++] = *layer;
    }
    return 0;
}

void layers_delete(struct sandboxes *all, const struct layer_info *layers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        (void)delete_one(all, layers[i].name);
}

static void make_name(struct box_spec *out)
{
    char id[ID_SIZE];

    id_make(id);
    *out = (struct box_spec){.layer_count = 1};
    (void)snprintf(out->layers[0], LAYER_NAME_SIZE, PREFIX "%s", id + 1);
}

/* A snapshot holds what the snapshots below it held, so those are left out: they can go earlier, and a
 * snapshot of a snapshot is no deeper than the first. */
static struct str with_layer(struct str layers, const char *name, struct arena *arena)
{
    auto_buf struct buf text = {0};

    buf_init(&text, BOX_LAYERS_MAX * LAYER_NAME_SIZE);
    while (layers.len) {
        struct str layer = str_split(&layers, ',');

        if (!str_starts(layer, STR(PREFIX)))
            (void)buf_printf(&text, "%.*s,", STR_ARG(layer));
    }
    (void)buf_printf(&text, "%s", name);
    return arena_str(arena, buf_str(&text));
}

/* The snapshot among the layers, '' = none. */
static struct str snapshot_of(struct str layers)
{
    while (layers.len) {
        struct str layer = str_split(&layers, ',');

        if (str_starts(layer, STR(PREFIX)))
            return layer;
    }
    return STR("");
}

static int seal_owned(struct sandboxes *all, const struct sandbox *sandbox, struct arena *arena,
                      struct sealed *out, struct error *err)
{
    const char *name = out->pin.layers[0];
    struct layer_info info = {0};
    struct box_spec spec;

    if (store_sandbox_get(all->store, str_of(sandbox->id), arena, &out->row, err) < 0)
        return -1;
    out->layers = with_layer(out->row.layers, name, arena);
    if (spec_set_layers(out->layers, &spec, err) < 0 ||
        store_layer_add(all->store, str_of(name), out->row.team_id, clock_wall_us(), err) < 0 ||
        all->engine->ops->snapshot(all->engine, sandbox->id, name, &info, err) < 0 ||
        store_layer_size(all->store, str_of(name), snapshot_of(out->row.layers),
                         (int64_t)info.bytes, &out->bytes, err) < 0)
        return -1;
    log_info("sandbox", "sealed id=%s layer=%s bytes=%llu stood_still_us=%llu", sandbox->id, name,
             (unsigned long long)info.bytes, (unsigned long long)info.frozen_us);
    return 0;
}

int layers_seal(struct sandboxes *all, struct str team_id, struct str id, struct arena *arena,
                struct sealed *out, struct error *err)
{
    struct table_claim claim = {.to = SANDBOX_SEALING};
    struct error ignored = {0};
    struct sandbox *sandbox;
    int result;

    make_name(&out->pin);
    if (table_claim(all, team_id, id, &claim, &sandbox, err) < 0)
        return -1;
    layers_pin(all, &out->pin);
    result = seal_owned(all, sandbox, arena, out, err);
    if (!table_sealed(all, sandbox))
        (void)sandbox_teardown(all, sandbox, &ignored);
    if (result == 0)
        return 0;
    layers_unpin(all, &out->pin);
    layers_collect_soon(all);
    return -1;
}
