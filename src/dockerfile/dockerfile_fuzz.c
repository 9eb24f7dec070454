/* Any bytes as a Dockerfile: a recipe whose steps have what steps must have, or an error with a place; and as a
 * .dockerignore. */
#include <stdint.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "dockerfile/pattern.h"
#include "dockerfile/translate.h"
#include "protocol/json/json_shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_steps(const json_t *stage)
{
    const json_t *steps = json_object_get(stage, "steps");

    if (!json_is_array(steps))
        abort();
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *step = json_array_get(steps, i);

        if (!json_is_string(json_object_get(step, "type")) ||
            json_integer_value(json_object_get(step, "line")) < 1 ||
            (!json_object_get(step, "args") && !json_object_get(step, "exec")))
            abort();
    }
}

static void check_recipe(const struct dockerfile_recipe *recipe)
{
    const json_t *stages = json_object_get(recipe->json, "stages");
    auto_free char *text = json_text(recipe->json);

    if (!text || (!stages && !json_object_get(recipe->json, "steps")))
        abort();
    if (!stages)
        check_steps(recipe->json);
    for (size_t i = 0; i < json_array_size(stages); i++)
        check_steps(json_array_get(stages, i));
    for (size_t i = 0; i < recipe->file_count; i++)
        if (!json_is_object(recipe->files[i].step))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct pair args[] = {{STR_INIT("A"), STR_INIT("$x\\ 'y")},
                                       {STR_INIT("B"), {NULL, 0}}};
    auto_arena struct arena arena = {0};
    struct dockerfile_source source = {
        .text = str_n(data, size), .file = "Dockerfile", .args = args, .arg_count = 2};
    struct ignore ignore;
    struct dockerfile_recipe recipe;
    struct error err = {0};

    if (dockerfile_translate(&source, &arena, &recipe, &err) == 0)
        check_recipe(&recipe);
    else if (err.code == ERROR_NONE || !strstr(err.message, "Dockerfile"))
        abort();
    json_decref(recipe.json);
    if (ignore_parse(source.text, ".dockerignore", &arena, &ignore, &err) == 0)
        (void)ignore_matches(&ignore, STR("src/deep/name.txt"));
    return 0;
}
