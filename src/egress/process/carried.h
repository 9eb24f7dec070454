/* How much a connection has carried, as the kernel counts it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct carried {
    uint64_t sent, received; /* bytes; sent: that the peer has acknowledged */
};

bool carried_by(int fd, struct carried *out);
