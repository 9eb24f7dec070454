/* Profiles: named records {"provider", "template", "network", "lifecycle", "limits",
 * "permissionMode", "envVars", "mcp", "workspaceRoot", "persistent", "timeout", "outputLimitBytes",
 * "onCreate", "onResume", "options", "gitToken", "conventionalCommits"}. Those of the configuration file are read-only; others are in
 * the store, per team. A record is checked as a whole: all faults at once. */
#pragma once

#include "base/buf.h"
#include "provider/core/provider.h"
#include "runtime/core/runtime.h"
#include "store/runtime/runtime_state.h"

struct backend;

/* A record with every default filled in, and what a request said laid over it. */
struct profile {
    struct str name;
    struct backend *backend;
    struct str image;
    enum provider_egress egress;
    json_t *allow_domains, *allow_cidrs, *peers; /* borrowed from tree */
    bool persistent;
    int64_t idle_s, max_lifetime_s; /* 0 = none */
    int64_t expire_s;               /* deleted when unused for so long; 0 = never */
    int64_t timeout_s;              /* of a command */
    int64_t output_limit;           /* bytes of each stream that are kept */
    bool keep_output;               /* of commands, in the store */
    int64_t cpu, mem_mb, disk_mb;
    enum permission permission;
    json_t *env, *mcp, *on_create, *on_resume, *options, *mounts; /* borrowed from tree; or NULL */
    struct str workspace_root;
    struct str settings; /* JSON: what later operations need of it */
    bool equips;         /* wants a screen or the gateway */
    json_t *tree;        /* owned: profile_done() */
};

/* What a request may say for itself; absent members keep the profile's. */
struct runtime_overrides {
    struct str profile, provider, image, agent_type;
    struct str workspace_root;
    json_t *network, *lifecycle, *limits, *env, *mcp, *mounts, *options;
    int64_t timeout_s, output_limit; /* 0 = not said */
    bool persistent, persistent_given;
};

/* -1 with ERROR_INVALID naming the first fault when there are any; all of them in out_faults (an
 * array of {path, message}, new reference), empty when the record is good. */
int profile_check(struct runtime *runtime, const struct runtime_caller *caller,
                  const json_t *record, json_t **out_faults, struct error *err);
int profile_put(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                const json_t *record, json_t **out_faults, struct error *err);
/* Shown: secrets and the values of envVars are "********". New reference. */
int profile_get(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                json_t **out, struct error *err);
json_t *profile_list(struct runtime *runtime, const struct runtime_caller *caller);
int profile_delete(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                   struct error *err);

/* Others instead of those of the configuration file, from now on; by one thread. ERROR_INVALID when one is wrong: then
 * nothing changes. */
int profiles_replace(struct runtime *runtime, json_t *profiles, struct error *err);

/* What a profile gives to sessions for git, malloc()ed; or NULL. */
char *profile_git_token(struct runtime *runtime, const struct runtime_caller *caller,
                        struct str name);
/* Whether pushes of sessions with this profile reject other commit messages. */
bool profile_conventional_commits(struct runtime *runtime, const struct runtime_caller *caller,
                                  struct str name);

/* request > profile > file > environment > default. The profile: as named, else that of the agent
 * type, else "default". Refuses what the backend cannot enforce, before any call. */
int profile_resolve(struct runtime *runtime, const struct runtime_caller *caller,
                    const struct runtime_overrides *overrides, struct arena *arena,
                    struct profile *out, struct error *err);
void profile_done(struct profile *profile);

/* Of a flat record: {"size", "dpi", "vnc"} when it wants a screen; NULL else. New reference. */
json_t *profile_screen(const json_t *flat);
/* The servers of the gateway when it wants one; NULL else. New reference. */
json_t *profile_gateway(const json_t *flat);
/* Whether it wants one or the other. */
bool profile_equips(const json_t *flat);
/* profile->settings, made anew. */
struct str profile_settings(const struct profile *profile, struct arena *arena);
/* Whether an entry of "mcp" is the gateway's, by its name; the others are the agent's own. */
bool profile_of_gateway(const char *name);
/* What the gateway would run for them, as lines. New reference. */
json_t *profile_gateway_lines(const json_t *mcp);

/* Of the configuration file. */
json_t *runtime_profiles(const struct runtime *runtime);

/* ---- opened and closed by runtime_main.c ---- */

void profiles_kept_open(struct runtime *runtime);
void profiles_kept_close(struct runtime *runtime);
/* Checks the profiles of the file against what the backends can do. */
int profiles_open(struct runtime *runtime, struct error *err);
