/* Deletes what is over, and never what somebody expects to find again (runtime_row_kept()).
 *
 * Every minute: sandboxes beyond maxLifetimeSeconds or expireAfterSeconds are killed. Idle sandboxes are
 * compared with their provider where it ends or pauses them by itself; elsewhere those with a key are paused
 * and those without are killed. Every hour: sandboxes without a key that run unused for stale_after_s,
 * expired snapshots, rows whose creator died, machines with our label that no row knows, old history,
 * and, when retention_days is set, what nobody used for so long (retention.c). */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/kept.h"
#include "runtime/sandbox/sandbox_parts.h"

enum {
    BATCH = 1000,
    DAY_S = 24 * 3600,
    HISTORY_S = 30 * DAY_S,
    ORPHAN_S = 600, /* a machine without a row */
    TICK_S = 60,
};

static struct runtime_caller caller_of(const struct store_runtime_sandbox *row, int64_t deadline_us)
{
    return (struct runtime_caller){
        .team_id = row->team_id, .actor = STR("prune"), .deadline_us = deadline_us};
}

bool runtime_prune_kill(struct runtime *runtime, const struct store_runtime_sandbox *row,
                        const char *reason, int64_t deadline_us)
{
    struct runtime_caller caller = caller_of(row, deadline_us);
    struct backend *backend = NULL;
    struct error err = {0};

    if (runtime_row_backend(runtime, &caller, row, &backend, &err) < 0 && err.errnum == ENODEV) {
        /* Nobody could ever reach it. If its provider comes back, the machine is found as orphan. */
        runtime_row_forget(runtime, &caller, row, &err);
        return true;
    }
    if (!backend || runtime_row_kill(runtime, &caller, backend, row, reason, &err) < 0) {
        log_warn("runtime", "sandbox=%.*s not pruned, tried again later: %s", STR_ARG(row->id),
                 err.message);
        return false;
    }
    return true;
}

/* ---- every minute ---- */

static void idle(struct runtime *runtime, struct backend *backend,
                 const struct store_runtime_sandbox *row, int64_t deadline_us)
{
    struct runtime_caller caller = caller_of(row, deadline_us);
    auto_arena struct arena arena = {0};
    struct runtime_sandbox ignored;
    struct error err = {0};
    unsigned features = provider_caps(backend_provider(backend))->features;

    if (features & PROVIDER_TTL) {
        if (runtime_sandbox_get(runtime, &caller, row->id, true, &arena, &ignored, &err) < 0)
            log_info("runtime", "sandbox=%.*s not looked at: %s", STR_ARG(row->id), err.message);
    } else if (runtime_row_kept(row) && !(features & PROVIDER_PAUSE)) {
        return; /* it runs on: ending it would delete its files */
    } else if (runtime_row_kept(row)) {
        if (runtime_sandbox_pause(runtime, &caller, row->id, &err) < 0)
            log_warn("runtime", "sandbox=%.*s idle but not paused: %s", STR_ARG(row->id),
                     err.message);
    } else {
        (void)runtime_prune_kill(runtime, row, "idle", deadline_us);
    }
}

struct overdue {
    struct runtime *runtime;
    int64_t deadline_us;
};

static void tick_visit(void *arg, struct store_runtime_sandbox *row)
{
    const struct overdue *overdue = arg;
    struct runtime *runtime = overdue->runtime;
    struct runtime_caller caller = caller_of(row, overdue->deadline_us);
    int64_t now_us = clock_wall_us();
    struct backend *backend = NULL;
    const char *over;
    struct error err;
    int64_t ttl_s;

    if (row->state == SANDBOX_CREATING)
        return;
    row->last_used_at_us = runtime_live_last_used(runtime, row->id, row->last_used_at_us);
    over = runtime_row_over(row, now_us);
    if (over) {
        (void)runtime_prune_kill(runtime, row, over, overdue->deadline_us);
        return;
    }
    if (row->adopted || row->state != SANDBOX_RUNNING ||
        runtime_row_backend(runtime, &caller, row, &backend, &err) < 0)
        return;
    ttl_s = runtime_row_ttl(runtime, backend, row);
    if (!ttl_s)
        ttl_s = row->idle_s;
    if (ttl_s > 0 && now_us - row->last_used_at_us > ttl_s * 1000000)
        idle(runtime, backend, row, overdue->deadline_us);
}

/* Calls visit for all rows of the query, newest first. */
static int each_row(struct runtime *runtime, struct store_runtime_sandbox_query wanted,
                    void (*visit)(void *arg, struct store_runtime_sandbox *row), void *arg,
                    struct error *err)
{
    size_t count;

    wanted.limit = BATCH;
    do {
        auto_arena struct arena arena = {0};
        struct store_runtime_sandbox *rows = NULL;

        count = 0;
        if (store_runtime_sandbox_list(runtime->config.store, &wanted, &arena, &rows, &count, err) <
            0)
            return -1;
        if (count)
            wanted.before_us = rows[count - 1].created_at_us;
        for (size_t i = 0; i < count; i++)
            visit(arg, &rows[i]);
    } while (count == BATCH);
    return 0;
}

void runtime_prune_overdue(struct runtime *runtime, struct str provider, int64_t deadline_us)
{
    struct overdue overdue = {runtime, deadline_us};
    struct store_runtime_sandbox_query wanted = {.provider = provider};
    struct error err;

    if (each_row(runtime, wanted, tick_visit, &overdue, &err) < 0)
        log_error("runtime", "sandboxes not looked at: %s", err.message);
}

static void tick(struct runtime *runtime)
{
    runtime_prune_overdue(runtime, STR_NONE, 0);
}

/* ---- every hour, or when asked ---- */

struct prune {
    struct runtime *runtime;
    const struct runtime_caller *caller;
    int64_t older_than_s;
    bool asked, dry_run;
    int64_t now_us;
    struct arena *arena;
    size_t sandboxes, snapshots;
};

/* Its maker has died. Reads the row again after it looked for a claim: a maker that has just finished has written
 * the row before it gave up its claim. */
static bool is_abandoned(const struct prune *prune, const struct store_runtime_sandbox *row)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox now;
    struct error ignored;

    return !runtime_claim_held(prune->runtime, row->id) &&
           store_runtime_sandbox_get(prune->runtime->config.store, row->team_id, row->id, &arena,
                                     &now, &ignored) == 0 &&
           now.state == SANDBOX_CREATING &&
           prune->now_us - now.last_used_at_us > RUNTIME_CLAIM_S * INT64_C(1000000);
}

/* A key whose restore was abandoned keeps its row: the next ensure restores its snapshot again. */
static void keep_row(struct prune *prune, struct backend *backend,
                     const struct store_runtime_sandbox *row)
{
    struct runtime_caller caller = caller_of(row, 0);
    struct error why = {0}, err = {0};
    bool changed;

    (void)error_set(&why, ERROR_UNAVAILABLE, "the process that restored it has died");
    if (machine_kill(prune->runtime, backend, row, 0, &err) < 0 ||
        store_runtime_sandbox_state(prune->runtime->config.store, row->id, SANDBOX_LOST,
                                    str_of(why.message), clock_wall_us(), &changed, &err) < 0)
        log_warn("runtime", "sandbox=%.*s abandoned but not ended, tried again later: %s",
                 STR_ARG(row->id), err.message);
    else
        runtime_row_failed(prune->runtime, &caller, row, &why);
}

static void prune_abandoned(struct prune *prune, struct store_runtime_sandbox *row)
{
    struct runtime_caller caller = caller_of(row, 0);
    struct backend *backend = NULL;
    struct provider_sandbox machine;
    struct error err;

    /* It names the machine before the restore, if any. */
    if (runtime_row_backend(prune->runtime, &caller, row, &backend, &err) == 0 &&
        machine_find_own(prune->runtime, backend, row, 0, prune->arena, &machine, &err) == 1)
        row->external_id = machine.id;
    if (backend && row->key.p && row->ran_us > 0)
        keep_row(prune, backend, row);
    else
        prune->sandboxes +=
            runtime_prune_kill(prune->runtime, row, "abandoned while it was made", 0);
}

static void prune_row(void *arg, struct store_runtime_sandbox *row)
{
    struct prune *prune = arg;
    int64_t unused_us, limit_s = prune->older_than_s;

    row->last_used_at_us = runtime_live_last_used(prune->runtime, row->id, row->last_used_at_us);
    unused_us = prune->now_us - row->last_used_at_us;
    if (row->state == SANDBOX_CREATING) {
        if (!prune->dry_run && is_abandoned(prune, row))
            prune_abandoned(prune, row);
        return;
    }
    if (!prune->asked && runtime_row_kept(row)) {
        if (!prune->dry_run)
            prune->sandboxes += runtime_retention_row(prune->runtime, row, prune->now_us);
        return;
    }
    if (row->adopted) /* E2B's API uses it without our knowledge */
        return;
    if (!prune->asked && row->idle_s > limit_s)
        limit_s = row->idle_s;
    if (unused_us < limit_s * 1000000)
        return;
    prune->sandboxes += prune->dry_run || runtime_prune_kill(prune->runtime, row, "stale", 0);
}

static int prune_sandboxes(struct prune *prune, struct error *err)
{
    int64_t youngest_s =
        prune->older_than_s < RUNTIME_CLAIM_S ? prune->older_than_s : RUNTIME_CLAIM_S;
    struct store_runtime_sandbox_query wanted = {
        .team_id = prune->caller->team_id,
        .agent_id = prune->caller->agent_id,
        .used_before_us = prune->now_us - youngest_s * 1000000 + 1,
    };

    return each_row(prune->runtime, wanted, prune_row, prune, err);
}

static void tell_expired(struct runtime *runtime, const struct runtime_caller *caller,
                         const struct store_runtime_snapshot *row)
{
    char at[CLOCK_TEXT_SIZE];
    json_t *data = json_pack("{s:o}", "snapshot_id", json_str(row->id));
    struct runtime_event event = {.type = STR("snapshot.expired"),
                                  .sandbox_id = row->sandbox_id,
                                  .actor = caller->actor,
                                  .data = data};

    clock_format(row->expires_at_us, at);
    (void)json_object_set_new(data, "expires_at", json_string(at));
    if (row->alias.p)
        (void)json_object_set_new(data, "alias", json_str(row->alias));
    runtime_event_add(runtime, caller, &event);
    json_decref(data);
}

static int prune_snapshots(struct prune *prune, struct error *err)
{
    struct store_runtime_snapshot *rows = NULL;
    size_t count = 0;

    if (store_runtime_snapshot_expired(prune->runtime->config.store, prune->caller->team_id,
                                       prune->now_us, BATCH, prune->arena, &rows, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct runtime_caller caller = {.team_id = rows[i].team_id, .actor = STR("prune")};
        struct error problem;

        if (prune->dry_run) {
            prune->snapshots++;
        } else if (runtime_snapshot_drop(prune->runtime, &caller, &rows[i], &problem) == 0) {
            tell_expired(prune->runtime, &caller, &rows[i]);
            prune->snapshots++;
        } else {
            log_warn("runtime", "snapshot=%.*s not pruned, tried again later: %s",
                     STR_ARG(rows[i].id), problem.message);
        }
    }
    return 0;
}

static struct str label(const struct provider_sandbox *machine, const char *name)
{
    for (size_t i = 0; i < machine->label_count; i++)
        if (str_is(machine->labels[i].name, name))
            return machine->labels[i].value;
    return STR_NONE;
}

static void prune_machine(struct prune *prune, struct backend *backend,
                          const struct provider_sandbox *machine)
{
    struct str team_id = label(machine, "quicksand.team"), id = label(machine, "quicksand.id");
    struct provider_ref ref = {.team_id = team_id, .id = machine->id, .token = machine->token};
    struct store_runtime_sandbox row;
    struct error err;

    if (!id.len || !team_id.len || machine->state == PROVIDER_ENDED ||
        prune->now_us - machine->started_at_us < (int64_t)ORPHAN_S * 1000000)
        return;
    if (prune->caller->team_id.p && !str_eq(prune->caller->team_id, team_id))
        return;
    if (store_runtime_sandbox_get(prune->runtime->config.store, team_id, machine->id, prune->arena,
                                  &row, &err) == 0 &&
        !row.destroyed_at_us)
        return;
    if (store_runtime_sandbox_get(prune->runtime->config.store, team_id, id, prune->arena, &row,
                                  &err) == 0) {
        if (!row.destroyed_at_us &&
            (str_eq(row.external_id, machine->id) || row.state == SANDBOX_CREATING))
            return;
    } else if (err.code != ERROR_NOT_FOUND || label(machine, "quicksand.key").len) {
        return; /* of a store that was lost or restored: its key finds it again */
    }
    if (!prune->dry_run && provider_kill(backend_provider(backend), &ref, &err) < 0) {
        log_warn("runtime", "provider=%s orphan '%.*s' not killed: %s", backend_name(backend),
                 STR_ARG(machine->id), err.message);
        return;
    }
    log_info("runtime", "provider=%s orphan '%.*s' of sandbox '%.*s' killed", backend_name(backend),
             STR_ARG(machine->id), STR_ARG(id));
    prune->sandboxes++;
}

static void prune_backend(struct prune *prune, struct backend *backend, struct str team_id)
{
    const struct pair wanted = {STR("quicksand.instance"), runtime_instance_name(prune->runtime)};
    const struct provider_query query = {team_id, &wanted, 1, 0};
    struct provider *provider = backend_provider(backend);
    struct provider_sandbox *machines = NULL;
    size_t count = 0;
    struct error err;

    if (provider_find(provider, &query, prune->arena, &machines, &count, &err) < 0) {
        log_info("runtime", "provider=%s not searched for orphans: %s", backend_name(backend),
                 err.message);
        return;
    }
    for (size_t i = 0; i < count; i++)
        prune_machine(prune, backend, &machines[i]);
}

/* The embedded engine shows a team only its own. */
static void prune_embedded(struct prune *prune, struct backend *backend)
{
    struct str *teams = NULL;
    size_t count = 0;
    struct error err;

    if (prune->caller->team_id.p) {
        prune_backend(prune, backend, prune->caller->team_id);
        return;
    }
    if (store_runtime_teams(prune->runtime->config.store, prune->arena, &teams, &count, &err) < 0)
        return;
    for (size_t i = 0; i < count; i++)
        prune_backend(prune, backend, teams[i]);
}

static void prune_orphans(struct prune *prune)
{
    const struct runtime_settings *settings = prune->runtime->config.settings;

    for (size_t i = 0; i < settings->backend_count; i++) {
        struct backend *backend = NULL;
        struct error err;

        if (backend_find(prune->runtime, prune->caller, str_of(settings->backends[i].name),
                         &backend, &err) < 0 ||
            !(provider_caps(backend_provider(backend))->features & PROVIDER_FIND))
            continue;
        if (backend_embedded(prune->runtime, backend))
            prune_embedded(prune, backend);
        else
            prune_backend(prune, backend, prune->caller->team_id);
    }
}

int runtime_sandbox_prune(struct runtime *runtime, const struct runtime_caller *caller,
                          int64_t older_than_s, bool dry_run, size_t *out_sandboxes,
                          size_t *out_snapshots, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct prune prune = {
        .runtime = runtime,
        .caller = caller,
        .older_than_s = older_than_s > 0 ? older_than_s : runtime->config.settings->stale_after_s,
        .asked = older_than_s > 0,
        .dry_run = dry_run,
        .now_us = clock_wall_us(),
        .arena = &arena,
    };

    if (older_than_s < 0)
        return error_set(err, ERROR_INVALID, "the age must not be negative");
    if (prune_sandboxes(&prune, err) < 0 || prune_snapshots(&prune, err) < 0)
        return -1;
    prune_orphans(&prune);
    *out_sandboxes = prune.sandboxes;
    *out_snapshots = prune.snapshots;
    return 0;
}

static void hourly(struct runtime *runtime)
{
    struct runtime_caller everybody = {.actor = STR("prune")};
    int64_t before_us = clock_wall_us() - (int64_t)HISTORY_S * 1000000;
    size_t sandboxes = 0, snapshots = 0, forgotten = 0;
    struct error err;

    if (runtime_sandbox_prune(runtime, &everybody, 0, false, &sandboxes, &snapshots, &err) < 0 ||
        store_runtime_sandbox_forget(runtime->config.store, before_us, BATCH, &forgotten, &err) < 0)
        log_error("runtime", "cleanup failed: %s", err.message);
    runtime_kept_prune(runtime);
    if (sandboxes || snapshots || forgotten)
        log_info("runtime", "cleanup: sandboxes=%zu snapshots=%zu history=%zu", sandboxes,
                 snapshots, forgotten);
}

void runtime_prune_open(struct runtime *runtime)
{
    runtime_timer_add(runtime, "usage", 3600, true, runtime_usage_tell_all);
    runtime_timer_add(runtime, "lifetimes", TICK_S, true, tick);
    runtime_timer_add(runtime, "clean-up", 3600, true, hourly);
}
