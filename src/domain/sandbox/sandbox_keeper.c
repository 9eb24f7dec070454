/* What has no hurry, as jobs of the periodic service: layers that nobody uses any more are deleted, old history is
 * forgotten, the store is copied. */
#include "base/clock.h"
#include "base/log.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "store/platform/store_audit.h"
#include "store/platform/store_idempotency.h"

enum {
    PRUNE_ROWS = 1000,
    EVENTS_KEPT = 1000 * 1000,
    AGAIN_US = 1000 * 1000,
    AGAIN_MAX_US = 60 * 1000 * 1000,
};
#define HOUR_US ((int64_t)3600 * 1000000)

/* A store that is restored from a copy knows at least what was there an hour ago. */
static void back_up(void *arg)
{
    struct sandboxes *all = arg;
    struct error err = {0};

    if (store_backup(all->store, HOUR_US - 60 * (int64_t)AGAIN_US, &err) < 0)
        log_error("sandbox", "%s; trying again in an hour", err.message);
}

/* Few rows at a time: the store is locked meanwhile. */
static void prune(void *arg)
{
    struct sandboxes *all = arg;
    int64_t before = clock_wall_us() - (int64_t)STORE_HISTORY_DAYS * 24 * HOUR_US;
    struct error err = {0};
    size_t count = 0, events = 0, audit = 0;

    if (store_sandbox_prune(all->store, before, PRUNE_ROWS, &count, &err) < 0 ||
        store_event_prune(all->store, before, EVENTS_KEPT, PRUNE_ROWS, &events, &err) < 0 ||
        store_audit_prune(all->store, before - 23 * 24 * HOUR_US, EVENTS_KEPT, PRUNE_ROWS, &audit,
                          &err) < 0 ||
        store_idempotency_prune(all->store, clock_wall_us() - 24 * HOUR_US, &err) < 0)
        log_warn("sandbox", "forget old history: %s, ignoring", err.message);
    if (count == PRUNE_ROWS || events == PRUNE_ROWS)
        periodic_at(&all->keeper.prune, clock_mono_us() + AGAIN_US);
}

/* The pause before the next try grows with every failure. */
static void collect(void *arg)
{
    struct sandboxes *all = arg;
    struct keeper *keeper = &all->keeper;

    if (layers_collect(all)) {
        keeper->pause_us = AGAIN_US;
        return;
    }
    periodic_at(&keeper->collect, clock_mono_us() + keeper->pause_us);
    keeper->pause_us *= 2;
    if (keeper->pause_us > AGAIN_MAX_US)
        keeper->pause_us = AGAIN_MAX_US;
}

static void retry_leases(void *arg)
{
    struct sandboxes *all = arg;

    if (lease_retry(all))
        lease_retry_later(all);
}

void layers_collect_soon(struct sandboxes *all)
{
    periodic_soon(&all->keeper.collect);
}

void lease_retry_later(struct sandboxes *all)
{
    periodic_at(&all->keeper.leases, clock_mono_us() + AGAIN_US);
}

static void job_init(struct sandboxes *all, struct periodic *job, const char *name,
                     int64_t period_us, void (*run)(void *))
{
    *job = (struct periodic){
        .name = name, .period_us = period_us, .may_block = true, .run = run, .arg = all};
}

void keeper_init(struct sandboxes *all)
{
    struct keeper *keeper = &all->keeper;

    keeper->pause_us = AGAIN_US;
    job_init(all, &keeper->back_up, "back-up", HOUR_US, back_up);
    job_init(all, &keeper->collect, "collect", HOUR_US, collect);
    job_init(all, &keeper->prune, "forget-history", HOUR_US, prune);
    job_init(all, &keeper->leases, "leases", 0, retry_leases);
}

/* The store is copied at once, old history is forgotten, and layers are collected, of which recovery may have left some. */
int keeper_start(struct sandboxes *all, struct error *err)
{
    struct keeper *keeper = &all->keeper;

    return periodic_add(&keeper->back_up, 0, err) < 0 ||
                   periodic_add(&keeper->collect, 0, err) < 0 ||
                   periodic_add(&keeper->prune, 0, err) < 0 ||
                   periodic_add(&keeper->leases, PERIODIC_ON_WISH, err) < 0
               ? -1
               : 0;
}

void keeper_stop(struct sandboxes *all)
{
    struct keeper *keeper = &all->keeper;

    periodic_remove(&keeper->back_up);
    periodic_remove(&keeper->collect);
    periodic_remove(&keeper->prune);
    periodic_remove(&keeper->leases);
}
