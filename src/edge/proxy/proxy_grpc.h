/* A gRPC request on its way to a server inside: by HTTP/2 on both sides, so that trailers and both streams arrive as
 * they were sent. Other requests go by HTTP/1 whatever they came by: most servers speak nothing else. */
#pragma once

#include "edge/proxy/proxy_host.h"
#include "protocol/http/http_server.h"
#include "protocol/stream/stream.h"

struct proxy_grpc;

struct proxy_grpc_events {
    void (*on_head)(void *arg);     /* the answer begins */
    void (*on_answered)(void *arg); /* all of it is there, if not at the client yet */
    void (*on_broken)(void *arg);   /* nothing follows */
};

/* Did it come by HTTP/2, with a content type of gRPC? (TE: trailers alone says nothing: browsers send it.) */
bool proxy_grpc_wanted(const struct http_request *request);
/* head: as it would be sent by HTTP/1. secure: the server inside speaks TLS, and so does the stream. NULL (closed) when there is no memory. */
struct proxy_grpc *proxy_grpc_start(struct loop *loop, struct stream *stream_consume,
                                    struct http_exchange *ex, struct str head, bool secure,
                                    enum proxy_place place, const struct proxy_grpc_events *events,
                                    void *arg);
/* Closes the connection to the server; no callback after this returns. */
void proxy_grpc_free(struct proxy_grpc *grpc);
