/* A command in the foreground while it runs, for exec.c. */
#pragma once

#include "base/list.h"
#include "runtime/run/run.h"

struct runtime_running {
    struct list link;
    const char *id; /* of the process */
    struct str team_id, agent_id, sandbox_id;
    bool open_stdin;
    struct provider_process *process;
    unsigned users; /* who use `process` besides its reader */
    bool stopped;
};

/* It can be found from now on. */
void runtime_running_add(struct runtime *runtime, struct runtime_running *running,
                         struct provider_process *process);
bool runtime_running_stopped(struct runtime *runtime, struct runtime_running *running);
/* Waits for those who use it. */
void runtime_running_remove(struct runtime *runtime, struct runtime_running *running);

/* Has the image a bash? -1 = not known yet. */
int runtime_runs_bash(struct runtime *runtime, struct str provider, struct str image);
void runtime_runs_set_bash(struct runtime *runtime, struct str provider, struct str image,
                           bool bash);
