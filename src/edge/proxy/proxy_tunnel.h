/* Two sockets joined after an upgrade: bytes both ways by splice(2), until both directions have
 * ended or one breaks. */
#pragma once

#include "base/buf.h"
#include "protocol/loop/loop.h"

struct proxy_tunnel;

typedef void proxy_tunnel_fn(void *arg);

/* Takes both sockets. to_client and to_server are sent first (copied). on_end is called once, when
 * the tunnel has ended by itself; then it has to be freed. NULL (sockets closed) when the system is
 * out of descriptors. */
struct proxy_tunnel *proxy_tunnel_new(struct loop *loop, int client_fd_consume,
                                      int server_fd_consume, struct str to_client,
                                      struct str to_server, proxy_tunnel_fn *on_end, void *arg);
/* Closes both sockets; reset: so that the peers see a break and not an end. */
void proxy_tunnel_free(struct proxy_tunnel *tunnel, bool reset);
