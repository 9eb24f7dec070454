/* A user's own proxy, through which all connections of a sandbox leave: what a policy says of it, and how it is asked
 * for a connection (SOCKS5, RFC 1928 and 1929, or CONNECT of HTTP). It is told the name of the host where that is known,
 * and looks it up itself. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "egress/wire/host_name.h"

enum { VIA_CREDENTIAL_MAX = 255, VIA_ANSWER_MAX = 16 * 1024 };

struct via {
    bool http;             /* CONNECT; otherwise SOCKS5 */
    struct host_name name; /* or of length 0, */
    uint32_t address;      /* and this */
    uint16_t port;
    char *username, *password; /* NULL: none */
};

/* {"address":"[socks5://|http://]HOST:PORT","username":…,"password":…}; NULL: *out is NULL too. */
int via_new(const json_t *json, struct via **out, struct error *err);
void via_free(struct via *via);              /* or NULL */
struct via *via_copy(const struct via *via); /* of NULL: NULL */
bool via_same(const struct via *a, const struct via *b);

struct via_target {
    const struct host_name *name; /* or of length 0 */
    uint32_t address;
    uint16_t port;
};

/* What is said to the proxy and what it says. */
struct via_dialog {
    const struct via *via;
    struct via_target target;
    int state;
    const char *fault;
};

enum via_step { VIA_MORE, VIA_OPEN, VIA_FAILED };

/* Appends what is said first. */
void via_begin(struct via_dialog *dialog, const struct via *via, const struct via_target *target,
               struct buf *out);
/* All that came and was not used yet; uses bytes from its front and appends what is to be answered. VIA_OPEN: what is
 * left of *in comes from the other end. VIA_FAILED: dialog->fault says why, for people. */
enum via_step via_feed(struct via_dialog *dialog, struct str *in, struct buf *out);
