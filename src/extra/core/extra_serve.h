/* What the server asks of the extras of this build. */
#pragma once

#include <stdbool.h>

#include "extra/core/extra.h"

/* Opens the parts of a server that extras have; once in a process. */
int extras_open(const struct extra_host *host, struct error *err);
/* On a loop: a request over plain HTTP, before it is sent to HTTPS. True: it is answered. */
bool extras_handle_plain(struct http_exchange *ex, const char *data_dir);
/* On a loop: the request is of a path that an extra serves over plain HTTP. */
bool extras_plain(struct http_exchange *ex);
/* On a loop: answers 501 to a request for an extra that this build lacks. */
bool extras_refuse_absent(struct http_exchange *ex);
/* On a loop. False: the path is of no extra. */
bool extras_handle(struct http_exchange *ex);
/* On each loop, as the server stops. */
void extras_drain(void);
/* After the loops and workers have ended. */
void extras_close(void);
