/* What the gateway's rules refused, as the kernel tells it: messages of its packet log, with the head of a packet that a guest made. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

enum { REFUSAL_WHY_SIZE = 16 };

struct refusal {
    uint32_t source, address; /* host byte order */
    uint16_t port;            /* 0: the protocol has none, or the packet ends before it */
    const char *protocol;     /* "tcp", "udp", "icmp" or "other" */
    char why[REFUSAL_WHY_SIZE];
};

/* The next of the messages, from which it is taken off; false when there is none any more. What is not of IPv4 is passed over. */
bool refusal_next(struct str *messages, struct refusal *out);
