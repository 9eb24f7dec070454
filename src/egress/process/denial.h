/* What the client of a connection is told when it comes to nothing, in the language that it speaks. */
#pragma once

#include "base/buf.h"
#include "egress/policy/verdict.h"

struct denial {
    enum sniff kind;
    const struct host_name *name; /* or of length 0 */
    uint32_t address;
    uint16_t port;
    bool failed; /* it was allowed, and could not be made */
    const struct verdict *verdict;
};

/* Nothing is added where we know no words: then the connection breaks. */
void denial_put(struct buf *out, const struct denial *denial);
