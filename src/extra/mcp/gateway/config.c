/* Which servers there are to be, and how they come here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/process.h"
#include "extra/mcp/gateway/gateway.h"
#include "protocol/json/json_shape.h"

#define HOME "/opt/mcp"

/* Words of names that become paths and arguments of a shell. */
static bool is_plain(struct str text, const char *more)
{
    if (!text.len || text.len > 200 || text.p[0] == '.' || text.p[0] == '-')
        return false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              strchr(more, c)))
            return false;
    }
    return str_find_str(text, STR("..")) < 0;
}

static int read_text(const json_t *entry, const char *name, const char *member, bool needed,
                     char **out, struct error *err)
{
    const json_t *value = json_object_get(entry, member);

    if (!value && !needed)
        return 0;
    if (!json_is_string(value) || !json_string_length(value))
        return error_set(err, ERROR_INVALID, "'%.100s': '%s' must be a command", name, member);
    *out = xstrdup(json_string_value(value));
    return 0;
}

static int read_envs(const json_t *entry, const char *name, json_t **out, struct error *err)
{
    json_t *envs = json_object_get(entry, "envs"), *value;
    const char *key;

    if (!envs)
        return 0;
    if (!json_is_object(envs))
        return error_set(err, ERROR_INVALID, "'%.100s': 'envs' must be an object", name);
    json_object_foreach (envs, key, value) {
        if (!json_is_string(value) || !is_plain(str_of(key), "_"))
            return error_set(err, ERROR_INVALID, "'%.100s': 'envs' must be variables of text",
                             name);
    }
    *out = json_incref(envs);
    return 0;
}

/* github/OWNER/REPO: a clone, in which its commands run. */
static int read_github(const char *name, const json_t *entry, struct server_config *out,
                       struct error *err)
{
    struct str repo = str_skip(str_of(name), sizeof("github/") - 1), owner = str_split(&repo, '/');

    if (!is_plain(owner, "._-") || !is_plain(repo, "._-"))
        return error_set(err, ERROR_INVALID, "'%.100s' must be github/OWNER/REPO", name);
    out->cwd = xasprintf(HOME "/%s", name);
    return read_text(entry, name, "runCmd", true, &out->run, err) < 0 ||
                   read_text(entry, name, "installCmd", false, &out->install, err) < 0
               ? -1
               : 0;
}

/* npm/PACKAGE[@VERSION], whose program is started by npx. */
static int read_npm(const char *name, const json_t *entry, struct server_config *out,
                    struct error *err)
{
    const char *package = name + sizeof("npm/") - 1;

    if (!is_plain(str_of(package), "@._-/"))
        return error_set(err, ERROR_INVALID, "'%.100s' must be npm/PACKAGE", name);
    if (read_text(entry, name, "runCmd", false, &out->run, err) < 0)
        return -1;
    out->cwd = xstrdup(HOME);
    if (!out->run)
        out->run = xasprintf("exec npx -y %s", package);
    return 0;
}

static int read_entry(const char *name, const json_t *entry, struct server_config *out,
                      struct error *err)
{
    int r;

    *out = (struct server_config){.name = xstrdup(name)};
    if (!json_is_object(entry))
        return error_set(err, ERROR_INVALID, "'%.100s' must be an object", name);
    if (str_starts(str_of(name), STR("github/")))
        r = read_github(name, entry, out, err);
    else if (str_starts(str_of(name), STR("npm/")))
        r = read_npm(name, entry, out, err);
    else
        return error_set(err, ERROR_UNSUPPORTED,
                         "the MCP server '%.100s' of the catalogue comes as another vendor's "
                         "image, which does not run "
                         "here; name its package ('npm/PACKAGE') or repository "
                         "('github/OWNER/REPO', with 'runCmd') instead",
                         name);
    return r < 0 ? -1 : read_envs(entry, name, &out->envs, err);
}

void config_done(struct server_config *config)
{
    free(config->name);
    free(config->install);
    free(config->run);
    free(config->cwd);
    json_decref(config->envs);
    *config = (struct server_config){0};
}

int config_read(struct str text, struct server_config out[GATEWAY_SERVERS_MAX], size_t *out_count,
                struct error *err)
{
    auto_json json_t *tree = NULL;
    const char *name;
    json_t *entry;

    *out_count = 0;
    if (json_parse(text, &tree, err) < 0)
        return error_prefix(err, "--config");
    if (!json_is_object(tree))
        return error_set(err, ERROR_INVALID, "--config must be an object of servers");
    if (json_object_size(tree) > GATEWAY_SERVERS_MAX)
        return error_set(err, ERROR_LIMIT, "there may be at most %d servers", GATEWAY_SERVERS_MAX);
    json_object_foreach (tree, name, entry) {
        if (read_entry(name, entry, &out[(*out_count)++], err) < 0)
            return -1;
    }
    return 0;
}

/* ---- install ---- */

char **config_environment(json_t *envs)
{
    size_t n = 0, count = json_object_size(envs);
    const char *key;
    json_t *value;
    char **out;

    while (environ[n])
        n++;
    out = xcalloc(n + count + 1, sizeof(*out));
    n = 0;
    /* The token is for clients, not for servers. */
    for (char **at = environ; *at; at++)
        if (!str_starts(str_of(*at), STR("GATEWAY_ACCESS_TOKEN=")))
            out[n++] = xstrdup(*at);
    json_object_foreach (envs, key, value)
        out[n++] = xasprintf("%s=%s", key, json_string_value(value));
    return out;
}

void config_environment_free(char **environment)
{
    for (char **at = environment; *at; at++)
        free(*at);
    free(environment);
}

static int run(const char *line, const char *cwd, json_t *envs, const char *what, struct error *err)
{
    const char *argv[] = {"bash", "-c", line, NULL};
    char **environment = config_environment(envs);
    int r = process_run(
        &(struct process_spec){
            .argv = argv,
            .path = "/bin/bash",
            /* What an installer prints belongs to who reads the gateway's errors. */
            .fds = (int[]){STDERR_FILENO},
            .fd_count = 1,
            .first_fd = STDOUT_FILENO,
            .dir = cwd,
            .env = environment},
        0);

    config_environment_free(environment);
    if (r < 0)
        return error_set_errno(err, -r, "'%.100s' could not be installed", what);
    return r == 0
               ? 0
               : error_set(err, ERROR_INVALID,
                           "'%.100s' could not be installed: its command ended with %d", what, r);
}

static int clone_repo(const struct server_config *config, struct error *err)
{
    auto_free char *line = NULL;
    auto_free char *git = xasprintf("%s/.git", config->cwd);

    if (access(git, F_OK) == 0)
        return 0;
    /* The mirror is for tests. */
    line = xasprintf(
        "git clone --quiet --depth 1 \"${QUICKSAND_GIT_URL:-https://github.com}/%s\" '%s'",
        config->name + sizeof("github/") - 1, config->cwd);
    return run(line, NULL, NULL, config->name, err);
}

int config_install(const struct server_config *config, struct error *err)
{
    if (run("mkdir -p " HOME, NULL, NULL, config->name, err) < 0 ||
        (str_starts(str_of(config->name), STR("github/")) && clone_repo(config, err) < 0))
        return -1;
    return config->install ? run(config->install, config->cwd, config->envs, config->name, err) : 0;
}
