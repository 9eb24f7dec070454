#include "runtime/core/runtime.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/id.h"
#include "runtime/core/runtime_internal.h"

void runtime_id(const char *prefix, char out[RUNTIME_ID_SIZE])
{
    static const char alphabet[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    unsigned char bytes[64];
    char text[21];
    size_t made = 0;

    while (made < 20) {
        random_bytes(bytes, sizeof(bytes));
        /* 252 = 7 * 36: what is above would make some characters more likely. */
        for (size_t i = 0; i < sizeof(bytes) && made < 20; i++)
            if (bytes[i] < 252)
                text[made++] = alphabet[bytes[i] % 36];
    }
    text[made] = '\0';
    (void)snprintf(out, RUNTIME_ID_SIZE, "%s%s", prefix, text);
}

struct fetch *runtime_fetch(const struct runtime *runtime)
{
    return runtime->config.fetch;
}

bool runtime_is_operator(const struct runtime *runtime, struct str team_id)
{
    const char *team = runtime->config.operator_team;

    return !team || str_is(team_id, team);
}

bool runtime_public_only(const struct runtime *runtime, struct str team_id)
{
    return !runtime->config.settings->private_urls && !runtime_is_operator(runtime, team_id);
}

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
