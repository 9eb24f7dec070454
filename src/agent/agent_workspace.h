/* The workspace of a sandbox: the directory its commands start in, and a repository in it. */
#pragma once

#include "agent/agent_sandbox_internal.h"

#define AGENT_WORKSPACE_DEFAULT "/workspace" /* of a repository without a root */

/* Prints the folder. Environment: QS_ROOT ("" = ~/workspace), QS_REPO, QS_NAME, QS_BRANCH, QS_TOKEN,
 * QS_CLONE, QS_SESSION. Exit code 7: the clone failed, the folder is there. */
extern const char agent_workspace_script[];

int agent_workspace_check(const struct agent_ensure *request, struct error *err);
/* Where a repository goes: the profile's root becomes the clone's directory, *out_root what it is in. */
void agent_workspace_of(const struct agent_ensure *request, struct arena *arena,
                        struct agent_profile *profile, struct str *out_root);
/* Before the sandbox is told as running. Nothing to do without a root. Events git.clone.*. */
int agent_workspace_make(struct agents *agents, const struct agent_caller *caller,
                         struct agent_backend *backend, const struct store_agent_sandbox *row,
                         const struct agent_ensure *request, struct str root, struct error *err);
/* Of a sandbox that is there; STR_NONE. */
struct str agent_workspace_root(struct agents *agents, const struct agent_caller *caller,
                                struct str sandbox_id, struct arena *arena);
