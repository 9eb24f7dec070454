/* Code in a sandbox whose template has the interpreter (docs/code-interpreter.md): one cell, run to its end. */
#pragma once

#include "runtime/sandbox/sandbox.h"

struct runtime_code {
    struct str code;
    struct str language, context_id; /* at most one of both; STR_NONE = Python */
    json_t *env;                     /* object of strings for this cell, or NULL */
    int64_t timeout_ms;              /* 0 = the profile's */
    /* Each line of the interpreter's answer, a JSON object with a "type", as it comes; STR_NONE now and then, when none does. What
     * is not 0 ends the cell. NULL: they are collected. */
    int (*on_line)(void *arg, struct str line);
    void *arg;
};

/* *out: {"results", "stdout", "stderr", "error", "execution_count", "duration_ms", "timed_out", "truncated"}; of what on_line was told it has
 * neither results nor output. An error of the code is a result and no failure. ERROR_UNSUPPORTED: there is no interpreter. */
int runtime_code(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                 const struct runtime_code *code, json_t **out, struct error *err);
