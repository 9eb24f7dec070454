/* The first message of a TLS client (ClientHello): which name it says it wants to reach. Several records and any cut
 * are put together; nothing is decrypted. */
#pragma once

#include <stdbool.h>

#include "base/str.h"
#include "egress/wire/host_name.h"

/* What may come before the hello is whole, records' heads included. */
enum { HELLO_MAX = 64 * 1024 };

enum hello {
    HELLO_MORE, /* not whole yet */
    HELLO_NAMED,
    HELLO_UNNAMED, /* no name is in it, or one that is none */
    HELLO_BROKEN,  /* begins as TLS and is not */
};

struct hello_name {
    struct host_name name;
    bool hides; /* Encrypted Client Hello: the name is the outer one */
};

/* All that came so far. */
enum hello hello_read(struct str bytes, struct hello_name *out);
/* Could these bytes be the begin of TLS? */
bool hello_begins(struct str bytes);
