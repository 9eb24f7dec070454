/* Layers, volumes and space: one pool for the boxes of all engines. */
#include "host/warden/warden_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "host/disk/disk.h"
#include "host/disk/tree.h"

/* With less than this in the pool no box should be added to those there are. */
enum { FULL_PERCENT = 5, FULL_MAX = 128 << 20 };

static bool layer_used(const struct warden *warden, const char *layer)
{
    for (size_t i = 0; i < warden->engine_count; i++)
        if (warden->engines[i]->ops->uses_layer(warden->engines[i], layer))
            return true;
    return false;
}

int warden_layer_delete(struct warden *warden, const char *layer, struct error *err)
{
    if (layer_used(warden, layer))
        return error_set(err, ERROR_CONFLICT, "layer '%s' is in use", layer);
    return layer_is_tree(layer) ? tree_delete(warden->trees, layer, err)
                                : disk_layer_delete(warden->disk, layer, err);
}

static void tell(const char *layer, const struct tree_info *tree, struct layer_info *out)
{
    *out = (struct layer_info){.bytes = tree->bytes};
    (void)str_copy(str_of(layer), out->name, sizeof(out->name));
}

int warden_layer_seal(struct warden *warden, const char *layer, struct layer_info *out,
                      struct error *err)
{
    struct tree_info tree;

    if (layer_used(warden, layer))
        return error_set(err, ERROR_CONFLICT, "layer '%s' is in use", layer);
    if (tree_seal(warden->trees, layer, &tree, err) < 0)
        return -1;
    tell(layer, &tree, out);
    return 0;
}

int warden_layer_publish(struct warden *warden, const char *snapshot, const char *layer,
                         uint64_t limit_bytes, struct layer_info *out, struct error *err)
{
    auto_close int fd = -1;
    struct tree_info tree;

    if (disk_layer_open(warden->disk, snapshot, &fd, err) < 0 ||
        tree_copy(warden->trees, fd, layer, limit_bytes, &tree, err) < 0)
        return -1;
    tell(layer, &tree, out);
    return 0;
}

/* Snapshots are looked after by their file system, and what the operator installed by him. */
int warden_layer_check(struct warden *warden, const char *layer, struct error *err)
{
    if (layer_is_tree(layer))
        return tree_check(warden->trees, layer, err);
    if (disk_layer_exists(warden->disk, layer) ||
        faccessat(warden->boxes.layers_fd, layer, F_OK, 0) == 0)
        return 0;
    return error_set(err, ERROR_NOT_FOUND, "no layer '%s'", layer);
}

static bool tree_used(const char *name, void *arg)
{
    return layer_used(arg, name);
}

static void end_filler(const char *name, void *arg)
{
    struct warden *warden = arg;

    for (size_t i = 0; i < warden->engine_count; i++)
        warden->engines[i]->ops->end_filler(warden->engines[i], name);
}

void warden_trees_tend(struct warden *warden)
{
    trees_tend(warden->trees,
               &(struct trees_tending){.used = tree_used, .overfull = end_filler, .arg = warden});
}

static int compare_infos(const void *a, const void *b)
{
    return strcmp(((const struct layer_info *)a)->name, ((const struct layer_info *)b)->name);
}

struct listing {
    const char *after;
    struct layer_info *infos;
    size_t count;
};

/* One that went since the list was made, or is none of ours, is left out. */
static void add_layers(struct listing *listing, char **names, size_t count,
                       int (*bytes)(const struct warden *, const char *, uint64_t *),
                       const struct warden *warden)
{
    listing->infos =
        xrealloc(listing->infos, (listing->count + count + 1) * sizeof(*listing->infos));
    for (size_t i = 0; i < count; i++) {
        struct layer_info *info = &listing->infos[listing->count];

        *info = (struct layer_info){0};
        listing->count += strcmp(names[i], listing->after) > 0 &&
                          str_copy(str_of(names[i]), info->name, sizeof(info->name)) &&
                          bytes(warden, names[i], &info->bytes) == 0;
        free(names[i]);
    }
    free(names);
}

static int snapshot_bytes(const struct warden *warden, const char *name, uint64_t *out)
{
    struct error ignored;

    return disk_layer_bytes(warden->disk, name, out, &ignored);
}

static int tree_bytes(const struct warden *warden, const char *name, uint64_t *out)
{
    struct error ignored;
    struct tree_info info;

    if (tree_stat(warden->trees, name, &info, &ignored) < 0)
        return -1;
    *out = info.bytes;
    return 0;
}

int warden_layer_list(struct warden *warden, const char *after, struct layer_info *out, size_t max,
                      struct error *err)
{
    struct listing listing = {.after = after};
    size_t count;
    char **names;

    if (disk_layer_list(warden->disk, &names, &count, err) < 0)
        return -1;
    add_layers(&listing, names, count, snapshot_bytes, warden);
    if (trees_list(warden->trees, &names, &count, err) < 0) {
        free(listing.infos);
        return -1;
    }
    add_layers(&listing, names, count, tree_bytes, warden);
    qsort(listing.infos, listing.count, sizeof(*listing.infos), compare_infos);
    count = listing.count < max ? listing.count : max;
    memcpy(out, listing.infos, count * sizeof(*out));
    free(listing.infos);
    return (int)count;
}

int warden_volume_create(struct warden *warden, const char *name, uint64_t limit_bytes,
                         struct error *err)
{
    return disk_volume_create(warden->disk, name, limit_bytes, err);
}

int warden_volume_usage(struct warden *warden, const char *name, uint64_t *out_bytes,
                        struct error *err)
{
    return disk_volume_used(warden->disk, name, out_bytes, err);
}

static bool volume_used(const struct warden *warden, const char *name)
{
    for (size_t i = 0; i < warden->engine_count; i++)
        if (warden->engines[i]->ops->uses_volume(warden->engines[i], name))
            return true;
    return false;
}

int warden_volume_delete(struct warden *warden, const char *name, struct error *err)
{
    int r;

    (void)pthread_mutex_lock(&warden->volume_lock);
    r = volume_used(warden, name) ? error_set(err, ERROR_CONFLICT, "volume '%s' is in use", name)
                                  : disk_volume_delete(warden->disk, name, err);
    (void)pthread_mutex_unlock(&warden->volume_lock);
    return r;
}

int warden_space(struct warden *warden, struct engine_space *out, struct error *err)
{
    struct disk_space space;
    uint64_t little;

    if (disk_space(warden->disk, &space, err) < 0)
        return -1;
    little = space.pool_bytes / 100 * FULL_PERCENT;
    *out = (struct engine_space){
        .pool_bytes = space.pool_bytes,
        .pool_free = space.pool_free,
        .host_bytes = space.host_bytes,
        .host_used = space.host_used,
        .host_free = space.host_free,
        .held = space.held,
        .full = space.pool_free < (little < FULL_MAX ? little : FULL_MAX),
    };
    return 0;
}
