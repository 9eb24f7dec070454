/* What a command is made of: its words and its environment. A line goes to `bash -lc` as one word, so
 * that nothing of ours has to be quoted; whether an image has a bash is asked once. */
#include <stdlib.h>

#include "base/env_name.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/runtime_parts.h"
#include "runtime/run/run.h"
#include "runtime/run/running.h"

enum {
    ARGV_MAX = 1024,
    LINE_MAX_BYTES = 1024 * 1024,
    ENV_MAX = 512,
    TEXT_MAX = 4096,
};

/* ---- words ---- */

static int given_argv(const json_t *array, struct arena *arena, const char *const **out,
                      struct error *err)
{
    size_t count = json_array_size(array);
    const char **argv;

    if (!json_is_array(array) || count == 0 || count > ARGV_MAX)
        return error_set(err, ERROR_INVALID, "argv must be an array of 1 to %d strings", ARGV_MAX);
    argv = arena_alloc(arena, (count + 1) * sizeof(*argv));
    for (size_t i = 0; i < count; i++) {
        const json_t *word = json_array_get(array, i);

        if (!json_is_string(word) || strlen(json_string_value(word)) != json_string_length(word))
            return error_set(err, ERROR_INVALID, "argv[%zu] must be a string without NUL", i);
        argv[i] = arena_str(arena, str_of(json_string_value(word))).p;
    }
    if (!*argv[0])
        return error_set(err, ERROR_INVALID, "argv[0] must not be empty");
    *out = argv;
    return 0;
}

/* Asked once for an image of a provider. */
static int has_bash(struct runtime *runtime, struct provider *provider,
                    const struct provider_ref *ref, struct str image, struct error *err)
{
    static const char *const probe[] = {"/bin/sh", "-c", "command -v bash >/dev/null 2>&1", NULL};
    struct runtime_run run = {.argv = probe, .timeout_ms = 30000, .output_limit = 1};
    struct str name = str_of(provider_name(provider));
    int known = runtime_runs_bash(runtime, name, image);
    struct runtime_result result = {0};
    bool started = false;

    if (known >= 0)
        return known;
    if (runtime_run(runtime, provider, ref, &run, &result, &started, err) < 0) {
        runtime_result_done(&result);
        return -1;
    }
    known = result.exit_code == 0;
    runtime_result_done(&result);
    if (!result.timed_out)
        runtime_runs_set_bash(runtime, name, image, known);
    return known;
}

int runtime_command_argv(struct runtime *runtime, struct provider *provider,
                         const struct provider_ref *ref, struct str image,
                         const struct runtime_command *command, struct arena *arena,
                         const char *const **out, struct error *err)
{
    struct str line = command->command;
    const char **argv;
    int bash;

    if (!line.p == !command->argv)
        return error_set(err, ERROR_INVALID, "give either command or argv");
    if (command->argv)
        return given_argv(command->argv, arena, out, err);
    if (!line.len || line.len > LINE_MAX_BYTES || memchr(line.p, '\0', line.len))
        return error_set(err, ERROR_INVALID, "command must be 1 to %d bytes of text without NUL",
                         LINE_MAX_BYTES);
    bash = has_bash(runtime, provider, ref, image, err);
    if (bash < 0)
        return -1;
    argv = arena_alloc(arena, 4 * sizeof(*argv));
    argv[0] = bash ? "bash" : "/bin/sh";
    argv[1] = bash ? "-lc" : "-c";
    argv[2] = arena_str(arena, line).p;
    *out = argv;
    return 0;
}

/* ---- environment ---- */

static int add_env(const json_t *object, struct pair *env, size_t *count, struct arena *arena,
                   struct error *err)
{
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)object, name, value) {
        size_t at = 0;

        if (env_name_check("env", str_of(name), err) < 0)
            return -1;
        if (!json_is_string(value))
            return error_set(err, ERROR_INVALID, "env: the value of '%.100s' must be a string",
                             name);
        while (at < *count && !str_is(env[at].name, name))
            at++;
        if (at == ENV_MAX)
            return error_set(err, ERROR_LIMIT, "more than %d environment variables", ENV_MAX);
        env[at] = (struct pair){
            arena_str(arena, str_of(name)),
            arena_str(arena, str_n(json_string_value(value), json_string_length(value)))};
        if (at == *count)
            (*count)++;
    }
    return 0;
}

int runtime_command_env(const json_t *first, const json_t *second, struct arena *arena,
                        const struct pair **out, size_t *out_count, struct error *err)
{
    size_t most = json_object_size(first) + json_object_size(second);
    struct pair *env;

    *out_count = 0;
    *out = NULL;
    if (second && !json_is_object(second))
        return error_set(err, ERROR_INVALID, "env must be an object of strings");
    if (!most)
        return 0;
    env = arena_alloc(arena, (most < ENV_MAX ? most : ENV_MAX) * sizeof(*env));
    if (add_env(first, env, out_count, arena, err) < 0 ||
        add_env(second, env, out_count, arena, err) < 0)
        return -1;
    *out = env;
    return 0;
}

/* ---- for people ---- */

struct str runtime_command_text(struct runtime *runtime, struct str team_id,
                                const struct runtime_command *command, struct arena *arena)
{
    char *text = arena_alloc(arena, TEXT_MAX + 1);
    size_t len = 0, i;
    json_t *word;

    if (command->command.p) {
        len = command->command.len < TEXT_MAX ? command->command.len : TEXT_MAX;
        memcpy(text, command->command.p, len);
    }
    json_array_foreach (command->argv, i, word) {
        int added = snprintf(text + len, TEXT_MAX + 1 - len, "%s%s", i ? " " : "",
                             json_string_value(word) ? json_string_value(word) : "");

        len += added > 0 ? (size_t)added : 0;
        if (len >= TEXT_MAX) {
            len = TEXT_MAX;
            break;
        }
    }
    text[len] = '\0';
    runtime_mask(runtime, team_id, text);
    return str_of(text);
}
