/* Profiles: named records {"provider", "template", "network", "lifecycle", "limits",
 * "permissionMode", "envVars", "mcp", "workspaceRoot", "persistent", "timeout", "outputLimitBytes",
 * "onCreate", "onResume", "options", "gitToken"}. Those of the configuration file are read-only; others are in
 * the store, per team. A record is checked as a whole: all faults at once. */
#pragma once

#include "agent/agent.h"
#include "base/buf.h"
#include "provider/provider.h"

struct agent_backend;

enum agent_permission { PERMISSION_ASK, PERMISSION_EDIT, PERMISSION_BYPASS };
const char *agent_permission_name(enum agent_permission mode);

/* A record with every default filled in, and what a request said laid over it. */
struct agent_profile {
    struct str name;
    struct agent_backend *backend;
    struct str image;
    enum provider_egress egress;
    json_t *allow_domains, *allow_cidrs; /* borrowed from tree */
    bool persistent;
    int64_t idle_s, max_lifetime_s; /* 0 = none */
    int64_t timeout_s;              /* of a command */
    int64_t output_limit;           /* bytes of each stream that are kept */
    bool keep_output;               /* of commands, in the store */
    int64_t cpu, mem_mb, disk_mb;
    enum agent_permission permission;
    json_t *env, *mcp, *on_create, *on_resume, *options, *mounts; /* borrowed from tree; or NULL */
    struct str workspace_root;
    json_t *tree; /* owned: agent_profile_done() */
};

/* What a request may say for itself; absent members keep the profile's. */
struct agent_overrides {
    struct str profile, provider, image, agent_type;
    struct str workspace_root;
    json_t *network, *lifecycle, *limits, *env, *mcp, *mounts, *options;
    int64_t timeout_s, output_limit; /* 0 = not said */
    bool persistent, persistent_given;
};

/* -1 with ERROR_INVALID naming the first fault when there are any; all of them in out_faults (an
 * array of {path, message}, new reference), empty when the record is good. */
int agent_profile_check(struct agents *agents, const struct agent_caller *caller,
                        const json_t *record, json_t **out_faults, struct error *err);
int agent_profile_put(struct agents *agents, const struct agent_caller *caller, struct str name,
                      const json_t *record, json_t **out_faults, struct error *err);
/* Shown: secrets and the values of envVars are "********". New reference. */
int agent_profile_get(struct agents *agents, const struct agent_caller *caller, struct str name,
                      json_t **out, struct error *err);
json_t *agent_profile_list(struct agents *agents, const struct agent_caller *caller);
int agent_profile_delete(struct agents *agents, const struct agent_caller *caller, struct str name,
                         struct error *err);

/* What a profile gives to sessions for git, malloc()ed; or NULL. */
char *agent_profile_git_token(struct agents *agents, const struct agent_caller *caller,
                              struct str name);

/* request > profile > file > environment > default. The profile: as named, else that of the agent
 * type, else "default". Refuses what the backend cannot enforce, before any call. */
int agent_profile_resolve(struct agents *agents, const struct agent_caller *caller,
                          const struct agent_overrides *overrides, struct arena *arena,
                          struct agent_profile *out, struct error *err);
void agent_profile_done(struct agent_profile *profile);
