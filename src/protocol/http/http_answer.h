/* What the APIs have in common: answers that pages of any origin may read, and where keys stand. */
#pragma once

#include "protocol/http/http_server.h"

enum { HTTP_ANSWER_HEADERS_MAX = 8 };

/* text: NULL = no body; content_type: NULL = JSON. As with http_reply(), ex may be over afterwards. */
void http_answer(struct http_exchange *ex, int status, const char *content_type,
                 const struct pair *headers, size_t count, const char *text);
/* The same; the text is malloc()ed, and freed when it is sent. */
void http_answer_owned(struct http_exchange *ex, int status, const char *content_type,
                       const struct pair *headers, size_t count, char *text_consume);
/* The same for text that is there for ever. */
void http_answer_static(struct http_exchange *ex, int status, const char *content_type,
                        const struct pair *headers, size_t count, struct str text);
/* To OPTIONS: which methods and headers pages may use. */
void http_answer_preflight(struct http_exchange *ex, const char *methods, const char *headers);
/* X-API-KEY, or Authorization: Bearer, or STR_NONE. */
struct str http_given_key(const struct http_headers *headers);
