/* The workspace of a sandbox: the directory its commands start in, and a repository in it. */
#pragma once

#include "runtime/sandbox/sandbox_parts.h"

#define RUNTIME_WORKSPACE_DEFAULT "/workspace" /* of a repository without a root */

/* Prints the folder. Environment: QS_ROOT ("" = ~/workspace), QS_REPO, QS_NAME, QS_BRANCH, QS_TOKEN,
 * QS_CLONE, QS_SESSION. Exit code 7: the clone failed, the folder is there. */
extern const char workspace_script[];

int workspace_check(const struct runtime_ensure *request, struct error *err);
/* Where a repository goes: the profile's root becomes the clone's directory, *out_root what it is in. */
void workspace_of(const struct runtime_ensure *request, struct arena *arena,
                  struct profile *profile, struct str *out_root);
/* Before the sandbox is told as running. Nothing to do without a root. Events git.clone.*. */
int workspace_make(struct runtime *runtime, const struct runtime_caller *caller,
                   struct backend *backend, const struct store_runtime_sandbox *row,
                   const struct runtime_ensure *request, struct str root, struct error *err);
/* Of a sandbox that is there; STR_NONE. */
struct str workspace_root(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str sandbox_id, struct arena *arena);
