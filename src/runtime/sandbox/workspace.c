/* The directory that a sandbox's commands start in, and a repository in it: made before the sandbox is
 * told as running, by one constant script. Names and the token reach it through its environment. */
#include "runtime/sandbox/workspace.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/profile.h"
#include "runtime/run/run.h"
#include "runtime/sandbox/repo.h"

enum { WORKSPACE_MS = 300000, PRINTED_MAX = 64 * 1024, TOLD_MAX = 240 };

const char workspace_script[] =
    "set -e\n"
    "root=${QS_ROOT:-$HOME/workspace}\n"
    "mkdir -p \"$root\" 2>/dev/null || { sudo -n mkdir -p \"$root\" &&"
    " sudo -n chown \"$(id -u):$(id -g)\" \"$root\"; } || {"
    " echo \"cannot make the directory $root\" >&2; exit 8; }\n"
    "if [ -z \"$QS_REPO\" ]; then cd \"$root\"; pwd; exit 0; fi\n"
    "dir=$root/$QS_NAME\n"
    "if [ -d \"$dir/.git\" ]; then cd \"$dir\"; pwd; exit 0; fi\n"
    "export GIT_TERMINAL_PROMPT=0\n"
    "set +e\n"
    "if [ -n \"$QS_CLONE\" ]; then\n"
    "  repo_url=$QS_REPO repo_dir=$dir session_id=$QS_SESSION sh -c \"$QS_CLONE\" >&2\n"
    "else\n"
    "  git -c credential.helper= -c credential.helper='!f() { [ -n \"$QS_TOKEN\" ] || exit 0;"
    " echo username=x-access-token; echo \"password=$QS_TOKEN\"; }; f'"
    " clone -q --depth 1 --single-branch --no-tags ${QS_BRANCH:+--branch \"$QS_BRANCH\"}"
    " -- \"$QS_REPO\" \"$dir\" >&2\n"
    "fi\n"
    "code=$?\n"
    "mkdir -p \"$dir\" && cd \"$dir\" && pwd || exit 1\n"
    "[ $code = 0 ] || exit 7\n";

int workspace_check(const struct runtime_ensure *request, struct error *err)
{
    if (repo_check(request->repo, request->branch, err) < 0)
        return -1;
    if (!request->repo.len && (request->branch.len || request->git_token.len))
        return error_set(err, ERROR_INVALID, "'%s' without 'repo'",
                         request->branch.len ? "branch" : "git_token");
    return 0;
}

void workspace_of(const struct runtime_ensure *request, struct arena *arena,
                  struct profile *profile, struct str *out_root)
{
    struct str name;

    *out_root = profile->workspace_root;
    if (!request->repo.len)
        return;
    if (!out_root->p)
        *out_root = STR(RUNTIME_WORKSPACE_DEFAULT);
    repo_folder(request->repo, arena, &name);
    profile->workspace_root =
        str_of(arena_printf(arena, "%.*s/%.*s", STR_ARG(*out_root), STR_ARG(name)));
    profile->settings = profile_settings(profile, arena);
}

/* The request's, else the profile's, which may be a reference of the configuration. */
static char *token_of(struct runtime *runtime, const struct runtime_caller *caller,
                      const struct runtime_ensure *request, struct str profile)
{
    char *token = request->git_token.len ? str_dup(request->git_token)
                  : request->repo.len    ? profile_git_token(runtime, caller, profile)
                                         : NULL;

    if (token)
        runtime_secret_add(runtime, caller->team_id, str_of(token));
    return token ? token : xstrdup("");
}

static int run_script(struct runtime *runtime, struct backend *backend,
                      const struct store_runtime_sandbox *row, const json_t *env, struct error *err)
{
    static const char *const argv[] = {"sh", "-c", workspace_script, NULL};
    struct provider_ref ref = runtime_row_ref(row, 0);
    auto_arena struct arena arena = {0};
    struct runtime_run run = {
        .argv = argv, .timeout_ms = WORKSPACE_MS, .output_limit = PRINTED_MAX};
    struct runtime_result result = {0};
    json_t *settings = arena_parse(&arena, row->settings);
    bool started = false;
    int r = runtime_command_env(json_object_get(settings, "env"), env, &arena, &run.env,
                                &run.env_count, err);

    if (r == 0)
        r = runtime_run(runtime, backend_provider(backend), &ref, &run, &result, &started, err);
    if (r == 0 && result.exit_code != 0) {
        struct str told = str_trim(buf_str(&result.err));

        if (told.len > TOLD_MAX)
            told = str_skip(told, told.len - TOLD_MAX);
        r = error_set(err, ERROR_CONFLICT, "%s: %.*s",
                      result.exit_code == 7 ? "the repository cannot be cloned" : "workspace",
                      STR_ARG(told));
        runtime_mask(runtime, row->team_id, err->message);
    }
    runtime_result_done(&result);
    return r;
}

int workspace_make(struct runtime *runtime, const struct runtime_caller *caller,
                   struct backend *backend, const struct store_runtime_sandbox *row,
                   const struct runtime_ensure *request, struct str root, struct error *err)
{
    auto_free char *token = NULL;
    auto_arena struct arena arena = {0};
    auto_json json_t *env = NULL;
    struct store_runtime_sandbox told = *row;
    struct str name;
    int r;

    if (!root.p)
        return 0;
    if (backend_require(backend, PROVIDER_EXEC, err) < 0)
        return -1;
    /* The id that it will have once it is told. */
    if (backend_embedded(runtime, backend))
        told.id = row->external_id;
    token = token_of(runtime, caller, request, row->profile);
    repo_folder(request->repo, &arena, &name);
    env = json_pack("{s:o, s:o, s:o, s:o, s:s, s:s, s:o}", "QS_ROOT", json_str(root), "QS_REPO",
                    json_str(request->repo.p ? request->repo : STR("")), "QS_NAME", json_str(name),
                    "QS_BRANCH", json_str(request->branch.p ? request->branch : STR("")),
                    "QS_TOKEN", token, "QS_CLONE", "", "QS_SESSION", json_str(row->id));
    if (request->repo.len)
        runtime_row_event(runtime, caller, &told, "git.clone.started", NULL);
    r = run_script(runtime, backend, row, env, err);
    if (request->repo.len)
        runtime_row_event(
            runtime, caller, &told, r == 0 ? "git.clone.succeeded" : "git.clone.failed",
            r == 0 ? NULL : json_pack("{s:o}", "message", json_str(str_of(err->message))));
    return r;
}

struct str workspace_root(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str sandbox_id, struct arena *arena)
{
    struct store_runtime_sandbox row;
    struct error ignored;

    if (runtime_row_get(runtime, caller, sandbox_id, arena, &row, &ignored) < 0)
        return STR_NONE;
    return json_get_str(arena_parse(arena, row.settings), "workspace_root");
}
