/* The runtime's configuration: file over environment over defaults. Read once, all faults reported
 * at once, read-only afterwards.
 *
 * The file is JSON (docs/runtime.md has every key); secrets in it are "env:NAME" or "file:/path"
 * references, resolved here; a literal is accepted and never shown. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

enum { RUNTIME_BACKENDS_MAX = 32, RUNTIME_NAME_MAX = 63 };

struct backend_settings {
    char name[RUNTIME_NAME_MAX + 1];
    char type[16];                    /* normalised: e2b, docker, daytona, process, browserbase */
    char *api_url, *domain, *api_key; /* never NULL */
    json_t *record;                   /* as in the file, without the secret */
    const char *address_from;         /* what names its endpoint; NULL = nothing does */
    bool implied;                     /* there without being asked for */
    int64_t max_sandboxes;            /* 0 = no limit of ours */
    double usd_per_second, usd_per_cpu_second;
};

struct runtime_settings {
    char default_provider[RUNTIME_NAME_MAX + 1];
    const char *default_from; /* what names it; NULL = nothing does */
    struct backend_settings backends[RUNTIME_BACKENDS_MAX];
    size_t backend_count;
    json_t *profiles;     /* object: name -> record, checked */
    json_t *agents;       /* object: agent type -> profile name */
    json_t *capabilities; /* object: agent type -> array of what its provider must have */
    json_t *allow;        /* array of command prefixes; empty = all */
    json_t *git_hosts;    /* object: host -> {"type": "github" or "gitea", "api_url"} */
    struct {
        int64_t attempts, min_ms, max_ms; /* 3, 1000, 10000 */
        bool on_quota;
    } retry;
    struct {
        int64_t failures, open_ms; /* 5, 30000 */
    } breaker;
    int64_t create_timeout_s;           /* 180 */
    int64_t health_interval_s;          /* 30 */
    int64_t stale_after_s;              /* 86400 */
    int64_t retention_days;             /* 0 = kept sandboxes are never deleted */
    int64_t runner_ttl_ms;              /* 60000, at least 1000 */
    int64_t jobs_per_sandbox;           /* 10 */
    int64_t sandbox_agent_port;         /* sandbox-agent: 2468 */
    int64_t sandbox_agent_health_tries; /* 30 */
    int64_t sandbox_agent_health_ms;    /* 300 */
    int64_t checkpoint_ttl_s;           /* 30 days */
    char *sandbox_agent_token;          /* SANDBOX_AGENT_TOKEN; "" = one made per session */
    char *sandbox_agent_program; /* path on this host of the sandbox-agent binary to upload; "" */
    char *clone_command;         /* E2B_REPO_CLONE_COMMAND; "" */
    char *default_template;      /* E2B_TEMPLATE = E2B_TEMPLATE_ID; "" */
    int64_t sandbox_timeout_ms;  /* E2B_SANDBOX_TIMEOUT_MS, 600000 */
    int64_t command_timeout_s;   /* E2B_TIMEOUT, 300 */
    bool private_urls;           /* of runners and callbacks of all teams; false */
    char *listen, *data_dir;     /* of the file, for the program; "" = not said */
};
