#include "protocol/http/http_path.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/encode.h"

bool http_path_match(const char *pattern, struct str path, struct str *raw, size_t max)
{
    struct str want = str_of(pattern);
    size_t n = 0;

    while (want.p && path.p) {
        struct str expected = str_split(&want, '/');
        struct str got = str_split(&path, '/');

        if (expected.len && expected.p[0] == '{') {
            if (got.len == 0 || n == max)
                return false;
            raw[n++] = got;
        } else if (!str_eq(expected, got)) {
            return false;
        }
    }
    return !want.p && !path.p;
}

bool http_path_decode(const struct str *raw, size_t max, struct arena *arena, struct str *params)
{
    for (size_t i = 0; i < max && raw[i].p; i++) {
        auto_buf struct buf text = {0};

        buf_init(&text, HTTP_URL_MAX);
        if (!url_decode(raw[i], false, &text) || memchr(text.p, '\0', text.len))
            return false;
        params[i] = arena_str(arena, buf_str(&text));
    }
    return true;
}

void http_allow_add(char allow[HTTP_ALLOW_SIZE], const char *method)
{
    size_t len = strlen(allow);

    if (!strstr(allow, method))
        (void)snprintf(allow + len, HTTP_ALLOW_SIZE - len, "%s%s", len ? ", " : "", method);
}
