/* Runners: servers elsewhere that offer to hold sandboxes, for as long as they say that they are
 * alive. Each is a backend of its team. A runner is free when its last heartbeat is recent and it has
 * fewer sessions than it takes; those given out since that heartbeat count as well. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "runtime/backend/backend_internal.h"
#include "runtime/core/words.h"
#include "store/runtime/store_runtime.h"

enum { RUNNER_URL_MAX = 2048, RUNNER_TOKEN_MAX = 4096, RUNNER_SESSIONS_MAX = 100000 };

bool runner_alive(const struct runtime *runtime, const struct backend *backend, int64_t now_us)
{
    return !backend->removed &&
           now_us - backend->heartbeat_us <= runtime->config.settings->runner_ttl_ms * 1000;
}

struct backend *runner_choose(struct runtime *runtime, struct str team_id)
{
    struct backend *best = NULL;
    int64_t now = clock_wall_us();

    for (struct backend *at = runtime->backends; at; at = at->next) {
        if (!at->runner || !str_is(team_id, at->team_id) || !runner_alive(runtime, at, now))
            continue;
        if (at->active_sessions + at->leased >= at->max_sessions ||
            breaker_is_open(at, CALL_CREATE))
            continue;
        if (!best || at->heartbeat_us > best->heartbeat_us)
            best = at;
    }
    if (best)
        best->leased++;
    return best;
}

int runner_none(struct runtime *runtime, const struct runtime_caller *caller, struct error *err)
{
    int64_t now = clock_wall_us();
    size_t known = 0, alive = 0;

    for (struct backend *at = runtime->backends; at; at = at->next)
        if (at->runner && !at->removed && str_is(caller->team_id, at->team_id)) {
            known++;
            alive += runner_alive(runtime, at, now) ? 1 : 0;
        }
    return error_set(err, ERROR_CONFLICT,
                     "no runner is free: %zu registered, %zu with a heartbeat in the last %lld ms;"
                     " register one, or wait until one has room",
                     known, alive, (long long)runtime->config.settings->runner_ttl_ms);
}

static struct backend *find_runner(struct runtime *runtime, struct str team_id, struct str name)
{
    for (struct backend *at = runtime->backends; at; at = at->next)
        if (at->runner && !at->removed && str_is(team_id, at->team_id) && str_is(name, at->name))
            return at;
    return NULL;
}

static int make_runner(struct runtime *runtime, const struct store_runner *row,
                       struct backend **out, struct error *err)
{
    auto_arena struct arena arena = {0};
    const char *name = arena_str(&arena, row->name).p;
    const char *url = arena_str(&arena, row->base_url).p;
    struct backend *backend = backend_alloc(name);
    struct provider *provider = NULL;
    struct provider_config config = {
        .name = name,
        .type = "runner",
        .api_url = url,
        .domain = "",
        .api_key = row->token.p ? arena_str(&arena, row->token).p : "",
        .public_only = runtime_public_only(runtime, row->team_id),
    };

    if (backend_make_provider(runtime, row->team_id, &config, &provider, err) < 0) {
        backend->provider = provider;
        backend_free(backend);
        return error_prefix(err, "runner '%s'", name);
    }
    backend->provider = provider;
    backend->runner = true;
    backend->base_url = xstrdup(url);
    backend->token = xstrdup(config.api_key);
    (void)str_copy(row->team_id, backend->team_id, sizeof(backend->team_id));
    backend->max_sessions = row->max_sessions;
    backend->active_sessions = row->active_sessions;
    backend->heartbeat_us = row->heartbeat_at_us;
    *out = backend;
    return 0;
}

int runners_open(struct runtime *runtime, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_runner *rows;
    size_t count;

    if (store_runner_list(runtime->config.store, BACKEND_RUNNERS_MAX, &arena, &rows, &count, err) <
        0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct backend *backend = NULL;
        struct error why = {0};

        /* One that cannot be used any more must not keep the server from starting. */
        if (make_runner(runtime, &rows[i], &backend, &why) < 0)
            log_warn("runtime", "%s", why.message);
        else
            backend_link(runtime, backend);
    }
    return 0;
}

/* Paths are put behind it. */
static bool plain_url(struct str url)
{
    for (size_t i = 0; i < url.len; i++)
        if ((unsigned char)url.p[i] <= ' ' || url.p[i] == 0x7f || strchr("@?#", url.p[i]))
            return false;
    return url.len <= RUNNER_URL_MAX;
}

static int check_runner(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct runner *runner, struct error *err)
{
    char word[RUNTIME_NAME_MAX + 1];

    if (!runtime_provider_word(runner->name, word) || !str_is(runner->name, word) ||
        !runtime_name_valid(runner->name))
        return error_set(err, ERROR_INVALID,
                         "name: 1 to %d of a-z, 0-9, '.', '_', '-', beginning with a letter or"
                         " digit",
                         RUNTIME_NAME_MAX);
    if (!(str_starts(runner->base_url, STR("http://")) ||
          str_starts(runner->base_url, STR("https://"))) ||
        !plain_url(runner->base_url))
        return error_set(err, ERROR_INVALID,
                         "base_url: an http or https URL without user, password, query or"
                         " fragment");
    if (runner->max_sessions < 1 || runner->max_sessions > RUNNER_SESSIONS_MAX)
        return error_set(err, ERROR_INVALID, "max_sessions: 1 to %d", RUNNER_SESSIONS_MAX);
    if (runner->token.len > RUNNER_TOKEN_MAX)
        return error_set(err, ERROR_INVALID, "token: at most %d bytes", RUNNER_TOKEN_MAX);
    if (caller->team_id.len >= sizeof(((struct backend *)0)->team_id))
        return error_set(err, ERROR_INVALID, "the team's id is too long");
    for (struct backend *at = runtime->backends; at; at = at->next)
        if (!at->runner && str_is(runner->name, at->name))
            return error_set(err, ERROR_EXISTS, "'%s' is the name of a configured provider",
                             at->name);
    if (strcmp(word, "runner") == 0 || strcmp(word, "local-runner") == 0)
        return error_set(err, ERROR_INVALID, "name: '%s' stands for any free runner", word);
    return 0;
}

/* The old one stays in the list for those who hold it, but is not found any more. */
static int put_runner(struct runtime *runtime, const struct store_runner *row, struct error *err)
{
    struct backend *old = find_runner(runtime, row->team_id, row->name), *made = NULL;
    size_t all = 0, own = 0;

    if (old && str_is(row->base_url, old->base_url) && str_is(row->token, old->token)) {
        if (store_runner_put(runtime->config.store, row, err) < 0)
            return -1;
        old->max_sessions = row->max_sessions;
        old->heartbeat_us = row->heartbeat_at_us;
        old->active_sessions = old->leased = 0;
        return 0;
    }
    for (struct backend *at = runtime->backends; at; at = at->next) {
        all += at->runner ? 1 : 0;
        own += at->runner && str_is(row->team_id, at->team_id) ? 1 : 0;
    }
    if (own >= BACKEND_TEAM_RUNNERS_MAX || all >= BACKEND_RUNNERS_MAX)
        return error_set(err, ERROR_QUOTA,
                         "this server takes at most %d runners of a team, and %d in all, until it"
                         " restarts; one with another address or token is another",
                         BACKEND_TEAM_RUNNERS_MAX, BACKEND_RUNNERS_MAX);
    if (make_runner(runtime, row, &made, err) < 0)
        return -1;
    if (store_runner_put(runtime->config.store, row, err) < 0) {
        backend_free(made);
        return -1;
    }
    if (old)
        old->removed = true;
    backend_link(runtime, made);
    return 0;
}

int runner_register(struct runtime *runtime, const struct runtime_caller *caller,
                    const struct runner *runner, struct error *err)
{
    int64_t now = clock_wall_us();
    struct store_runner row = {
        .team_id = caller->team_id,
        .name = runner->name,
        .base_url = runner->base_url,
        .token = runner->token.p ? runner->token : STR(""),
        .max_sessions = runner->max_sessions,
        .heartbeat_at_us = now,
        .created_at_us = now,
    };
    int r;

    (void)pthread_rwlock_wrlock(&runtime->backends_lock);
    r = check_runner(runtime, caller, runner, err);
    if (r == 0)
        r = put_runner(runtime, &row, err);
    (void)pthread_rwlock_unlock(&runtime->backends_lock);
    if (r == 0)
        log_info("runtime", "runner=%.*s registered max_sessions=%lld", STR_ARG(runner->name),
                 (long long)runner->max_sessions);
    return r;
}

int runner_heartbeat(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                     int64_t active_sessions, struct error *err)
{
    int64_t now = clock_wall_us();
    struct backend *backend;

    if (active_sessions < 0 || active_sessions > RUNNER_SESSIONS_MAX)
        return error_set(err, ERROR_INVALID, "active_sessions: 0 to %d", RUNNER_SESSIONS_MAX);
    if (store_runner_heartbeat(runtime->config.store, caller->team_id, name, active_sessions, now,
                               err) < 0)
        return -1;
    (void)pthread_rwlock_wrlock(&runtime->backends_lock);
    backend = find_runner(runtime, caller->team_id, name);
    if (backend) {
        backend->heartbeat_us = now;
        backend->active_sessions = active_sessions;
        backend->leased = 0;
    }
    (void)pthread_rwlock_unlock(&runtime->backends_lock);
    return backend ? 0 : error_set(err, ERROR_NOT_FOUND, "runner '%.*s' not found", STR_ARG(name));
}

int runner_remove(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                  struct error *err)
{
    struct backend *backend;
    int r;

    (void)pthread_rwlock_wrlock(&runtime->backends_lock);
    r = store_runner_delete(runtime->config.store, caller->team_id, name, err);
    backend = find_runner(runtime, caller->team_id, name);
    if (r == 0 && backend)
        backend->removed = true;
    (void)pthread_rwlock_unlock(&runtime->backends_lock);
    return r;
}
