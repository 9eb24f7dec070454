/* Sockets inside a sandbox's network namespace, made by the warden, for the proxy. One dialer per
 * loop, on a warden channel of its own; all calls on that loop's thread. */
#pragma once

#include "base/id.h"
#include "host/engine/engine.h"
#include "protocol/loop/loop.h"

struct engine_dialer;
struct engine_dial;

/* fd is a non-blocking socket that belongs to the callee, connecting to 127.0.0.1:port (or
 * [::1]:port) inside the sandbox; -1 with errnum on failure (ENOENT: no such box). */
typedef void engine_dial_fn(int fd, int errnum, void *arg);

struct engine_dialer *engine_dialer_new(struct loop *loop, int channel_fd_consume);
struct engine_dial *engine_dial(struct engine_dialer *dialer, const char id[ID_SIZE], uint16_t port,
                                enum engine_dial_kind kind, engine_dial_fn *fn, void *arg);
/* fn will not be called; only before it was. */
void engine_dial_cancel(struct engine_dial *dial);
