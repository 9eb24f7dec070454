/* One client request and its upstream connection, later perhaps a tunnel. */
#pragma once

#include "base/list.h"
#include "http/http_server.h"
#include "loop/share.h"
#include "proxy/proxy_upstream.h"

struct proxy_session;

/* Serves the exchange. The session is in `all` while it lives and ends by itself. */
void proxy_session_start(struct loop *loop, struct proxy_upstream *upstream, struct shares *shares,
                         struct list *all, struct http_exchange *ex,
                         const struct proxy_target *target, uint64_t generation);
/* The sandbox is gone: breaks the connection to the client (or says so, before an answer began). */
void proxy_session_cut(struct proxy_session *session);

struct proxy_session *proxy_session_of(struct list *node);
const char *proxy_session_id(const struct proxy_session *session);
uint64_t proxy_session_generation(const struct proxy_session *session);
