#include "runtime/core/words.h"

#include <string.h>

#include "provider/core/provider_ops.h"

bool runtime_provider_word(struct str name, char out[RUNTIME_NAME_MAX + 1])
{
    name = str_trim(name);
    if (name.len == 0 || !str_copy(name, out, RUNTIME_NAME_MAX + 1))
        return false;
    str_lower(str_of(out), out);
    return true;
}

const char *runtime_provider_type(const char *word)
{
    const struct provider_type *type =
        strcmp(word, "runner") == 0 ? NULL : provider_type_find(word);

    return type ? type->ops->type : word;
}

bool runtime_name_valid(struct str name)
{
    if (name.len == 0 || name.len > RUNTIME_NAME_MAX)
        return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.p[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');

        if (!plain && (i == 0 || (c != '.' && c != '_' && c != '-')))
            return false;
    }
    return true;
}
