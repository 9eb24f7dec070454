/* Starting a program without copying envd's memory map: the child shares it until it executes
 * (as vfork does), so the cost does not depend on envd's size. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "envd/core/users.h"

struct spawn {
    char *const *candidates; /* paths to try in order, NULL-terminated */
    char *const *argv;
    char *const *envp;
    const char *cwd;
    const struct user *user;
    int stdio[3];  /* become 0, 1, 2; each above 2 */
    bool tty;      /* stdio[0] becomes the controlling terminal */
    uint64_t mark; /* that it and all it starts bear; see process_tree.c. 0: none */
};

enum spawn_step { SPAWN_SETUP, SPAWN_CWD, SPAWN_EXEC };

struct spawn_failure {
    enum spawn_step step;
    int errnum;
};

/* The new process leads a Unix session of its own. Returns its pid, or -1 with *failure. */
pid_t spawn(const struct spawn *spawn, struct spawn_failure *failure);
/* envd's own oom_score_adj, open for writing, for one that is not dumpable and so cannot open it; -1 is
 * none. */
void spawn_set_oom_fd(int fd);
/* The soft limit of open files that programs get; envd's own is higher. In a sandbox also: programs
 * get the soft limit of processes, and what is left to the hard one is for those that would not start
 * otherwise. */
void spawn_read_limits(void);
/* That of processes, again: it was set anew. */
void spawn_read_processes(void);
