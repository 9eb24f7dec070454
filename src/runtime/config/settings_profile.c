/* Profiles of the configuration file: secrets behind references are put in their place, and the
 * records are checked as far as that is possible before the backends are there. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/profile_parts.h"
#include "runtime/config/settings_internal.h"
#include "runtime/core/words.h"

static bool is_reference(struct str text)
{
    return str_starts(text, STR("env:")) || str_starts(text, STR("file:"));
}

static void resolve_member(struct loader *loader, json_t *object, const char *name,
                           const char *path)
{
    struct str text = json_get_str(object, name);
    auto_free char *where = xasprintf("%s.%s", path, name);
    auto_free char *secret = NULL;

    if (!text.p || !is_reference(text))
        return;
    secret = loader_secret(loader, where, text);
    if (secret)
        (void)json_object_set_new(object, name, json_str(str_of(secret)));
}

static void resolve_secrets(struct loader *loader, json_t *config, const char *path)
{
    json_t *env = json_object_get(config, "envVars"), *value;
    auto_free char *options_path = xasprintf("%s.options", path);
    auto_free char *env_path = xasprintf("%s.envVars", path);
    const char *name;
    void *next;

    resolve_member(loader, json_object_get(config, "options"), "apiKey", options_path);
    resolve_member(loader, config, "gitToken", path);
    json_object_foreach_safe (env, next, name, value)
        resolve_member(loader, env, name, env_path);
}

static void check_profile(struct loader *loader, const char *name, json_t *record)
{
    json_t *config = json_object_get(record, "config"), *fault;
    bool harness = json_is_object(config);
    auto_free char *path = xasprintf("profiles.%s%s", name, harness ? ".config" : "");
    auto_free char *prefix = xasprintf("%s.", path);
    auto_json json_t *faults = json_array();
    struct profile_check check = {.faults = faults, .prefix = prefix, .harness = harness};
    size_t i;

    resolve_secrets(loader, harness ? config : record, path);
    profile_check_record(&check, harness ? config : record);
    json_array_foreach (faults, i, fault)
        loader_fault(loader, json_get_str(fault, "path").p, "%s", json_get_str(fault, "message").p);
}

void loader_profiles(struct loader *loader)
{
    json_t *profiles = loader_object(loader, loader->file, "", "profiles"), *record;
    const char *name;

    json_object_foreach (profiles, name, record) {
        auto_free char *path = xasprintf("profiles.%s", name);
        json_t *copy = json_deep_copy(record);

        if (!runtime_name_valid(str_of(name)))
            loader_fault(loader, path, "is not a name: a-z, 0-9, '.', '_', '-', at most %d",
                         RUNTIME_NAME_MAX);
        profile_spell(copy);
        if (json_is_object(copy))
            check_profile(loader, name, copy);
        else
            loader_fault(loader, path, "must be an object");
        (void)json_object_set_new(loader->out->profiles, name, copy);
    }
}
