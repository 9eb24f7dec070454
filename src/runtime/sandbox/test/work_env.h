/* A whole runtime on a store in memory, for the tests of sandboxes and jobs: on the fake provider, or
 * with processes of this host. */
#pragma once

#include "protocol/fetch/fetch.h"
#include "protocol/sender/sender.h"
#include "provider/process/process_envd.h"
#include "runtime/core/event.h"
#include "runtime/core/test/core_env.h"
#include "runtime/sandbox/sandbox.h"

struct work_env {
    struct core_env core;
    struct fetch *fetch;
    struct sender *sender;
    char root[64]; /* of the processes; "" = the fake */
    struct process_envd envd;
    const struct provider_embedded *embedded; /* NULL: no engine in this process */
};

void work_open(struct work_env *env, const char *file, void (*change)(struct core_env *env));
/* The fake stands for the engine in this process, whose rows are in the same store: the test writes them. */
void work_open_engine(struct work_env *env, void (*change)(struct core_env *env));
/* Needs envd's program in QUICKSAND_TEST_ENVD; skips the test without it. */
void work_open_local(struct work_env *env, void (*change)(struct core_env *env));
void work_restart(struct work_env *env);
void work_close(struct work_env *env);
#define auto_work __attribute__((cleanup(work_close)))

/* Waits are short, for tests of failures. */
void work_quick(struct core_env *env);
/* How many events of the type there are. */
size_t work_events(struct work_env *env, const char *type);
/* Whether the data of the last one of the type holds the text. */
bool work_event_has(struct work_env *env, const char *type, const char *text);
void work_sleep_ms(long ms);

/* ensure with a key (or NULL); checks the tier unless it is < 0. */
struct runtime_sandbox work_ensure(struct work_env *env, const char *key, int tier,
                                   struct arena *arena);
/* bash -lc, as a string; the exit code must be as told. */
char *work_exec(struct work_env *env, struct str id, const char *line, int exit_code,
                struct arena *arena);
