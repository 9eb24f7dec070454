/* One POST to a URL that somebody gave us. Private to this folder. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/str.h"

struct webhook_url {
    bool tls;
    char host[256];
    char port[8];
    char target[1024]; /* path and query */
};

struct webhook_post {
    struct webhook_url url;
    struct str headers; /* whole lines, each with CRLF */
    struct str body;
    bool public_only; /* refuse addresses of this host and of private networks */
};

/* Before the first https delivery. ca_file: certificates to trust besides the system's; NULL or "" =
 * none. */
int webhook_tls_open(const char *ca_file, struct error *err);
bool webhook_url_parse(struct str text, struct webhook_url *out);
/* 0 when the answer was a 2xx. Waits a few seconds at most; redirects are not followed. */
int webhook_send(const struct webhook_post *post, struct error *err);
