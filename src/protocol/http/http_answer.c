#include "protocol/http/http_answer.h"

#define ANY_ORIGIN ((struct http_header){STR("Access-Control-Allow-Origin"), STR("*")})

void http_answer(struct http_exchange *ex, int status, const char *content_type,
                 const struct http_header *headers, size_t count, const char *text)
{
    struct http_header all[HTTP_ANSWER_HEADERS_MAX + 2];
    size_t n = 0;

    if (text)
        all[n++] = (struct http_header){STR("Content-Type"),
                                        content_type ? str_of(content_type)
                                                     : STR("application/json; charset=utf-8")};
    all[n++] = ANY_ORIGIN;
    for (size_t i = 0; i < count && i < HTTP_ANSWER_HEADERS_MAX; i++)
        all[n++] = headers[i];
    http_reply(ex, status, all, n, str_of(text));
}

void http_answer_preflight(struct http_exchange *ex, const char *methods, const char *headers)
{
    const struct http_header all[] = {
        ANY_ORIGIN,
        {STR("Access-Control-Allow-Methods"), str_of(methods)},
        {STR("Access-Control-Allow-Headers"), str_of(headers)},
        {STR("Access-Control-Max-Age"), STR("43200")},
    };

    http_reply(ex, 204, all, sizeof(all) / sizeof(all[0]), STR_NONE);
}

struct str http_given_key(const struct http_headers *headers)
{
    struct str key = str_trim(http_headers_get(headers, "X-API-KEY"));
    struct str authorization = str_trim(http_headers_get(headers, "Authorization"));

    if (key.len)
        return key;
    return str_eq_nocase(str_split(&authorization, ' '), STR("Bearer")) ? str_trim(authorization)
                                                                        : STR_NONE;
}
