/* What stays when a box ends: disks, layers and volumes of the fake engine. */
#include "host/engine/test/engine_fake_internal.h"

#include "base/alloc.h"
#include "base/str.h"

int fake_stop(struct engine *engine, const char *id, struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct fake_box *box = map_get(&fake->boxes, str_of(id));

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: stop fails");
    if (!box)
        return fake_not_found(id, err);
    box->running = box->frozen = false;
    fake_silence(box);
    if (fake->fail_stops > 0) {
        fake->fail_stops--;
        box->end = BOX_END_EXITED;
        return error_set(err, ERROR_TIMEOUT, "fake engine: its processes did not end in time");
    }
    box->end = BOX_END_NONE;
    return 0;
}

int fake_snapshot(struct engine *engine, const char *id, const char *name, struct layer_info *out,
                  struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct fake_box *box = map_get(&fake->boxes, str_of(id));
    struct fake_layer *layer;

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: snapshot fails");
    if (!box)
        return fake_not_found(id, err);
    if (map_get(&fake->layers, str_of(name)))
        return error_set(err, ERROR_EXISTS, "fake engine: layer '%s' is there", name);
    fake_sleep(fake, &fake->snapshot_ms);
    box = map_get(&fake->boxes, str_of(id));
    if (!box)
        return fake_not_found(id, err);
    layer = xcalloc(1, sizeof(*layer));
    layer->disk = box->disk;
    (void)map_put(&fake->layers, str_of(name), layer);
    *out = (struct layer_info){.bytes = box->disk, .frozen_us = 10};
    (void)str_copy(str_of(name), out->name, sizeof(out->name));
    return 0;
}

static bool layer_used(struct fake *fake, const char *name)
{
    struct map_entry *entry;

    map_for_each (&fake->boxes, entry) {
        const struct fake_box *box = entry->value;

        for (uint32_t i = 0; i < box->spec.layer_count; i++)
            if (strcmp(box->spec.layers[i], name) == 0)
                return true;
        if (strcmp(box->spec.fill, name) == 0)
            return true;
    }
    return false;
}

int fake_layer_delete(struct engine *engine, const char *name, struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct fake_layer *layer = map_get(&fake->layers, str_of(name));

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: layer_delete fails");
    if (layer_used(fake, name))
        return error_set(err, ERROR_CONFLICT, "fake engine: layer '%s' is in use", name);
    if (layer)
        layer->deleted = true;
    return 0;
}

void fake_fill(struct fake *fake, const char *name)
{
    struct fake_layer *layer = map_get(&fake->layers, str_of(name));

    if (!layer) {
        layer = xcalloc(1, sizeof(*layer));
        (void)map_put(&fake->layers, str_of(name), layer);
    }
    *layer = (struct fake_layer){.filling = true};
}

static void tell(const char *name, const struct fake_layer *layer, struct layer_info *out)
{
    *out = (struct layer_info){.bytes = layer->disk};
    (void)str_copy(str_of(name), out->name, sizeof(out->name));
}

int fake_layer_seal(struct engine *engine, const char *name, struct layer_info *out,
                    struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct fake_layer *layer = map_get(&fake->layers, str_of(name));

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: layer_seal fails");
    if (!layer || layer->deleted)
        return error_set(err, ERROR_NOT_FOUND, "fake engine: no layer '%s'", name);
    if (layer_used(fake, name))
        return error_set(err, ERROR_CONFLICT, "fake engine: layer '%s' is in use", name);
    layer->filling = false;
    tell(name, layer, out);
    return 0;
}

int fake_layer_publish(struct engine *engine, const char *snapshot, const char *name,
                       uint64_t limit_bytes, struct layer_info *out, struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    const struct fake_layer *source = map_get(&fake->layers, str_of(snapshot));
    struct fake_layer *layer;

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: layer_publish fails");
    if (!source || source->deleted)
        return error_set(err, ERROR_NOT_FOUND, "fake engine: no layer '%s'", snapshot);
    if (!layer_is_tree(name))
        return error_set(err, ERROR_INVALID, "fake engine: '%s' is not a tree", name);
    if (limit_bytes && source->disk > limit_bytes)
        return error_set(err, ERROR_LIMIT, "fake engine: '%s' is too large", snapshot);
    if (map_get(&fake->layers, str_of(name)))
        return error_set(err, ERROR_EXISTS, "fake engine: layer '%s' is there", name);
    layer = xcalloc(1, sizeof(*layer));
    layer->disk = source->disk;
    (void)map_put(&fake->layers, str_of(name), layer);
    tell(name, layer, out);
    return 0;
}

int fake_layer_check(struct engine *engine, const char *name, struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    const struct fake_layer *layer = map_get(&fake->layers, str_of(name));

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: layer_check fails");
    if (!layer) /* installed, unless it is of a kind that is made */
        return layer_is_tree(name) || strncmp(name, "snap", 4) == 0
                   ? error_set(err, ERROR_NOT_FOUND, "fake engine: no layer '%s'", name)
                   : 0;
    if (layer->deleted || layer->filling)
        return error_set(err, ERROR_NOT_FOUND, "fake engine: no layer '%s'", name);
    return layer->damaged
               ? error_set(err, ERROR_INTERNAL, "fake engine: layer '%s' is damaged", name)
               : 0;
}

void engine_fake_damage(struct engine *engine, const char *layer)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct fake_layer *found = map_get(&fake->layers, str_of(layer));

    if (found)
        found->damaged = true;
}

int fake_layer_list(struct engine *engine, struct layer_info **out, size_t *out_count,
                    struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct map_entry *entry;
    size_t count = 0;

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: layer_list fails");
    *out = xcalloc(fake->layers.count + 1, sizeof(**out));
    map_for_each (&fake->layers, entry) {
        const struct fake_layer *layer = entry->value;

        if (layer->deleted || layer->filling)
            continue;
        (*out)[count].bytes = layer->disk;
        (void)str_copy(str_n(entry->key, entry->key_len), (*out)[count].name, LAYER_NAME_SIZE);
        count++;
    }
    *out_count = count;
    return 0;
}

int fake_usage(struct engine *engine, const char *id, struct box_usage *out, struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct fake_box *box = map_get(&fake->boxes, str_of(id));

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: usage fails");
    if (!box || !box->running)
        return fake_not_found(id, err);
    box->cpu_us += 1000;
    *out = (struct box_usage){.cpu_us = box->cpu_us,
                              .mem_bytes = 64 << 20,
                              .mem_cache_bytes = 16 << 20,
                              .disk_bytes = box->disk,
                              .pids = 3,
                              .frozen = box->frozen,
                              .network = {.sent_bytes = box->cpu_us,
                                          .sent_packets = box->cpu_us / 1000,
                                          .connections = 1}};
    return 0;
}

int fake_ports(struct engine *engine, const char *id, struct box_ports *out, struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    const struct fake_box *box = map_get(&fake->boxes, str_of(id));

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: ports fails");
    if (!box || !box->running)
        return fake_not_found(id, err);
    *out = (struct box_ports){.count = 2, .at = {{443, false}, {8080, true}}};
    return 0;
}

/* Not counted: it is asked now and then, and no test should depend on when. */
int fake_space(struct engine *engine, struct engine_space *out, struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    (void)err;
    *out = (struct engine_space){.pool_bytes = 16ull << 30,
                                 .pool_free = fake->full ? 1 << 20 : 8ull << 30,
                                 .host_bytes = 64ull << 30,
                                 .host_used = fake->full ? 62ull << 30 : 30ull << 30,
                                 .host_free = fake->full ? 0 : 32ull << 30,
                                 .held = fake->full,
                                 .full = fake->full};
    return 0;
}

void engine_fake_full(struct engine *engine, bool full)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    fake->full = full;
}

int fake_volume_create(struct engine *engine, const char *name, uint64_t disk_bytes,
                       struct error *err)
{
    (void)disk_bytes;
    auto_unlock struct fake *fake = fake_lock(engine);

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: volume_create fails");
    (void)map_put(&fake->volumes, str_of(name), fake);
    return 0;
}

int fake_volume_delete(struct engine *engine, const char *name, struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: volume_delete fails");
    (void)map_remove(&fake->volumes, str_of(name));
    return 0;
}

int fake_volume_usage(struct engine *engine, const char *name, uint64_t *out_bytes,
                      struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    if (fake_must_fail(fake) || !map_get(&fake->volumes, str_of(name)))
        return error_set(err, ERROR_INTERNAL, "fake engine: volume_usage fails");
    *out_bytes = 4096;
    return 0;
}

uint64_t engine_fake_disk(struct engine *engine, const char *id, uint64_t add)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct fake_box *box = map_get(&fake->boxes, str_of(id));

    return box ? box->disk += add : 0;
}

size_t engine_fake_layers(struct engine *engine)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    struct map_entry *entry;
    size_t count = 0;

    map_for_each (&fake->layers, entry)
        count += !((const struct fake_layer *)entry->value)->deleted;
    return count;
}

void engine_fake_slow(struct engine *engine, int snapshot_ms, int start_ms)
{
    auto_unlock struct fake *fake = fake_lock(engine);

    fake->snapshot_ms = snapshot_ms;
    fake->start_ms = start_ms;
}
