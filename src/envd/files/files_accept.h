/* What a client may be sent: the Accept-Encoding, Range and conditional headers of a download. All
 * of it is decided on the header texts alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "protocol/http/http.h"

enum files_encoding { FILES_IDENTITY, FILES_GZIP, FILES_NOTHING /* acceptable */ };

/* header: Accept-Encoding or STR_NONE. identity_only: nothing else makes sense for this request. */
enum files_encoding files_accept_encoding(struct str header, bool identity_only);
/* Content-Encoding of a request; FILES_NOTHING when it is one we cannot decode. */
enum files_encoding files_content_encoding(struct str header);

/* Which state of a file a client may have. */
struct files_version {
    int64_t size;
    int64_t mtime_s;
    char etag[80]; /* with its quotes */
    char date[40]; /* Last-Modified */
};

enum { FILES_DATE_SIZE = 40 };
void files_accept_date(int64_t seconds, char out[FILES_DATE_SIZE]);
/* The three forms of RFC 9110. */
bool files_accept_parse_date(struct str text, int64_t *out_seconds);

struct files_answer {
    int status; /* 200, 206, 304, 412 or 416 */
    int64_t offset, length;
};

bool files_accept_is_conditional(const struct http_headers *headers);
/* Several ranges in one request are answered with the whole file, which RFC 9110 allows. */
struct files_answer files_accept_part(const struct http_headers *headers,
                                      const struct files_version *version);
