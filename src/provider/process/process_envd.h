/* envd as an ordinary program outside of any sandbox, with the rights of whoever starts it. */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "base/str.h"

struct process_envd {
    pid_t pid;     /* 0 = none */
    int parent_fd; /* when it closes envd ends, with all it has started */
};

struct process_envd_spec {
    const char *program; /* envd */
    const char *root;    /* its home: sandboxes are directories below; made when it is missing */
    int listen_fd;       /* bound stream socket, listening or not; not consumed */
    struct str token;    /* what callers must know; empty = nothing */
};

int process_envd_start(const struct process_envd_spec *spec, struct process_envd *out,
                       struct error *err);
/* Also for one that was never started. */
void process_envd_stop(struct process_envd *envd);
