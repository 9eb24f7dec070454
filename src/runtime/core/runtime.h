/* The agent runtime: one door for every agent, whatever holds its sandbox.
 *
 * The nouns: a backend (a configured provider with its health), a profile (a named choice of
 * backend, template, limits and rules), a sandbox (with a key, an owner and a state), a job (a
 * command in the background), a snapshot, a session (an agent at work in a sandbox), an event.
 * Everything that must outlive the process is in the store before it is acknowledged.
 *
 * All calls block their thread and are safe from any. Nothing of one team is seen by another: what
 * belongs to somebody else is ERROR_NOT_FOUND. Strings given back live in the caller's arena. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

struct runtime_settings;
struct runtime;
struct fetch;
struct sender;
struct provider;
struct provider_config;
struct provider_embedded;
struct store;

struct runtime_config {
    struct store *store;
    const struct runtime_settings *settings; /* see settings.h */
    struct fetch *fetch;
    struct sender *sender;                    /* of callbacks */
    const struct provider_embedded *embedded; /* NULL: no engine in this process */
    /* The operator's own team. Others get nothing of the server's environment, and URLs they give
     * (runners, callbacks) must be public. NULL: all teams are the operator's. */
    const char *operator_team;
    /* Makes the providers; NULL = provider_new(). Tests put a fake here. */
    int (*provider_new)(const struct provider_config *config, struct provider **out,
                        struct error *err);
};

/* Who asks, and for how long. */
struct runtime_caller {
    struct str team_id;
    struct str agent_id; /* whose sandboxes these must be; STR_NONE = any of the team's */
    struct str actor;    /* for events: the key's id */
    bool looks;          /* a viewer's: wakes and prolongs nothing */
    /* Finding, making, waking, asking about, pausing and killing a machine ends at this deadline (base/clock.h), with the
     * waits between tries; hooks and commands have their own limits. 0 = none. */
    int64_t deadline_us;
};

enum { RUNTIME_ID_SIZE = 32 };
/* "sbx_", "job_", "snap_", "ses_" + 20 random [0-9a-z]. */
void runtime_id(const char *prefix, char out[RUNTIME_ID_SIZE]);

/* "***" in place of every secret of the operator's and of the team (keys of backends, tokens in URLs);
 * changes text in place. For messages of others before they are stored or told to that team. */
void runtime_mask(const struct runtime *runtime, struct str team_id, char *text);

/* What requests to sandboxes and services go through. */
struct fetch *runtime_fetch(const struct runtime *runtime);
