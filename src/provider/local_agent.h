/* The agent as an ordinary program outside of any sandbox, with the rights of whoever starts it. */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "base/str.h"

struct local_agent {
    pid_t pid;     /* 0 = none */
    int parent_fd; /* when it closes the agent ends, with all it has started */
};

struct local_agent_spec {
    const char *program; /* envd */
    const char *root;    /* its home: sandboxes are directories below; made when it is missing */
    int listen_fd;       /* bound stream socket, listening or not; not consumed */
    struct str token;    /* what callers must know; empty = nothing */
};

int local_agent_start(const struct local_agent_spec *spec, struct local_agent *out,
                      struct error *err);
/* Also for one that was never started. */
void local_agent_stop(struct local_agent *agent);
