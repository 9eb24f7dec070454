/* Everything a program has started. */
#pragma once

#include <sys/types.h>

/* SIGKILL to the process group and session of root, and to all its descendants, including those
 * that moved to sessions of their own. */
void process_tree_kill(pid_t root);
/* The same without root itself. */
void process_tree_kill_below(pid_t root);
