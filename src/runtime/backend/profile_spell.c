/* The names of a profile's members, and others that are taken for them. */
#include "base/near.h"
#include "runtime/backend/profile_parts.h"

const char *const profile_keys[] = {"provider",
                                    "template",
                                    "network",
                                    "lifecycle",
                                    "limits",
                                    "permissionMode",
                                    "envVars",
                                    "mcp",
                                    "timeout",
                                    "options",
                                    "mounts",
                                    "workspaceRoot",
                                    "outputLimitBytes",
                                    "onCreate",
                                    "onResume",
                                    "internet",
                                    "runtimes",
                                    "persistent",
                                    "memoryLimit",
                                    "workspace",
                                    "name",
                                    "readOnly",
                                    "gitToken",
                                    "keepOutput",
                                    "conventionalCommits",
                                    NULL};
const char *const profile_network_keys[] = {"mode", "allowDomains", "allowCidrs", "peers", NULL};
const char *const profile_peers_keys[] = {"network", "name", NULL};
const char *const profile_lifecycle_keys[] = {"idleTimeoutSeconds", "expireAfterSeconds",
                                              "maxLifetimeSeconds", NULL};
const char *const profile_limits_keys[] = {"cpu", "memoryMb", "diskMb", NULL};
const char *const profile_e2b_keys[] = {
    "apiKey", "template",   "templateId", "workspaceRoot", "workspace", "s3", "resolution",
    "dpi",    "vncEnabled", "enableMcp",  "secure",        "metadata",  NULL};

struct alias {
    const char *name, *ours; /* in snake_case; as in the lists above */
};

static const struct alias record_aliases[] = {
    {"env", "envVars"},
    {"envs", "envVars"},
    {"image", "template"},
    {"template_id", "template"},
    {"timeout_seconds", "timeout"},
    {"output_limit", "outputLimitBytes"},
    {NULL, NULL},
};
static const struct alias limits_aliases[] = {{"cpu_count", "cpu"}, {"cpus", "cpu"}, {NULL, NULL}};
static const struct alias no_aliases[] = {{NULL, NULL}};

static const struct part {
    const char *name;
    const char *const *keys;
    const struct alias *aliases;
} parts[] = {
    {"network", profile_network_keys, no_aliases},
    {"lifecycle", profile_lifecycle_keys, no_aliases},
    {"limits", profile_limits_keys, limits_aliases},
    {"options", profile_e2b_keys, no_aliases},
};

static const char *spelt(const char *name, const char *const *keys, const struct alias *aliases)
{
    char wanted[NEAR_NAME_SIZE], other[NEAR_NAME_SIZE];

    if (!near_snake(name, wanted))
        return NULL;
    for (; *keys; keys++)
        if (near_snake(*keys, other) && strcmp(wanted, other) == 0)
            return *keys;
    for (; aliases->name; aliases++)
        if (strcmp(wanted, aliases->name) == 0)
            return aliases->ours;
    return NULL;
}

/* What is there already under our name stays; the other one is then unknown. */
static void respell(json_t *object, const char *const *keys, const struct alias *aliases)
{
    const char *name;
    json_t *value;
    void *next;

    json_object_foreach_safe (object, next, name, value) {
        const char *ours = spelt(name, keys, aliases);

        if (!ours || strcmp(ours, name) == 0 || json_object_get(object, ours))
            continue;
        (void)json_object_set(object, ours, value);
        (void)json_object_del(object, name);
    }
}

void profile_spell_part(const char *part, json_t *object)
{
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strcmp(parts[i].name, part) == 0 && json_is_object(object))
            respell(object, parts[i].keys, parts[i].aliases);
}

void profile_spell(json_t *record)
{
    json_t *config = json_object_get(record, "config");

    if (!json_is_object(config))
        config = record;
    if (!json_is_object(config))
        return;
    respell(config, profile_keys, record_aliases);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        profile_spell_part(parts[i].name, json_object_get(config, parts[i].name));
}
