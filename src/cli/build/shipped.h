/* The recipes of templates/, which are part of the program, and the programs that they copy, which lie beside it. */
#pragma once

#include "cli/build/context.h"
#include "cli/build/settings.h"

struct shipped_recipe {
    const char *name, *dockerfile, *settings;
};
extern const struct shipped_recipe shipped_recipes[]; /* ended by a name of NULL */
const struct shipped_recipe *shipped_find(const char *name);
/* The directory that they copy from. */
const char *shipped_context(struct arena *arena);

/* One as a server takes it: its size, its recipe, and the files that this names. */
struct shipped_parts {
    struct arena arena;
    struct build_settings settings;
    struct dockerfile_recipe recipe;
    struct context context;
    struct pack *packs; /* as recipe.files */
};

/* shipped_close() also after a failure. */
int shipped_open(const struct shipped_recipe *shipped, struct shipped_parts *out,
                 struct error *err);
void shipped_close(struct shipped_parts *parts);
