/* States of what the runtime keeps rows of, and what they are called in the database, in JSON and in messages. */
#pragma once

#include "base/names.h"
#include "store/core/sandbox_state.h"

/* The states of a sandbox that /api/v1 shows; others have no name in it. */
extern const struct names runtime_state_names;

enum snapshot_state { SNAPSHOT_CREATING, SNAPSHOT_READY, SNAPSHOT_ERROR, SNAPSHOT_EXPIRED };
extern const struct names snapshot_state_names;

enum job_state { JOB_RUNNING, JOB_COMPLETED, JOB_FAILED, JOB_CANCELLED };
extern const struct names job_state_names;

enum callback_state {
    CALLBACK_NONE,    /* nobody is to be told */
    CALLBACK_WAITING, /* for the end of its job */
    CALLBACK_PENDING,
    CALLBACK_DELIVERED,
    CALLBACK_FAILED,
};
extern const struct names callback_state_names;

enum session_state {
    SESSION_CREATED,
    SESSION_RUNNING,
    SESSION_PAUSED,
    SESSION_COMPLETED,
    SESSION_FAILED,
    SESSION_CANCELED,
};
extern const struct names session_state_names;

/* What an agent may do without asking. */
enum permission { PERMISSION_ASK, PERMISSION_EDIT, PERMISSION_BYPASS };
extern const struct names permission_names;
