/* Any bytes: a recipe, or refused as one. What was read can be walked, shown without secrets, and is read the same again. */
#include <stdint.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "domain/build/recipe.h"
#include "protocol/json/json_shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct str lookup(void *arg, struct str name)
{
    (void)arg;
    return name.len % 2 ? name : STR_NONE;
}

static void walk(const struct recipe *recipe, struct arena *arena)
{
    size_t number = 0;

    for (size_t i = 0; i < recipe->stage_count; i++)
        for (size_t k = 0; k < recipe->stages[i].step_count; k++) {
            const struct recipe_step *step = &recipe->stages[i].steps[k];

            if (step->number != ++number || !step->text.p)
                abort();
            for (size_t n = 0; n < step->args.count; n++)
                (void)recipe_expand(step->args.items[n], lookup, NULL, arena);
            if (step->from_stage.len && recipe_find_stage(recipe, step->from_stage, i) < 0)
                abort();
        }
    if (recipe->target >= recipe->stage_count || number != recipe->step_count)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_json json_t *tree = NULL, *again = NULL;
    auto_arena struct arena arena = {0};
    auto_free char *text = NULL;
    struct recipe recipe, second;
    struct error err = {0};

    (void)recipe_expand(str_n(data, size), lookup, NULL, &arena);
    if (recipe_parse(str_n(data, size), &arena, &tree, &recipe, &err) < 0)
        return 0;
    walk(&recipe, &arena);
    text = recipe_public_text(tree);
    if (recipe_parse(str_of(text), &arena, &again, &second, &err) < 0 ||
        second.step_count != recipe.step_count || second.secrets.count)
        abort();
    return 0;
}
