/* What the root process says to the envd of a blank box when the box becomes somebody's, with its root as a descriptor.
 * Both are the same build. */
#pragma once

#include <stdint.h>

enum { CLAIM_RESOLV_CONF_SIZE = 256, CLAIM_GROUP_SIZE = 32 };

struct claim_message {
    uint64_t mem_bytes;
    uint64_t processes, processes_max;        /* limits: of programs, of envd */
    uint32_t cpu_first, cpu_count, host_cpus; /* a count of 0: as it is */
    char group[CLAIM_GROUP_SIZE]; /* in the directory of --disk-fd: the limits of its disk */
    char resolv_conf[CLAIM_RESOLV_CONF_SIZE]; /* text of the file; "": as it is */
};
