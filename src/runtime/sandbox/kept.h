/* Commands whose output is kept when they have ended, because they asked for it. */
#pragma once

#include "base/buf.h"
#include "runtime/core/runtime.h"
#include "store/runtime/store_execution.h"

struct runtime_use;
struct runtime_capture;

/* How it ended. */
struct runtime_kept_end {
    const char *process_id;
    struct str command; /* masked */
    const char *error;  /* NULL = it ran to its end */
    int exit_code;
    int64_t duration_ms;
    bool timed_out;
};
/* false when it could not be stored, which is logged: the command has run in any case. */
bool runtime_kept_store(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct runtime_use *use, const struct runtime_capture *kept,
                        const struct runtime_kept_end *end);

/* By id of the process. sandbox_id: STR_NONE = any, else its sandbox must agree. */
int runtime_execution_get(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str sandbox_id, struct str id, struct arena *arena,
                          struct store_execution *out, struct error *err);
/* Without their output, the last to end first; also of a sandbox that is gone. */
int runtime_execution_list(struct runtime *runtime, const struct runtime_caller *caller,
                           struct str sandbox_id, const struct store_execution_page *page,
                           struct arena *arena, struct store_execution **out, size_t *out_count,
                           struct error *err);
/* Those of more than 30 days ago. */
void runtime_kept_prune(struct runtime *runtime);
