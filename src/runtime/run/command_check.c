/* Which commands may run at all. With an allow list a line must begin with the words of one of its
 * entries and must not hold what could start another command; nor may variables or hooks. */
#include <ctype.h>

#include "base/env_name.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/runtime_parts.h"
#include "runtime/run/run.h"

static struct str next_word(struct str *rest)
{
    while (rest->len && (*rest->p == ' ' || *rest->p == '\t'))
        *rest = str_skip(*rest, 1);
    struct str word = str_n(rest->p, 0);

    while (word.len < rest->len && word.p[word.len] != ' ' && word.p[word.len] != '\t')
        word.len++;
    *rest = str_skip(*rest, word.len);
    return word;
}

static bool line_matches(struct str line, struct str entry)
{
    for (;;) {
        struct str wanted = next_word(&entry);

        if (!wanted.len)
            return true;
        if (!str_eq(next_word(&line), wanted))
            return false;
    }
}

static bool argv_matches(const json_t *argv, struct str entry)
{
    for (size_t i = 0;; i++) {
        struct str wanted = next_word(&entry);

        if (!wanted.len)
            return i > 0;
        if (!str_eq(str_of(json_string_value(json_array_get(argv, i))), wanted))
            return false;
    }
}

static int refuse(struct str word, struct error *err)
{
    return error_set(err, ERROR_FORBIDDEN,
                     "command '%.*s' is not in the list of allowed commands (commands.allow)",
                     word.len > 100 ? 100 : (int)word.len, word.p ? word.p : "");
}

/* Variables by which a shell or the loader runs something else than what the line says; functions of
 * bash come as names with signs in them. */
static bool changes_commands(const char *name)
{
    static const char *const names[] = {"PATH",     "ENV", "BASH_ENV", "SHELLOPTS",
                                        "BASHOPTS", "IFS", "PS4",      "PROMPT_COMMAND"};

    if (strncmp(name, "LD_", 3) == 0 || strncmp(name, "BASH_FUNC_", 10) == 0)
        return true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_')
            return true;
    return false;
}

int runtime_command_check_env(struct runtime *runtime, const json_t *env, struct error *err)
{
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)env, name, value)
        if (env_name_check("env", str_of(name), err) < 0)
            return -1;
    if (json_array_size(runtime->config.settings->allow) == 0)
        return 0;
    json_object_foreach ((json_t *)(uintptr_t)env, name, value)
        if (changes_commands(name))
            return error_set(err, ERROR_FORBIDDEN,
                             "with a list of allowed commands (commands.allow) "
                             "the variable '%.100s' must not be set",
                             name);
    return 0;
}

int runtime_command_check_hooks(struct runtime *runtime, const json_t *hooks, struct error *err)
{
    json_t *hook;
    size_t i;

    json_array_foreach (hooks, i, hook) {
        struct runtime_command command = {.command = str_of(json_string_value(hook))};

        if (runtime_command_check(runtime, &command, err) < 0)
            return -1;
    }
    return 0;
}

int runtime_command_check(struct runtime *runtime, const struct runtime_command *command,
                          struct error *err)
{
    const json_t *allow = runtime->config.settings->allow;
    struct str line = command->command, rest = line;
    json_t *entry;
    size_t i;

    if (runtime_command_check_env(runtime, command->env, err) < 0)
        return -1;
    if (json_array_size(allow) == 0)
        return 0;
    for (size_t at = 0; !command->argv && at < line.len; at++)
        if (strchr(";|&$()<>`\\\n\r", line.p[at]))
            return error_set(err, ERROR_FORBIDDEN,
                             "with a list of allowed commands (commands.allow) a line must not hold"
                             " any of ; | & $ ( ) < > ` \\ or line breaks");
    json_array_foreach (allow, i, entry) {
        struct str words = str_trim(str_of(json_string_value(entry)));

        if (words.len &&
            (command->argv ? argv_matches(command->argv, words) : line_matches(line, words)))
            return 0;
    }
    return refuse(command->argv ? str_of(json_string_value(json_array_get(command->argv, 0)))
                                : next_word(&rest),
                  err);
}
