/* The client's side of a connection whose requests are changed (transform.h): a filter of the stream, above that of TLS
 * where there is TLS. Who reads the stream gets requests as they are to be sent on. */
#pragma once

#include "egress/rewrite/transform.h"
#include "protocol/stream/stream.h"

/* inner: TLS, or NULL. first: what was read from the socket already, of the requests themselves. */
struct stream_filter *intercept_new(struct stream_filter *inner_consume, struct str first,
                                    transform_fn *fn, void *arg);
/* Why reading failed, when that was our doing: what a request was refused for. Otherwise NULL. */
const char *intercept_fault(const struct stream_filter *filter);
