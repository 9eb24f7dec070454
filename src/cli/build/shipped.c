/* The recipes of templates/, which are part of the program. */
#include <string.h>

#include "cli/build/build.h"
#include "cli/build/shipped_templates.h"

const struct shipped_recipe shipped_recipes[] = {SHIPPED_RECIPES{NULL, NULL, NULL}};

const struct shipped_recipe *shipped_find(const char *name)
{
    for (const struct shipped_recipe *at = shipped_recipes; at->name; at++)
        if (strcmp(at->name, name) == 0)
            return at;
    return NULL;
}
