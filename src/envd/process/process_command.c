#include "envd/process/process_command.h"

#include <sys/stat.h>

#include "base/alloc.h"
#include "envd/files/guest_path.h"
#include "envd/files/guest_stat.h"
#include "protocol/json/json_shape.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct command_request {
    struct str cmd, cwd;
    json_t *args, *envs;
};

static const struct json_field fields[] = {
    JSON_FIELD(struct command_request, cmd, "cmd", JSON_REQUIRED),
    JSON_FIELD(struct command_request, cwd, "cwd", 0),
    JSON_FIELD(struct command_request, args, "args", 0),
    JSON_FIELD(struct command_request, envs, "envs", 0),
    JSON_END,
};

static int make_env(struct env *env, const struct settings *settings, const struct user *user,
                    const json_t *envs, struct error *err)
{
    struct str name = str_of(user->name);

    if (env_set(env, STR("PATH"), STR(DEFAULT_PATH), err) != 0 ||
        env_set(env, STR("HOME"), str_of(user->home), err) != 0 ||
        env_set(env, STR("USER"), name, err) != 0 || env_set(env, STR("LOGNAME"), name, err) != 0)
        return -1;
    /* Internal ones are not for users to change; a single program's own may differ. */
    if (env_add_all(env, &settings->trust, err) != 0 ||
        env_add_all(env, &settings->user, err) != 0 ||
        env_add_all(env, &settings->internal, err) != 0)
        return -1;
    return env_add_json(env, envs, err);
}

static int make_argv(struct process_command *out, const struct command_request *request,
                     struct error *err)
{
    size_t count = json_array_size(request->args);

    if (request->args && !json_is_array(request->args))
        return error_set(err, ERROR_INVALID, "'args' must be an array");
    if (count > PROCESS_ARGS_MAX)
        return error_set(err, ERROR_LIMIT, "more than %d arguments", PROCESS_ARGS_MAX);
    out->argv = xcalloc(count + 2, sizeof(*out->argv));
    out->argv[0] = str_dup(request->cmd);
    for (size_t i = 0; i < count; i++) {
        const json_t *arg = json_array_get(request->args, i);

        if (!json_is_string(arg))
            return error_set(err, ERROR_INVALID, "'args' must hold strings");
        out->argv[i + 1] = xstrdup(json_string_value(arg));
    }
    return 0;
}

/* envd must not execute the file it serves itself: it would wait for its own answer. */
static bool may_try(const char *path)
{
    struct guest_stat st;

    return guest_stat(path, true, &st) != 0 || !guest_stat_is_own(&st);
}

/* A command with a slash is a path; others are looked for in the program's own PATH. */
static int make_candidates(struct process_command *out, struct str cmd, struct error *err)
{
    struct str rest = env_get(&out->env, "PATH");
    size_t count = 0, cap = 2;

    for (size_t i = 0; i < rest.len; i++)
        cap += rest.p[i] == ':';
    out->candidates = xcalloc(cap + 1, sizeof(*out->candidates));
    if (str_find(cmd, '/') >= 0) {
        out->candidates[count++] = str_dup(cmd);
    } else {
        while (rest.p) {
            struct str dir = str_split(&rest, ':');

            if (dir.len > 0)
                out->candidates[count++] = xasprintf("%.*s/%.*s", STR_ARG(dir), STR_ARG(cmd));
        }
    }
    for (size_t i = 0; i < count; i++)
        if (!may_try(out->candidates[i]))
            return error_set(err, ERROR_INVALID, "error starting process '%.*s': Permission denied",
                             STR_ARG(cmd));
    return 0;
}

static int check_cwd(const char *cwd, struct error *err)
{
    struct guest_stat st;

    if (guest_stat(cwd, true, &st) != 0)
        return error_set(err, ERROR_INVALID, "cwd '%s' does not exist", cwd);
    if (!S_ISDIR(st.mode))
        return error_set(err, ERROR_INVALID, "cwd '%s' is not a directory", cwd);
    return 0;
}

int process_command_prepare(struct process_command *out, const struct settings *settings,
                            const struct user *user, const json_t *config, struct error *err)
{
    struct command_request request = {0};

    if (json_read(fields, config, &request, err) != 0)
        return error_prefix(err, "in 'process'");
    if (request.cmd.len == 0)
        return error_set(err, ERROR_INVALID, "'cmd' is empty");
    if (make_env(&out->env, settings, user, request.envs, err) != 0 ||
        make_argv(out, &request, err) != 0 || make_candidates(out, request.cmd, err) != 0)
        return -1;
    if (guest_path_resolve(request.cwd, user, settings->default_workdir, out->cwd, err) != 0)
        return -1;
    return check_cwd(out->cwd, err);
}

static void free_strings(char **strings)
{
    for (char **s = strings; s && *s; s++)
        free(*s);
    free(strings);
}

void process_command_done(struct process_command *command)
{
    free_strings(command->argv);
    free_strings(command->candidates);
    env_done(&command->env);
}
