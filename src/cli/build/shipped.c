#include "cli/build/shipped.h"

#include <libgen.h>
#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "base/parts.h"
#include "cli/build/shipped_templates.h"
#include "dockerfile/dockerfile.h"
#include "protocol/json/json_shape.h"

const struct shipped_recipe shipped_recipes[] = {SHIPPED_RECIPES{NULL, NULL, NULL}};

const struct shipped_recipe *shipped_find(const char *name)
{
    for (const struct shipped_recipe *at = shipped_recipes; at->name; at++)
        if (strcmp(at->name, name) == 0)
            return at;
    return NULL;
}

const char *shipped_context(struct arena *arena)
{
    char path[PATH_MAX];

    part_path("interpreter", path, sizeof(path));
    return arena_printf(arena, "%s", dirname(path));
}

int shipped_open(const struct shipped_recipe *shipped, struct shipped_parts *out, struct error *err)
{
    struct dockerfile_source source = {.text = str_of(shipped->dockerfile)};

    *out = (struct shipped_parts){.context = {.dir = -1}};
    source.file = arena_printf(&out->arena, "templates/%s/Dockerfile", shipped->name);
    if (settings_parse(str_of(shipped->settings), shipped->name, &out->arena, &out->settings, err) <
            0 ||
        dockerfile_translate(&source, &out->arena, &out->recipe, err) < 0 ||
        context_open(&out->context, shipped_context(&out->arena), source.file, err) < 0)
        return -1;
    settings_apply(&out->settings, out->recipe.json);
    out->packs = xcalloc(out->recipe.file_count + 1, sizeof(*out->packs));
    for (size_t i = 0; i < out->recipe.file_count; i++) {
        if (pack_gather(&out->context, &out->recipe.files[i], &out->packs[i], err) < 0)
            return -1;
        pack_name(&out->recipe.files[i], &out->packs[i]);
    }
    return 0;
}

void shipped_close(struct shipped_parts *parts)
{
    for (size_t i = 0; parts->packs && i < parts->recipe.file_count; i++)
        pack_done(&parts->packs[i]);
    free(parts->packs);
    context_done(&parts->context);
    json_decref(parts->recipe.json);
    arena_done(&parts->arena);
}
