/* The search in an API's table of endpoints. */
#include "edge/call/call.h"

/* Parameters become parts of JSON. */
static bool all_text(const struct str *raw, const struct str *params)
{
    for (size_t i = 0; i < CALL_PARAMS_MAX && raw[i].p; i++)
        if (!str_valid_utf8(params[i]))
            return false;
    return true;
}

static void allow_row(char allow[HTTP_ALLOW_SIZE], const struct call_endpoint *row)
{
    http_allow_add(allow, row->method);
    if (!row->no_head && str_is(str_of(row->method), "GET"))
        http_allow_add(allow, "HEAD");
}

enum call_match call_endpoint_find(const struct call_endpoint *rows, size_t row_size,
                                   struct str method, struct str path, struct arena *arena,
                                   const struct call_endpoint **out,
                                   struct str params[CALL_PARAMS_MAX], char allow[HTTP_ALLOW_SIZE])
{
    const struct call_endpoint *row = rows;
    bool head = str_is(method, "HEAD");

    if (head)
        method = STR("GET");
    allow[0] = '\0';
    for (; row->method; row = (const void *)((const char *)row + row_size)) {
        struct str raw[CALL_PARAMS_MAX] = {STR_NONE, STR_NONE};

        if (!http_path_match(row->pattern, path, raw, CALL_PARAMS_MAX))
            continue;
        if (!str_is(method, row->method) || (head && row->no_head)) {
            allow_row(allow, row);
            continue;
        }
        if (!http_path_decode(raw, CALL_PARAMS_MAX, arena, params) || !all_text(raw, params))
            return CALL_NO_PATH;
        *out = row;
        return CALL_FOUND;
    }
    if (!allow[0])
        return CALL_NO_PATH;
    http_allow_add(allow, "OPTIONS");
    return CALL_NO_METHOD;
}
