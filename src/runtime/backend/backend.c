/* Backends: made from the settings when the runtime opens, found by name, looked at every now and
 * then. The list only grows, so that a pointer to a backend needs no count of its users. */
#include "runtime/backend/backend.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "runtime/backend/backend_internal.h"
#include "runtime/backend/profile_parts.h"
#include "runtime/core/words.h"

struct backend *backend_alloc(const char *name)
{
    struct backend *backend = xcalloc(1, sizeof(*backend));

    (void)snprintf(backend->name, sizeof(backend->name), "%s", name);
    (void)pthread_mutex_init(&backend->lock, NULL);
    return backend;
}

void backend_free(struct backend *backend)
{
    provider_free(backend->provider);
    while (backend->retired) {
        struct backend_retired *next = backend->retired->next;

        provider_free(backend->retired->provider);
        free(backend->retired);
        backend->retired = next;
    }
    (void)pthread_mutex_destroy(&backend->lock);
    free(backend->base_url);
    free(backend->token);
    free(backend);
}

void backend_link(struct runtime *runtime, struct backend *backend)
{
    struct backend **end = &runtime->backends;

    while (*end)
        end = &(*end)->next;
    *end = backend;
}

int backend_make_provider(struct runtime *runtime, struct str team_id,
                          const struct provider_config *config, struct provider **out,
                          struct error *err)
{
    struct provider_config full = *config;

    full.fetch = runtime->config.fetch;
    full.embedded = runtime->config.embedded;
    runtime_secret_add(runtime, team_id, str_of(config->api_key));
    if (runtime->config.provider_new)
        return runtime->config.provider_new(&full, out, err);
    return provider_new(&full, out, err);
}

static int make_configured(struct runtime *runtime, const struct backend_settings *settings,
                           struct provider **out, struct error *err)
{
    struct provider_config config = {
        .name = settings->name,
        .type = settings->type,
        .api_url = settings->api_url,
        .domain = settings->domain,
        .api_key = settings->api_key,
        .options = settings->record,
    };

    return backend_make_provider(runtime, STR_NONE, &config, out, err);
}

static int open_backend(struct runtime *runtime, const struct backend_settings *settings,
                        struct error *err)
{
    struct backend *backend = backend_alloc(settings->name);
    struct provider *provider = NULL;

    backend->settings = settings;
    if (make_configured(runtime, settings, &provider, err) < 0) {
        backend->provider = provider;
        backend_free(backend);
        return -1;
    }
    backend->provider = provider;
    backend_link(runtime, backend);
    return 0;
}

/* ---- new keys ---- */

static bool differs_in_key_only(const struct backend_settings *was,
                                const struct backend_settings *is)
{
    return strcmp(was->type, is->type) == 0 && strcmp(was->api_url, is->api_url) == 0 &&
           strcmp(was->domain, is->domain) == 0 && json_equal(was->record, is->record) &&
           strcmp(was->api_key, is->api_key) != 0;
}

static int replace_key(struct runtime *runtime, struct backend *backend,
                       const struct backend_settings *settings, struct error *err)
{
    struct backend_retired *retired;
    struct provider *provider = NULL;

    if (make_configured(runtime, settings, &provider, err) < 0) {
        provider_free(provider);
        return error_prefix(err, "provider '%s' keeps its key", backend->name);
    }
    retired = xcalloc(1, sizeof(*retired));
    retired->provider = backend->provider;
    (void)pthread_rwlock_wrlock(&runtime->backends_lock);
    retired->next = backend->retired;
    backend->retired = retired;
    backend->provider = provider;
    backend->settings = settings;
    /* Terminals and commands that run hold the old one, and extend their sandbox with it. */
    provider_replace(retired->provider, provider);
    (void)pthread_rwlock_unlock(&runtime->backends_lock);
    return 0;
}

int backends_replace_keys(struct runtime *runtime, const struct runtime_settings *fresh,
                          size_t *out_count, struct error *err)
{
    const struct runtime_caller nobody = {.team_id = STR("")};

    *out_count = 0;
    for (size_t i = 0; i < fresh->backend_count; i++) {
        const struct backend_settings *is = &fresh->backends[i];
        struct backend *backend;

        (void)pthread_rwlock_rdlock(&runtime->backends_lock);
        backend = backend_named(runtime, &nobody, is->name);
        (void)pthread_rwlock_unlock(&runtime->backends_lock);
        if (!backend || !backend->settings || !differs_in_key_only(backend->settings, is))
            continue;
        if (replace_key(runtime, backend, is, err) < 0)
            return -1;
        (*out_count)++;
        log_warn("runtime", "provider '%s' has a new key", backend->name);
    }
    if (*out_count)
        backends_check(runtime); /* so that a wrong key is reported now, not at the next call */
    return 0;
}

int backends_open(struct runtime *runtime, struct error *err)
{
    const struct runtime_settings *settings = runtime->config.settings;

    runtime_secret_add(runtime, STR_NONE, str_of(settings->sandbox_agent_token));
    for (size_t i = 0; i < settings->backend_count; i++)
        if (open_backend(runtime, &settings->backends[i], err) < 0)
            return -1;
    if (runners_open(runtime, err) < 0)
        return -1;
    runtime_timer_add(runtime, "health", settings->health_interval_s, false, backends_check);
    return 0;
}

void backends_close(struct runtime *runtime)
{
    backends_wait(runtime);
    while (runtime->backends) {
        struct backend *next = runtime->backends->next;

        backend_free(runtime->backends);
        runtime->backends = next;
    }
}

struct provider *backend_provider(struct backend *backend)
{
    return backend->provider;
}

const char *backend_name(const struct backend *backend)
{
    return backend->name;
}

int64_t backend_max_sandboxes(const struct backend *backend)
{
    return backend->settings ? backend->settings->max_sandboxes : backend->max_sessions;
}

int backend_require(const struct backend *backend, unsigned features, struct error *err)
{
    unsigned lacking = features & ~provider_caps(backend->provider)->features;

    for (unsigned bit = 0; bit < 32; bit++)
        if (lacking & (1U << bit))
            return error_set(err, ERROR_UNSUPPORTED, "provider '%s' does not support %s",
                             backend->name, provider_feature_name(1U << bit));
    return 0;
}

/* ---- finding ---- */

static bool visible(const struct backend *backend, const struct runtime_caller *caller)
{
    bool shared = !backend->runner && !backend->origin;

    return !backend->removed && (shared || str_is(caller->team_id, backend->team_id));
}

struct backend *backend_named(struct runtime *runtime, const struct runtime_caller *caller,
                              const char *name)
{
    for (struct backend *at = runtime->backends; at; at = at->next)
        if (visible(at, caller) && strcmp(at->name, name) == 0)
            return at;
    return NULL;
}

static struct backend *find_type(struct runtime *runtime, const char *type)
{
    for (struct backend *at = runtime->backends; at; at = at->next)
        if (!at->runner && !at->origin && strcmp(provider_type(at->provider), type) == 0)
            return at;
    return NULL;
}

static int unknown(struct runtime *runtime, const struct runtime_caller *caller, const char *name,
                   struct error *err)
{
    auto_buf struct buf list = {0};

    buf_init(&list, 256);
    for (struct backend *at = runtime->backends; at; at = at->next)
        if (visible(at, caller) && !at->origin && list.len + strlen(at->name) + 2 < 240)
            (void)buf_printf(&list, "%s%s", list.len ? ", " : "", at->name);
    return error_set(err, ERROR_INVALID, "unknown provider '%.63s'; there are: %s", name,
                     list.p ? list.p : "");
}

/* "e2b#0123456789ab": a backend with the key of a profile, made by an earlier process. */
static int find_keyed(struct runtime *runtime, const struct runtime_caller *caller,
                      const char *name, struct backend **out, struct error *err)
{
    struct str digest = str_of(name), origin_name = str_split(&digest, '#');
    auto_arena struct arena arena = {0};
    struct backend *origin;
    struct str key;

    (void)pthread_rwlock_rdlock(&runtime->backends_lock);
    origin = backend_named(runtime, caller, arena_str(&arena, origin_name).p);
    (void)pthread_rwlock_unlock(&runtime->backends_lock);
    if (!origin)
        return error_set(err, ERROR_INVALID, "unknown provider '%.63s'", name);
    key = profile_find_key(runtime, caller, digest.p, &arena);
    if (!key.p)
        return error_set(err, ERROR_INVALID,
                         "provider '%s': no profile has the key it was used with any more", name);
    return backend_with_key(runtime, caller, origin, key, out, err);
}

/* *out_any: any free runner will do. *out is NULL when there is none of that name. */
static int find_word(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                     char word[RUNTIME_NAME_MAX + 1], struct backend **out, bool *out_any,
                     struct error *err)
{
    bool local;

    if (!runtime_provider_word(name.p ? name : str_of(runtime->config.settings->default_provider),
                               word))
        return error_set(err, ERROR_INVALID, "a provider's name has 1 to %d characters",
                         RUNTIME_NAME_MAX);
    local = strcmp(word, "local-runner") == 0;
    *out = backend_named(runtime, caller, word);
    if (!*out)
        *out = find_type(runtime, runtime_provider_type(word));
    *out_any = !*out && (local || strcmp(word, "runner") == 0);
    return 0;
}

int backend_peek(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                 struct backend **out, struct error *err)
{
    char word[RUNTIME_NAME_MAX + 1];
    bool any = false;
    int r;

    (void)pthread_rwlock_rdlock(&runtime->backends_lock);
    r = find_word(runtime, caller, name, word, out, &any, err);
    if (r == 0 && !*out && !any)
        r = unknown(runtime, caller, word, err);
    (void)pthread_rwlock_unlock(&runtime->backends_lock);
    return r;
}

int backend_find(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                 struct backend **out, struct error *err)
{
    char word[RUNTIME_NAME_MAX + 1];
    bool any = false, keyed;
    int r;

    (void)pthread_rwlock_rdlock(&runtime->backends_lock);
    r = find_word(runtime, caller, name, word, out, &any, err);
    keyed = r == 0 && !*out && strchr(word, '#');
    if (r == 0 && !*out && !keyed && !any)
        r = unknown(runtime, caller, word, err);
    (void)pthread_rwlock_unlock(&runtime->backends_lock);
    if (any) { /* choosing takes a place: alone */
        (void)pthread_rwlock_wrlock(&runtime->backends_lock);
        *out = runner_choose(runtime, caller->team_id);
        r = *out ? 0 : runner_none(runtime, caller, err);
        (void)pthread_rwlock_unlock(&runtime->backends_lock);
    }
    return keyed ? find_keyed(runtime, caller, word, out, err) : r;
}
