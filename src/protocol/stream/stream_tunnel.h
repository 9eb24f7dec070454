/* Two streams joined after an upgrade: bytes both ways until both directions have ended or one breaks. Between
 * bare sockets by splice(2) where there is much, else through memory. */
#pragma once

#include "base/buf.h"
#include "protocol/stream/stream.h"

struct stream_tunnel;

typedef void stream_tunnel_fn(void *arg);

/* Takes both streams. to_client and to_server are sent first (copied). on_end is called once, when
 * the tunnel has ended by itself; then it has to be freed. */
struct stream_tunnel *stream_tunnel_new(struct loop *loop, struct stream *client_consume,
                                        struct stream *server_consume, struct str to_client,
                                        struct str to_server, stream_tunnel_fn *on_end, void *arg);
/* Closes both streams; reset: so that the peers see a break and not an end. */
void stream_tunnel_free(struct stream_tunnel *tunnel, bool reset);
