/* Trees that are not made by steps: images, bootstraps. The server does not touch what is in them: a box of its own fills the
 * tree, which is sealed when the box is gone. */
#include "domain/build/build_internal.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/template/template.h"
#include "store/platform/store_layer.h"

int fill_base(struct stage *stage, struct str *out_layers, struct error *err)
{
    struct store_template base;

    if (template_find(stage->build->all->config.store, stage->build->row.team_id,
                      STR(TEMPLATE_BASE_ALIAS), &stage->arena, &base, err) < 0)
        return -1;
    *out_layers = base.layers;
    return 0;
}

int fill_seal(struct stage *stage, const char *name, int64_t *out_bytes, struct error *err)
{
    struct engine *engine = stage->build->all->config.engine;
    struct layer_info info = {0};

    if (engine->ops->layer_seal(engine, name, &info, err) < 0 ||
        store_layer_size(stage->build->all->config.store, str_of(name), STR(""),
                         (int64_t)info.bytes, out_bytes, err) < 0)
        return error_prefix(err, "seal the files of what it begins from");
    return 0;
}

int fill_run(struct stage *stage, struct build_box *box, const char *const *argv, const char *what,
             struct error *err)
{
    struct log_stream out;
    struct build_command command = {.argv = argv, .cwd = "/", .spool_fd = -1, .out = &out};
    int r;

    log_stream_open(&out, &stage->build->log, BASE_STEP, STORE_LEVEL_INFO, "[base] ");
    r = build_box_must(box, &command, what, err);
    log_stream_close(&out);
    return r;
}

int fill_provision(struct stage *stage, struct build_box *box, struct error *err)
{
    static const char *const argv[] = {"/run/feed/unpack", "provision", "--root", "/run/layer",
                                       NULL};

    return fill_run(stage, box, argv, "make it a sandbox's root", err);
}

int fill_take(struct stage *stage, const char *name, struct str *out_layers, struct error *err)
{
    struct box_spec pin = {0};

    *out_layers = arena_str(&stage->arena, str_of(name));
    if (spec_set_layers(*out_layers, &pin, err) < 0)
        return -1;
    stage_keep(stage, &pin);
    return 0;
}
