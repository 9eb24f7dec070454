/* A filter for tests, as unpleasant as TLS can be: bytes go masked in small frames, so that reads and writes
 * are not those of the socket; after some frames the sender needs a word of the receiver before it may go
 * on (so writing waits for reading); and now and then reading waits for writability. */
#pragma once

#include "protocol/stream/stream.h"

struct stream_filter *stream_test_filter(void *unused);

/* A socket whose bytes go through the filter to and from `fd_consume` (by another thread), for a peer that
 * knows nothing of filters. */
int stream_test_relay(int fd_consume);
