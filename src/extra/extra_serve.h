/* What the server asks of the extras of this build. */
#pragma once

#include <stdbool.h>

struct http_exchange;

/* On a loop: a request over plain HTTP, before it is sent to HTTPS. True: it is answered. */
bool extras_handle_plain(struct http_exchange *ex, const char *data_dir);
/* On a loop: answers 501 to a request for an extra that this build lacks. */
bool extras_refuse_absent(struct http_exchange *ex);
