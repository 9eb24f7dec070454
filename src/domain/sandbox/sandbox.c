/* Opening and closing. */
#include "domain/sandbox/sandbox.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "domain/route/route.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_hooks.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "domain/sandbox/sandbox_life.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_room.h"
#include "domain/sandbox/sandbox_stats.h"
#include "domain/sandbox/sandbox_table.h"

enum {
    SETTLE_US = 10 * 1000 * 1000,
    TIMEOUT_LIMIT_S = 24 * 3600,
    SAMPLE_MS = 5000,
    GRACE_S = 60,
    READY_S = 60,
    IDLE_S = 600,
};

static struct sandboxes *sandboxes_new(const struct sandboxes_config *config)
{
    struct sandboxes *all = xcalloc(1, sizeof(*all));

    all->engine = config->engine;
    all->fetch = envd_fetch_new(config->engine);
    all->egress = config->egress;
    all->peers = peer_networks_new();
    all->secrets = config->secrets;
    all->authority = config->authority;
    all->no_network = config->no_network;
    all->team_rates = config->team_rates;
    all->warm.network_mode = config->no_network ? NETWORK_NONE : NETWORK_OPEN;
    all->store = config->store;
    all->routes = config->routes;
    all->domain = config->domain && config->domain[0] ? xstrdup(config->domain) : NULL;
    all->warm_target = config->warm;
    all->blank_target = config->blank;
    all->max_running = config->max_running;
    all->max_timeout_s = config->max_timeout_s;
    all->max_life_s = config->max_life_s;
    all->grace_s = config->grace_s ? config->grace_s : GRACE_S;
    all->sample_us = (config->sample_ms > 0 ? config->sample_ms : SAMPLE_MS) * 1000;
    all->ready_s = config->ready_s > 0 ? config->ready_s : READY_S;
    all->idle_s = config->idle_s > 0 ? config->idle_s : IDLE_S;
    all->volume_bytes = (uint64_t)config->volume_mb << 20;
    /* Never one that an earlier process gave. */
    atomic_init(&all->generation, (uint64_t)clock_wall_us());
    table_init(all);
    layers_init(all);
    room_init(all);
    metrics_init(all);
    keeper_init(all);
    stats_init(all);
    idempotency_init(all);
    (void)pthread_mutex_init(&all->space.lock, NULL);
    watchers_init(all);
    (void)pthread_mutex_init(&all->warm.lock, NULL);
    cond_init(&all->warm.changed);
    cond_init(&all->warm.scarce);
    list_init(&all->warm.starting);
    list_init(&all->warm.settling);
    return all;
}

static int wake(const char *id, void *arg, struct error *err)
{
    return sandbox_wake(arg, id, err);
}

int sandboxes_open(const struct sandboxes_config *config, struct sandboxes **out, struct error *err)
{
    struct sandboxes *all;

    if (config->max_timeout_s < 1 || config->max_timeout_s > TIMEOUT_LIMIT_S)
        return error_set(err, ERROR_INVALID, "the longest timeout must be from 1 s to 24 hours");
    if (config->max_life_s < 0)
        return error_set(err, ERROR_INVALID, "the longest life must not be negative");
    all = sandboxes_new(config);
    if (clock_open(all, err) < 0 || recover_all(all, err) < 0 || expire_start(all, err) < 0 ||
        events_start(all, err) < 0 || keeper_start(all, err) < 0 || metrics_start(all, err) < 0 ||
        warm_start(all, err) < 0) {
        sandboxes_close(all);
        return error_prefix(err, "recover sandboxes");
    }
    expire_wait_settled(all, SETTLE_US);
    routes_set_waker(all->routes, wake, all);
    *out = all;
    return 0;
}

struct store *sandboxes_store(const struct sandboxes *all)
{
    return all->store;
}

void sandboxes_set_builder(struct sandboxes *all, const struct sandbox_builder *builder)
{
    all->builder = *builder;
}

void sandboxes_hurry(struct sandboxes *all)
{
    atomic_store(&all->ending, true);
}

void sandboxes_drop_warm(struct sandboxes *all)
{
    warm_stop(all);
}

void sandboxes_close(struct sandboxes *all)
{
    if (!all)
        return;
    routes_set_waker(all->routes, NULL, NULL);
    warm_stop(all);
    keeper_stop(all);
    metrics_stop(all);
    expire_stop(all);
    events_stop(all);
    fetch_free(all->fetch);
    table_done(all);
    layers_done(all);
    room_done(all);
    metrics_done(all);
    stats_done(all);
    idempotency_done(all);
    (void)pthread_mutex_destroy(&all->space.lock);
    watchers_done(all);
    (void)pthread_mutex_destroy(&all->warm.lock);
    (void)pthread_cond_destroy(&all->warm.changed);
    (void)pthread_cond_destroy(&all->warm.scarce);
    peer_networks_free(all->peers);
    free(all->domain);
    free(all);
}
