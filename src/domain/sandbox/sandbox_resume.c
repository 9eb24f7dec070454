/* Resuming, in the order of the steps:
 *
 *   RESUMING  nobody else may touch it
 *   row       'paused', resume under way: a crash from here on is undone by recovery
 *   box       its processes go on, or, when they are not there (any more), it boots from its files
 *   row       'running', with its new end
 *   route     RUNNING
 *   RUNNING
 *
 * Whatever fails: it is PAUSED again, with its files, and with its processes if they are there: those are
 * given up only when they are gone, or when whoever asks wants it. Which of the two kinds of resume it was is in
 * the row, in the log and in what clients see. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "domain/account/team.h"
#include "domain/network/network_policy.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_life.h"
#include "domain/sandbox/sandbox_network.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_room.h"
#include "domain/sandbox/sandbox_stats.h"
#include "domain/sandbox/sandbox_table.h"
#include "domain/sandbox/sandbox_view.h"

enum { WAKE_TIMEOUT_MIN_S = 300, CONNECT_TRIES = 10 };

/* Processes that were frozen. envd's answer proves that they run. */
static int thaw(struct sandboxes *all, const char *id, struct error *err)
{
    int fd = -1;

    if (all->engine->ops->freeze(all->engine, id, false, err) < 0 ||
        envd_ready(all->engine, id, &fd, err) < 0)
        return -1;
    close_fd(&fd);
    return 0;
}

int spec_set_network(struct sandboxes *all, const struct store_sandbox *row, struct box_spec *out,
                     struct error *err)
{
    auto_arena struct arena arena = {0};
    struct network_policy policy;

    if (network_policy_parse(row->network, row->internet, &arena, &policy, err) < 0)
        return -1;
    out->network = policy.box;
    out->network.group = peer_networks_group(all->peers, row->id);
    out->network.team = network_team(all, row->team_id);
    return 0;
}

int spec_from_row(struct sandboxes *all, const struct store_sandbox *row, struct box_spec *out,
                  struct error *err)
{
    *out = (struct box_spec){
        .engine = ENGINE_NATIVE,
        .limits = {.mem_bytes = (uint64_t)row->mem_mb << 20,
                   .disk_bytes = (uint64_t)row->disk_mb << 20,
                   .cpu_count = (uint32_t)row->cpu_count,
                   .pids_max = SANDBOX_PIDS_MAX},
    };
    if (!str_copy(row->id, out->id, sizeof(out->id)))
        return error_set(err, ERROR_INTERNAL, "bad id in the store");
    if (mounts_to_spec(row->volumes, out, err) < 0 || spec_set_network(all, row, out, err) < 0)
        return -1;
    return spec_set_layers(row->layers, out, err);
}

static int still_ending(struct error *err)
{
    struct error why = *err;

    return error_set(err, ERROR_UNAVAILABLE,
                     "the processes that it had are still ending (%s); its files are kept, try "
                     "again in some seconds",
                     why.message);
}

/* In a blank box when there is one; one that fails is not the sandbox's fault. *out_fd: a connection to its envd, or -1. */
static int start_from_files(struct sandboxes *all, struct box_spec *spec, struct box_info *out,
                            int *out_fd, struct error *err)
{
    struct warm_box *blank = warm_take_blank(all, spec);

    if (blank) {
        if (warm_claim(all, blank, spec, out, out_fd, err) == 0)
            return 0;
        log_warn("sandbox", "id=%s: %s, starting another box", spec->id, err->message);
    }
    return all->engine->ops->start(all->engine, spec, out, err) < 0 ? space_explain(err) : 0;
}

static int boot(struct sandboxes *all, struct sandbox *sandbox, const struct store_sandbox *row,
                int64_t timeout_s, struct error *err)
{
    auto_buf struct buf body = {0};
    auto_free char *env = str_dup(row->env);
    auto_free char *token = str_dup(row->access_token);
    auto_arena struct arena arena = {0};
    struct setup setup;
    const struct envd_facts facts = {.env = env,
                                     .access_token = token,
                                     .template_id = row->template_id,
                                     .life_s =
                                         lease_seconds(all, now_us(all) + timeout_s * 1000000),
                                     .disk_mb = row->disk_mb,
                                     .setup = &setup,
                                     .authority = secret_authority(all, row->network)};
    auto_close int envd_fd = -1;
    struct box_spec spec;
    struct box_info info;
    enum setup_port port = SETUP_PORT_FINE;
    const struct setup_how how = {
        .disk_mb = row->disk_mb, .stop = &all->ending, .spec = &spec, .out_port = &port};

    setup_read(row->setup, &arena, &setup);
    if (spec_from_row(all, row, &spec, err) < 0 || envd_init_body(&facts, &body, err) < 0)
        return -1;
    spec.keep_disk = true;
    /* What is left of its processes ends first. From here on an event may be about those. */
    (void)pthread_mutex_lock(&all->lock);
    sandbox->rebooted = true;
    (void)pthread_mutex_unlock(&all->lock);
    if (pause_stop(all, sandbox, err) < 0)
        return err->code == ERROR_TIMEOUT ? still_ending(err) : -1;
    if (start_from_files(all, &spec, &info, &envd_fd, err) < 0 ||
        egress_join(all, row->team_id, sandbox->id, info.address, &spec.network, row->network,
                    err) < 0 ||
        (setup_wanted(&setup, &spec) && setup_run(all, sandbox->id, &setup, &how, err) < 0))
        return -1;
    if (port == SETUP_PORT_SILENT)
        history_silent(all, row->id, &setup);
    return envd_init(all->engine, sandbox->id, envd_fd, buf_str(&body), err);
}

bool box_runs(struct sandboxes *all, const char *id)
{
    auto_free struct box_info *infos = NULL;
    struct error ignored = {0};
    size_t count = 0;

    if (all->engine->ops->list(all->engine, &infos, &count, &ignored) < 0)
        return true; /* no reason to end anything */
    for (size_t i = 0; i < count; i++)
        if (strncmp(infos[i].id, id, ID_SIZE) == 0)
            return infos[i].running;
    return false;
}

/* They are there, but envd does not answer. */
static int keep_asleep(const struct error *why, struct error *err)
{
    return error_set(
        err, why->code,
        "its processes are there, but its envd does not answer (%s); it is paused again with "
        "them: try again, or resume it with \"memory\": false to boot from its files",
        why->message);
}

static bool boots(const struct sandbox *sandbox, const struct store_sandbox *row,
                  const struct sandbox_resume *request)
{
    return request->disk_only || sandbox->cold || !row->life.memory;
}

/* For programs, and whoever asks has no time. */
static bool must_wait(const struct sandbox *sandbox, const struct store_sandbox *row,
                      const struct sandbox_resume *request)
{
    auto_arena struct arena arena = {0};
    struct setup setup;

    if (!request->waits || !row->setup.len || !boots(sandbox, row, request))
        return false;
    setup_read(row->setup, &arena, &setup);
    return setup_key(&setup).len > 0;
}

/* Sets what it was resumed from. */
static int start_box(struct sandboxes *all, struct sandbox *sandbox,
                     const struct store_sandbox *row, const struct sandbox_resume *request,
                     enum store_resumed *out_from, struct error *err)
{
    struct error why = {0};

    *out_from = STORE_RESUMED_MEMORY;
    if (!boots(sandbox, row, request)) {
        if (peers_show(all, row, &why) == 0 && thaw(all, sandbox->id, &why) == 0)
            return 0;
        if (box_runs(all, sandbox->id))
            return keep_asleep(&why, err);
        log_warn("sandbox", "id=%s: its processes are lost (%s); it boots from its files",
                 sandbox->id, why.message);
    }
    *out_from = STORE_RESUMED_DISK;
    return boot(all, sandbox, row, request->timeout_s, err);
}

/* Back to PAUSED. After a failed boot only the files are there; and what cannot be frozen again must not
 * run on for nobody. */
static void undo(struct sandboxes *all, struct sandbox *sandbox, const struct store_sandbox *row,
                 enum store_resumed from)
{
    bool cold = from == STORE_RESUMED_DISK;
    struct error err = {0};
    int64_t revision;

    if (!cold && all->engine->ops->freeze(all->engine, sandbox->id, true, &err) < 0) {
        log_warn("sandbox", "id=%s: %s; its processes end", sandbox->id, err.message);
        history_memory_lost(all, row->id);
        cold = true;
    }
    if (!cold)
        peers_hide(all, row);
    if (cold &&
        !sandbox->ending) /* else it is tried again by another, and whoever asked need not wait */
        (void)pause_stop(all, sandbox, &err);
    if (store_sandbox_set_life(all->store, row->id, &row->life, NULL, true, &revision, &err) < 0)
        log_warn("sandbox", "id=%s: %s, ignoring", sandbox->id, err.message);
    table_paused(all, sandbox, cold || sandbox->cold);
}

/* RUNNING, unless its box ended since. */
static bool run(struct sandboxes *all, struct sandbox *sandbox,
                const struct store_sandbox_life *life, int64_t revision)
{
    if (table_run(all, sandbox, life->end_at_us, revision))
        return true;
    if (!box_runs(all, sandbox->id))
        return false;
    (void)pthread_mutex_lock(&all->lock);
    sandbox->died = false; /* that was an earlier life */
    (void)pthread_mutex_unlock(&all->lock);
    return table_run(all, sandbox, life->end_at_us, revision);
}

static struct store_sandbox_life new_life(const struct sandboxes *all,
                                          const struct store_sandbox *row,
                                          const struct sandbox_resume *request,
                                          enum store_resumed from)
{
    struct store_sandbox_life life = row->life;
    int64_t now = now_us(all);

    life.state = life.listed = SANDBOX_RUNNING;
    life.resumed_from = from;
    life.running_since_us = now;
    life.end_at_us = end_within_life(all, now, now + request->timeout_s * 1000000);
    if (request->auto_pause_given)
        life.auto_pause = request->auto_pause;
    return life;
}

/* Consumes a RESUMING that the caller owns. *row is what it was, and then what it is. */
static int resume_owned(struct sandboxes *all, struct sandbox *sandbox,
                        const struct sandbox_resume *request, struct arena *arena,
                        struct store_sandbox *row, struct error *err)
{
    enum store_resumed from = STORE_RESUMED_MEMORY;
    int64_t began = clock_mono_us(), revision = 0;
    struct store_sandbox_life life;
    struct store_event event;

    if (store_sandbox_get(all->store, str_of(sandbox->id), arena, row, err) < 0) {
        table_paused(all, sandbox, sandbox->cold);
        return -1;
    }
    if (must_wait(sandbox, row, request)) {
        table_paused(all, sandbox, sandbox->cold);
        *request->waits = true;
        return 0;
    }
    life = row->life;
    life.state = SANDBOX_RESUMING;
    row->life.state = SANDBOX_PAUSED;
    if (store_sandbox_set_life(all->store, row->id, &life, NULL, false, &revision, err) < 0) {
        table_paused(all, sandbox, sandbox->cold);
        return -1;
    }
    if (start_box(all, sandbox, row, request, &from, err) < 0)
        goto fail;
    life = new_life(all, row, request, from);
    event = history_resumed(from == STORE_RESUMED_DISK);
    if (store_sandbox_set_life(all->store, row->id, &life, &event, false, &revision, err) < 0)
        goto fail;
    (void)pthread_mutex_lock(&all->lock);
    sandbox->auto_pause = life.auto_pause;
    (void)pthread_mutex_unlock(&all->lock);
    route_publish(all, sandbox->id, row, true);
    if (!run(all, sandbox, &life, revision)) {
        route_publish(all, sandbox->id, row, false);
        (void)error_set(err, ERROR_INTERNAL, "its processes ended while it was resumed");
        goto fail;
    }
    if (from == STORE_RESUMED_MEMORY)
        lease_tell(all, sandbox->id, life.end_at_us, revision);
    row->life = life;
    stats_add(all, from == STORE_RESUMED_MEMORY ? STAT_RESUMED_MEMORY : STAT_RESUMED_DISK);
    log_info("sandbox", "resumed id=%.*s from=%s us=%lld", STR_ARG(row->id),
             from == STORE_RESUMED_MEMORY ? "memory" : "disk",
             (long long)(clock_mono_us() - began));
    return 0;
fail:
    undo(all, sandbox, row, from);
    return error_prefix(err, "resume sandbox");
}

static int check_request(const struct sandboxes *all, const struct sandbox_resume *request,
                         struct error *err)
{
    if (request->timeout_s < 0)
        return error_set(err, ERROR_INVALID, "Timeout must be greater than or equal to 0");
    return check_timeout_max(all, request->timeout_s, err);
}

int sandbox_resume(struct sandboxes *all, struct str team_id, struct str id,
                   const struct sandbox_resume *request, struct arena *arena,
                   struct sandbox_view *out, struct error *err)
{
    struct store_limits limits = {0};
    struct table_claim claim = {.to = SANDBOX_RESUMING, .limits = &limits};
    struct store_sandbox row = {0};
    struct sandbox *sandbox = NULL;

    if (check_request(all, request, err) < 0 ||
        team_limits(all->store, team_id, &limits, err) < 0 ||
        table_claim(all, team_id, id, &claim, &sandbox, err) < 0 ||
        resume_owned(all, sandbox, request, arena, &row, err) < 0)
        return -1;
    view_from_row(all, &row, out);
    return 0;
}

/* Between the two attempts the other side may have paused or resumed it: then it is tried again. */
int sandbox_connect(struct sandboxes *all, struct str team_id, struct str id,
                    const struct sandbox_resume *request, struct arena *arena,
                    struct sandbox_view *out, bool *out_resumed, struct error *err)
{
    for (int i = 0; i < CONNECT_TRIES; i++) {
        *out_resumed = false;
        if (sandbox_extend(all, team_id, id, request->timeout_s, arena, out, err) == 0)
            return 0;
        if (err->code != ERROR_CONFLICT)
            return -1;
        *out_resumed = true;
        if (sandbox_resume(all, team_id, id, request, arena, out, err) == 0)
            return 0;
        if (err->code != ERROR_CONFLICT)
            return -1;
    }
    return -1;
}

/* What traffic may wake, and for how long. */
static int wake_request(struct sandboxes *all, const char *id, struct arena *arena,
                        struct str *out_team, struct sandbox_resume *out, struct error *err)
{
    struct store_sandbox row;

    if (store_sandbox_get(all->store, str_of(id), arena, &row, err) < 0)
        return -1;
    if ((row.life.listed == SANDBOX_PAUSED || row.life.state == SANDBOX_PAUSING) &&
        (!row.auto_resume || !row.life.memory))
        return error_set(err, ERROR_CONFLICT, "Sandbox %s is paused", id);
    *out_team = row.team_id;
    out->timeout_s = row.timeout_s;
    if (out->timeout_s < WAKE_TIMEOUT_MIN_S)
        out->timeout_s = WAKE_TIMEOUT_MIN_S;
    if (out->timeout_s > all->max_timeout_s)
        out->timeout_s = all->max_timeout_s;
    return 0;
}

int sandbox_wake(struct sandboxes *all, const char *id, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_resume request = {0};
    struct sandbox_view view = {0};
    struct str team_id = STR_NONE;

    if (wake_request(all, id, &arena, &team_id, &request, err) < 0)
        return -1;
    if (sandbox_resume(all, team_id, str_of(id), &request, &arena, &view, err) == 0)
        return 0;
    if (err->code != ERROR_CONFLICT)
        return -1;
    return table_check_runs(all, team_id, str_of(id), err);
}
