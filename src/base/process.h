/* Child processes: what a child gets from its parent, its start, and the wait for its end. Every child of the programs that
 * does not belong to a libuv loop is started here; tools/check.sh enforces it and lists the exceptions.
 *
 * The child works on a copy of the memory, never in it: changes of its rights cannot reach the parent. Until it executes its
 * program only one thread of it exists and the C library does not know, so only system calls are safe there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

typedef int process_fn(void *arg);

/* A zeroed member leaves that property as the parent has it. The members stand in the order in which they take effect. */
struct process_spec {
    const char *const *argv; /* argv[0] is found by PATH unless `path` or `program_fd` is set */
    const char *path;        /* file to execute */
    int program_fd;          /* executed instead: a descriptor of the child, closed by that */
    process_fn *run;         /* called instead of executing anything; returns the exit status */
    int namespaces;          /* flags CLONE_NEW*; not with `run` */
    process_fn *prepare; /* called first, with the parent's rights; negative: failed with errno */
    void *arg;           /* for `run` and `prepare` */
    int *fds;            /* the child has fds[i] as first_fd + i; -1: leaves that number alone */
    size_t fd_count;
    int first_fd;
    bool session;    /* starts a session */
    const char *dir; /* working directory */
    bool close_rest; /* closes all descriptors from first_fd + fd_count */
    uid_t uid;       /* this user and group, no other groups, no new privileges; not dumpable */
    bool end_with_parent; /* SIGKILL when the thread that started it ends */
    bool unblock;         /* unblocks all signals */
    char *const *env;
};

/* Returns when the child has executed its program. 0 or a negative errno, also of what failed in the child: then there is
 * none. With `run` it returns at once, and the exit status 127 stands for such a failure. The caller waits for the child. */
int process_spawn(const struct process_spec *spec, pid_t *out_pid);
/* Waits for its end; kills it after timeout_ms (0: never), which is -ETIME. The exit status, 128 and more for a signal, or a
 * negative errno. */
int process_await(pid_t pid, int timeout_ms);
/* Both. */
int process_run(const struct process_spec *spec, int timeout_ms);

/* ---- programs of the host ---- */

enum { PROGRAM_ARGS_MAX = 15 };

struct program {
    const char *name;    /* looked for in the system's folders, whatever PATH says */
    const char *package; /* of Debian, for who has to install it */
    const char *args[PROGRAM_ARGS_MAX + 1];
    struct str input; /* what it reads */
};

/* It gets no environment and no descriptor but the three; it stays in the thread's namespaces. What it
 * writes is appended to *out as far as that takes it. Its exit status, 128 and more for a signal, or -1 when it could
 * not be run, or not to its end within two minutes. */
int program_run(const struct program *program, struct buf *out, struct error *err);
