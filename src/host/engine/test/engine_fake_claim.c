/* Blank boxes of the fake engine, and what becomes of them. */
#include <stdio.h>
#include <stdlib.h>

#include "host/engine/engine_wire.h"
#include "host/engine/test/engine_fake_internal.h"

static int claim_box(struct fake *fake, struct fake_box *box, const struct box_spec *spec,
                     struct error *err)
{
    if (fake_must_fail(fake))
        return error_set(err, ERROR_INTERNAL, "fake engine: claim fails");
    if (fake_check_layers(fake, spec, err) < 0)
        return -1;
    if (spec->source[0] && !map_get(&fake->boxes, str_of(spec->source)))
        return error_set(err, ERROR_NOT_FOUND, "fake engine: no box '%s'", spec->source);
    box->spec = *spec;
    box->disk = fake_new_disk(fake, spec);
    return 0;
}

/* A stopped box goes on in it: its envd answers by the other name, and the disk is that box's. */
static int go_on_in(struct fake *fake, struct fake_box *blank, const struct box_spec *spec,
                    struct error *err)
{
    struct fake_box *box = map_get(&fake->boxes, str_of(spec->id));

    if (!box || box->running)
        return error_set(err, ERROR_NOT_FOUND, "fake engine: no stopped box '%s'", spec->id);
    (void)map_remove(&fake->boxes, str_of(spec->blank_id));
    if (fake->run_dir && blank->listener >= 0) {
        char path[sizeof(blank->socket_path)];

        memcpy(path, blank->socket_path, sizeof(path));
        (void)engine_socket_path(fake->run_dir, spec->id, blank->socket_path);
        (void)rename(path, blank->socket_path);
    }
    blank->disk = box->disk;
    blank->spec = *spec;
    (void)map_put(&fake->boxes, str_of(spec->id), blank);
    free(box);
    return 0;
}

int fake_claim(struct engine *engine, const struct box_spec *spec, struct box_info *out,
               struct error *err)
{
    auto_unlock struct fake *fake = fake_lock(engine);
    const char *id = spec->keep_disk ? spec->blank_id : spec->id;
    struct fake_box *box = map_get(&fake->boxes, str_of(id));
    int r;

    if (!box || !box->running || !box->spec.blank)
        return error_set(err, ERROR_NOT_FOUND, "fake engine: no blank box '%s'", id);
    if (box->spec.refuse_clones != box_spec_refuses_clones(spec))
        return error_set(err, ERROR_UNSUPPORTED, "fake engine: another filter");
    r = claim_box(fake, box, spec, err);
    if (r == 0 && spec->keep_disk)
        r = go_on_in(fake, box, spec, err);
    if (r < 0) {
        (void)map_remove(&fake->boxes, str_of(id));
        fake_silence(box);
        free(box);
        return -1;
    }
    *out = (struct box_info){.running = true, .address = box->address};
    memcpy(out->id, spec->id, ID_SIZE);
    return 0;
}
