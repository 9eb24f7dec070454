/* Opens the parts of the runtime in the order of their rooms, and closes them in the opposite order. */
#include "runtime/main/runtime_main.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/profile.h"
#include "runtime/core/runtime_parts.h"
#include "runtime/job/job.h"
#include "runtime/run/run.h"
#include "runtime/sandbox/follow.h"
#include "runtime/session/session.h"

int runtime_open(const struct runtime_config *config, struct runtime **out, struct error *err)
{
    struct runtime *runtime = xcalloc(1, sizeof(*runtime));

    runtime->config = *config;
    (void)pthread_rwlock_init(&runtime->backends_lock, NULL);
    profiles_kept_open(runtime);
    runtime_runs_open(runtime);
    runtime_follow_init(runtime);
    if (runtime_secrets_open(runtime) < 0 || backends_open(runtime, err) < 0 ||
        profiles_open(runtime, err) < 0 || runtime_events_open(runtime, err) < 0 ||
        jobs_open(runtime, err) < 0 || runtime_follow_open(runtime, err) < 0 ||
        sessions_open(runtime, err) < 0 || runtime_timer_start(runtime, err) < 0) {
        runtime_close(runtime);
        return -1;
    }
    *out = runtime;
    return 0;
}

/* Also of one that is half open: each part tolerates that it was never opened. */
void runtime_close(struct runtime *runtime)
{
    if (!runtime)
        return;
    runtime_timer_stop(runtime);
    sessions_close(runtime);
    runtime_follow_close(runtime);
    jobs_close(runtime);
    runtime_follow_done(runtime);
    runtime_runs_close(runtime);
    runtime_events_close(runtime);
    backends_close(runtime);
    runtime_secrets_close(runtime);
    profiles_kept_close(runtime);
    json_decref(runtime->file_profiles);
    (void)pthread_rwlock_destroy(&runtime->backends_lock);
    free(runtime);
}
