/* What a terminal runs: the command that was asked for, or the shell that the sandbox has. */
#include "base/cleanup.h"
#include "base/env_name.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/terminal_internal.h"
#include "runtime/run/run.h"

enum { COLS_DEFAULT = 120, ROWS_DEFAULT = 40 };

static int parse_strings(struct str text, const char *name, json_type type, json_t **out,
                         struct error *err)
{
    const char *key;
    json_t *item;
    size_t i;

    if (json_parse(text, out, err) < 0)
        return error_prefix(err, "'%s'", name);
    if (json_typeof(*out) != type || (type == JSON_ARRAY && !json_array_size(*out)))
        return error_set(err, ERROR_INVALID, "'%s' must be a JSON %s of strings", name,
                         type == JSON_ARRAY ? "array" : "object");
    json_array_foreach (*out, i, item)
        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "'%s' has a word that is no string", name);
    json_object_foreach (*out, key, item) {
        if (env_name_check(name, str_of(key), err) < 0)
            return -1;
        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "%s: the value of '%s' must be a string", name,
                             key);
    }
    return 0;
}

int terminal_request_check(const struct terminal_request *request, struct error *err)
{
    auto_json json_t *argv = NULL, *env = NULL;

    if (request->argv.len && parse_strings(request->argv, "argv", JSON_ARRAY, &argv, err) < 0)
        return -1;
    return request->env.len ? parse_strings(request->env, "env", JSON_OBJECT, &env, err) : 0;
}

/* The words of the request's command; NULL: it asks for a shell. */
static const char *const *words_of(const struct terminal_request *request, struct arena *arena)
{
    auto_json json_t *argv = NULL;
    struct error ignored;
    const char **words;
    json_t *word;
    size_t i;

    if (!request->argv.len || parse_strings(request->argv, "argv", JSON_ARRAY, &argv, &ignored) < 0)
        return NULL;
    words = arena_alloc(arena, (json_array_size(argv) + 1) * sizeof(*words));
    json_array_foreach (argv, i, word)
        words[i] = arena_str(arena, str_of(json_string_value(word))).p;
    words[json_array_size(argv)] = NULL;
    return words;
}

static json_t *env_of(const struct terminal_request *request)
{
    json_t *env = NULL;
    struct error ignored;

    if (!request->env.len || parse_strings(request->env, "env", JSON_OBJECT, &env, &ignored) < 0) {
        json_decref(env);
        env = json_object();
    }
    if (!json_object_get(env, "TERM"))
        (void)json_object_set_new(env, "TERM", json_string("xterm-256color"));
    return env;
}

int terminal_start_shell(struct runtime *runtime, const struct runtime_caller *caller,
                         struct runtime_use *use, const struct terminal_request *request,
                         const char *tag, struct arena *keep, struct provider_process **out,
                         struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_json json_t *shell_env = env_of(request);
    struct runtime_command probe = {.command = STR("true")};
    const char *const *line = NULL;
    const char *bash[] = {"bash", "-i", "-l", NULL}, *sh[] = {"/bin/sh", "-i", NULL};
    struct provider_command command = {
        .cwd = arena_str(&arena, request->cwd.len ? request->cwd : use->workspace_root).p,
        .user = request->user.len ? arena_str(&arena, request->user).p : NULL,
        .tag = tag,
        .open_stdin = true,
        .pty = true,
        .cols = request->cols ? request->cols : COLS_DEFAULT,
        .rows = request->rows ? request->rows : ROWS_DEFAULT,
    };
    int r;

    /* The words of a line say which shell there is. */
    if (runtime_command_argv(runtime, use->provider, &use->ref, use->sandbox.image, &probe, &arena,
                             &line, err) < 0 ||
        runtime_command_env(shell_env, use->env, &arena, &command.env, &command.env_count, err) < 0)
        return -1;
    command.argv = words_of(request, &arena);
    if (!command.argv)
        command.argv = strcmp(line[0], "bash") == 0 ? bash : sh;
    r = provider_start(use->provider, &use->ref, &command, out, err);
    if (r < 0 && runtime_use_recover(runtime, caller, use, keep, err) > 0)
        r = provider_start(use->provider, &use->ref, &command, out, err);
    return r;
}
