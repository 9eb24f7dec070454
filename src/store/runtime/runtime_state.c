#include "store/runtime/runtime_state.h"

static const char *const runtime_states[SANDBOX_STATE_COUNT] = {
    [SANDBOX_CREATING] = "creating", [SANDBOX_RUNNING] = "running", [SANDBOX_PAUSED] = "paused",
    [SANDBOX_ENDED] = "killed",      [SANDBOX_LOST] = "error",
};
const struct names runtime_state_names = NAMES("state of a sandbox", runtime_states);

static const char *const snapshot_states[] = {
    [SNAPSHOT_CREATING] = "creating",
    [SNAPSHOT_READY] = "ready",
    [SNAPSHOT_ERROR] = "error",
    [SNAPSHOT_EXPIRED] = "expired",
};
const struct names snapshot_state_names = NAMES("state of a snapshot", snapshot_states);

static const char *const job_states[] = {
    [JOB_RUNNING] = "running",
    [JOB_COMPLETED] = "completed",
    [JOB_FAILED] = "failed",
    [JOB_CANCELLED] = "cancelled",
};
const struct names job_state_names = NAMES("state of a job", job_states);

static const char *const callback_states[] = {
    [CALLBACK_NONE] = "",           [CALLBACK_WAITING] = "waiting",
    [CALLBACK_PENDING] = "pending", [CALLBACK_DELIVERED] = "delivered",
    [CALLBACK_FAILED] = "failed",
};
const struct names callback_state_names = NAMES("state of a callback", callback_states);

static const char *const session_states[] = {
    [SESSION_CREATED] = "created", [SESSION_RUNNING] = "running",
    [SESSION_PAUSED] = "paused",   [SESSION_COMPLETED] = "completed",
    [SESSION_FAILED] = "failed",   [SESSION_CANCELED] = "canceled",
};
const struct names session_state_names = NAMES("state of a session", session_states);

static const char *const permissions[] = {
    [PERMISSION_ASK] = "ask",
    [PERMISSION_EDIT] = "edit",
    [PERMISSION_BYPASS] = "bypass",
};
const struct names permission_names = NAMES("permission of a session", permissions);
