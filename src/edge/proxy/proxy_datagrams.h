/* Datagrams through a stream: each is two bytes of length, the higher first, and then itself. What a slow side does not
 * take is lost, as datagrams are. */
#pragma once

#include "protocol/stream/stream.h"

struct proxy_datagrams;

typedef void proxy_datagrams_fn(void *arg);

/* Takes both: the client's stream and a connected UDP socket. to_client is sent first, as it is; from_client came
 * already. on_end is called once, when the client has ended or broken it; then it has to be freed. */
struct proxy_datagrams *proxy_datagrams_new(struct loop *loop, struct stream *client_consume,
                                            struct stream *socket_consume, struct str to_client,
                                            struct str from_client, proxy_datagrams_fn *on_end,
                                            void *arg);
void proxy_datagrams_free(struct proxy_datagrams *datagrams, bool reset);
