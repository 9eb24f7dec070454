/* Parameters of the query. Unknown ones are ignored; one that cannot be understood is refused by
 * name. */
#include "base/encode.h"
#include "edge/api_runtime/v1_types.h"

int v1_query_str(struct v1_call *call, const char *name, struct str *out, struct error *err)
{
    auto_buf struct buf value = {0};

    *out = STR_NONE;
    buf_init(&value, HTTP_URL_MAX);
    if (!url_query_get(call->query, name, &value) || value.len == 0)
        return 0;
    if (memchr(value.p, '\0', value.len) || !str_valid_utf8(buf_str(&value)))
        return error_set(err, ERROR_INVALID, "query parameter '%s' is badly encoded", name);
    *out = arena_str(&call->arena, buf_str(&value));
    return 0;
}

int v1_query_int(struct v1_call *call, const char *name, int64_t min, int64_t max, int64_t *out,
                 struct error *err)
{
    struct str value;
    int64_t number;

    if (v1_query_str(call, name, &value, err) < 0)
        return -1;
    if (!value.len)
        return 0;
    if (!str_to_i64(value, &number) || number < min || number > max)
        return error_set(err, ERROR_INVALID,
                         "query parameter '%s' must be a number from %lld to %lld", name,
                         (long long)min, (long long)max);
    *out = number;
    return 0;
}

int v1_query_bool(struct v1_call *call, const char *name, bool *out, struct error *err)
{
    struct str rest = call->query;

    while (rest.p) {
        struct str value = str_split(&rest, '&');
        struct str key = str_split(&value, '=');

        if (!str_is(key, name))
            continue;
        if (!value.len || str_is(value, "1") || str_is(value, "true"))
            *out = true;
        else if (str_is(value, "0") || str_is(value, "false"))
            *out = false;
        else
            return error_set(err, ERROR_INVALID, "query parameter '%s' must be true or false",
                             name);
    }
    return 0;
}
