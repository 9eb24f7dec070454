/* Cleaning up what nobody asks for any more.
 *
 * Every minute: sandboxes beyond their maximum lifetime are killed; those whose provider has a clock
 * of its own and whose time should be over are looked at, so that the row (and with it usage and
 * quotas) tells the truth; those without such a clock are paused, or killed, when they were idle for
 * too long. Every hour: sandboxes that were not used for a day (persistent ones: for a month), expired
 * snapshots, rows whose maker has died, machines with our label that no row knows, and old history. */
#include <errno.h>
#include <stdlib.h>

#include "agent/agent_kept.h"
#include "agent/agent_sandbox_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "json/json_shape.h"

enum {
    BATCH = 1000,
    DAY_S = 24 * 3600,
    PERSISTENT_STALE_S = 30 * DAY_S,
    HISTORY_S = 30 * DAY_S,
    ABANDONED_S = 300, /* a row in 'creating' */
    ORPHAN_S = 600,    /* a machine without a row */
    TICK_S = 60,
};

static struct agent_caller caller_of(const struct store_agent_sandbox *row)
{
    return (struct agent_caller){.team_id = row->team_id, .actor = STR("prune")};
}

static bool kill_row(struct agents *agents, const struct store_agent_sandbox *row,
                     const char *reason)
{
    struct agent_caller caller = caller_of(row);
    struct agent_backend *backend = NULL;
    struct error err = {0};

    if (agent_row_backend(agents, &caller, row, &backend, &err) < 0 && err.errnum == ENODEV) {
        /* Nobody could ever reach it. If its provider comes back, the machine is found as orphan. */
        agent_row_forget(agents, &caller, row, &err);
        return true;
    }
    if (!backend || agent_row_kill(agents, &caller, backend, row, reason, &err) < 0) {
        log_warn("agent", "sandbox=%.*s not pruned, tried again later: %s", STR_ARG(row->id),
                 err.message);
        return false;
    }
    return true;
}

/* ---- every minute ---- */

static void idle(struct agents *agents, struct agent_backend *backend,
                 const struct store_agent_sandbox *row)
{
    struct agent_caller caller = caller_of(row);
    auto_arena struct arena arena = {0};
    struct agent_sandbox ignored;
    struct error err = {0};
    unsigned features = provider_caps(agent_backend_provider(backend))->features;

    if (features & PROVIDER_TTL) {
        if (agent_sandbox_get(agents, &caller, row->id, true, &arena, &ignored, &err) < 0)
            log_info("agent", "sandbox=%.*s not looked at: %s", STR_ARG(row->id), err.message);
    } else if (row->idle_s > 0 && (features & PROVIDER_PAUSE)) {
        if (agent_sandbox_pause(agents, &caller, row->id, &err) < 0)
            log_warn("agent", "sandbox=%.*s idle but not paused: %s", STR_ARG(row->id),
                     err.message);
    } else if (row->idle_s > 0) {
        (void)kill_row(agents, row, "idle");
    }
}

static void tick_row(struct agents *agents, struct store_agent_sandbox *row, int64_t now_us)
{
    struct agent_caller caller = caller_of(row);
    struct agent_backend *backend = NULL;
    struct error err;
    int64_t ttl_s;

    row->last_used_at_us = agent_live_last_used(agents, row->id, row->last_used_at_us);
    if (row->max_lifetime_s > 0 && now_us - row->created_at_us > row->max_lifetime_s * 1000000) {
        (void)kill_row(agents, row, "max lifetime");
        return;
    }
    if (row->adopted || !str_is(row->state, "running") ||
        agent_row_backend(agents, &caller, row, &backend, &err) < 0)
        return;
    ttl_s = agent_row_ttl(agents, backend, row);
    if (!ttl_s)
        ttl_s = row->idle_s;
    if (ttl_s > 0 && now_us - row->last_used_at_us > ttl_s * 1000000)
        idle(agents, backend, row);
}

void agent_prune_overdue(struct agents *agents, struct str provider)
{
    auto_arena struct arena arena = {0};
    struct store_agent_query wanted = {.provider = provider, .limit = BATCH};
    struct store_agent_sandbox *rows = NULL;
    size_t count = 0;
    struct error err;

    if (store_agent_sandbox_list(agents->config.store, &wanted, &arena, &rows, &count, &err) < 0) {
        log_error("agent", "sandboxes not looked at: %s", err.message);
        return;
    }
    for (size_t i = 0; i < count; i++)
        tick_row(agents, &rows[i], clock_wall_us());
}

static void tick(struct agents *agents)
{
    agent_prune_overdue(agents, STR_NONE);
}

/* ---- every hour, or when asked ---- */

struct prune {
    struct agents *agents;
    const struct agent_caller *caller;
    int64_t older_than_s;
    bool asked, dry_run;
    int64_t now_us;
    struct arena *arena;
    size_t sandboxes, snapshots;
};

/* Nobody is making it any more; a machine may be there. */
static void prune_abandoned(struct prune *prune, struct store_agent_sandbox *row)
{
    struct agent_caller caller = caller_of(row);
    struct agent_backend *backend = NULL;
    struct provider_sandbox machine;
    struct error err;

    if (agent_row_backend(prune->agents, &caller, row, &backend, &err) == 0 &&
        agent_machine_find_own(prune->agents, backend, row, prune->arena, &machine, &err) == 1)
        row->external_id = machine.id;
    prune->sandboxes += kill_row(prune->agents, row, "abandoned while it was made");
}

static void prune_row(struct prune *prune, struct store_agent_sandbox *row)
{
    int64_t unused_us, limit_s = prune->older_than_s;

    row->last_used_at_us = agent_live_last_used(prune->agents, row->id, row->last_used_at_us);
    unused_us = prune->now_us - row->last_used_at_us;
    if (str_is(row->state, "creating")) {
        if (unused_us > (int64_t)ABANDONED_S * 1000000 && !prune->dry_run)
            prune_abandoned(prune, row);
        return;
    }
    if (row->adopted) /* who uses it does so without us */
        return;
    if (row->persistent && !prune->asked)
        limit_s = PERSISTENT_STALE_S;
    if (unused_us < limit_s * 1000000)
        return;
    prune->sandboxes += prune->dry_run || kill_row(prune->agents, row, "stale");
}

static int prune_sandboxes(struct prune *prune, struct error *err)
{
    int64_t youngest_s = prune->older_than_s < ABANDONED_S ? prune->older_than_s : ABANDONED_S;
    struct store_agent_query wanted = {
        .team_id = prune->caller->team_id,
        .agent_id = prune->caller->agent_id,
        .used_before_us = prune->now_us - youngest_s * 1000000 + 1,
        .limit = BATCH,
    };
    struct store_agent_sandbox *rows = NULL;
    size_t count = 0;

    if (store_agent_sandbox_list(prune->agents->config.store, &wanted, prune->arena, &rows, &count,
                                 err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        prune_row(prune, &rows[i]);
    return 0;
}

static int prune_snapshots(struct prune *prune, struct error *err)
{
    struct store_agent_snapshot *rows = NULL;
    size_t count = 0;

    if (store_agent_snapshot_expired(prune->agents->config.store, prune->caller->team_id,
                                     prune->now_us, BATCH, prune->arena, &rows, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct agent_caller caller = {.team_id = rows[i].team_id, .actor = STR("prune")};
        struct error problem;

        if (prune->dry_run || agent_snapshot_drop(prune->agents, &caller, &rows[i], &problem) == 0)
            prune->snapshots++;
        else
            log_warn("agent", "snapshot=%.*s not pruned, tried again later: %s",
                     STR_ARG(rows[i].id), problem.message);
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

static void prune_machine(struct prune *prune, struct agent_backend *backend,
                          const struct provider_sandbox *machine)
{
    struct str team_id = label(machine, "quicksand.team"), id = label(machine, "quicksand.id");
    struct provider_ref ref = {.team_id = team_id, .id = machine->id, .token = machine->token};
    struct store_agent_sandbox row;
    struct error err;

    if (!id.len || !team_id.len || machine->state == PROVIDER_ENDED ||
        prune->now_us - machine->started_at_us < (int64_t)ORPHAN_S * 1000000)
        return;
    if (prune->caller->team_id.p && !str_eq(prune->caller->team_id, team_id))
        return;
    if (store_agent_sandbox_get(prune->agents->config.store, team_id, machine->id, prune->arena,
                                &row, &err) == 0 &&
        !row.destroyed_at_us)
        return;
    if (store_agent_sandbox_get(prune->agents->config.store, team_id, id, prune->arena, &row,
                                &err) == 0) {
        if (!row.destroyed_at_us &&
            (str_eq(row.external_id, machine->id) || str_is(row.state, "creating")))
            return;
    } else if (err.code != ERROR_NOT_FOUND) {
        return;
    }
    if (!prune->dry_run && provider_kill(agent_backend_provider(backend), &ref, &err) < 0) {
        log_warn("agent", "provider=%s orphan '%.*s' not killed: %s", agent_backend_name(backend),
                 STR_ARG(machine->id), err.message);
        return;
    }
    log_info("agent", "provider=%s orphan '%.*s' of sandbox '%.*s' killed",
             agent_backend_name(backend), STR_ARG(machine->id), STR_ARG(id));
    prune->sandboxes++;
}

static void prune_backend(struct prune *prune, struct agent_backend *backend, struct str team_id)
{
    const struct provider_label wanted = {STR("quicksand.instance"),
                                          agent_instance_name(prune->agents)};
    struct provider *provider = agent_backend_provider(backend);
    struct provider_sandbox *machines = NULL;
    size_t count = 0;
    struct error err;

    if (provider_find(provider, team_id, &wanted, 1, prune->arena, &machines, &count, &err) < 0) {
        log_info("agent", "provider=%s not searched for orphans: %s", agent_backend_name(backend),
                 err.message);
        return;
    }
    for (size_t i = 0; i < count; i++)
        prune_machine(prune, backend, &machines[i]);
}

/* The embedded engine shows a team only its own. */
static void prune_embedded(struct prune *prune, struct agent_backend *backend)
{
    struct str *teams = NULL;
    size_t count = 0;
    struct error err;

    if (prune->caller->team_id.p) {
        prune_backend(prune, backend, prune->caller->team_id);
        return;
    }
    if (store_agent_teams(prune->agents->config.store, prune->arena, &teams, &count, &err) < 0)
        return;
    for (size_t i = 0; i < count; i++)
        prune_backend(prune, backend, teams[i]);
}

static void prune_orphans(struct prune *prune)
{
    const struct agent_settings *settings = prune->agents->config.settings;

    for (size_t i = 0; i < settings->backend_count; i++) {
        struct agent_backend *backend = NULL;
        struct error err;

        if (agent_backend_find(prune->agents, prune->caller, str_of(settings->backends[i].name),
                               &backend, &err) < 0 ||
            !(provider_caps(agent_backend_provider(backend))->features & PROVIDER_FIND))
            continue;
        if (agent_backend_embedded(prune->agents, backend))
            prune_embedded(prune, backend);
        else
            prune_backend(prune, backend, prune->caller->team_id);
    }
}

int agent_sandbox_prune(struct agents *agents, const struct agent_caller *caller,
                        int64_t older_than_s, bool dry_run, size_t *out_sandboxes,
                        size_t *out_snapshots, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct prune prune = {
        .agents = agents,
        .caller = caller,
        .older_than_s = older_than_s > 0 ? older_than_s : agents->config.settings->stale_after_s,
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

static void hourly(struct agents *agents)
{
    struct agent_caller everybody = {.actor = STR("prune")};
    int64_t before_us = clock_wall_us() - (int64_t)HISTORY_S * 1000000;
    size_t sandboxes = 0, snapshots = 0, forgotten = 0;
    struct error err;

    if (agent_sandbox_prune(agents, &everybody, 0, false, &sandboxes, &snapshots, &err) < 0 ||
        store_agent_sandbox_forget(agents->config.store, before_us, BATCH, &forgotten, &err) < 0)
        log_error("agent", "cleanup failed: %s", err.message);
    agent_kept_prune(agents);
    if (sandboxes || snapshots || forgotten)
        log_info("agent", "cleanup: sandboxes=%zu snapshots=%zu history=%zu", sandboxes, snapshots,
                 forgotten);
}

void agent_prune_open(struct agents *agents)
{
    agent_timer_add(agents, 3600, agent_usage_tell_all);
    agent_timer_add(agents, TICK_S, tick);
    agent_timer_add(agents, 3600, hourly);
}
