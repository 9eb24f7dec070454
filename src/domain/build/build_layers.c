/* Layers that builds make. One is known to the store before it is there, and pinned until something uses it, so that neither
 * a crash nor the collector of unused layers can come between. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "domain/build/build_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "store/platform/store_layer.h"

static struct box_spec only(const char *name)
{
    struct box_spec spec = {.layer_count = 1};

    (void)snprintf(spec.layers[0], LAYER_NAME_SIZE, "%s", name);
    return spec;
}

int layer_new(struct build *build, const char *prefix, char out[LAYER_NAME_SIZE], struct error *err)
{
    struct box_spec pin;
    char id[ID_SIZE];

    id_make(id);
    (void)snprintf(out, LAYER_NAME_SIZE, "%s%s", prefix, id + 1);
    pin = only(out);
    layers_pin(build->all->config.sandboxes, &pin);
    if (store_layer_add(build->all->config.store, str_of(out), build->row.team_id, clock_wall_us(),
                        err) == 0)
        return 0;
    layers_unpin(build->all->config.sandboxes, &pin);
    return -1;
}

void layer_drop(struct build *build, const char *name)
{
    struct box_spec pin = only(name);

    layers_unpin(build->all->config.sandboxes, &pin);
    layers_collect_soon(build->all->config.sandboxes);
}

static bool is_snapshot(struct str name)
{
    return str_starts(name, STR("snap"));
}

/* The snapshot among them; "" = none. */
static struct str snapshot_of(struct str layers)
{
    while (layers.len) {
        struct str layer = str_split(&layers, ',');

        if (is_snapshot(layer))
            return layer;
    }
    return STR("");
}

/* A new layer in the place of the snapshot, whose files it has too. */
static struct str with_layer(struct str layers, const char *name, struct arena *arena)
{
    auto_buf struct buf text = {0};

    buf_init(&text, (BOX_LAYERS_MAX + 1) * LAYER_NAME_SIZE);
    while (layers.len) {
        struct str layer = str_split(&layers, ',');

        if (!is_snapshot(layer))
            (void)buf_printf(&text, "%.*s,", STR_ARG(layer));
    }
    (void)buf_printf(&text, "%s", name);
    return arena_str(arena, buf_str(&text));
}

/* The stage has the new layers pinned by then; the pin of the making is let go. */
static int take_layer(struct stage *stage, const char *name, struct error *err)
{
    struct box_spec pin = only(name);
    int r = stage_set_layers(stage, with_layer(stage->layers, name, &stage->arena), err);

    layers_unpin(stage->build->all->config.sandboxes, &pin);
    return r;
}

int stage_seal(struct stage *stage, int64_t *out_bytes, struct error *err)
{
    struct build *build = stage->build;
    struct engine *engine = build->all->config.engine;
    struct layer_info info = {0};
    char name[LAYER_NAME_SIZE];

    if (layer_new(build, "snap", name, err) < 0)
        return -1;
    if (engine->ops->snapshot(engine, stage->box.id, name, &info, err) < 0 ||
        store_layer_size(build->all->config.store, str_of(name), snapshot_of(stage->layers),
                         (int64_t)info.bytes, out_bytes, err) < 0) {
        layer_drop(build, name);
        return error_prefix(err, "seal the files of a step");
    }
    *out_bytes = (int64_t)info.bytes;
    return take_layer(stage, name, err);
}

/* Twice what the boxes may write: files that were copied by reference take their own space in a tree. */
static uint64_t tree_limit(const struct build *build)
{
    int64_t own = build->row.disk_mb, least = build->all->config.disk_mb;

    return (uint64_t)(own > least ? own : least) * 2 << 20;
}

static int publish(struct stage *stage, struct str snapshot, int64_t *out_bytes, struct error *err)
{
    struct build *build = stage->build;
    struct engine *engine = build->all->config.engine;
    char from[LAYER_NAME_SIZE], name[LAYER_NAME_SIZE];
    struct layer_info info = {0};

    (void)str_copy(snapshot, from, sizeof(from));
    if (layer_new(build, "tree", name, err) < 0)
        return -1;
    if (engine->ops->layer_publish(engine, from, name, tree_limit(build), &info, err) < 0 ||
        store_layer_size(build->all->config.store, str_of(name), STR(""), (int64_t)info.bytes,
                         out_bytes, err) < 0) {
        layer_drop(build, name);
        return error_prefix(err, "publish the files of the template");
    }
    return take_layer(stage, name, err);
}

int stage_publish(struct stage *stage, struct error *err)
{
    struct str snapshot = snapshot_of(stage->layers);
    struct key_maker *maker;
    int64_t bytes = 0;
    char key[KEY_SIZE];
    int r;

    if (!snapshot.len)
        return 0;
    maker = key_new("publish");
    key_add(maker, stage->build->row.team_id);
    key_add(maker, stage->layers);
    key_take(maker, key);
    r = stage_take_cached(stage, key, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    if (publish(stage, snapshot, &bytes, err) < 0)
        return -1;
    return cache_put(stage->build, key, stage->layers, STR_NONE, bytes, err);
}
