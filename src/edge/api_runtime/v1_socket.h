/* A WebSocket on a loop: made of an exchange that asked for the upgrade. All on the loop's thread. */
#pragma once

#include "protocol/http/http_server.h"
#include "protocol/websocket/websocket.h"

struct v1_socket;

struct v1_socket_events {
    void (*on_message)(void *arg, struct str data, bool text);
    /* What waited has been sent. */
    void (*on_drain)(void *arg);
    /* Once: the client has gone, or the closing is complete. The socket frees itself. */
    void (*on_closed)(void *arg);
};

/* Answers 101 and takes the connection over. protocol: the one to agree on, or NULL. NULL when it is
 * no (proper) WebSocket request: the exchange is as before. */
struct v1_socket *v1_socket_new(struct http_exchange *ex, const char *protocol,
                                const struct v1_socket_events *events, void *arg);
/* Bytes that wait to be sent now. Nothing after v1_socket_close(). */
enum { V1_SOCKET_HIGH_WATER = 256 * 1024 };
size_t v1_socket_send(struct v1_socket *socket, bool text, struct str data);
size_t v1_socket_pending(const struct v1_socket *socket);
/* No message comes until it is resumed. */
void v1_socket_pause(struct v1_socket *socket, bool pause);
/* Begins the closing; on_closed comes later, also when the client does not answer. */
void v1_socket_close(struct v1_socket *socket, enum websocket_code code, struct str reason);
