/* Pausing, in the order of the steps:
 *
 *   PAUSING   nobody else may touch it
 *   row       pause under way: a crash from here on is finished by recovery. A pause that was asked for is reported
 *             as 'paused' from here on, because commands that find their connection cut must learn why. At the end
 *             of its time the sandbox is 'running' until it stands still: that may take seconds, and nobody waits
 *   route     PAUSED: open connections are cut, new ones are refused (or wake it, later)
 *   box       its processes stand still, or end and leave their files
 *   row       'paused', on disk, and reported as such: a host that dies from here on loses the processes, not the files
 *   PAUSED
 *
 * A box that ended by itself is paused the same way when it is to be paused at its end: its files are kept.
 *
 * When the box cannot be stopped it runs on, as before; but not at the end of its time: then what does
 * not stand still ends, and its files are kept. When it is uncertain whether it runs (a
 * stop that failed halfway, an envd that does not answer), it is PAUSED and its files decide: they
 * are there in any case, and a resume boots from them. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "domain/route/route.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_life.h"
#include "domain/sandbox/sandbox_network.h"
#include "domain/sandbox/sandbox_stats.h"
#include "domain/sandbox/sandbox_table.h"
#include "domain/sandbox/sandbox_view.h"

enum { RETRY_US = 5 * 1000 * 1000, FAILURES_MAX = 3 };

/* Traffic does not wake what was told to keep its files only. */
static void route_pause(struct sandboxes *all, const char *id, bool disk_only)
{
    struct route route;

    if (!routes_find(all->routes, str_of(id), &route))
        return;
    route.state = ROUTE_PAUSED;
    route.wakes &= !disk_only;
    routes_set(all->routes, &route);
}

static int stop_box(struct sandboxes *all, const struct store_sandbox *row, bool disk_only,
                    struct error *err)
{
    const char *id = row->id.p;

    if (!disk_only) {
        if (all->engine->ops->freeze(all->engine, id, true, err) < 0)
            return -1;
        peers_hide(all, row);
        return 0;
    }
    if (all->engine->ops->stop(all->engine, id, err) < 0)
        return -1;
    egress_leave(all, id);
    return 0;
}

/* After a failed stop: is there something to go back to? Only envd's answer tells. */
static bool still_runs(struct sandboxes *all, const struct sandbox *sandbox)
{
    struct error ignored = {0};
    int fd = -1;

    (void)all->engine->ops->freeze(all->engine, sandbox->id, false, &ignored);
    if (envd_ready(all->engine, sandbox->id, &fd, &ignored) < 0)
        return false;
    close_fd(&fd);
    return true;
}

/* It does not answer: its processes stand still after all (true), or they end. Those of a box that
 * the engine is still busy with may be there: the next resume finds out. */
static bool keep_processes(struct sandboxes *all, struct sandbox *sandbox, bool disk_only)
{
    struct error err = {0};

    if (!disk_only &&
        (all->engine->ops->freeze(all->engine, sandbox->id, true, &err) == 0 ||
         err.code == ERROR_CONFLICT || err.code == ERROR_TIMEOUT || err.code == ERROR_UNAVAILABLE))
        return true;
    (void)pause_stop(all, sandbox, &err);
    return false;
}

int pause_stop(struct sandboxes *all, struct sandbox *sandbox, struct error *err)
{
    sandbox->ending = false;
    if (all->engine->ops->stop(all->engine, sandbox->id, err) == 0) {
        egress_leave(all, sandbox->id);
        return 0;
    }
    sandbox->ending = true;
    log_warn("sandbox", "id=%s: %s; trying again", sandbox->id, err->message);
    return -1;
}

void pause_finish(struct sandboxes *all, struct sandbox *sandbox)
{
    struct error err = {0};

    if (pause_stop(all, sandbox, &err) == 0)
        log_info("sandbox", "id=%s: its processes have ended, its files are kept", sandbox->id);
    table_paused(all, sandbox, true);
}

/* Back to RUNNING. An end that has passed is tried again soon, not at once. */
static void run_until(struct sandboxes *all, struct sandbox *sandbox, int64_t end_at_us,
                      int64_t revision)
{
    int64_t soonest = now_us(all) + RETRY_US;
    struct error ignored = {0};

    if (table_run(all, sandbox, end_at_us > soonest ? end_at_us : soonest, revision))
        return;
    table_fail_died(all, sandbox);
    (void)sandbox_teardown(all, sandbox, &ignored);
}

static void run_on(struct sandboxes *all, struct sandbox *sandbox, const struct store_sandbox *row)
{
    int64_t revision = row->revision;
    struct error err = {0};

    if (store_sandbox_set_life(all->store, row->id, &row->life, NULL, false, &revision, &err) < 0)
        log_error("sandbox", "id=%s: %s; it is listed as paused but runs", sandbox->id,
                  err.message);
    route_publish(all, sandbox->id, row, true);
    run_until(all, sandbox, row->life.end_at_us, revision);
}

/* The row says 'under way' until here; that it could not be written again changes nothing for a
 * sandbox whose files are kept, so it stays paused and the caller is told. */
static int settle_with(struct sandboxes *all, struct sandbox *sandbox,
                       struct store_sandbox_life *life, bool cold, const struct store_event *event,
                       struct error *err)
{
    int64_t revision = 0;
    int result;

    life->state = life->listed = SANDBOX_PAUSED;
    result =
        store_sandbox_set_life(all->store, str_of(sandbox->id), life, event, true, &revision, err);
    table_paused(all, sandbox, cold);
    stats_add(all, STAT_PAUSED);
    return result;
}

static int settle(struct sandboxes *all, struct sandbox *sandbox, struct store_sandbox_life *life,
                  bool cold, struct error *err)
{
    struct store_event event = history_paused(cold);

    return settle_with(all, sandbox, life, cold, &event, err);
}

/* Its time is up and its processes do not stand still, or it cannot be paused for another reason that does
 * not pass: they end. The row still says that memory was wanted, so that traffic wakes what it is to wake. */
static bool stop_cold(struct sandboxes *all, struct sandbox *sandbox,
                      struct store_sandbox_life *life, const struct error *why)
{
    struct store_event event = history_paused_cold();
    struct error err = {0};

    if (++sandbox->pause_failures < FAILURES_MAX && why->code != ERROR_TIMEOUT)
        return false;
    /* Killed ones may need their time inside the kernel; a resume waits for them. */
    if (pause_stop(all, sandbox, &err) < 0 && err.code != ERROR_TIMEOUT) {
        sandbox->ending = false;
        return false;
    }
    log_warn("sandbox", "id=%s: its processes were ended, its files are kept", sandbox->id);
    if (settle_with(all, sandbox, life, true, &event, &err) < 0)
        log_error("sandbox", "id=%s: %s; its files are kept", sandbox->id, err.message);
    return true;
}

/* Its box has ended by itself: there is nothing to stop, and its files are kept. */
static int keep_files(struct sandboxes *all, struct sandbox *sandbox,
                      struct store_sandbox_life *life, struct error *err)
{
    struct store_event event = history_paused_crashed(sandbox->reason);
    struct error ignored = {0};

    (void)pause_stop(all, sandbox, &ignored);
    log_warn("sandbox", "id=%s: it ended by itself (%s), its files are kept", sandbox->id,
             name_of(&sandbox_end_names, sandbox->reason));
    if (settle_with(all, sandbox, life, true, &event, err) < 0)
        return error_prefix(err, "pause sandbox");
    return 0;
}

int pause_owned(struct sandboxes *all, struct sandbox *sandbox, const struct pause *pause,
                struct error *err)
{
    bool disk_only = pause->disk_only;
    auto_arena struct arena arena = {0};
    struct store_sandbox row = {.id = str_of(sandbox->id)};
    struct store_sandbox_life life;
    int64_t revision = 0, from = clock_mono_us();

    if (store_sandbox_get(all->store, row.id, &arena, &row, err) < 0) {
        run_until(all, sandbox, sandbox->due_us, sandbox->revision);
        return error_prefix(err, "pause sandbox");
    }
    life = row.life;
    life.state = SANDBOX_PAUSING;
    if (!pause->at_end)
        life.listed = SANDBOX_PAUSED;
    life.memory = !disk_only;
    life.end_at_us = clock_wall_us();
    if (store_sandbox_set_life(all->store, row.id, &life, NULL, false, &revision, err) < 0) {
        run_on(all, sandbox, &row);
        return error_prefix(err, "pause sandbox");
    }
    route_pause(all, sandbox->id, disk_only);
    if (sandbox->crashed)
        return keep_files(all, sandbox, &life, err);
    if (stop_box(all, &row, disk_only, err) < 0) {
        struct error ignored = {0};

        (void)error_prefix(err, "pause sandbox");
        log_error("sandbox", "id=%s: %s", sandbox->id, err->message);
        if (pause->at_end && !disk_only && stop_cold(all, sandbox, &life, err))
            return 0;
        if (still_runs(all, sandbox)) {
            run_on(all, sandbox, &row);
            return -1;
        }
        (void)settle(all, sandbox, &life, !keep_processes(all, sandbox, disk_only), &ignored);
        peers_hide(all, &row);
        return -1;
    }
    if (settle(all, sandbox, &life, disk_only, err) < 0)
        return error_prefix(err, "pause sandbox");
    log_info("sandbox", "paused id=%.*s to=%s us=%lld", STR_ARG(row.id),
             disk_only ? "disk" : "memory", (long long)(clock_mono_us() - from));
    return 0;
}

int sandbox_pause(struct sandboxes *all, struct str team_id, struct str id,
                  const struct sandbox_pause *request, struct error *err)
{
    struct table_claim claim = {.to = SANDBOX_PAUSING, .asked_at_us = request->asked_at_us};
    struct sandbox *sandbox;

    if (table_claim(all, team_id, id, &claim, &sandbox, err) < 0)
        return -1;
    return sandbox
               ? pause_owned(all, sandbox, &(struct pause){.disk_only = request->disk_only}, err)
               : 0;
}
