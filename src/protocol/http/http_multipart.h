/* Streaming reader of multipart/form-data. Feed bytes as they come; parts come out in pieces. */
#pragma once

#include "base/buf.h"
#include "base/str.h"

struct http_multipart;

struct http_multipart_events {
    /* Begin of a part; name and filename as sent (filename keeps its directories), STR_NONE when
     * absent. Return -1 to stop. */
    int (*on_part)(void *arg, struct str name, struct str filename);
    int (*on_data)(void *arg, struct str data);
    int (*on_part_end)(void *arg);
};

/* content_type is the header's value; NULL when it has no usable boundary. */
struct http_multipart *http_multipart_new(struct str content_type,
                                          const struct http_multipart_events *events, void *arg);
void http_multipart_free(struct http_multipart *reader);
/* 0, or -1 on malformed input or when a callback stopped. */
int http_multipart_feed(struct http_multipart *reader, struct str data);
/* True when the closing boundary was seen. */
bool http_multipart_complete(const struct http_multipart *reader);
