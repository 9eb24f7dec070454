/* For tests of what speaks HTTP to others: a server with a thread per connection that shows each
 * request to the test's handler and lets it answer as badly as it likes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/test.h"

struct fetch_rig;

struct fetch_rig_exchange {
    struct fetch_rig *rig;
    int fd;
    int connection, number; /* both from 1; number counts the requests of the whole rig */
    char method[16];
    char target[4096];
    struct buf head; /* all lines */
    struct buf body; /* decoded */
    bool close;      /* the handler wants no further request on this connection */
};

typedef void fetch_rig_fn(struct fetch_rig_exchange *exchange, void *arg);

/* On 127.0.0.1, or on a Unix socket when path is given. */
struct fetch_rig *fetch_rig_new(const char *unix_path, fetch_rig_fn *handler, void *arg);
void fetch_rig_free(struct fetch_rig *rig); /* cuts all connections and waits for the threads */
const char *fetch_rig_url(const struct fetch_rig *rig); /* "http://127.0.0.1:PORT" */
int fetch_rig_requests(struct fetch_rig *rig);
bool fetch_rig_stopping(struct fetch_rig *rig);

/* Value of a header of the request, or STR_NONE. */
struct str fetch_rig_header(const struct fetch_rig_exchange *exchange, const char *name);
void fetch_rig_answer(struct fetch_rig_exchange *exchange, int status, const char *headers,
                      struct str body);
void fetch_rig_send(struct fetch_rig_exchange *exchange, struct str bytes);
void fetch_rig_chunk(struct fetch_rig_exchange *exchange, struct str bytes); /* empty = the end */
