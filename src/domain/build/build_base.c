/* What a stage begins from: the platform's base, a template, another stage, an image, or a release of Debian. */
#include <string.h>

#include "base/alloc.h"
#include "domain/build/build_internal.h"
#include "domain/template/template.h"
#include "protocol/json/json_shape.h"

static void begin_key(struct stage *stage)
{
    struct key_maker *maker = key_new("base");

    key_add(maker, stage->layers);
    key_take(maker, stage->key);
}

static void add_env_json(struct stage *stage, struct str text)
{
    auto_json json_t *env = NULL;
    struct error ignored;
    const char *name;
    json_t *value;

    if (!text.len || json_parse(text, &env, &ignored) < 0)
        return;
    json_object_foreach (env, name, value)
        if (json_is_string(value))
            stage_set_env(stage, str_of(name), str_of(json_string_value(value)));
}

/* With all that sandboxes of it have. */
static int begin_template(struct stage *stage, struct str name, struct error *err)
{
    struct build *build = stage->build;
    struct store_template template;

    if (template_find(build->all->config.store, build->row.team_id, name, &stage->arena, &template,
                      err) < 0)
        return -1;
    if (!template.layers.len)
        return error_set(err, ERROR_NOT_FOUND, "template '%.*s' was never built", STR_ARG(name));
    if (stage_set_layers(stage, template.layers, err) < 0)
        return -1;
    add_env_json(stage, template.env);
    if (template.default_user.len)
        stage->user = template.default_user;
    stage->workdir = template.workdir.p ? template.workdir : STR("");
    stage->start_cmd = template.start_cmd.p ? template.start_cmd : STR("");
    stage->ready_cmd = template.ready_cmd.p ? template.ready_cmd : STR("");
    return 0;
}

static int begin_stage(struct stage *stage, struct error *err)
{
    const struct recipe *recipe = &stage->build->recipe;
    const struct stage *from =
        &stage->build->stages[recipe_find_stage(recipe, stage->recipe->from_name, stage->index)];

    if (stage_set_layers(stage, from->layers, err) < 0)
        return -1;
    for (size_t i = 0; i < from->env_count; i++)
        stage_set_env(stage, from->env[i].name, from->env[i].value);
    stage->user = arena_str(&stage->arena, from->user);
    stage->workdir = arena_str(&stage->arena, from->workdir);
    stage->start_cmd = arena_str(&stage->arena, from->start_cmd);
    stage->ready_cmd = arena_str(&stage->arena, from->ready_cmd);
    stage->ran = from->ran && recipe->force;
    return 0;
}

/* By the rules of Dockerfiles an image says who runs in it and where; by E2B's that is always `user` in his home. */
static int take_image(struct stage *stage, const struct image_tree *image, struct error *err)
{
    if (stage_set_layers(stage, image->layers, err) < 0)
        return -1;
    for (size_t i = 0; i < image->env.count; i++)
        stage_set_env(stage, image->env.items[i].name, image->env.items[i].value);
    if (!stage->build->recipe.docker)
        return 0;
    if (image->user.len)
        stage->user = image->user;
    if (image->workdir.len)
        stage->workdir = image->workdir;
    return 0;
}

static int begin_image(struct stage *stage, struct error *err)
{
    const struct recipe_stage *recipe = stage->recipe;
    bool blobs = recipe->from == RECIPE_FROM_BLOBS;
    struct build_image_source source = {.team_id = stage->build->row.team_id,
                                        .reference = blobs ? STR_NONE : recipe->from_name,
                                        .blobs = blobs ? recipe->from_name : STR_NONE,
                                        .username = recipe->username,
                                        .password = recipe->password};
    struct image_tree image = {0};

    if (recipe->amazon)
        return error_set(err, ERROR_UNSUPPORTED,
                         "image '%.*s': Amazon's access keys are not understood; give the user "
                         "name AWS and what 'aws ecr get-login-password' prints",
                         STR_ARG(recipe->from_name));
    if (image_tree(stage, &source, &image, err) < 0)
        return -1;
    return take_image(stage, &image, err);
}

static int begin_bootstrap(struct stage *stage, struct error *err)
{
    struct str layers;

    if (bootstrap_tree(stage, &layers, err) < 0)
        return -1;
    return stage_set_layers(stage, layers, err);
}

/* A number, or what the image says as "user:group". */
static int settle_user(struct stage *stage)
{
    struct str user = stage->user, name = str_split(&user, ':');

    stage->user = arena_str(&stage->arena, str_is(name, "0") || !name.len ? STR("root") : name);
    return 0;
}

static int begin(struct stage *stage, struct error *err)
{
    switch (stage->recipe->from) {
    case RECIPE_FROM_BASE:
        return begin_template(stage, STR(TEMPLATE_BASE_ALIAS), err);
    case RECIPE_FROM_TEMPLATE:
        return begin_template(stage, stage->recipe->from_name, err);
    case RECIPE_FROM_STAGE:
        return begin_stage(stage, err);
    case RECIPE_FROM_IMAGE:
    case RECIPE_FROM_BLOBS:
        return begin_image(stage, err);
    case RECIPE_FROM_BOOTSTRAP:
        return begin_bootstrap(stage, err);
    }
    return error_set(err, ERROR_INTERNAL, "no such base");
}

int stage_begin(struct stage *stage)
{
    const struct recipe *recipe = &stage->build->recipe;
    struct error err = {0};

    stage->user = recipe->docker ? STR("root") : STR("user");
    stage->workdir = recipe->docker ? STR("/") : STR("");
    if (recipe->user.len)
        stage->user = recipe->user;
    if (recipe->workdir.len)
        stage->workdir = recipe->workdir;
    stage->start_cmd = stage->ready_cmd = STR("");
    if (begin(stage, &err) < 0)
        return stage_fail(stage, BASE_STEP, &err);
    (void)settle_user(stage);
    stage->workdir = arena_str(&stage->arena, stage->workdir);
    for (size_t i = 0; i < recipe->env.count; i++)
        stage_set_env(stage, recipe->env.items[i].name, recipe->env.items[i].value);
    begin_key(stage);
    return 0;
}
