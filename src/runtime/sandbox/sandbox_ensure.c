/* ensure: resume, else restore, else create.
 *
 * A sandbox with a key is identified by (team, key, spec). The spec hash covers what cannot be
 * changed once a machine runs: provider, image, network, mounts, resources, options. The same key
 * with another spec is another sandbox; the one before stays what it was, and asking for its spec
 * again finds it again. Environment and timeouts are not part of it.
 *
 * In one process, calls for a key take turns. Between processes on one store, the insert of the row
 * decides: who loses waits until the winner's row says how it went. Between stores that share a
 * provider, the labels decide: what is there is adopted, and of two machines made at the same time
 * the older one (then the smaller id) stays, its rival is killed by who made it.
 *
 * Everything together takes at most create_timeout_s, hooks aside; what a create that was given up may
 * still make is swept in the background.
 *
 * A row is written before its machine is made: state 'creating'. Its maker holds a claim on it (claim.c). When no
 * claim was renewed for RUNTIME_CLAIM_S, the maker has died: the machine, found by its label, is taken over, or the
 * row counts as gone. Of the embedded engine the row is written with the machine's own row, in one transaction:
 * there are both or none.
 *
 * A row whose machine is gone has state 'error' and still holds its key. Restoring keeps its id;
 * creating kills it and claims the key with a new id, in one transaction. */
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"
#include "runtime/sandbox/equip.h"
#include "runtime/sandbox/sandbox_ensure.h"
#include "runtime/sandbox/workspace.h"

enum {
    RACE_WAIT_S = RUNTIME_CLAIM_S + 10,
    RACE_STEP_MS = 20,
    TRIES_AT_ONCE = 4, /* then a pause comes before each */
};

static bool local(const struct ensure *ensure)
{
    return backend_embedded(ensure->runtime, ensure->profile.backend);
}

/* ---- a machine for a row ---- */

void ensure_use_machine(struct store_runtime_sandbox *row, const struct provider_sandbox *machine)
{
    row->external_id = machine->id;
    row->token = machine->token;
    row->address = machine->address;
    row->cdp_url = machine->cdp_url;
    if (!row->image.p)
        row->image = machine->image;
}

/* A new one in the engine of this process has its id: one sandbox, one id, on both APIs. */
static int note_ready(struct ensure *ensure, struct store_runtime_sandbox *row, int64_t create_ms,
                      struct error *err)
{
    struct str claimed = row->id;
    struct store_runtime_ready ready = {
        .id = create_ms >= 0 && local(ensure) ? row->external_id : STR_NONE,
        .external_id = row->external_id,
        .token = row->token,
        .address = row->address,
        .cdp_url = row->cdp_url,
        .snapshot_id = row->snapshot_id,
        .image = row->image,
        .at_us = clock_wall_us(),
        .create_ms = create_ms,
        .durable = !local(ensure),
    };

    row->state = SANDBOX_RUNNING;
    row->error = STR_NONE;
    row->running_since_us = row->last_used_at_us = ready.at_us;
    if (store_runtime_sandbox_ready(ensure->runtime->config.store, claimed, &ready, err) < 0)
        return -1;
    if (ready.id.p)
        row->id = ready.id;
    runtime_live_extended(ensure->runtime, row->id,
                          runtime_row_ttl(ensure->runtime, ensure->profile.backend, row));
    return 0;
}

/* The row of a sandbox that could not be made; err stays as it is. */
void ensure_note_failed(struct ensure *ensure, const struct store_runtime_sandbox *row,
                        enum sandbox_state state, const struct error *why)
{
    struct error problem, ignored;
    bool changed;

    if (machine_kill(ensure->runtime, ensure->profile.backend, row, ensure->caller->deadline_us,
                     &ignored) < 0)
        runtime_sweep_later(ensure->runtime, ensure->profile.backend, row);
    if (store_runtime_sandbox_state(ensure->runtime->config.store, row->id, state,
                                    str_of(why->message), clock_wall_us(), &changed, &problem) < 0)
        log_error("runtime", "sandbox=%.*s state not recorded: %s", STR_ARG(row->id),
                  problem.message);
    runtime_row_failed(ensure->runtime, ensure->caller, row, why);
    runtime_live_forget(ensure->runtime, row->id);
}

/* Another store may have made one for the same key at the same time: the older one stays. 1 = ours
 * was killed and the row has the other one. */
static int yield_to_older(struct ensure *ensure, struct store_runtime_sandbox *row,
                          struct error *err)
{
    struct backend *backend = ensure->profile.backend;
    struct provider_sandbox older, connected = {0};
    struct store_runtime_sandbox ours = *row;
    struct provider_ref ref;
    int found = row->key.p ? machine_find(ensure->runtime, backend, row, row->external_id,
                                          ensure->caller->deadline_us, ensure->arena, &older, err)
                           : 0;

    if (found <= 0)
        return found;
    ensure_use_machine(row, &older);
    ref = runtime_row_ref(row, ensure->caller->deadline_us);
    if (provider_connect(backend_provider(backend), &ref,
                         runtime_row_ttl(ensure->runtime, backend, row), ensure->arena, &connected,
                         err) < 0) {
        /* It did not last: ours stays. */
        *row = ours;
        return 0;
    }
    if (connected.token.p)
        row->token = connected.token;
    if (connected.address.p)
        row->address = connected.address;
    if (machine_kill(ensure->runtime, backend, &ours, ensure->caller->deadline_us, err) < 0)
        log_warn("runtime", "sandbox=%.*s duplicate not killed, left to the sweep: %s",
                 STR_ARG(row->id), err->message);
    return 1;
}

void ensure_fill_row(struct ensure *ensure)
{
    const struct profile *profile = &ensure->profile;
    auto_free char *metadata =
        ensure->request->metadata ? json_text(ensure->request->metadata) : NULL;
    char id[RUNTIME_ID_SIZE];

    runtime_id("sbx_", id);
    ensure->row = (struct store_runtime_sandbox){
        .id = arena_str(ensure->arena, str_of(id)),
        .team_id = arena_str(ensure->arena, ensure->caller->team_id),
        .key = arena_str(ensure->arena, ensure->request->key),
        .spec_hash = ensure->hash,
        .provider = arena_str(ensure->arena, str_of(backend_name(profile->backend))),
        .image = arena_str(ensure->arena, profile->image),
        .profile = arena_str(ensure->arena, profile->name),
        .settings = profile->settings,
        .metadata = arena_str(ensure->arena, str_of(metadata)),
        .state = SANDBOX_CREATING,
        .agent_id = arena_str(ensure->arena, ensure->request->agent_id),
        .task_id = arena_str(ensure->arena, ensure->request->task_id),
        .idle_s = profile->idle_s,
        .max_lifetime_s = profile->max_lifetime_s,
        .persistent = profile->persistent,
        .cpu = profile->cpu,
        .created_at_us = clock_wall_us(),
    };
    ensure->row.last_used_at_us = ensure->row.created_at_us;
}

static int claim_row(struct ensure *ensure, struct str replaces, struct error *err)
{
    struct store_runtime_claim claim = {
        .row = &ensure->row,
        .replaces = replaces,
        .reason = ensure->previous.reason,
        .max = backend_max_sandboxes(ensure->profile.backend),
        .durable = !local(ensure),
    };

    if (store_runtime_claim(ensure->runtime->config.store, &claim, err) == 0)
        return 0;
    if (err->code == ERROR_QUOTA) {
        /* Some may have ended without telling. */
        runtime_prune_overdue(ensure->runtime, ensure->row.provider, ensure->caller->deadline_us);
        if (store_runtime_claim(ensure->runtime->config.store, &claim, err) == 0)
            return 0;
    }
    return err->code == ERROR_EXISTS && ensure->request->key.p ? AGAIN : -1;
}

static int new_row(struct ensure *ensure, struct str replaces, struct error *err)
{
    ensure_fill_row(ensure);
    runtime_claim_begin(ensure->runtime, &ensure->claim, ensure->row.id);
    return claim_row(ensure, replaces, err);
}

int ensure_create_machine(struct ensure *ensure, const struct store_runtime_sandbox *row,
                          struct provider_joint *joint, struct provider_sandbox *out,
                          struct error *err)
{
    struct machine_spec wanted = {
        .profile = &ensure->profile,
        .row = row,
        .snapshot = ensure->has_snapshot ? ensure->snapshot.external_id : STR_NONE,
        .metadata = ensure->request->metadata,
        .joint = joint,
        .deadline_us = &ensure->caller->deadline_us,
    };

    if (machine_create(ensure->runtime, &wanted, ensure->arena, out, err) < 0)
        return -1;
    ensure->warning = out->warning;
    return 0;
}

static int make_machine(struct ensure *ensure, struct store_runtime_sandbox *row, struct error *err)
{
    struct provider_sandbox machine = {0};

    row->external_id = STR_NONE;
    if (ensure_create_machine(ensure, row, NULL, &machine, err) < 0)
        return -1;
    ensure_use_machine(row, &machine);
    row->snapshot_id = ensure->has_snapshot ? ensure->snapshot.id : STR_NONE;
    return 0;
}

/* ---- tier 3 ---- */

/* A sandbox of the embedded engine and its row here are in one store: they are written in one transaction, when the
 * sandbox runs. */
static bool row_may_follow(const struct ensure *ensure, struct str replaces)
{
    return local(ensure) && !replaces.p && json_array_size(ensure->profile.on_create) == 0 &&
           !ensure->profile.equips && !ensure->root.p &&
           backend_max_sandboxes(ensure->profile.backend) <= 0;
}

/* *out_adopted: another store's was there. */
static int claim_first(struct ensure *ensure, struct str replaces, int64_t *out_ms,
                       bool *out_adopted, struct error *err)
{
    struct store_runtime_sandbox *row = &ensure->row;
    int64_t begin_us = clock_mono_us();
    int r = new_row(ensure, replaces, err), adopted = 0;

    if (r != 0)
        return r;
    r = make_machine(ensure, row, err);
    *out_ms = ensure_since_ms(begin_us);
    if (r == 0)
        r = adopted = yield_to_older(ensure, row, err);
    if (r == 0)
        r = workspace_make(ensure->runtime, ensure->caller, ensure->profile.backend, row,
                           ensure->request, ensure->root, err);
    if (r == 0)
        r = machine_equip(ensure->runtime, ensure->profile.backend, row, err);
    if (r == 0)
        r = machine_hooks(ensure->runtime, ensure->profile.backend, row, ensure->profile.on_create,
                          "onCreate", err);
    if (r >= 0)
        r = note_ready(ensure, row, *out_ms, err);
    if (r < 0) {
        ensure_note_failed(ensure, row, SANDBOX_ENDED, err);
        return -1;
    }
    *out_adopted = adopted > 0;
    return 0;
}

static int create(struct ensure *ensure, struct str replaces, struct error *err)
{
    struct runtime *runtime = ensure->runtime;
    struct store_runtime_sandbox *row = &ensure->row;
    int64_t create_ms = 0;
    bool adopted = false, first = row_may_follow(ensure, replaces);
    int r = first ? ensure_create_joint(ensure, err)
                  : claim_first(ensure, replaces, &create_ms, &adopted, err);

    if (r != 0)
        return r;
    if (adopted) {
        runtime_row_event(runtime, ensure->caller, row, "sandbox.resumed",
                          json_pack("{s:b}", "adopted", 1));
        ensure->tier = TIER_RESUMED;
        return 0;
    }
    if (!first)
        ensure_tell_created(ensure, create_ms);
    ensure->tier = ensure->has_snapshot ? TIER_RESTORED : TIER_CREATED;
    return 0;
}

/* ---- tier 2 ---- */

/* The newest snapshot of the row that this backend can start from. */
static int newest_snapshot(struct ensure *ensure, struct str sandbox_id, bool *out_found,
                           struct error *err)
{
    struct store_runtime_snapshot *found = NULL;
    struct error ignored;
    size_t count = 0;

    if (store_runtime_snapshot_list(ensure->runtime->config.store, ensure->caller->team_id,
                                    sandbox_id, &(enum snapshot_state){SNAPSHOT_READY},
                                    ensure->arena, &found, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count && !*out_found; i++)
        if (runtime_snapshot_usable(ensure->runtime, ensure->profile.backend, &found[i],
                                    &ignored) == 0) {
            ensure->snapshot = found[i];
            *out_found = true;
        }
    return 0;
}

static void forget_snapshot(struct ensure *ensure, const struct error *why)
{
    struct error ignored;

    (void)store_runtime_snapshot_state(ensure->runtime->config.store, ensure->snapshot.id,
                                       SNAPSHOT_ERROR, &ignored);
    runtime_row_event(ensure->runtime, ensure->caller, &ensure->row, "snapshot.failed",
                      json_pack("{s:o, s:o}", "snapshot_id", json_str(ensure->snapshot.id),
                                "message", json_str(str_of(why->message))));
}

/* 0 = restored, AGAIN = somebody else began to, 2 = there is nothing to restore. */
static int restore(struct ensure *ensure, struct error *err)
{
    struct store *store = ensure->runtime->config.store;
    struct store_runtime_sandbox *row = &ensure->row;
    bool implicit = !ensure->has_snapshot, mine = false;
    int r;

    if (implicit && newest_snapshot(ensure, row->id, &ensure->has_snapshot, err) < 0)
        return -1;
    if (!ensure->has_snapshot)
        return 2;
    runtime_claim_begin(ensure->runtime, &ensure->claim, row->id);
    if (store_runtime_sandbox_used(store, row->id, clock_wall_us(), 0, 0, err) < 0 ||
        store_runtime_sandbox_state(store, row->id, SANDBOX_CREATING, STR_NONE, clock_wall_us(),
                                    &mine, err) < 0)
        return -1;
    if (!mine)
        return AGAIN;
    r = make_machine(ensure, row, err);
    if (r < 0 && implicit && err->code == ERROR_NOT_FOUND) {
        forget_snapshot(ensure, err);
        ensure->has_snapshot = false;
        return store_runtime_sandbox_state(store, row->id, SANDBOX_LOST, str_of(err->message),
                                           clock_wall_us(), &mine, err) < 0
                   ? -1
                   : 2;
    }
    if (r == 0)
        r = machine_equip(ensure->runtime, ensure->profile.backend, row, err);
    if (r == 0)
        r = note_ready(ensure, row, -1, err);
    if (r < 0) {
        ensure_note_failed(ensure, row, SANDBOX_LOST, err);
        return -1;
    }
    runtime_row_event(ensure->runtime, ensure->caller, row, "sandbox.started",
                      ensure_started_data(row));
    ensure->tier = TIER_RESTORED;
    return 0;
}

/* Of a row whose machine is gone. */
static int restore_or_create(struct ensure *ensure, struct error *err)
{
    struct str old_id = ensure->row.id;
    int r;

    ensure->previous = (struct runtime_previous){
        .id = old_id,
        .reason = ensure->row.error.p ? ensure->row.error : STR("its machine is gone"),
        .ended_at_us = ensure->row.state_at_us,
    };
    r = restore(ensure, err);
    return r == 2 ? create(ensure, old_id, err) : r;
}

/* No living row has the key and the spec. */
static int find_previous(struct ensure *ensure, struct error *err)
{
    struct store_runtime_sandbox row;

    ensure->previous = (struct runtime_previous){0};
    if (!ensure->request->key.p)
        return 0;
    if (store_runtime_sandbox_previous(ensure->runtime->config.store, ensure->caller->team_id,
                                       ensure->request->key, ensure->arena, &row, err) < 0)
        return err->code == ERROR_NOT_FOUND ? 0 : -1;
    ensure->previous = (struct runtime_previous){
        .id = row.id,
        .kept = !row.destroyed_at_us && row.state != SANDBOX_LOST,
        .reason = row.error,
        .ended_at_us = row.destroyed_at_us ? row.destroyed_at_us : row.state_at_us,
    };
    return 0;
}

/* ---- tier 1 ---- */

/* Made by a process that is no more, or by another store: the machine is taken over. */
static int adopt(struct ensure *ensure, const struct provider_sandbox *machine, struct error *err)
{
    struct runtime *runtime = ensure->runtime;
    struct backend *backend = ensure->profile.backend;
    struct provider_sandbox connected = {0};
    struct provider_ref ref;

    ensure_use_machine(&ensure->row, machine);
    ref = runtime_row_ref(&ensure->row, ensure->caller->deadline_us);
    if (provider_connect(backend_provider(backend), &ref,
                         runtime_row_ttl(runtime, backend, &ensure->row), ensure->arena, &connected,
                         err) < 0)
        return -1;
    if (connected.token.p)
        ensure->row.token = connected.token;
    if (connected.address.p)
        ensure->row.address = connected.address;
    if (note_ready(ensure, &ensure->row, -1, err) < 0)
        return -1;
    runtime_row_event(runtime, ensure->caller, &ensure->row, "sandbox.resumed",
                      json_pack("{s:b}", "adopted", 1));
    ensure->tier = TIER_RESUMED;
    return 0;
}

/* Its maker has died on the way. */
static int take_over(struct ensure *ensure, struct error *err)
{
    struct provider_sandbox machine;
    bool changed;
    int found;

    runtime_claim_begin(ensure->runtime, &ensure->claim, ensure->row.id);
    found = machine_find_own(ensure->runtime, ensure->profile.backend, &ensure->row,
                             ensure->caller->deadline_us, ensure->arena, &machine, err);
    if (found < 0)
        return -1;
    if (found) {
        if (adopt(ensure, &machine, err) == 0)
            return 0;
        if (err->code != ERROR_NOT_FOUND)
            return -1;
    }
    if (store_runtime_sandbox_state(ensure->runtime->config.store, ensure->row.id, SANDBOX_LOST,
                                    STR("the process that made it has died"), clock_wall_us(),
                                    &changed, err) < 0)
        return -1;
    ensure->row.error = STR("the process that made it has died");
    return restore_or_create(ensure, err);
}

/* The time of the sandbox is over: its key begins anew. Its snapshots stay. */
static int end_time(struct ensure *ensure, const char *reason, struct error *err)
{
    struct store_runtime_sandbox *row = &ensure->row;
    struct backend *backend = NULL;

    return runtime_row_backend(ensure->runtime, ensure->caller, row, &backend, err) < 0 ||
                   runtime_row_kill(ensure->runtime, ensure->caller, backend, row, reason, err) < 0
               ? -1
               : AGAIN;
}

static int resume(struct ensure *ensure, struct error *err)
{
    struct store_runtime_sandbox *row = &ensure->row;
    int64_t claimed_us = row->last_used_at_us;
    struct str machine = row->external_id;
    const char *over;

    if (row->state == SANDBOX_CREATING)
        return clock_wall_us() - claimed_us > RUNTIME_CLAIM_S * INT64_C(1000000) &&
                       !runtime_claim_held(ensure->runtime, row->id)
                   ? take_over(ensure, err)
                   : AWAITED;
    if (row->state == SANDBOX_LOST)
        return restore_or_create(ensure, err);
    over = runtime_row_over(row, clock_wall_us());
    if (over)
        return end_time(ensure, over, err);
    if (machine_wake(ensure->runtime, ensure->caller, ensure->profile.backend, row, ensure->arena,
                     err) >= 0) {
        runtime_live_used(ensure->runtime, row->id, 0, 0);
        ensure->tier = TIER_RESUMED;
        return 0;
    }
    /* Killed, restored or given another machine while we looked. */
    if (row->destroyed_at_us || row->state == SANDBOX_CREATING ||
        !str_eq(row->external_id, machine))
        return AGAIN;
    return err->code == ERROR_NOT_FOUND && row->state == SANDBOX_LOST
               ? restore_or_create(ensure, err)
               : -1;
}

/* No row: another store, or one that was lost, may have made one. The embedded engine has its own rows
 * in this same store, so there is nothing to look for. */
static int find_or_create(struct ensure *ensure, struct error *err)
{
    struct store_runtime_sandbox wanted = {
        .team_id = ensure->caller->team_id, .key = ensure->request->key, .spec_hash = ensure->hash};
    struct provider_sandbox machine;
    int found = ensure->request->key.p && !local(ensure)
                    ? machine_find(ensure->runtime, ensure->profile.backend, &wanted, STR_NONE,
                                   ensure->caller->deadline_us, ensure->arena, &machine, err)
                    : 0;

    if (found < 0 || find_previous(ensure, err) < 0)
        return -1;
    if (found) {
        int r = new_row(ensure, STR_NONE, err);

        if (r != 0)
            return r;
        if (adopt(ensure, &machine, err) == 0)
            return 0;
        if (err->code != ERROR_NOT_FOUND) {
            /* The machine is another's as much as ours: it stays. */
            ensure->row.external_id = STR_NONE;
            ensure_note_failed(ensure, &ensure->row, SANDBOX_ENDED, err);
            return -1;
        }
        return create(ensure, ensure->row.id, err);
    }
    return create(ensure, STR_NONE, err);
}

static int attempt_once(struct ensure *ensure, struct error *err)
{
    struct store *store = ensure->runtime->config.store;
    const struct runtime_caller *caller = ensure->caller;

    if (!ensure->request->key.p)
        return create(ensure, STR_NONE, err);
    if (store_runtime_sandbox_find(store, caller->team_id, ensure->request->key, ensure->hash,
                                   ensure->arena, &ensure->row, err) < 0)
        return err->code == ERROR_NOT_FOUND ? find_or_create(ensure, err) : -1;
    if (caller->agent_id.p && !str_eq(caller->agent_id, ensure->row.agent_id))
        return error_set(err, ERROR_FORBIDDEN,
                         "the sandbox with key '%.*s' belongs to another agent than '%.*s'",
                         STR_ARG(ensure->request->key), STR_ARG(caller->agent_id));
    ensure->row.last_used_at_us =
        runtime_live_last_used(ensure->runtime, ensure->row.id, ensure->row.last_used_at_us);
    return resume(ensure, err);
}

static int attempt(struct ensure *ensure, struct error *err)
{
    int r = attempt_once(ensure, err);

    runtime_claim_end(ensure->runtime, &ensure->claim);
    return r;
}

/* Makers in this process wake us; a row that another process changes is looked at every RACE_STEP_MS. */
static int wait_turn(struct ensure *ensure, struct error *err)
{
    int64_t deadline_us = clock_deadline(RACE_WAIT_S, ensure->caller->deadline_us);
    uint64_t seen = runtime_claim_ends();
    int r;

    for (int tries = 1; (r = attempt(ensure, err)) > 0; tries++) {
        int64_t now_us = clock_mono_us();

        if (now_us > deadline_us)
            return error_set(err, ERROR_TIMEOUT,
                             "the sandbox with key '%.*s' is still being made by another process",
                             STR_ARG(ensure->request->key));
        if (r == AWAITED || tries >= TRIES_AT_ONCE)
            runtime_claim_wait(r == AWAITED ? seen : runtime_claim_ends(),
                               now_us + RACE_STEP_MS * 1000);
        seen = runtime_claim_ends();
    }
    return r;
}

static int ensure_profile(struct ensure *ensure, struct error *err)
{
    const struct runtime_ensure *request = ensure->request;
    struct runtime_hold *hold = NULL;
    int r;

    if (request->snapshot.p) {
        if (store_runtime_snapshot_get(ensure->runtime->config.store, ensure->caller->team_id,
                                       request->snapshot, ensure->arena, &ensure->snapshot,
                                       err) < 0 ||
            runtime_snapshot_allowed(ensure->runtime, ensure->caller, &ensure->snapshot, err) < 0 ||
            runtime_snapshot_usable(ensure->runtime, ensure->profile.backend, &ensure->snapshot,
                                    err) < 0)
            return -1;
        ensure->has_snapshot = true;
    }
    ensure->hash = runtime_spec_hash(&ensure->profile, request, ensure->arena);
    if (request->key.p) {
        hold = runtime_hold_soon(ensure->runtime, ensure->caller->team_id, request->key,
                                 ensure->caller->deadline_us, err);
        if (!hold)
            return -1;
    }
    r = wait_turn(ensure, err);
    runtime_hold_end(ensure->runtime, hold);
    return r;
}

int runtime_sandbox_ensure(struct runtime *runtime, const struct runtime_caller *caller,
                           const struct runtime_ensure *request, struct arena *arena,
                           struct runtime_sandbox *out, enum runtime_tier *out_tier,
                           struct error *err)
{
    struct runtime_caller until = *caller;
    struct ensure ensure = {
        .runtime = runtime, .caller = &until, .request = request, .arena = arena};
    int64_t limit_s = runtime->config.settings->create_timeout_s;
    struct runtime_ensure own = *request;
    int r;

    /* Whose it is: said in the request, else the one who asks. */
    if (!own.agent_id.p)
        own.agent_id = caller->agent_id;
    ensure.request = &own;
    if (runtime_spec_check(request, err) < 0 ||
        profile_resolve(runtime, caller, &request->overrides, arena, &ensure.profile, err) < 0)
        return -1;
    workspace_of(&own, arena, &ensure.profile, &ensure.root);
    until.deadline_us = clock_deadline(limit_s, caller->deadline_us);
    r = ensure_profile(&ensure, err);
    if (r < 0 && err->code == ERROR_TIMEOUT && clock_left_ms(until.deadline_us, 1) == 0)
        (void)error_prefix(err, "not ready within %lld s (create_timeout_s)", (long long)limit_s);
    if (r < 0)
        runtime_log_failure(
            runtime, caller->team_id,
            &(struct runtime_sandbox){.id = ensure.row.id,
                                      .provider = str_of(backend_name(ensure.profile.backend)),
                                      .agent_id = own.agent_id,
                                      .task_id = own.task_id},
            "create", err);
    if (r == 0) {
        runtime_sandbox_of(&ensure.row, arena, out);
        if (ensure.tier != TIER_RESUMED) {
            out->previous = ensure.previous;
            out->warning = ensure.warning;
        }
        *out_tier = ensure.tier;
    }
    profile_done(&ensure.profile);
    return r;
}
