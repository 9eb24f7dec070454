/* The configuration is read in steps: "execution" is rewritten into the other parts, then backends,
 * profiles and the rest are taken over. A fault is noted and reading goes on, so that all are told
 * in one go; with any fault nothing is used. */
#include "runtime/core/settings.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "provider/core/provider_ops.h"
#include "runtime/config/settings_internal.h"
#include "runtime/core/words.h"

enum { DAY_S = 24 * 3600 };

static void set_defaults(struct runtime_settings *out)
{
    *out = (struct runtime_settings){
        .retry = {.attempts = 3, .min_ms = 1000, .max_ms = 10000},
        .breaker = {.failures = 5, .open_ms = 30000},
        .health_interval_s = 30,
        .create_timeout_s = 180,
        .stale_after_s = DAY_S,
        .runner_ttl_ms = 60000,
        .jobs_per_sandbox = 10,
        .sandbox_agent_port = 2468,
        .sandbox_agent_health_tries = 30,
        .sandbox_agent_health_ms = 300,
        .checkpoint_ttl_s = 30 * DAY_S,
        .sandbox_agent_token = xstrdup(""),
        .sandbox_agent_program = xstrdup(""),
        .clone_command = xstrdup(""),
        .default_template = xstrdup(""),
        .sandbox_timeout_ms = 600000,
        .command_timeout_s = 300,
        .listen = xstrdup(""),
        .data_dir = xstrdup(""),
        .profiles = json_object(),
        .agents = json_object(),
        .capabilities = json_object(),
        .allow = json_array(),
        .git_hosts = json_object(),
    };
}

static void env_text(const struct loader *loader, const char *name, char **out)
{
    const char *value = loader_env(loader, name);

    if (value) {
        free(*out);
        *out = xstrdup(value);
    }
}

static void read_environment(struct loader *loader)
{
    struct runtime_settings *out = loader->out;

    loader_env_int(loader, "E2B_SANDBOX_TIMEOUT_MS", 1000, (int64_t)30 * DAY_S * 1000,
                   &out->sandbox_timeout_ms);
    loader_env_int(loader, "E2B_TIMEOUT", 1, 600, &out->command_timeout_s);
    loader_env_int(loader, "E2B_SANDBOX_AGENT_PORT", 1, 65535, &out->sandbox_agent_port);
    loader_env_int(loader, "E2B_HEALTH_RETRIES", 1, 1000, &out->sandbox_agent_health_tries);
    loader_env_int(loader, "E2B_HEALTH_INTERVAL_MS", 10, 60000, &out->sandbox_agent_health_ms);
    loader_env_int(loader, "LOCAL_RUNNER_HEARTBEAT_TTL_MS", 1000, (int64_t)DAY_S * 1000,
                   &out->runner_ttl_ms);
    env_text(loader, "E2B_TEMPLATE_ID", &out->default_template);
    env_text(loader, "E2B_TEMPLATE", &out->default_template);
    env_text(loader, "SANDBOX_AGENT_TOKEN", &out->sandbox_agent_token);
    env_text(loader, "SANDBOX_AGENT_PROGRAM", &out->sandbox_agent_program);
    env_text(loader, "E2B_REPO_CLONE_COMMAND", &out->clone_command);
}

static void read_retry(struct loader *loader)
{
    static const char *const retry_keys[] = {"attempts", "min_s", "max_s", "on_quota", NULL};
    static const char *const breaker_keys[] = {"failures", "open_s", NULL};
    const json_t *retry = loader_object(loader, loader->file, "", "retry");
    const json_t *breaker = loader_object(loader, loader->file, "", "breaker");
    struct runtime_settings *out = loader->out;

    if (retry) {
        loader_known(loader, retry, "retry", retry_keys);
        loader_int(loader, retry, "retry", "attempts", 1, 10, &out->retry.attempts);
        loader_seconds(loader, retry, "retry", "min_s", 60, &out->retry.min_ms);
        loader_seconds(loader, retry, "retry", "max_s", 300, &out->retry.max_ms);
        loader_bool(loader, retry, "retry", "on_quota", &out->retry.on_quota);
        if (out->retry.max_ms < out->retry.min_ms)
            loader_fault(loader, "retry.max_s", "is less than min_s");
    }
    if (breaker) {
        loader_known(loader, breaker, "breaker", breaker_keys);
        loader_int(loader, breaker, "breaker", "failures", 1, 1000, &out->breaker.failures);
        loader_seconds(loader, breaker, "breaker", "open_s", 3600, &out->breaker.open_ms);
    }
}

static void read_sandbox_agent(struct loader *loader)
{
    static const char *const keys[] = {"port",  "health_tries", "health_interval_ms",
                                       "token", "program",      NULL};
    const json_t *record = loader_object(loader, loader->file, "", "sandbox_agent");
    struct str token = json_get_str(record, "token");
    struct runtime_settings *out = loader->out;

    if (!record)
        return;
    loader_known(loader, record, "sandbox_agent", keys);
    loader_int(loader, record, "sandbox_agent", "port", 1, 65535, &out->sandbox_agent_port);
    loader_int(loader, record, "sandbox_agent", "health_tries", 1, 1000,
               &out->sandbox_agent_health_tries);
    loader_int(loader, record, "sandbox_agent", "health_interval_ms", 10, 60000,
               &out->sandbox_agent_health_ms);
    loader_text(loader, record, "sandbox_agent", "program", &out->sandbox_agent_program);
    if (token.p) {
        char *secret = loader_secret(loader, "sandbox_agent.token", token);

        if (secret) {
            free(out->sandbox_agent_token);
            out->sandbox_agent_token = secret;
        }
    }
}

static void read_commands(struct loader *loader)
{
    static const char *const keys[] = {"allow", NULL};
    const json_t *commands = loader_object(loader, loader->file, "", "commands");
    json_t *allow = json_object_get(commands, "allow"), *item;
    size_t i;

    if (!commands)
        return;
    loader_known(loader, commands, "commands", keys);
    if (!allow)
        return;
    if (!json_is_array(allow)) {
        loader_fault(loader, "commands.allow", "must be an array of strings");
        return;
    }
    json_array_foreach (allow, i, item) {
        char path[64];

        (void)snprintf(path, sizeof(path), "commands.allow[%zu]", i);
        if (!json_is_string(item) || json_string_length(item) == 0)
            loader_fault(loader, path, "must be a string that is not empty");
    }
    json_decref(loader->out->allow);
    loader->out->allow = json_incref(allow);
}

static void read_agents(struct loader *loader)
{
    json_t *runtime = loader_object(loader, loader->file, "", "agents"), *value;
    const char *key;

    json_object_foreach (runtime, key, value) {
        auto_free char *path = xasprintf("agents.%s", key);

        if (!json_is_string(value) || !runtime_name_valid(str_of(json_string_value(value))))
            loader_fault(loader, path, "must be the name of a profile");
        else
            (void)json_object_set(loader->out->agents, key, value);
    }
}

static void read_numbers(struct loader *loader)
{
    static const char *const keys[] = {"listen",
                                       "data_dir",
                                       "default_provider",
                                       "providers",
                                       "profiles",
                                       "agents",
                                       "retry",
                                       "breaker",
                                       "commands",
                                       "create_timeout_s",
                                       "health_interval_s",
                                       "stale_after_s",
                                       "retention_days",
                                       "runner_ttl_ms",
                                       "sandbox_agent",
                                       "jobs_per_sandbox",
                                       "checkpoint_ttl_s",
                                       "clone_command",
                                       "template",
                                       "sandbox_timeout_ms",
                                       "command_timeout_s",
                                       "execution",
                                       "private_urls",
                                       "git_hosts",
                                       NULL};
    struct runtime_settings *out = loader->out;
    const json_t *file = loader->file;

    loader_known(loader, file, "", keys);
    loader_text(loader, file, "", "listen", &out->listen);
    loader_text(loader, file, "", "data_dir", &out->data_dir);
    loader_text(loader, file, "", "clone_command", &out->clone_command);
    loader_text(loader, file, "", "template", &out->default_template);
    loader_bool(loader, file, "", "private_urls", &out->private_urls);
    loader_int(loader, file, "", "create_timeout_s", 1, 3600, &out->create_timeout_s);
    loader_int(loader, file, "", "health_interval_s", 1, DAY_S, &out->health_interval_s);
    loader_int(loader, file, "", "stale_after_s", 60, 365 * DAY_S, &out->stale_after_s);
    loader_int(loader, file, "", "retention_days", 0, 3650, &out->retention_days);
    if (out->retention_days == 1)
        loader_fault(loader, "retention_days",
                     "must be 0 (off) or at least 2: the deletion is announced a day before");
    loader_int(loader, file, "", "runner_ttl_ms", 1000, (int64_t)DAY_S * 1000, &out->runner_ttl_ms);
    loader_int(loader, file, "", "jobs_per_sandbox", 1, 1000, &out->jobs_per_sandbox);
    loader_int(loader, file, "", "checkpoint_ttl_s", 60, 3650LL * DAY_S, &out->checkpoint_ttl_s);
    loader_int(loader, file, "", "sandbox_timeout_ms", 1000, (int64_t)30 * DAY_S * 1000,
               &out->sandbox_timeout_ms);
    loader_int(loader, file, "", "command_timeout_s", 1, 600, &out->command_timeout_s);
}

int runtime_settings_load(struct str file, runtime_getenv_fn *get, const struct runtime_self *self,
                          struct runtime_settings *out, struct buf *out_faults)
{
    struct loader loader = {.get = get, .self = self, .out = out, .faults = out_faults};
    struct error err = {0};
    json_t *tree = NULL;

    set_defaults(out);
    if (file.p && json_parse(file, &tree, &err) < 0)
        loader_fault(&loader, "file", "%s", err.message);
    else if (tree && !json_is_object(tree))
        loader_fault(&loader, "file", "must be a JSON object");
    loader.file = json_is_object(tree) ? json_incref(tree) : json_object();
    read_environment(&loader);
    read_numbers(&loader);
    read_retry(&loader);
    read_sandbox_agent(&loader);
    read_commands(&loader);
    loader_execution(&loader);
    loader_providers(&loader);
    loader_profiles(&loader);
    read_agents(&loader);
    loader_git_hosts(&loader);
    json_decref(loader.file);
    json_decref(tree);
    if (out_faults->len == 0)
        return 0;
    runtime_settings_done(out);
    return -1;
}

void runtime_settings_done(struct runtime_settings *settings)
{
    for (size_t i = 0; i < settings->backend_count; i++) {
        struct backend_settings *backend = &settings->backends[i];

        free(backend->api_url);
        free(backend->domain);
        free(backend->api_key);
        json_decref(backend->record);
    }
    json_decref(settings->profiles);
    json_decref(settings->agents);
    json_decref(settings->capabilities);
    json_decref(settings->allow);
    json_decref(settings->git_hosts);
    free(settings->sandbox_agent_token);
    free(settings->sandbox_agent_program);
    free(settings->clone_command);
    free(settings->default_template);
    free(settings->listen);
    free(settings->data_dir);
    *settings = (struct runtime_settings){0};
}
