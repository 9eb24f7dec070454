/* gzip in pieces, both ways. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/str.h"

/* Takes the bytes that come out; non-zero stops. */
typedef int gzip_sink_fn(void *arg, struct str data);

struct gunzip;

struct gunzip *gunzip_new(void);
void gunzip_free(struct gunzip *gunzip); /* NULL is fine */
/* 0; -1 when the sink has stopped (err untouched) or, with err, when the input is not gzip. Several
 * members in a row are one stream. */
int gunzip_feed(struct gunzip *gunzip, struct str data, gzip_sink_fn *sink, void *arg,
                struct error *err);
/* True behind the end of a member: the input may end here. */
bool gunzip_complete(const struct gunzip *gunzip);

struct gzip;

struct gzip *gzip_new(void);
void gzip_free(struct gzip *gzip);
/* last: no more data will come. */
int gzip_feed(struct gzip *gzip, struct str data, bool last, gzip_sink_fn *sink, void *arg);
