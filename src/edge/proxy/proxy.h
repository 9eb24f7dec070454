/* Requests that are for a sandbox, one struct per loop; all calls on that loop's thread.
 *
 * When a sandbox's route goes away, what is open to it on this loop is cut in the middle, so that
 * clients see a broken connection and not a short but complete answer. */
#pragma once

#include "domain/route/route.h"
#include "host/engine/engine_dial.h"
#include "protocol/http/http_server.h"
#include "protocol/loop/workers.h"

struct proxy;

struct proxy_config {
    struct engine *engine; /* connects to envds */
    struct routes *routes;
    struct workers *workers; /* resume sandboxes on traffic; NULL: none is */
    struct shares *shares;   /* what requests and tunnels of one sandbox may hold; NULL: no limit */
    struct engine_dialer *dialer;
    /* NULL: engine_dial() and engine_dial_cancel(). Tests put their own here. */
    struct engine_dial *(*dial)(struct engine_dialer *dialer, const char id[ID_SIZE], uint16_t port,
                                enum engine_dial_kind kind, engine_dial_fn *fn, void *arg);
    void (*dial_cancel)(struct engine_dial *dial);
};

/* Registers with the routes: only before they change. */
struct proxy *proxy_new(struct loop *loop, const struct proxy_config *config);
/* Cuts everything. After the http server of this loop was freed, and when routes no longer change. */
void proxy_free(struct proxy *proxy);
/* False when the request is not for a sandbox; then nothing was done with it. */
bool proxy_handle(struct proxy *proxy, struct http_exchange *ex);
/* A WebSocket that another part of the edge has admitted, to a path of a server inside that takes it for a local client: it sees
 * Host "localhost", no Origin, and nothing by which the client was admitted. `ended` (or NULL) comes once, on the loop, when all
 * is over, also when nothing came of it. */
struct proxy_join {
    struct str id; /* of the sandbox */
    uint16_t port;
    struct str target; /* path and query inside */
    void (*ended)(void *arg);
    void *arg;
};
void proxy_join(struct proxy *proxy, struct http_exchange *ex, const struct proxy_join *join);
/* Open requests and tunnels. */
size_t proxy_relays(const struct proxy *proxy);
