/* Everything a program has started. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* A new mark for a program that is about to start; see spawn.h. 0: there is none to be had. */
uint64_t process_tree_mark(void);
/* SIGKILL to the process group and Unix session of root, to all its descendants, including those that moved to
 * Unix sessions of their own, and to whoever bears the mark: descendants whose parents are gone. */
void process_tree_kill(pid_t root, uint64_t mark);
/* The same without root itself, and without a mark. */
void process_tree_kill_below(pid_t root);
