/* One ensure that is under way; shared by sandbox_ensure.c and sandbox_joint.c. */
#pragma once

#include "runtime/backend/profile.h"
#include "runtime/sandbox/sandbox_parts.h"

/* What attempt() returns besides 0 and -1. AGAIN: the row has changed, another attempt can begin at once. AWAITED: somebody
 * else is making the sandbox. */
enum { AGAIN = 1, AWAITED = 3 };

struct ensure {
    struct runtime *runtime;
    struct runtime_caller *caller; /* with the deadline of this ensure */
    const struct runtime_ensure *request;
    struct profile profile;
    struct arena *arena;
    struct str hash;
    struct str root;   /* of the workspace; STR_NONE = none is made */
    bool has_snapshot; /* the request names one */
    struct store_runtime_snapshot snapshot;
    struct store_runtime_sandbox row; /* the result */
    enum runtime_tier tier;
    struct runtime_previous previous; /* unless it was resumed */
    struct str warning;               /* of the machine's create; or STR_NONE */
    struct runtime_claim claim;       /* of the row in 'creating' that this ensure works on */
};

/* ---- sandbox_ensure.c ---- */

/* The row of a new sandbox, without its machine. */
void ensure_fill_row(struct ensure *ensure);
/* joint: or NULL. */
int ensure_create_machine(struct ensure *ensure, const struct store_runtime_sandbox *row,
                          struct provider_joint *joint, struct provider_sandbox *out,
                          struct error *err);
void ensure_use_machine(struct store_runtime_sandbox *row, const struct provider_sandbox *machine);
/* The row of a sandbox that could not be made; err stays as it is. */
void ensure_note_failed(struct ensure *ensure, const struct store_runtime_sandbox *row,
                        enum sandbox_state state, const struct error *why);

/* ---- sandbox_joint.c ---- */

/* Makes the sandbox and its row at once. 0, AGAIN or -1. */
int ensure_create_joint(struct ensure *ensure, struct error *err);
/* Of the event sandbox.started. New reference. */
json_t *ensure_started_data(const struct store_runtime_sandbox *row);
/* sandbox.created and sandbox.started. */
void ensure_tell_created(const struct ensure *ensure, int64_t create_ms);
int64_t ensure_since_ms(int64_t begin_us);
