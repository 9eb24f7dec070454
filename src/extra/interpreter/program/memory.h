/* What the sandbox's cgroup says about memory. */
#pragma once

#include <stdint.h>

/* How many processes were ended for want of it so far. */
uint64_t memory_kills(void);
uint64_t memory_limit_bytes(void);
