#include "base/extra_absent.h"

#include <string.h>

const char *extra_absent(const char *kind, struct str word)
{
    for (const struct extra_word *at = extra_absent_words; at->extra; at++)
        if (strcmp(at->kind, kind) == 0 && str_is(word, at->word))
            return at->extra;
    return NULL;
}

static bool begins_like(struct str path, const char *pattern)
{
    struct str rest = path, wanted = str_of(pattern);

    while (wanted.p) {
        struct str segment = str_split(&wanted, '/');

        if (!rest.p)
            return false;
        if (!str_eq(str_split(&rest, '/'), segment) && !str_is(segment, "*"))
            return false;
    }
    return true;
}

const char *extra_absent_path(struct str path)
{
    for (const struct extra_word *at = extra_absent_words; at->extra; at++)
        if (strcmp(at->kind, "path") == 0 && begins_like(path, at->word))
            return at->extra;
    return NULL;
}

int extra_absent_error(const char *extra, struct error *err)
{
    return error_set(err, ERROR_UNSUPPORTED,
                     "not built in: this build has no '%s' (meson -Dextras=%s)", extra, extra);
}
