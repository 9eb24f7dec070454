/* What backends offer, in the words of those who choose between them, and what types of agents need. */
#include "runtime/backend/capability.h"

#include "protocol/json/json_shape.h"
#include "runtime/backend/backend_internal.h"
#include "runtime/backend/profile_parts.h"
#include "runtime/core/settings.h"

static const struct {
    const char *word;
    unsigned features; /* any of them */
} words[] = {
    {"code", PROVIDER_EXEC},   {"terminal", PROVIDER_PTY},
    {"files", PROVIDER_FILES}, {"gui", PROVIDER_SCREEN},
    {"browser", PROVIDER_CDP}, {"visual", PROVIDER_CDP | PROVIDER_SCREEN},
    {"pause", PROVIDER_PAUSE}, {"snapshot", PROVIDER_SNAPSHOT},
    {"ports", PROVIDER_PORTS},
};

enum { WORD_COUNT = sizeof(words) / sizeof(words[0]) };

bool backend_capability_valid(const char *word)
{
    for (size_t i = 0; i < WORD_COUNT; i++)
        if (strcmp(words[i].word, word) == 0)
            return true;
    return false;
}

static bool has(const struct provider_caps *caps, const char *word)
{
    for (size_t i = 0; i < WORD_COUNT; i++)
        if (strcmp(words[i].word, word) == 0)
            return caps->features & words[i].features;
    return false;
}

static json_t *rate(double usd)
{
    return usd > 0 ? json_real(usd) : json_null();
}

json_t *backend_capability_json(const struct backend *backend)
{
    const struct provider_caps *caps = provider_caps(backend->provider);
    int64_t max = backend_max_sandboxes(backend);
    struct provider_about about;
    json_t *out = json_object();

    provider_about(backend->provider, &about);
    for (size_t i = 0; i < WORD_COUNT; i++)
        (void)json_object_set_new(out, words[i].word, json_boolean(has(caps, words[i].word)));
    (void)json_object_set_new(out, "scale",
                              json_pack("{s:s, s:o}", "runs_on", about.runs_on, "max_sandboxes",
                                        max > 0 ? json_integer(max) : json_null()));
    (void)json_object_set_new(
        out, "cost",
        json_pack("{s:o, s:o}", "usd_per_second",
                  rate(backend->settings ? backend->settings->usd_per_second : 0),
                  "usd_per_cpu_second",
                  rate(backend->settings ? backend->settings->usd_per_cpu_second : 0)));
    return out;
}

int backend_capabilities_check(struct runtime *runtime, struct error *err)
{
    const struct runtime_settings *settings = runtime->config.settings;
    struct runtime_caller nobody = {.team_id = STR("")};
    const char *type;
    json_t *list;

    json_object_foreach (settings->capabilities, type, list) {
        const char *name = json_string_value(json_object_get(settings->agents, type));
        const json_t *profile = name ? json_object_get(runtime_profiles(runtime), name) : NULL;
        bool harness = false;
        auto_json json_t *flat = profile ? profile_flatten(profile, &harness) : NULL;
        struct backend *backend = NULL;
        const json_t *word;
        size_t i;

        if (backend_peek(runtime, &nobody, json_get_str(flat, "provider"), &backend, err) < 0)
            return error_prefix(err, "execution.agentOverrides.%s", type);
        json_array_foreach (list, i, word) {
            const char *wanted = json_string_value(word);

            if (backend && !has(provider_caps(backend->provider), wanted))
                return error_set(err, ERROR_INVALID,
                                 "execution.agentOverrides.%s.capabilities: provider '%s' does not"
                                 " have '%s'; GET /api/v1/providers tells what each has",
                                 type, backend->name, wanted);
        }
    }
    return 0;
}
