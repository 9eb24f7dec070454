/* Backends of the configuration: those of the file, completed from the environment, and those that
 * are there without being asked for: e2b (the engine in this process, when nothing names another
 * endpoint), docker, and what a key in the environment makes usable. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "provider/core/provider_ops.h"
#include "runtime/config/settings_internal.h"
#include "runtime/core/words.h"

/* What a record may say besides what all may. */
static const char *const common_keys[] = {
    "type", "api_url", "domain", "api_key", "max_sandboxes", "usd_per_second", "usd_per_cpu_second",
    NULL};
static void check_keys(struct loader *loader, const json_t *record, const char *path,
                       const struct provider_type *type)
{
    const char *all[64];
    size_t count = 0;

    for (size_t i = 0; common_keys[i]; i++)
        all[count++] = common_keys[i];
    for (size_t i = 0; type->members[i]; i++)
        all[count++] = type->members[i];
    all[count] = NULL;
    loader_known(loader, record, path, all);
}

static void fill(json_t *record, const char *key, const char *value)
{
    if (value && !json_object_get(record, key))
        (void)json_object_set_new(record, key, json_str(str_of(value)));
}

/* unix:///path is a socket, tcp://host:port is HTTP. */
static void fill_docker_host(struct loader *loader, json_t *record)
{
    const char *host = loader_env(loader, "DOCKER_HOST");

    if (!host || json_object_get(record, "socket") || json_object_get(record, "api_url"))
        return;
    if (str_starts(str_of(host), STR("unix://"))) {
        fill(record, "socket", host + 7);
    } else if (str_starts(str_of(host), STR("tcp://"))) {
        auto_free char *url = xasprintf("http://%s", host + 6);

        fill(record, "api_url", url);
    } else {
        loader_fault(loader, "DOCKER_HOST", "must be unix:///path or tcp://host:port");
    }
}

static void fill_secure(struct loader *loader, json_t *record)
{
    const char *secure = loader_env(loader, "E2B_SECURE");
    bool on;

    if (!secure || json_object_get(record, "secure"))
        return;
    on = strcmp(secure, "1") == 0 || strcasecmp(secure, "true") == 0;
    if (!on && strcmp(secure, "0") != 0 && strcasecmp(secure, "false") != 0)
        loader_fault(loader, "E2B_SECURE", "must be 0, 1, true or false");
    else
        (void)json_object_set_new(record, "secure", json_boolean(on));
}

static bool names_address(const char *key)
{
    static const char *const keys[] = {"api_url", "domain", "envd_url", "toolbox_url"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static void fill_from_environment(struct loader *loader, json_t *record,
                                  const struct provider_type *info)
{
    const char *type = info->ops->type;
    /* A record that names an address keeps it: the environment's address, which may belong to
     * another service, must not receive this record's key. */
    bool addressed = json_object_get(record, "api_url") || json_object_get(record, "domain");

    for (const struct provider_env *at = info->envs; at && at->env; at++)
        if (!(addressed && names_address(at->member)))
            fill(record, at->member, loader_env(loader, at->env));
    if (strcmp(type, "docker") == 0)
        fill_docker_host(loader, record);
    if (strcmp(type, "e2b") == 0)
        fill_secure(loader, record);
    if (strcmp(type, "process") == 0 && !json_object_get(record, "api_url") &&
        !json_object_get(record, "envd") && !json_object_get(record, "agent"))
        fill(record, "socket", loader_env(loader, "QUICKSAND_PROCESS_SOCKET"));
}

/* The key, resolved; "" when there is none. Takes it out of the record. */
static char *take_key(struct loader *loader, json_t *record, const char *path,
                      const struct provider_type *info)
{
    auto_free char *where = xasprintf("%s.api_key", path);
    const json_t *value = json_object_get(record, "api_key");
    const char *env = info->key_env ? loader_env(loader, info->key_env) : NULL;
    bool embedded = str_is(json_get_str(record, "api_url"), "embedded");
    char *key = NULL;

    if (value && !json_is_string(value))
        loader_fault(loader, where, "must be a string");
    else if (value && embedded && str_starts(str_of(json_string_value(value)), STR("env:")) &&
             !loader_env(loader, json_string_value(value) + 4))
        key = NULL; /* the engine in this process needs none */
    else if (value)
        key = loader_secret(loader, where, str_of(json_string_value(value)));
    else if (env)
        key = xstrdup(env);
    (void)json_object_del(record, "api_key");
    return key ? key : xstrdup("");
}

static char *take_text(struct loader *loader, json_t *record, const char *path, const char *key)
{
    char *text = xstrdup("");

    loader_text(loader, record, path, key, &text);
    return text;
}

/* Of an e2b record, before it is completed. */
static const char *address_from(const struct loader *loader, const json_t *record)
{
    static const char *const keys[] = {"api_url", "domain", "api_key"};
    static const char *const envs[] = {"E2B_API_URL", "E2B_DOMAIN", "E2B_API_KEY"};

    for (size_t i = 0; i < 3; i++) {
        if (json_object_get(record, keys[i]))
            return "its record";
        if (loader_env(loader, envs[i]))
            return envs[i];
    }
    return NULL;
}

static void replace(char **text, const char *with)
{
    free(*text);
    *text = xstrdup(with);
}

/* Over its own socket a server would be its own client, with one worker waiting for another. */
static void use_own_engine(struct backend_settings *backend)
{
    static const char *const elsewhere[] = {"domain", "sandbox_url", "envd_url"};

    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++)
        (void)json_object_del(backend->record, elsewhere[i]);
    (void)json_object_set_new(backend->record, "api_url", json_string("embedded"));
    replace(&backend->api_url, "embedded");
    replace(&backend->domain, "");
    replace(&backend->api_key, "");
}

static bool leads_back(const struct loader *loader, const struct backend_settings *backend)
{
    const struct runtime_self *self = loader->self;

    return self && backend->address_from && strcmp(backend->api_url, "embedded") != 0 &&
           self->is_self(self->arg, backend->api_url, backend->domain, backend->api_key);
}

/* Only what decides where requests go; the rest is the provider's to check. */
static void settle_e2b(struct loader *loader, struct backend_settings *backend, const char *path)
{
    if (!*backend->api_url && !*backend->domain && !*backend->api_key) {
        free(backend->api_url);
        backend->api_url = xstrdup("embedded");
    }
    if (leads_back(loader, backend))
        use_own_engine(backend);
    if (strcmp(backend->api_url, "embedded") != 0 && !*backend->api_key) {
        auto_free char *where = xasprintf("%s.api_key", path);

        loader_fault(loader, where,
                     "is needed for a remote endpoint: set it here or in E2B_API_KEY");
    }
}

static void read_rate(struct loader *loader, const json_t *record, const char *path,
                      const char *key, double *out)
{
    const json_t *value = json_object_get(record, key);
    auto_free char *where = xasprintf("%s.%s", path, key);

    if (!value)
        return;
    if (!json_is_number(value) || json_number_value(value) < 0)
        loader_fault(loader, where, "must be a number, 0 or more");
    else
        *out = json_number_value(value);
}

static void add_backend(struct loader *loader, const char *name, json_t *record, const char *path,
                        const char *type)
{
    const struct provider_type *info = provider_type_find(type);
    struct backend_settings *backend;

    if (loader->out->backend_count == RUNTIME_BACKENDS_MAX) {
        loader_fault(loader, path, "there are more than %d providers", RUNTIME_BACKENDS_MAX);
        return;
    }
    check_keys(loader, record, path, info);
    backend = &loader->out->backends[loader->out->backend_count++];
    *backend = (struct backend_settings){.record = json_deep_copy(record)};
    (void)snprintf(backend->name, sizeof(backend->name), "%s", name);
    (void)snprintf(backend->type, sizeof(backend->type), "%s", type);
    (void)json_object_set_new(backend->record, "type", json_str(str_of(type)));
    if (strcmp(type, "e2b") == 0)
        backend->address_from = address_from(loader, record);
    fill_from_environment(loader, backend->record, info);
    backend->api_key = take_key(loader, backend->record, path, info);
    backend->api_url = take_text(loader, backend->record, path, "api_url");
    backend->domain = take_text(loader, backend->record, path, "domain");
    loader_int(loader, backend->record, path, "max_sandboxes", 0, 1000000, &backend->max_sandboxes);
    read_rate(loader, backend->record, path, "usd_per_second", &backend->usd_per_second);
    read_rate(loader, backend->record, path, "usd_per_cpu_second", &backend->usd_per_cpu_second);
    if (strcmp(type, "e2b") == 0)
        settle_e2b(loader, backend, path);
    if (info->remote && !*backend->api_key)
        loader_fault(loader, path, "needs api_key, here or in %s", info->key_env);
}

static void read_record(struct loader *loader, const char *name, json_t *record)
{
    auto_free char *path = xasprintf("providers.%s", name);
    auto_free char *type_path = xasprintf("%s.type", path);
    const char *type = name;
    char word[RUNTIME_NAME_MAX + 1];
    struct error err;

    if (!runtime_name_valid(str_of(name)) || strcmp(name, "runner") == 0) {
        loader_fault(loader, path,
                     "is not a name for a provider: a-z, 0-9, '.', '_', '-', at most"
                     " %d, and not 'runner'",
                     RUNTIME_NAME_MAX);
        return;
    }
    if (!json_is_object(record)) {
        loader_fault(loader, path, "must be an object");
        return;
    }
    if (json_object_get(record, "type")) {
        if (!json_is_string(json_object_get(record, "type")) ||
            !runtime_provider_word(json_get_str(record, "type"), word)) {
            loader_fault(loader, type_path, "must be a string");
            return;
        }
        type = word;
    }
    type = runtime_provider_type(type);
    if (!provider_type_find(type)) {
        (void)provider_type_unknown(type, &err);
        loader_fault(loader, type_path, "%s", err.message);
        return;
    }
    add_backend(loader, name, record, path, type);
}

static bool has_type(const struct loader *loader, const char *type)
{
    for (size_t i = 0; i < loader->out->backend_count; i++)
        if (strcmp(loader->out->backends[i].type, type) == 0)
            return true;
    return false;
}

/* Unless the file has a backend of that type. */
static void add_built_in(struct loader *loader, const char *name, const char *type, json_t *record)
{
    auto_free char *path = xasprintf("providers.%s", name);

    if (!has_type(loader, type)) {
        add_backend(loader, name, record, path, type);
        loader->out->backends[loader->out->backend_count - 1].implied = true;
    }
    json_decref(record);
}

static bool word_is_known(const struct loader *loader, const char *word)
{
    const char *type = runtime_provider_type(word);

    for (size_t i = 0; i < loader->out->backend_count; i++)
        if (strcmp(loader->out->backends[i].name, word) == 0)
            return true;
    return has_type(loader, type) || strcmp(word, "runner") == 0 ||
           strcmp(word, "local-runner") == 0;
}

static void choose_default(struct loader *loader)
{
    static const char *const names[] = {"default_provider", "AGENT_RUNTIME_PROVIDER",
                                        "EXO_SANDBOX_BACKEND"};
    const char *values[] = {json_string_value(json_object_get(loader->file, names[0])),
                            loader_env(loader, names[1]), loader_env(loader, names[2])};
    struct runtime_settings *out = loader->out;
    auto_buf struct buf list = {0};

    (void)snprintf(out->default_provider, sizeof(out->default_provider), "e2b");
    buf_init(&list, 4096);
    for (size_t i = 0; i < out->backend_count; i++)
        (void)buf_printf(&list, "%s%s", i ? ", " : "", out->backends[i].name);
    for (size_t i = 0; i < 3; i++) {
        if (!values[i] || str_trim(str_of(values[i])).len == 0)
            continue;
        if (!runtime_provider_word(str_of(values[i]), out->default_provider) ||
            !word_is_known(loader, out->default_provider))
            loader_fault(loader, names[i], "unknown provider '%.63s'; there are: %s", values[i],
                         list.p);
        out->default_from = names[i];
        return;
    }
    if (!word_is_known(loader, "e2b"))
        loader_fault(loader, "default_provider", "is not set, and there is no provider 'e2b'");
}

void loader_providers(struct loader *loader)
{
    json_t *providers = loader_object(loader, loader->file, "", "providers"), *record;
    const char *name;

    json_object_foreach (providers, name, record)
        read_record(loader, name, record);
    add_built_in(loader, "e2b", "e2b", json_object());
    add_built_in(loader, "docker", "docker", json_object());
    for (const struct provider_type *const *at = provider_types_all(); *at; at++)
        if ((*at)->remote && loader_env(loader, (*at)->key_env))
            add_built_in(loader, (*at)->ops->type, (*at)->ops->type, json_object());
    if (loader_env(loader, "QUICKSAND_PROCESS_SOCKET"))
        add_built_in(loader, "local", "process", json_object());
    choose_default(loader);
}

static const struct backend_settings *default_backend(const struct runtime_settings *settings)
{
    const char *word = settings->default_provider;
    const char *type = runtime_provider_type(word);

    for (size_t i = 0; i < settings->backend_count; i++)
        if (strcmp(settings->backends[i].name, word) == 0)
            return &settings->backends[i];
    for (size_t i = 0; i < settings->backend_count; i++)
        if (strcmp(settings->backends[i].type, type) == 0)
            return &settings->backends[i];
    return NULL;
}

static void tell_e2b(const struct backend_settings *backend, struct buf *out)
{
    const char *from = backend->address_from;

    if (strcmp(backend->api_url, "embedded") == 0) {
        (void)buf_printf(out, ", the engine of this server");
        if (from)
            (void)buf_printf(out, " (which is what %s names)", from);
        return;
    }
    (void)buf_printf(out, " at %s (named by %s)",
                     *backend->api_url  ? backend->api_url
                     : *backend->domain ? backend->domain
                                        : "E2B's public cloud",
                     from);
}

void runtime_settings_default(const struct runtime_settings *settings, struct buf *out,
                              bool *out_remote)
{
    const struct backend_settings *backend = default_backend(settings);
    const char *type = backend ? backend->type : "runner";
    const struct provider_type *info = provider_type_find(type);

    (void)buf_printf(out, "%s", settings->default_provider);
    *out_remote = info && info->remote;
    if (strcmp(type, "e2b") == 0) {
        tell_e2b(backend, out);
        *out_remote = strcmp(backend->api_url, "embedded") != 0;
    }
    if (settings->default_from)
        (void)buf_printf(out, ", chosen by %s", settings->default_from);
}
