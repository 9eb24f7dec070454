/* envd_init() in two parts, so that something else is done for the box between them. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "host/engine/engine.h"
#include "protocol/http/http_call.h"

/* All zero at first. */
struct envd_init {
    struct http_call call; /* on the connection of the caller */
    struct buf body;
    bool kept, failed;
    struct error why;
};
#define auto_envd_init __attribute__((cleanup(envd_init_done)))
void envd_init_begin(struct envd_init *init, const char *id, int fd, struct str body);
int envd_init_end(struct envd_init *init, struct engine *engine, const char *id, struct error *err);
void envd_init_done(struct envd_init *init);
