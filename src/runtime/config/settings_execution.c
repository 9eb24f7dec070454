/* "execution": how one family of clients describes where its agents run. It is rewritten into
 * providers, profiles and agents before these are read; what the file says there itself wins. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/capability.h"
#include "runtime/backend/profile_parts.h"
#include "runtime/config/settings_internal.h"
#include "runtime/core/words.h"

enum { TIMEOUT_MAX_MS = 7 * 24 * 3600 * 1000 };

/* The object of the file, made when it is not there; NULL when it is something else. */
static json_t *section(struct loader *loader, const char *name)
{
    json_t *object = json_object_get(loader->file, name);

    if (!object) {
        object = json_object();
        (void)json_object_set_new(loader->file, name, object);
    }
    return json_is_object(object) ? object : NULL;
}

static void put_new(json_t *object, const char *key, json_t *value)
{
    if (object && !json_object_get(object, key))
        (void)json_object_set_new(object, key, value);
    else
        json_decref(value);
}

static void put_key(struct loader *loader, const char *provider, const char *type,
                    const json_t *key)
{
    json_t *providers = section(loader, "providers"), *record;

    if (!providers || !key)
        return;
    put_new(providers, provider, json_pack("{s:s}", "type", type));
    record = json_object_get(providers, provider);
    if (json_is_object(record))
        put_new(record, "api_key", json_deep_copy(key));
}

static json_t *profile(const char *provider)
{
    return json_pack("{s:s, s:{s:s}}", "provider", provider, "network", "mode", "allow-all");
}

/* Milliseconds without use until a sandbox ends. */
static void put_timeout(struct loader *loader, const json_t *record, const char *path,
                        const char *key, json_t *out)
{
    int64_t ms = 0;

    loader_int(loader, record, path, key, 1000, TIMEOUT_MAX_MS, &ms);
    if (ms)
        (void)json_object_set_new(
            out, "lifecycle",
            json_pack("{s:I}", "idleTimeoutSeconds", (json_int_t)((ms + 999) / 1000)));
}

static void read_e2b(struct loader *loader, const json_t *execution)
{
    static const char *const keys[] = {"apiKey",    "template", "timeout", "defaultTimeout",
                                       "enableMcp", "mcp",      NULL};
    const char *path = "execution.e2b";
    const json_t *record = loader_object(loader, execution, "execution", "e2b");
    json_t *made = profile("e2b");
    bool mcp = false;

    if (record) {
        loader_known(loader, record, path, keys);
        put_key(loader, "e2b", "e2b", json_object_get(record, "apiKey"));
        if (json_object_get(record, "template"))
            (void)json_object_set(made, "template", json_object_get(record, "template"));
        put_timeout(loader, record, path, "defaultTimeout", made);
        put_timeout(loader, record, path, "timeout", made);
        loader_bool(loader, record, path, "enableMcp", &mcp);
        if (mcp)
            (void)json_object_set_new(made, "options", json_pack("{s:b}", "enableMcp", 1));
        if (json_object_get(record, "mcp"))
            (void)json_object_set(made, "mcp", json_object_get(record, "mcp"));
    }
    put_new(section(loader, "profiles"), "e2b", made);
}

/* They are checked with the profile that they are options of. */
static json_t *desktop_options(const json_t *record)
{
    static const char *const keys[] = {"apiKey", "resolution", "dpi", "vncEnabled"};
    json_t *options = json_object();

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (json_object_get(record, keys[i]))
            (void)json_object_set(options, keys[i], json_object_get(record, keys[i]));
    return options;
}

static void read_desktop(struct loader *loader, const json_t *execution)
{
    static const char *const keys[] = {"apiKey",   "resolution", "dpi", "vncEnabled",
                                       "template", "timeout",    NULL};
    const char *path = "execution.e2bDesktop";
    const json_t *record = loader_object(loader, execution, "execution", "e2bDesktop");
    json_t *made = profile("e2b");

    loader_known(loader, record, path, keys);
    put_timeout(loader, record, path, "timeout", made);
    (void)json_object_set_new(made, "options", desktop_options(record));
    (void)json_object_set_new(made, "template",
                              json_object_get(record, "template")
                                  ? json_incref(json_object_get(record, "template"))
                                  : json_string("desktop"));
    put_new(section(loader, "profiles"), "e2b-desktop", made);
}

static void read_browserbase(struct loader *loader, const json_t *execution)
{
    static const char *const keys[] = {"apiKey", "proxy", "captchaSolver", "projectId", NULL};
    const char *path = "execution.browserbase";
    const json_t *record = loader_object(loader, execution, "execution", "browserbase");
    struct str proxy = json_get_str(record, "proxy");
    json_t *made, *options;
    bool solve = true;

    if (!record)
        return;
    loader_known(loader, record, path, keys);
    loader_bool(loader, record, path, "captchaSolver", &solve);
    put_key(loader, "browserbase", "browserbase", json_object_get(record, "apiKey"));
    made = profile("browserbase");
    options = json_pack("{s:{s:b}}", "browserSettings", "solveCaptchas", solve);
    if (str_is(proxy, "residential"))
        (void)json_object_set_new(options, "proxies", json_true());
    else if (proxy.p)
        loader_fault(loader, "execution.browserbase.proxy",
                     "must be residential: Browserbase offers no other (leave it out for none)");
    if (json_object_get(record, "projectId"))
        (void)json_object_set(options, "projectId", json_object_get(record, "projectId"));
    (void)json_object_set_new(made, "options", options);
    put_new(section(loader, "profiles"), "browserbase", made);
}

static void read_docker(struct loader *loader, const json_t *execution)
{
    static const char *const keys[] = {"image", "socket", NULL};
    const json_t *record = loader_object(loader, execution, "execution", "docker");
    json_t *providers = section(loader, "providers"), *made = profile("docker");

    if (record)
        loader_known(loader, record, "execution.docker", keys);
    if (json_object_get(record, "image"))
        (void)json_object_set(made, "template", json_object_get(record, "image"));
    if (json_object_get(record, "socket") && providers) {
        put_new(providers, "docker", json_pack("{s:s}", "type", "docker"));
        put_new(json_object_get(providers, "docker"), "socket",
                json_incref(json_object_get(record, "socket")));
    }
    put_new(section(loader, "profiles"), "docker", made);
}

/* The profile that stands for a backend's word. */
static const char *profile_of(struct loader *loader, struct str backend, const char *path)
{
    static const char *const names[] = {"e2b", "e2b-desktop", "docker", "browserbase"};
    const json_t *profiles = json_object_get(loader->file, "profiles");
    char word[RUNTIME_NAME_MAX + 1];

    if (runtime_provider_word(backend, word))
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            if (strcmp(word, names[i]) == 0 && json_object_get(profiles, names[i]))
                return names[i];
    loader_fault(loader, path, "must be e2b, e2b-desktop, docker, or browserbase (when it is set)");
    return NULL;
}

/* What the type needs; whether its provider has it is checked when the providers are there. */
static void read_capabilities(struct loader *loader, const char *type, const char *path,
                              const json_t *list)
{
    auto_free char *where = xasprintf("%s.capabilities", path);
    const json_t *item;
    size_t i;

    if (!list || json_is_null(list))
        return;
    json_array_foreach (list, i, item) {
        if (!json_is_string(item) || !backend_capability_valid(json_string_value(item)))
            loader_fault(loader, where, "must be an array of " BACKEND_CAPABILITIES);
    }
    if (!json_is_array(list))
        loader_fault(loader, where, "must be an array of " BACKEND_CAPABILITIES);
    else
        (void)json_object_set_new(loader->out->capabilities, type, json_deep_copy(list));
}

static void read_overrides(struct loader *loader, const json_t *execution)
{
    static const char *const keys[] = {"backend", "capabilities", NULL};
    json_t *overrides = loader_object(loader, execution, "execution", "agentOverrides"), *record;
    json_t *runtime = section(loader, "agents");
    const char *type;

    json_object_foreach (overrides, type, record) {
        auto_free char *path = xasprintf("execution.agentOverrides.%s", type);
        auto_free char *backend_path = xasprintf("%s.backend", path);
        const char *name;

        if (!json_is_object(record)) {
            loader_fault(loader, path, "must be an object");
            continue;
        }
        loader_known(loader, record, path, keys);
        name = profile_of(loader, json_get_str(record, "backend"), backend_path);
        if (name && runtime)
            put_new(runtime, type, json_string(name));
        read_capabilities(loader, type, path, json_object_get(record, "capabilities"));
    }
}

void loader_execution(struct loader *loader)
{
    static const char *const keys[] = {
        "default", "backend", "e2b", "e2bDesktop", "browserbase", "docker", "agentOverrides", NULL};
    json_t *execution = loader_object(loader, loader->file, "", "execution"), *profiles;
    const char *word, *name;

    if (!execution)
        return;
    loader_known(loader, execution, "execution", keys);
    read_e2b(loader, execution);
    read_desktop(loader, execution);
    read_browserbase(loader, execution);
    read_docker(loader, execution);
    word = json_object_get(execution, "default") ? "default" : "backend";
    if (json_object_get(execution, word)) {
        auto_free char *path = xasprintf("execution.%s", word);
        struct str value = json_get_str(execution, word);

        /* hybrid: e2b, and docker for the types of agents that say so. */
        name = str_is(value, "hybrid") ? "e2b" : profile_of(loader, value, path);
        profiles = section(loader, "profiles");
        if (name && profiles)
            put_new(profiles, "default", json_deep_copy(json_object_get(profiles, name)));
    }
    read_overrides(loader, execution);
}
