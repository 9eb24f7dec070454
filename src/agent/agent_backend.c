/* Backends: made from the settings when the runtime opens, found by name, looked at every now and
 * then. The list only grows, so that a pointer to a backend needs no count of its users. */
#include "agent/agent_backend.h"

#include <stdlib.h>

#include "agent/agent_backend_internal.h"
#include "agent/agent_profile_internal.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

struct agent_backend *backend_alloc(const char *name)
{
    struct agent_backend *backend = xcalloc(1, sizeof(*backend));

    (void)snprintf(backend->name, sizeof(backend->name), "%s", name);
    (void)pthread_mutex_init(&backend->lock, NULL);
    return backend;
}

void backend_free(struct agent_backend *backend)
{
    provider_free(backend->provider);
    (void)pthread_mutex_destroy(&backend->lock);
    free(backend->base_url);
    free(backend->token);
    free(backend);
}

void backend_link(struct agents *agents, struct agent_backend *backend)
{
    struct agent_backend **end = &agents->backends;

    while (*end)
        end = &(*end)->next;
    *end = backend;
}

int backend_make_provider(struct agents *agents, struct str team_id,
                          const struct provider_config *config, struct provider **out,
                          struct error *err)
{
    struct provider_config full = *config;

    full.fetch = agents->config.fetch;
    full.embedded = agents->config.embedded;
    agent_secret_add(agents, team_id, str_of(config->api_key));
    if (agents->config.provider_new)
        return agents->config.provider_new(&full, out, err);
    return provider_new(&full, out, err);
}

static int open_backend(struct agents *agents, const struct agent_backend_settings *settings,
                        struct error *err)
{
    struct provider_config config = {
        .name = settings->name,
        .type = settings->type,
        .api_url = settings->api_url,
        .domain = settings->domain,
        .api_key = settings->api_key,
        .options = settings->record,
    };
    struct agent_backend *backend = backend_alloc(settings->name);

    backend->settings = settings;
    if (backend_make_provider(agents, STR_NONE, &config, &backend->provider, err) < 0) {
        backend_free(backend);
        return -1;
    }
    backend_link(agents, backend);
    return 0;
}

int agent_backends_open(struct agents *agents, struct error *err)
{
    const struct agent_settings *settings = agents->config.settings;

    agent_secret_add(agents, STR_NONE, str_of(settings->agent_token));
    for (size_t i = 0; i < settings->backend_count; i++)
        if (open_backend(agents, &settings->backends[i], err) < 0)
            return -1;
    if (agent_runners_open(agents, err) < 0)
        return -1;
    agent_timer_add(agents, settings->health_interval_s, agent_backends_check);
    return 0;
}

void agent_backends_close(struct agents *agents)
{
    agent_backends_wait(agents);
    while (agents->backends) {
        struct agent_backend *next = agents->backends->next;

        backend_free(agents->backends);
        agents->backends = next;
    }
}

struct provider *agent_backend_provider(struct agent_backend *backend)
{
    return backend->provider;
}

const char *agent_backend_name(const struct agent_backend *backend)
{
    return backend->name;
}

int64_t agent_backend_max_sandboxes(const struct agent_backend *backend)
{
    return backend->settings ? backend->settings->max_sandboxes : backend->max_sessions;
}

int agent_backend_require(const struct agent_backend *backend, unsigned features, struct error *err)
{
    unsigned lacking = features & ~provider_caps(backend->provider)->features;

    for (unsigned bit = 0; bit < 32; bit++)
        if (lacking & (1U << bit))
            return error_set(err, ERROR_UNSUPPORTED, "provider '%s' does not support %s",
                             backend->name, provider_feature_name(1U << bit));
    return 0;
}

/* ---- finding ---- */

static bool visible(const struct agent_backend *backend, const struct agent_caller *caller)
{
    bool shared = !backend->runner && !backend->origin;

    return !backend->removed && (shared || str_is(caller->team_id, backend->team_id));
}

struct agent_backend *backend_named(struct agents *agents, const struct agent_caller *caller,
                                    const char *name)
{
    for (struct agent_backend *at = agents->backends; at; at = at->next)
        if (visible(at, caller) && strcmp(at->name, name) == 0)
            return at;
    return NULL;
}

static struct agent_backend *find_type(struct agents *agents, const char *type)
{
    for (struct agent_backend *at = agents->backends; at; at = at->next)
        if (!at->runner && !at->origin && strcmp(provider_type(at->provider), type) == 0)
            return at;
    return NULL;
}

static int unknown(struct agents *agents, const struct agent_caller *caller, const char *name,
                   struct error *err)
{
    auto_buf struct buf list = {0};

    buf_init(&list, 256);
    for (struct agent_backend *at = agents->backends; at; at = at->next)
        if (visible(at, caller) && !at->origin && list.len + strlen(at->name) + 2 < 240)
            (void)buf_printf(&list, "%s%s", list.len ? ", " : "", at->name);
    return error_set(err, ERROR_INVALID, "unknown provider '%.63s'; there are: %s", name,
                     list.p ? list.p : "");
}

/* "e2b#0123456789ab": a backend with the key of a profile, made by an earlier process. */
static int find_keyed(struct agents *agents, const struct agent_caller *caller, const char *name,
                      struct agent_backend **out, struct error *err)
{
    struct str digest = str_of(name), origin_name = str_split(&digest, '#');
    auto_arena struct arena arena = {0};
    struct agent_backend *origin;
    struct str key;

    (void)pthread_rwlock_rdlock(&agents->backends_lock);
    origin = backend_named(agents, caller, arena_str(&arena, origin_name).p);
    (void)pthread_rwlock_unlock(&agents->backends_lock);
    if (!origin)
        return error_set(err, ERROR_INVALID, "unknown provider '%.63s'", name);
    key = profile_find_key(agents, caller, digest.p, &arena);
    if (!key.p)
        return error_set(err, ERROR_INVALID,
                         "provider '%s': no profile has the key it was used with any more", name);
    return backend_with_key(agents, caller, origin, key, out, err);
}

/* *out_any: any free runner will do. *out is NULL when there is none of that name. */
static int find_word(struct agents *agents, const struct agent_caller *caller, struct str name,
                     char word[AGENT_NAME_MAX + 1], struct agent_backend **out, bool *out_any,
                     struct error *err)
{
    bool local;

    if (!agent_provider_word(name.p ? name : str_of(agents->config.settings->default_provider),
                             word))
        return error_set(err, ERROR_INVALID, "a provider's name has 1 to %d characters",
                         AGENT_NAME_MAX);
    local = strcmp(word, "local-runner") == 0;
    *out = backend_named(agents, caller, word);
    if (!*out)
        *out = find_type(agents, local ? "process" : agent_provider_type(word));
    *out_any = !*out && (local || strcmp(word, "runner") == 0);
    return 0;
}

int agent_backend_peek(struct agents *agents, const struct agent_caller *caller, struct str name,
                       struct agent_backend **out, struct error *err)
{
    char word[AGENT_NAME_MAX + 1];
    bool any = false;
    int r;

    (void)pthread_rwlock_rdlock(&agents->backends_lock);
    r = find_word(agents, caller, name, word, out, &any, err);
    if (r == 0 && !*out && !any)
        r = unknown(agents, caller, word, err);
    (void)pthread_rwlock_unlock(&agents->backends_lock);
    return r;
}

int agent_backend_find(struct agents *agents, const struct agent_caller *caller, struct str name,
                       struct agent_backend **out, struct error *err)
{
    char word[AGENT_NAME_MAX + 1];
    bool any = false, keyed;
    int r;

    (void)pthread_rwlock_rdlock(&agents->backends_lock);
    r = find_word(agents, caller, name, word, out, &any, err);
    keyed = r == 0 && !*out && strchr(word, '#');
    if (r == 0 && !*out && !keyed && !any)
        r = unknown(agents, caller, word, err);
    (void)pthread_rwlock_unlock(&agents->backends_lock);
    if (any) { /* choosing takes a place: alone */
        (void)pthread_rwlock_wrlock(&agents->backends_lock);
        *out = runner_choose(agents, caller->team_id);
        r = *out ? 0 : runner_none(agents, caller, err);
        (void)pthread_rwlock_unlock(&agents->backends_lock);
    }
    return keyed ? find_keyed(agents, caller, word, out, err) : r;
}
