/* A provider for tests: sandboxes in memory, failures on demand, calls counted. The fake itself is
 * what a service far away would be: it outlives the runtime that uses it.
 *
 *   struct provider_fake *fake = provider_fake_new();
 *   ... runtime_config.provider_new = provider_fake_open ...   (uses the fake made last)
 *   provider_fake_fail(fake, "create", 2, ERROR_UNAVAILABLE, "no answer");
 */
#pragma once

#include <pthread.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "provider/core/provider.h"

/* What a command does. */
struct provider_fake_run {
    struct buf out, err;
    int exit_code;
    int64_t delay_ms; /* before it ends */
    bool hangs;       /* until a signal or its timeout */
};

struct provider_fake {
    pthread_mutex_t lock;
    struct provider_caps caps; /* everything, unless changed before the runtime opens */
    struct list sandboxes;     /* oldest first */
    struct map snapshots;      /* id -> files */
    struct map calls, failures;
    unsigned hang_ms;           /* every call takes so long */
    int retry_after_s;          /* of calls that fail */
    size_t made;                /* sandboxes ever created */
    pthread_barrier_t *meeting; /* where creates wait for each other, or NULL */
    /* NULL: prints its arguments, joined by blanks, and a newline. */
    void (*run)(void *arg, const struct provider_command *command, struct provider_fake_run *out);
    void *run_arg;
};

struct provider_fake *provider_fake_new(void);
void provider_fake_free(struct provider_fake *fake);
/* As provider_new(), for the fake made last; any type. */
int provider_fake_open(const struct provider_config *config, struct provider **out,
                       struct error *err);
/* The next `times` calls of an operation ("check", "create", "find", "get", "connect", "pause",
 * "kill", "extend", "snapshot", "snapshot_delete", "start", "read", "write", "list", "remove") fail. */
void provider_fake_fail(struct provider_fake *fake, const char *op, int times, enum error_code code,
                        const char *message);
int provider_fake_calls(struct provider_fake *fake, const char *op);
/* Ends one behind everybody's back; all with STR_NONE. */
void provider_fake_lose(struct provider_fake *fake, struct str id);
/* Changes the state of one behind everybody's back. */
void provider_fake_set_state(struct provider_fake *fake, struct str id, enum provider_state state);
/* Running and paused. */
size_t provider_fake_count(struct provider_fake *fake, enum provider_state state);
