#include "store/core/store_name.h"

static bool all_of(struct str s, bool dots)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
              (dots && c == '.')))
            return false;
    }
    return s.len > 0 && s.len <= STORE_NAME_MAX;
}

bool store_name_valid(struct str name)
{
    return all_of(name, false);
}

bool store_name_parse(struct str text, struct arena *arena, struct store_name *out)
{
    struct str tag, name;

    *out = (struct store_name){.tag = STR("default")};
    if (text.len == 0 || text.len > 4 * STORE_NAME_MAX)
        return false;
    tag = arena_lower(arena, text);
    name = str_split(&tag, ':');
    if (tag.p) {
        out->tag = tag;
        out->tag_given = true;
        if (!all_of(tag, true))
            return false;
    }
    if (str_find(name, '/') >= 0) {
        out->team = str_split(&name, '/');
        if (!all_of(out->team, false))
            return false;
    }
    out->name = name;
    return all_of(name, false);
}
