/* What a session needs in its sandbox: the program sandbox-agent, the repository, the server.
 *
 * All of it by scripts that are constant; names and secrets reach them through their environment. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"
#include "runtime/run/run.h"
#include "runtime/sandbox/workspace.h"
#include "runtime/session/session_internal.h"

enum {
    SHORT_MS = 30000,
    CLONE_MS = 300000,
    PRINTED_MAX = 64 * 1024,
    TOLD_MAX = 240, /* of a script's errors in a message */
};

#define AGENT_FILE ".local/bin/sandbox-agent" /* in the home directory */
#define WITH_PATH  "export PATH=\"$HOME/.local/bin:$PATH\"\n"

int session_script(const struct session_place *place, const char *script, json_t *env,
                   int64_t timeout_ms, char **out_text, struct error *err)
{
    struct runtime_result result = {0};
    auto_json json_t *argv = json_pack("[s,s,s]", "sh", "-c", script);
    struct runtime_command command = {.argv = argv,
                                      .env = env,
                                      .timeout_ms = timeout_ms,
                                      .output_limit = PRINTED_MAX,
                                      .own = true};
    int r = runtime_exec(place->runtime, place->caller, place->sandbox_id, &command, &result, err);

    if (r == 0 && result.timed_out)
        r = error_set(err, ERROR_TIMEOUT, "a step in the sandbox took longer than %lld s",
                      (long long)(timeout_ms / 1000));
    else if (r == 0 && result.exit_code != 0) {
        struct str told = str_trim(buf_str(&result.err));

        if (told.len > TOLD_MAX)
            told = str_skip(told, told.len - TOLD_MAX);
        r = error_set(err, ERROR_INTERNAL, "exit code %d: %.*s", result.exit_code, STR_ARG(told));
    } else if (r == 0 && out_text)
        *out_text = buf_take(&result.out);
    runtime_result_done(&result);
    return r;
}

static ssize_t read_program(void *arg, void *p, size_t size)
{
    return read(*(int *)arg, p, size);
}

static int upload(const struct session_place *place, const char *program, struct error *err)
{
    auto_close int fd = open(program, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return error_set(err, ERROR_UNAVAILABLE, "cannot read sandbox-agent's program '%s': %s",
                         program, strerror(errno));
    if (runtime_file_write(place->runtime, place->caller, place->sandbox_id, AGENT_FILE,
                           read_program, &fd, st.st_size, err) < 0)
        return error_prefix(err, "upload of sandbox-agent");
    return session_script(place, "chmod 0755 \"$HOME/" AGENT_FILE "\"", NULL, SHORT_MS, NULL, err);
}

int session_install(const struct session_place *place, struct error *err)
{
    static const char look[] =
        WITH_PATH "command -v sandbox-agent >/dev/null 2>&1 && echo yes || echo no";
    const char *program = place->runtime->config.settings->sandbox_agent_program;
    auto_free char *found = NULL;

    if (session_script(place, look, NULL, SHORT_MS, &found, err) < 0)
        return error_prefix(err, "look for sandbox-agent");
    if (str_is(str_trim(str_of(found)), "yes"))
        return 0;
    if (program[0] == '\0')
        return error_set(
            err, ERROR_UNAVAILABLE,
            "sandbox-agent is not in the template, and the setting 'sandbox_agent.program' "
            "does not say where it is on this host (npm package "
            "@sandbox-agent/cli-linux-x64)");
    return upload(place, program, err);
}

/* {repo_url} in an operator's own command becomes "$repo_url", so that nothing in a URL is taken for
 * a part of the command. */
static char *clone_command(const char *template)
{
    static const struct {
        const char *mark, *variable;
    } table[] = {
        {"{repo_url}", "\"$repo_url\""},
        {"{repo_dir}", "\"$repo_dir\""},
        {"{session_id}", "\"$session_id\""},
    };
    struct buf out;

    buf_init(&out, 64 * 1024);
    while (*template) {
        bool found = false;

        for (size_t i = 0; i < sizeof(table) / sizeof(table[0]) && !found; i++)
            if (strncmp(template, table[i].mark, strlen(table[i].mark)) == 0) {
                (void)buf_add_str(&out, str_of(table[i].variable));
                template += strlen(table[i].mark);
                found = true;
            }
        if (!found)
            (void)buf_add_char(&out, *template ++);
    }
    return buf_take(&out);
}

/* What the sandbox printed: it may be anything. */
static bool plain_path(struct str path)
{
    return str_starts(path, STR("/")) && path.len < PATH_MAX && str_valid_utf8(path) &&
           str_find(path, '\n') < 0 && str_find(path, '\0') < 0;
}

int session_workspace(const struct session_place *place, const struct store_session *row,
                      const char *git_token, char **out_dir, struct error *out_clone_error,
                      struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_free char *clone = clone_command(place->runtime->config.settings->clone_command);
    auto_json json_t *argv = json_pack("[s,s,s]", "sh", "-c", workspace_script);
    auto_json json_t *env = NULL;
    struct runtime_command command = {
        .argv = argv, .timeout_ms = CLONE_MS, .output_limit = PRINTED_MAX, .own = true};
    struct runtime_result result = {0};
    struct str name, root;
    int r;

    repo_folder(row->repo, &arena, &name);
    root = workspace_root(place->runtime, place->caller, place->sandbox_id, &arena);
    env = json_pack("{s:o,s:s,s:s,s:s,s:s,s:s,s:s}", "QS_ROOT", json_str(root.p ? root : STR("")),
                    "QS_REPO", row->repo.len ? row->repo.p : "", "QS_NAME", name.p, "QS_BRANCH",
                    row->branch.len ? row->branch.p : "", "QS_TOKEN", git_token, "QS_CLONE", clone,
                    "QS_SESSION", row->id.p);
    command.env = env;
    *out_clone_error = (struct error){0};
    r = runtime_exec(place->runtime, place->caller, place->sandbox_id, &command, &result, err);
    if (r == 0 && result.exit_code != 0) {
        struct str told = str_trim(buf_str(&result.err));

        if (told.len > TOLD_MAX)
            told = str_skip(told, told.len - TOLD_MAX);
        (void)error_set(out_clone_error, ERROR_UNAVAILABLE, "%.*s", STR_ARG(told));
        if (result.exit_code != 7)
            r = error_set(err, ERROR_INTERNAL, "cannot prepare the workspace: %.*s", STR_ARG(told));
    }
    if (r == 0 && !plain_path(str_trim(buf_str(&result.out))))
        r = error_set(err, ERROR_UNAVAILABLE, "the sandbox does not say where its workspace is");
    if (r == 0)
        *out_dir = str_dup(str_trim(buf_str(&result.out)));
    runtime_result_done(&result);
    return r;
}

int session_start_server(const struct session_place *place, const struct store_session *row,
                         struct str url, struct error *err)
{
    static const char script[] =
        WITH_PATH "cd \"$QS_DIR\" || cd\n"
                  "setsid nohup sandbox-agent server --token \"$QS_TOKEN\" --host \"$QS_HOST\""
                  " --port \"$QS_PORT\" --no-telemetry"
                  " >\"${TMPDIR:-/tmp}/sandbox-agent-$QS_PORT.log\" 2>&1 </dev/null &\n";
    char port[16], here[48];
    auto_json json_t *env = NULL;

    (void)snprintf(port, sizeof(port), "%d", (int)row->port);
    (void)snprintf(here, sizeof(here), "http://127.0.0.1:%s", port);
    /* Without a network of its own it is the host's: nobody else needs to reach it. */
    env = json_pack("{s:s,s:s,s:s,s:s}", "QS_HOST", str_is(url, here) ? "127.0.0.1" : "0.0.0.0",
                    "QS_DIR", row->workdir.len ? row->workdir.p : "/", "QS_TOKEN",
                    row->sandbox_agent_token.p, "QS_PORT", port);
    if (session_script(place, script, env, SHORT_MS, NULL, err) < 0)
        return error_prefix(err, "start sandbox-agent");
    return 0;
}
