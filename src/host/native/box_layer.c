/* Snapshots and copies of boxes.
 *
 * A snapshot of a running box: what it wrote is brought to disk while it runs, which takes as long as
 * it takes; then the box stands still for the moment of the snapshot itself. A mark in RUN says why it
 * stands still, so that a warden which finds it so after a crash lets it go on. */
#include "host/native/box.h"

#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "host/disk/disk.h"

enum { RESUME_TRIES = 3 };

/* A box that ended meanwhile has nothing to go on. */
static int try_resume(struct boxes *all, const struct box *box, struct error *err)
{
    if (box_fault("thaw", err) < 0)
        return -1;
    if (box_cgroup_freeze(all->cgroups, box->cgroup, false, err) < 0 && err->errnum != ENOENT)
        return -1;
    return box_record_still(all, box->id, false, err);
}

static int resume(struct boxes *all, const struct box *box, struct error *err)
{
    int r = -1;

    for (int i = 0; r < 0 && i < RESUME_TRIES; i++)
        r = try_resume(all, box, err);
    return r;
}

static int stand_still(struct boxes *all, const struct box *box, struct error *err)
{
    struct error ignored;

    if (box_fault("mark", err) == 0 && box_record_still(all, box->id, true, err) == 0 &&
        box_fault("freeze", err) == 0 &&
        box_cgroup_freeze(all->cgroups, box->cgroup, true, err) == 0)
        return 0;
    (void)resume(all, box, &ignored);
    return -1;
}

static int seal(struct boxes *all, const char *id, const char *layer, struct error *err)
{
    struct error ignored;

    if (box_fault("snapshot", err) < 0 || disk_layer_create(all->disk, id, layer, err) < 0)
        return -1;
    if (box_fault("sealed", err) < 0) {
        (void)disk_layer_delete(all->disk, layer, &ignored);
        return -1;
    }
    return 0;
}

static int seal_still(struct boxes *all, const struct box *box, const char *layer,
                      struct layer_info *out, struct error *err)
{
    struct error resume_err;
    int64_t since = clock_mono_us();
    int r;

    if (stand_still(all, box, err) < 0)
        return -1;
    r = seal(all, box->id, layer, err);
    if (resume(all, box, &resume_err) < 0) {
        log_error("warden", "box=%s stands still after a snapshot: %s", box->id,
                  resume_err.message);
        if (r == 0)
            (void)disk_layer_delete(all->disk, layer, err);
        *err = resume_err;
        return -1;
    }
    out->frozen_us = (uint64_t)(clock_mono_us() - since);
    return r;
}

static int snapshot(struct boxes *all, const struct box *box, const char *layer,
                    struct layer_info *out, struct error *err)
{
    bool moves =
        boxes_in_state(all, box->id, BOX_RUNNING) && !box_cgroup_frozen(all->cgroups, box->cgroup);
    struct error ignored;
    int r;

    if (box_fault("sync", err) < 0 || disk_layer_prepare(all->disk, box->id, &out->bytes, err) < 0)
        return -1;
    r = moves ? seal_still(all, box, layer, out, err) : seal(all, box->id, layer, err);
    if (r < 0)
        return -1;
    /* At worst the box has less room than it should. */
    if (disk_layer_settle(all->disk, box->id, &ignored) < 0)
        log_warn("warden", "box=%s disk limit after a snapshot: %s", box->id, ignored.message);
    return 0;
}

int box_snapshot(struct boxes *all, const char *id, const char *layer, struct layer_info *out,
                 struct error *err)
{
    struct box *box;
    int r;

    *out = (struct layer_info){0};
    (void)str_copy(str_of(layer), out->name, sizeof(out->name));
    if (boxes_hold(all, id, true, &box, err) < 0)
        return -1;
    r = disk_layer_exists(all->disk, layer)
            ? error_set(err, ERROR_EXISTS, "layer '%s' exists", layer)
            : snapshot(all, box, layer, out, err);
    boxes_release(all, box);
    return r < 0 ? error_prefix(err, "snapshot of box '%s'", id) : 0;
}

static int copy(struct boxes *all, const struct box_spec *spec, bool *out_shared, struct error *err)
{
    if (box_fault("copy", err) < 0 ||
        disk_box_copy(all->disk, spec->source, spec->id, out_shared, err) < 0)
        return -1;
    return box_fault("copied", err);
}

static int copy_still(struct boxes *all, const struct box *source, const struct box_spec *spec,
                      bool *out_shared, struct error *err)
{
    struct error resume_err;
    int r;

    if (stand_still(all, source, err) < 0)
        return -1;
    r = copy(all, spec, out_shared, err);
    if (resume(all, source, &resume_err) < 0) {
        log_error("warden", "box=%s stands still after a copy: %s", spec->source,
                  resume_err.message);
        *err = resume_err;
        return -1;
    }
    return r;
}

/* Held by the caller. */
static int copy_held(struct boxes *all, const struct box *source, const struct box_spec *spec,
                     bool *out_shared, struct error *err)
{
    bool moves = boxes_in_state(all, spec->source, BOX_RUNNING) &&
                 !box_cgroup_frozen(all->cgroups, source->cgroup);
    struct error ignored;
    int r;

    if (disk_box_settle_down(all->disk, spec->source, err) < 0)
        return -1;
    r = moves ? copy_still(all, source, spec, out_shared, err) : copy(all, spec, out_shared, err);
    if (r == 0 && *out_shared && disk_layer_settle(all->disk, spec->source, &ignored) < 0)
        log_warn("warden", "box=%s disk limit after a copy: %s", spec->source, ignored.message);
    return r;
}

int box_copy_disk(struct boxes *all, const struct box_spec *spec, int *out_dir_fd,
                  struct error *err)
{
    bool shared = false;
    struct box *box;
    int r;

    if (boxes_hold(all, spec->source, true, &box, err) < 0)
        return -1;
    r = copy_held(all, box, spec, &shared, err);
    boxes_release(all, box);
    if (r < 0)
        return error_prefix(err, "copy the files of box '%s'", spec->source);
    return disk_box_adopt(all->disk, spec->id, shared, spec->limits.disk_bytes, out_dir_fd, err);
}

void box_snapshot_recover(struct boxes *all, const struct box *box)
{
    struct error err;

    if (box_record_is_still(all, box->id) && resume(all, box, &err) < 0)
        log_error("warden", "box=%s stands still: %s", box->id, err.message);
}
