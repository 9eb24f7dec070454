/* A command in the foreground while it runs, for agent_exec.c. */
#pragma once

#include "agent/agent_sandbox.h"
#include "base/list.h"

struct agent_running {
    struct list link;
    const char *id; /* of the process */
    struct str team_id, agent_id, sandbox_id;
    bool open_stdin;
    struct provider_process *process;
    unsigned users; /* who use `process` besides its reader */
    bool stopped;
};

/* It can be found from now on. */
void agent_running_add(struct agents *agents, struct agent_running *running,
                       struct provider_process *process);
bool agent_running_stopped(struct agents *agents, struct agent_running *running);
/* Waits for those who use it. */
void agent_running_remove(struct agents *agents, struct agent_running *running);
