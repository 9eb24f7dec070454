/* Shared by the files on cgroups only. */
#pragma once

#include "host/native/box.h"

enum hierarchy { V2, V1_MEMORY, V1_CPU, V1_PIDS, HIERARCHY_COUNT };

struct box_cgroups {
    char name[32];                /* quicksand-<instance> */
    int parents[HIERARCHY_COUNT]; /* the hierarchies' own roots; -1 when not used */
    int roots[HIERARCHY_COUNT];   /* our directory in each */
    bool v2_limits;
};
