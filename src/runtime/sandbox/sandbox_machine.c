/* Machines behind sandboxes: made with labels by which they are found again, resumed, killed.
 *
 * A create whose answer got lost may have made a machine. So each carries the id of its row as a
 * label; before a second try, and (in the background) after the last one failed, the provider is asked
 * for it. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/run/run.h"
#include "runtime/sandbox/equip.h"

enum { LABELS_MAX = 8, METADATA_MAX = 64 };

bool backend_embedded(const struct runtime *runtime, const struct backend *backend)
{
    const struct runtime_settings *settings = runtime->config.settings;

    for (size_t i = 0; i < settings->backend_count; i++)
        if (strcmp(settings->backends[i].name, backend_name(backend)) == 0)
            return strcmp(settings->backends[i].api_url, "embedded") == 0;
    return false;
}

static bool can_find(struct runtime *runtime, struct backend *backend)
{
    return !backend_embedded(runtime, backend) &&
           provider_caps(backend_provider(backend))->features & PROVIDER_FIND;
}

static void add_label(struct pair *labels, size_t *count, const char *name, struct str value)
{
    if (value.len)
        labels[(*count)++] = (struct pair){str_of(name), value};
}

static size_t own_labels(const struct runtime *runtime, const struct store_runtime_sandbox *row,
                         struct pair *labels)
{
    size_t count = 0;

    add_label(labels, &count, "exo.sandbox.key", row->key);
    if (row->key.len)
        add_label(labels, &count, "exo.sandbox.spec-hash", row->spec_hash);
    add_label(labels, &count, "quicksand.key", row->key);
    add_label(labels, &count, "quicksand.spec-hash", row->spec_hash);
    add_label(labels, &count, "quicksand.id", row->id);
    add_label(labels, &count, "quicksand.team", row->team_id);
    add_label(labels, &count, "quicksand.instance", runtime_instance_name(runtime));
    add_label(labels, &count, "quicksand.agent", row->agent_id);
    return count;
}

static void spec_labels(const struct runtime *runtime, const struct machine_spec *wanted,
                        struct arena *arena, struct provider_spec *spec)
{
    size_t max = json_object_size(wanted->metadata) + LABELS_MAX, count;
    struct pair *labels = arena_alloc(arena, max * sizeof(*labels));
    const char *name;
    json_t *value;

    count = own_labels(runtime, wanted->row, labels);
    json_object_foreach ((json_t *)(uintptr_t)wanted->metadata, name, value)
        if (strncmp(name, "quicksand.", 10) != 0 && strncmp(name, "exo.sandbox.", 12) != 0 &&
            count < max)
            labels[count++] = (struct pair){
                str_of(name), str_n(json_string_value(value), json_string_length(value))};
    spec->labels = labels;
    spec->label_count = count;
}

static int make_spec(const struct runtime *runtime, const struct machine_spec *wanted,
                     struct arena *arena, struct provider_spec *out, struct error *err)
{
    const struct profile *profile = wanted->profile;
    struct provider *provider = backend_provider(profile->backend);
    bool can_pause = provider_caps(provider)->features & PROVIDER_PAUSE;

    *out = (struct provider_spec){
        .team_id = wanted->row->team_id,
        .image = profile->image,
        .snapshot = wanted->snapshot,
        .egress = profile->egress,
        .allow_domains = profile->allow_domains,
        .allow_cidrs = profile->allow_cidrs,
        .peers = profile->peers,
        .mounts = profile->mounts,
        .ttl_s = runtime_row_ttl(runtime, profile->backend, wanted->row),
        .pause_at_ttl = can_pause && (profile->persistent || wanted->row->key.p),
        .cpu = profile->cpu,
        .mem_mb = profile->mem_mb,
        .disk_mb = profile->disk_mb,
        .options = profile->options,
        .joint = wanted->joint,
        .deadline_us = wanted->deadline_us,
    };
    spec_labels(runtime, wanted, arena, out);
    return runtime_command_env(profile->env, NULL, arena, &out->env, &out->env_count, err);
}

struct found {
    struct provider_sandbox *machines;
    size_t count;
};

static int find_by(struct runtime *runtime, struct backend *backend,
                   const struct provider_query *query, struct arena *arena, struct found *out,
                   struct error *err)
{
    struct backend_try try = {.once_more_is_safe = true, .deadline_us = query->deadline_us};
    int r;

    if (backend_try_begin(&try, runtime, backend, err) < 0)
        return -1;
    do
        r = provider_find(backend_provider(backend), query, arena, &out->machines, &out->count,
                          err);
    while (backend_try_again(&try, r, err));
    return r;
}

int machine_find(struct runtime *runtime, struct backend *backend,
                 const struct store_runtime_sandbox *row, struct str except, int64_t deadline_us,
                 struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    const struct pair labels[] = {
        {STR("quicksand.key"), row->key},
        {STR("quicksand.spec-hash"), row->spec_hash},
        {STR("quicksand.team"), row->team_id},
    };
    const struct provider_query query = {row->team_id, labels, 3, deadline_us};
    struct provider_sandbox *best = NULL;
    struct found found = {0};

    if (!can_find(runtime, backend))
        return 0;
    if (find_by(runtime, backend, &query, arena, &found, err) < 0)
        return -1;
    for (size_t i = 0; i < found.count; i++) {
        struct provider_sandbox *machine = &found.machines[i];
        int64_t earlier = best ? machine->started_at_us - best->started_at_us : -1;

        if (machine->state != PROVIDER_ENDED &&
            (earlier < 0 || (earlier == 0 && str_cmp(machine->id, best->id) < 0)))
            best = machine;
    }
    if (!best || str_eq(best->id, except))
        return 0;
    *out = *best;
    return 1;
}

int machine_find_own(struct runtime *runtime, struct backend *backend,
                     const struct store_runtime_sandbox *row, int64_t deadline_us,
                     struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    const struct pair labels[] = {
        {STR("quicksand.id"), row->id},
        {STR("quicksand.instance"), runtime_instance_name(runtime)},
    };
    const struct provider_query query = {row->team_id, labels, 2, deadline_us};
    struct found found = {0};

    if (!(provider_caps(backend_provider(backend))->features & PROVIDER_FIND))
        return 0;
    if (find_by(runtime, backend, &query, arena, &found, err) < 0)
        return -1;
    if (!found.count)
        return 0;
    *out = found.machines[0];
    return 1;
}

int machine_create(struct runtime *runtime, const struct machine_spec *wanted, struct arena *arena,
                   struct provider_sandbox *out, struct error *err)
{
    struct backend *backend = wanted->profile->backend;
    struct backend_try try = {.kind = CALL_CREATE};
    struct provider_spec spec;
    struct error ignored;
    int r;

    if (make_spec(runtime, wanted, arena, &spec, err) < 0 ||
        backend_try_begin(&try, runtime, backend, err) < 0)
        return -1;
    do {
        if (try.attempt > 1 && machine_find_own(runtime, backend, wanted->row, *wanted->deadline_us,
                                                arena, out, &ignored) == 1) {
            (void)backend_try_again(&try, 0, NULL); /* it was made: only the answer got lost */
            return 0;
        }
        r = provider_create(backend_provider(backend), &spec, arena, out, err);
        try.deadline_us = *wanted->deadline_us;
    } while (backend_try_again(&try, r, err));
    if (r < 0 && (err->code == ERROR_TIMEOUT || err->code == ERROR_UNAVAILABLE))
        runtime_sweep_later(runtime, backend, wanted->row);
    return r;
}

int machine_kill(struct runtime *runtime, struct backend *backend,
                 const struct store_runtime_sandbox *row, int64_t deadline_us, struct error *err)
{
    struct provider_ref ref = runtime_row_ref(row, deadline_us);
    struct backend_try try = {.once_more_is_safe = true, .deadline_us = deadline_us};
    int r;

    if (!ref.id.len)
        return 0;
    if (backend_try_begin(&try, runtime, backend, err) < 0)
        return -1;
    do
        r = provider_kill(backend_provider(backend), &ref, err);
    while (backend_try_again(&try, r, err));
    return r < 0 && err->code == ERROR_NOT_FOUND ? 0 : r;
}

int machine_hooks(struct runtime *runtime, struct backend *backend,
                  const struct store_runtime_sandbox *row, json_t *hooks, const char *which,
                  struct error *err)
{
    struct provider *provider = backend_provider(backend);
    struct provider_ref ref = runtime_row_ref(row, 0);
    auto_arena struct arena arena = {0};
    json_t *settings, *hook;
    size_t i;

    if (json_array_size(hooks) == 0)
        return 0;
    if (backend_require(backend, PROVIDER_HOOKS | PROVIDER_EXEC, err) < 0)
        return -1;
    settings = arena_parse(&arena, row->settings);
    json_array_foreach (hooks, i, hook) {
        struct runtime_command command = {.command = str_of(json_string_value(hook))};
        struct runtime_run run = {.timeout_ms = 300000, .output_limit = 4096};
        struct runtime_result result = {0};
        bool started = false;
        int r = runtime_command_argv(runtime, provider, &ref, row->image, &command, &arena,
                                     &run.argv, err);

        if (r == 0)
            r = runtime_command_env(json_object_get(settings, "env"), NULL, &arena, &run.env,
                                    &run.env_count, err);
        if (r == 0)
            r = runtime_run(runtime, provider, &ref, &run, &result, &started, err);
        if (r == 0 && result.exit_code != 0) {
            runtime_mask(runtime, row->team_id, result.err.p ? result.err.p : (char[]){""});
            r = error_set(err, ERROR_CONFLICT, "command %zu of %s exited with %d: %.*s", i + 1,
                          which, result.exit_code,
                          (int)(result.err.len > 200 ? 200 : result.err.len),
                          result.err.p ? result.err.p : "");
        }
        runtime_result_done(&result);
        if (r < 0)
            return error_prefix(err, "%s", which);
    }
    return 0;
}

static int get(struct runtime *runtime, struct backend *backend,
               const struct store_runtime_sandbox *row, int64_t deadline_us, struct arena *arena,
               struct provider_sandbox *out, struct error *err)
{
    struct provider_ref ref = runtime_row_ref(row, deadline_us);
    struct backend_try try = {.once_more_is_safe = true, .deadline_us = deadline_us};
    int r;

    if (backend_try_begin(&try, runtime, backend, err) < 0)
        return -1;
    do
        r = provider_get(backend_provider(backend), &ref, arena, out, err);
    while (backend_try_again(&try, r, err));
    if (r == 0 && out->state == PROVIDER_ENDED)
        return error_set(err, ERROR_NOT_FOUND, "it has ended");
    return r;
}

static int check_room(struct runtime *runtime, struct backend *backend, struct error *err)
{
    int64_t max = backend_max_sandboxes(backend), count = 0;
    struct str name = str_of(backend_name(backend));

    if (max <= 0)
        return 0;
    if (store_runtime_sandbox_count(runtime->config.store, name, &count, err) < 0)
        return -1;
    if (count < max)
        return 0;
    return error_set(err, ERROR_QUOTA,
                     "provider '%.*s' has its %lld sandboxes (max_sandboxes): kill or pause one, or"
                     " try later",
                     STR_ARG(name), (long long)max);
}

static int connect(struct runtime *runtime, struct backend *backend,
                   struct store_runtime_sandbox *row, int64_t deadline_us, struct arena *arena,
                   struct error *err)
{
    struct provider_ref ref = runtime_row_ref(row, deadline_us);
    struct backend_try try = {
        .once_more_is_safe = true, .kind = CALL_CONNECT, .deadline_us = deadline_us};
    int64_t ttl_s = row->adopted ? row->idle_s : runtime_row_ttl(runtime, backend, row);
    struct provider_sandbox machine = {0};
    int r;

    if (backend_try_begin(&try, runtime, backend, err) < 0)
        return -1;
    do
        r = provider_connect(backend_provider(backend), &ref, ttl_s, arena, &machine, err);
    while (backend_try_again(&try, r, err));
    if (r < 0)
        return -1;
    if (machine.token.p)
        row->token = machine.token;
    if (machine.address.p)
        row->address = machine.address;
    if (machine.cdp_url.p)
        row->cdp_url = machine.cdp_url;
    runtime_live_extended(runtime, row->id, ttl_s);
    return 0;
}

static int note_running(struct runtime *runtime, struct store_runtime_sandbox *row,
                        struct error *err)
{
    struct store_runtime_ready ready = {
        .machine = row->external_id,
        .external_id = row->external_id,
        .token = row->token,
        .address = row->address,
        .cdp_url = row->cdp_url,
        .snapshot_id = row->snapshot_id,
        .at_us = clock_wall_us(),
        .create_ms = -1,
    };

    row->state = SANDBOX_RUNNING;
    row->running_since_us = row->last_used_at_us = ready.at_us;
    return store_runtime_sandbox_ready(runtime->config.store, row->id, &ready, err);
}

/* was_pausing: the provider pauses it first, so the row says 'paused' only once that has happened. */
static int resume(struct runtime *runtime, const struct runtime_caller *caller,
                  struct backend *backend, bool was_pausing, struct store_runtime_sandbox *row,
                  struct arena *arena, struct error *err)
{
    json_t *settings = arena_parse(arena, row->settings);

    if (check_room(runtime, backend, err) < 0 ||
        connect(runtime, backend, row, caller->deadline_us, arena, err) < 0)
        return -1;
    if (was_pausing && row->state == SANDBOX_RUNNING)
        runtime_row_paused(runtime, caller, row, "provider");
    if (note_running(runtime, row, err) < 0)
        return -1;
    runtime_row_event(runtime, caller, row, "sandbox.resumed", NULL);
    runtime_tell_resumed(runtime, row->id);
    if (machine_equip(runtime, backend, row, err) < 0 ||
        machine_hooks(runtime, backend, row, json_object_get(settings, "on_resume"), "onResume",
                      err) < 0)
        return error_prefix(err, "sandbox '%.*s' runs, but", STR_ARG(row->id));
    return 1;
}

/* With the lock of its id held. */
static int wake_locked(struct runtime *runtime, const struct runtime_caller *caller,
                       struct backend *backend, struct store_runtime_sandbox *row,
                       struct arena *arena, struct error *err)
{
    struct provider_sandbox machine = {0};
    char why[400];

    if (get(runtime, backend, row, caller->deadline_us, arena, &machine, err) == 0) {
        if (machine.state == PROVIDER_RUNNING && row->state == SANDBOX_RUNNING) {
            struct provider_ref ref = runtime_row_ref(row, caller->deadline_us);

            runtime_use_extend(runtime, backend_provider(backend), &ref, row->id,
                               runtime_row_ttl(runtime, backend, row));
            return 0;
        }
        if (machine.state == PROVIDER_PAUSED && row->state == SANDBOX_RUNNING) {
            runtime_row_paused(runtime, caller, row, "provider");
            row->state = SANDBOX_PAUSED;
        }
        /* One that was started behind our back is attached to: that tells its token. */
        int r =
            resume(runtime, caller, backend, machine.state == PROVIDER_PAUSING, row, arena, err);

        if (r >= 0 || err->code != ERROR_NOT_FOUND)
            return r;
    }
    if (err->code != ERROR_NOT_FOUND)
        return -1;
    (void)snprintf(why, sizeof(why), "gone from provider '%s': %s", backend_name(backend),
                   err->message);
    runtime_mask(runtime, row->team_id, why);
    if (runtime_row_gone(runtime, caller, row, why)) {
        row->state = SANDBOX_LOST;
        row->error = arena_str(arena, str_of(why));
        row->state_at_us = clock_wall_us();
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' is %s", STR_ARG(row->id), why);
    }
    if (store_runtime_sandbox_get(runtime->config.store, row->team_id, row->id, arena, row, err) <
            0 ||
        runtime_row_alive(row, err) < 0)
        return -1;
    return error_set(err, ERROR_CONFLICT,
                     "sandbox '%.*s' is ending, or has got another machine: try again",
                     STR_ARG(row->id));
}

int machine_wake(struct runtime *runtime, const struct runtime_caller *caller,
                 struct backend *backend, struct store_runtime_sandbox *row, struct arena *arena,
                 struct error *err)
{
    struct runtime_caller until = *caller;
    struct runtime_hold *hold;
    int r = -1;

    until.deadline_us =
        clock_deadline(runtime->config.settings->create_timeout_s, caller->deadline_us);
    hold = runtime_hold_soon(runtime, row->team_id, row->id, until.deadline_us, err);
    /* Somebody else may have done it while we waited for the lock. */
    if (hold)
        r = store_runtime_sandbox_get(runtime->config.store, row->team_id, row->id, arena, row,
                                      err);
    if (r == 0)
        r = runtime_row_alive(row, err);
    if (r == 0)
        r = wake_locked(runtime, &until, backend, row, arena, err);
    runtime_hold_end(runtime, hold);
    return r;
}
