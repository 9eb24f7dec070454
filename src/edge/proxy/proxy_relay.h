/* One client request and its upstream connection, later perhaps a tunnel. */
#pragma once

#include "base/list.h"
#include "edge/proxy/proxy_raw.h"
#include "edge/proxy/proxy_upstream.h"
#include "protocol/http/http_server.h"
#include "protocol/loop/share.h"

struct proxy_relay;

/* Serves the exchange. The relay is in `all` while it lives and ends by itself. join: NULL, or what another part of the edge has
 * admitted. */
void proxy_relay_start(struct loop *loop, struct proxy_upstream *upstream, struct shares *shares,
                       struct list *all, struct http_exchange *ex,
                       const struct proxy_target *target, const struct route *route,
                       const struct proxy_join *join);
/* The sandbox is gone: breaks the connection to the client (or says so, before an answer began). */
void proxy_relay_cut(struct proxy_relay *relay);

struct proxy_relay *proxy_relay_of(struct list *node);
const char *proxy_relay_id(const struct proxy_relay *relay);
uint64_t proxy_relay_generation(const struct proxy_relay *relay);
