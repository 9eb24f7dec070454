#include "protocol/http/http_answer.h"

#define ANY_ORIGIN ((struct pair){STR("Access-Control-Allow-Origin"), STR("*")})

/* The headers of every answer, then the given ones. */
static size_t add_headers(struct pair all[HTTP_ANSWER_HEADERS_MAX + 2], bool has_body,
                          const char *content_type, const struct pair *headers, size_t count)
{
    size_t n = 0;

    if (has_body)
        all[n++] = (struct pair){STR("Content-Type"), content_type
                                                          ? str_of(content_type)
                                                          : STR("application/json; charset=utf-8")};
    all[n++] = ANY_ORIGIN;
    for (size_t i = 0; i < count && i < HTTP_ANSWER_HEADERS_MAX; i++)
        all[n++] = headers[i];
    return n;
}

void http_answer(struct http_exchange *ex, int status, const char *content_type,
                 const struct pair *headers, size_t count, const char *text)
{
    struct pair all[HTTP_ANSWER_HEADERS_MAX + 2];
    size_t n = add_headers(all, text != NULL, content_type, headers, count);

    http_reply(ex, status, all, n, str_of(text));
}

void http_answer_owned(struct http_exchange *ex, int status, const char *content_type,
                       const struct pair *headers, size_t count, char *text_consume)
{
    struct pair all[HTTP_ANSWER_HEADERS_MAX + 2];
    size_t n = add_headers(all, text_consume != NULL, content_type, headers, count);

    http_reply_owned(ex, status, all, n, text_consume, text_consume ? strlen(text_consume) : 0);
}

void http_answer_static(struct http_exchange *ex, int status, const char *content_type,
                        const struct pair *headers, size_t count, struct str text)
{
    struct pair all[HTTP_ANSWER_HEADERS_MAX + 2];
    size_t n = add_headers(all, true, content_type, headers, count);

    http_reply_static(ex, status, all, n, text);
}

void http_answer_preflight(struct http_exchange *ex, const char *methods, const char *headers)
{
    const struct pair all[] = {
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
