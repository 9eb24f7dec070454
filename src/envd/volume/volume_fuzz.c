/* Requests for the content of a volume: the path up to the first line end, then the query. */
#include <stdlib.h>

#include "envd/volume/volume.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A place in the volume and nothing else: openat2() is the second lock, this is the first. */
static bool is_clean(const char *path)
{
    struct str rest = str_of(path);

    if (rest.len == 0 || rest.len >= PATH_MAX || path[0] != '/')
        return false;
    if (rest.len == 1)
        return true;
    rest = str_skip(rest, 1);
    while (rest.p) {
        struct str part = str_split(&rest, '/');

        if (part.len == 0 || part.len > NAME_MAX || str_is(part, ".") || str_is(part, ".."))
            return false;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_n(data, size), path = str_split(&rest, '\n'), kind;
    struct volume_query query = {0};
    struct error err = {0};
    int64_t number;

    if (volume_query_kind("v1", path, &kind) && !str_starts(path, STR(VOLUME_PREFIX "v1")))
        abort();
    if (volume_query_read(rest, &query, &err) == 0) {
        if (!is_clean(query.path) || volume_query_check(&query, &err) < 0 || query.depth < -1 ||
            (query.force && !query.force_given))
            abort();
    } else if (err.code == ERROR_NONE || !err.message[0]) {
        abort();
    }
    if (volume_query_number(rest, "seconds", &number, &err) == 0 && number < -1)
        abort();
    return 0;
}
