/* The agent runtime on the wire: everything under /api/v1, and the terminal's page under /ui.
 *
 * As in the E2B API a request runs from start to end on a worker, but these workers are many, because
 * a command may take minutes. Streams (events, logs, terminals) live on the edge loops. */
#pragma once

#include <stdbool.h>

struct agents;
struct api_keys;
struct http_exchange;
struct v1;
struct workers;

struct v1_config {
    struct agents *agents;
    struct api_keys *keys;
    struct workers *workers; /* elastic */
};

struct v1 *v1_new(const struct v1_config *config);
void v1_free(struct v1 *v1);
/* On any edge loop. False: the path is not ours. */
bool v1_handle(struct v1 *v1, struct http_exchange *ex);
