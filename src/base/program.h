/* Running a program of the host to its end. */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

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
