/* What lies in a box besides its root: volumes, the feed and the tree that it fills. */
#include <string.h>

#include "host/disk/tree.h"
#include "host/native/box.h"

void box_places_choose(const struct box_spec *spec, struct box_places *out)
{
    memcpy(out->at, spec->volumes, sizeof(spec->volumes));
    out->count = spec->volume_count;
    if (spec->feed)
        out->at[out->count++] = (struct box_volume){.path = "/run/feed"};
    if (spec->fill[0])
        out->at[out->count++] = (struct box_volume){.path = "/run/layer"};
}

int box_places_fill(const struct boxes *all, const struct box_spec *spec, int *out_fd,
                    struct error *err)
{
    if (!spec->fill[0])
        return 0;
    return tree_begin(all->trees, spec->fill, spec->limits.disk_bytes, out_fd, err);
}

static int mount_volume(const struct boxes *all, const char *name, int userns_fd, int *out_fd,
                        struct error *err)
{
    int r;

    (void)pthread_mutex_lock(all->volume_lock);
    r = box_mount_volume(all, name, userns_fd, out_fd, err);
    (void)pthread_mutex_unlock(all->volume_lock);
    return r;
}

int box_places_mount(const struct boxes *all, const struct box_spec *spec, size_t place,
                     const struct box_place *of, int *out_fd, struct error *err)
{
    if (place < spec->volume_count)
        return mount_volume(all, spec->volumes[place].name, of->userns_fd, out_fd, err);
    if (spec->feed && place == spec->volume_count)
        return box_mount_feed(all, spec->id, of->userns_fd, out_fd, err);
    return box_mount_fill(of->fill_fd, of->userns_fd, out_fd, err);
}
