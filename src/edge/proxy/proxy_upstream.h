/* Connections into sandboxes, one struct per loop: envd's by its Unix socket, other ports by the warden's dialer; with
 * small pools of idle keep-alive ones. */
#pragma once

#include "edge/proxy/proxy.h"
#include "edge/proxy/proxy_host.h"
#include "protocol/http/http_client.h"

struct proxy_upstream;
struct proxy_connect;

struct proxy_upstream *proxy_upstream_new(struct loop *loop, const struct proxy_config *config);
void proxy_upstream_free(struct proxy_upstream *upstream);

/* Whom a connection may serve: the life of the sandbox it leads into, and the client's connection it was made for. */
struct proxy_keep {
    uint64_t generation;
    uint64_t client; /* http_connection(); 0 = anybody's */
    unsigned uses;   /* requests that it has served */
};

/* An idle connection to the port for the same life and client, or NULL; keep->uses is that connection's. */
struct http_client *proxy_upstream_take(struct proxy_upstream *upstream,
                                        const struct proxy_target *target, struct proxy_keep *keep);
/* Takes the connection over, and closes it when there are enough, or when it has served enough. */
void proxy_upstream_put(struct proxy_upstream *upstream, const struct proxy_target *target,
                        const struct proxy_keep *keep, struct http_client *client);
/* Closes the idle connections of a sandbox. */
void proxy_upstream_drop(struct proxy_upstream *upstream, const char *id);

/* A new connection to envd: a socket, or -errno; -EAGAIN when its queue is full (use
 * proxy_upstream_connect(), which tries again). */
int proxy_upstream_envd(struct proxy_upstream *upstream, const char *id);

/* kind: UDP, or TCP4, which is followed by TCP6. fd: connected, non-blocking, the callee's; or -1 with errnum (ENOENT: no such sandbox). */
typedef void proxy_connect_fn(int fd, int errnum, void *arg);
struct proxy_connect *proxy_upstream_connect(struct proxy_upstream *upstream,
                                             const struct proxy_target *target,
                                             enum engine_dial_kind kind, proxy_connect_fn *fn,
                                             void *arg);
/* fn will not be called; only before it was. */
void proxy_connect_cancel(struct proxy_connect *connect);
