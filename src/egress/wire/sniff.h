/* What the first bytes of a connection are, and which host they name: the SNI of TLS, or the Host of an HTTP/1
 * request. */
#pragma once

#include "egress/wire/hello.h"

enum { SNIFF_MAX = HELLO_MAX };

enum sniff {
    SNIFF_MORE, /* cannot be said yet */
    SNIFF_TLS,
    SNIFF_HTTP,
    SNIFF_OTHER,
};

struct sniffed {
    struct host_name name; /* of length 0: none is named */
    bool hides;            /* see hello.h */
    const char *fault;     /* why there is no name, for people; NULL otherwise */
};

/* All that came so far, less than SNIFF_MAX. */
enum sniff sniff_read(struct str bytes, struct sniffed *out);
/* The name in a Host header, without its port. */
bool sniff_host(struct str header, struct host_name *out);
