/* After a start, whatever happened before: store and engine are compared, and each id is either
 * adopted or torn down.
 *
 *   row       box       what it is                               what is done
 *   running   running   a sandbox                                adopted (or ended, when its time is up)
 *   running   dead      the host or the box died                 torn down, "host restart", "crashed"
 *   running   dead      the same, and it is to be paused at      paused; a resume boots from its files
 *                       its end
 *   running   none      its files are gone                       torn down, "files lost"
 *   paused    running   processes that stand still               adopted
 *   paused    dead      only its files are there                 adopted; a resume boots from them
 *   paused    none      its files are gone                       torn down, "files lost"
 *   killing   any       a teardown that was cut off              torn down
 *   none      any       a create that was cut off, a warm box    torn down
 *   none      any       the same or a sandbox, when the store    stopped, its files are kept
 *                       is a copy or new (sandbox_aside.c)
 *
 * A copy of the store may say "running" of a sandbox that was paused, or given more time, since. With a copy, a sandbox that
 * exists is paused where it would be ended.
 *
 * A pause that was cut off is finished, a resume that was cut off is undone: both end as PAUSED.
 *
 * Teardowns are done by the expiry threads, several at a time; sandboxes_open() waits for them, but
 * not for ever. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "domain/route/route.h"
#include "domain/sandbox/sandbox_aside.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "domain/sandbox/sandbox_life.h"
#include "domain/sandbox/sandbox_network.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_table.h"
#include "domain/sandbox/sandbox_view.h"
#include "protocol/json/json_shape.h"

uint64_t route_generation_next(struct sandboxes *all)
{
    return atomic_fetch_add(&all->generation, 1) + 1;
}

void route_publish(struct sandboxes *all, const char *id, const struct store_sandbox *row,
                   bool running)
{
    struct route route = {
        .state = running ? ROUTE_RUNNING : ROUTE_PAUSED,
        .generation = route_generation_next(all),
        .wakes = row->auto_resume && (running || row->life.memory),
    };

    (void)str_copy(str_of(id), route.id, sizeof(route.id));
    (void)str_copy(row->access_token, route.access_token, sizeof(route.access_token));
    (void)str_copy(row->traffic_token, route.traffic_token, sizeof(route.traffic_token));
    ingress_read(row->ingress, &route.ingress);
    routes_set(all->routes, &route);
}

/* Brings a pause or resume that was cut off to the state PAUSED. *running becomes whether its
 * processes are there. */
static void finish_step(struct sandboxes *all, const struct store_sandbox *row, const char *id,
                        bool *running)
{
    struct store_sandbox_life life = row->life;
    struct error err = {0};
    int64_t revision;

    if (life.memory && *running) {
        if (all->engine->ops->freeze(all->engine, id, true, &err) < 0)
            log_warn("sandbox", "id=%s: %s; the next resume sees to it", id, err.message);
    } else {
        if (all->engine->ops->stop(all->engine, id, &err) < 0)
            log_warn("sandbox", "id=%s: %s; the next resume sees to it", id, err.message);
        *running = false;
    }
    life.state = life.listed = SANDBOX_PAUSED;
    if (store_sandbox_set_life(all->store, row->id, &life, NULL, true, &revision, &err) < 0)
        log_warn("sandbox", "id=%s: %s, ignoring", id, err.message);
}

/* told: that its processes are gone. */
static bool adopt_paused(struct sandboxes *all, const struct store_sandbox *row, const char *id,
                         const struct box_info *box, bool told)
{
    bool running = box->running;
    struct table_adopt adopt = {.id = id,
                                .team_id = row->team_id,
                                .paused = true,
                                .auto_pause = row->life.auto_pause,
                                .auto_pause_disk = !row->auto_pause_memory,
                                .cpu_count = row->cpu_count,
                                .mem_mb = row->mem_mb,
                                .disk_mb = row->disk_mb,
                                .revision = row->revision};

    if (row->life.state != SANDBOX_PAUSED)
        finish_step(all, row, id, &running);
    adopt.cold = !row->life.memory || !running;
    adopt.ending =
        !box->running && box->end != BOX_END_NONE; /* it did not get to be a stopped one */
    if (row->life.memory && !running && !told) {
        log_warn("sandbox", "id=%s: its processes did not survive; a resume boots from its files",
                 id);
        history_memory_lost(all, row->id);
    }
    route_publish(all, id, row, false);
    return table_adopt(all, &adopt);
}

static bool adopt_running(struct sandboxes *all, const struct store_sandbox *row, const char *id,
                          bool strange)
{
    /* When its time is up, the expiry threads see to it at once. */
    struct table_adopt adopt = {.id = id,
                                .team_id = row->team_id,
                                .auto_pause = row->life.auto_pause || strange,
                                .auto_pause_disk = !row->auto_pause_memory,
                                .cpu_count = row->cpu_count,
                                .mem_mb = row->mem_mb,
                                .disk_mb = row->disk_mb,
                                .end_at_us = row->life.end_at_us,
                                .revision = row->revision};

    route_publish(all, id, row, true);
    return table_adopt(all, &adopt);
}

/* Its box ended by itself: at the end of its time, when there was no server to pause it, with the host, or by a
 * crash. A sandbox that is to be paused at its end keeps its files. */
static bool adopt_dead(struct sandboxes *all, struct store_sandbox *row, const char *id,
                       const struct box_info *box, bool strange, enum sandbox_end *reason)
{
    bool time_up = row->life.end_at_us <= now_us(all);
    struct store_event event;
    struct error err = {0};

    *reason = time_up ? END_TIMEOUT : reason_of_end(box->end);
    if (!row->life.auto_pause && !strange)
        return false;
    event = time_up ? history_paused(true) : history_paused_crashed(*reason);
    row->life.state = row->life.listed = SANDBOX_PAUSED;
    row->life.memory = row->auto_pause_memory; /* so that traffic wakes what it is to wake */
    if (!time_up)
        row->life.end_at_us = clock_wall_us();
    if (store_sandbox_set_life(all->store, row->id, &row->life, &event, true, &row->revision,
                               &err) < 0)
        log_warn("sandbox", "id=%s: %s; the next start tries again", id, err.message);
    return adopt_paused(all, row, id, box, true);
}

/* A row that an earlier version wrote gets its tags, so that lists find it. */
static void add_tags(struct sandboxes *all, struct str id)
{
    auto_arena struct arena arena = {0};
    struct pair *pairs;
    size_t count;
    struct store_sandbox row;
    struct error err = {0};
    struct str *tags;

    if (store_sandbox_get(all->store, id, &arena, &row, &err) < 0)
        return;
    count = pairs_read(row.metadata, &arena, &pairs);
    row.tag_count = tags_of(pairs, count, &arena, &tags);
    row.tags = tags;
    if (store_sandbox_tag(all->store, &row, &err) < 0)
        log_warn("sandbox", "id=%.*s: %s; lists by metadata miss it", STR_ARG(id), err.message);
}

/* Why a teardown that was cut off had begun. */
static enum sandbox_end begun_reason(struct str reason)
{
    unsigned found;

    return name_find(&sandbox_end_names, reason, &found) ? found : END_KILLED;
}

/* Nothing is told before all are known, so this does not wait. */
static void join(struct sandboxes *all, const struct store_sandbox *row, const char *id,
                 const struct box_info *box)
{
    struct box_spec spec = {0};
    struct error err = {0};

    peers_adopt(all, row, box->group);
    if (!box->running)
        return;
    if (spec_set_network(all, row, &spec, &err) < 0) {
        log_error("sandbox", "id=%s: %s; it reaches nothing", id, err.message);
        return;
    }
    if (row->life.listed == SANDBOX_PAUSED)
        spec.network.group = 0; /* peers_hide() */
    if (((spec.network.group != box->group || spec.network.team) &&
         all->engine->ops->network(all->engine, id, &spec.network, &err) < 0) ||
        egress_join(all, row->team_id, id, box->address, &spec.network, row->network, &err) < 0)
        log_error("sandbox", "id=%s: %s; it reaches nothing", id, err.message);
}

static void recover_row(struct sandboxes *all, struct store_sandbox *row,
                        const struct box_info *box, bool strange, size_t *adopted)
{
    enum sandbox_end reason = begun_reason(row->end_reason);
    bool ok = false;
    char id[ID_SIZE];

    if (!id_valid(row->id) || !str_copy(row->id, id, sizeof(id))) {
        log_error("sandbox", "the store has a sandbox with a bad id, ignoring");
        return;
    }
    if (row->life.state == SANDBOX_PAUSING)
        row->life.listed = SANDBOX_PAUSED; /* adopt_paused() makes it true */
    if (row->life.listed == SANDBOX_PAUSED) {
        reason = END_FILES_LOST;
        ok = box && adopt_paused(all, row, id, box, false);
    } else if (row->life.listed == SANDBOX_RUNNING) {
        reason = END_FILES_LOST;
        if (box)
            ok = box->running ? adopt_running(all, row, id, strange)
                              : adopt_dead(all, row, id, box, strange, &reason);
    }
    if (!ok) {
        table_condemn(all, id, reason);
        return;
    }
    (*adopted)++;
    join(all, row, id, box);
    if (!row->tagged)
        add_tags(all, row->id);
}

/* What the store does not know: leftovers, unless they are kept aside. */
static int recover_unknown(struct sandboxes *all, const struct box_info *infos, size_t count,
                           struct aside *aside, struct error *err)
{
    auto_free bool *kept = xcalloc(count + 1, sizeof(*kept));
    auto_free struct layer_info *layers = NULL;
    struct error list_err = {0}, stop_err = {0};
    size_t layer_count = 0;

    for (size_t i = 0; i < count; i++)
        kept[i] = !table_has(all, infos[i].id) && !infos[i].scratch &&
                  aside_keeps(aside, "box", infos[i].id);
    if (layers_recover(all, aside, &layers, &layer_count, &list_err) == 0) {
        if (aside_save(aside, err) < 0)
            return -1;
    } else if (aside->strange) {
        *err = list_err;
        return -1;
    } else {
        log_warn("sandbox", "%s; leftovers stay until the next start", list_err.message);
        layer_count = 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (!kept[i] && !table_has(all, infos[i].id))
            table_condemn(all, infos[i].id, END_LEFTOVER);
        else if (kept[i] && (infos[i].running || infos[i].end != BOX_END_NONE) &&
                 all->engine->ops->stop(all->engine, infos[i].id, &stop_err) < 0)
            log_warn("sandbox", "id=%s: %s; the next start tries again", infos[i].id,
                     stop_err.message);
    }
    layers_delete(all, layers, layer_count);
    return 0;
}

static int recover_boxes(struct sandboxes *all, struct map *boxes, struct box_info *infos,
                         size_t count, struct aside *aside, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_sandbox *rows;
    size_t row_count, adopted = 0;

    for (size_t i = 0; i < count; i++) {
        infos[i].id[ID_SIZE - 1] = '\0';
        (void)map_put(boxes, str_of(infos[i].id), &infos[i]);
        peer_networks_seen(all->peers, infos[i].group);
    }
    if (store_sandbox_live(all->store, &arena, &rows, &row_count, err) < 0)
        return -1;
    for (size_t i = 0; i < row_count; i++) {
        const struct box_info *info = map_get(boxes, rows[i].id);

        recover_row(all, &rows[i], info, aside->strange, &adopted);
    }
    if (row_count || count)
        log_info("sandbox", "recovered rows=%zu boxes=%zu adopted=%zu", row_count, count, adopted);
    return recover_unknown(all, infos, count, aside, err);
}

int recover_all(struct sandboxes *all, struct error *err)
{
    auto_free struct box_info *infos = NULL;
    auto_aside struct aside aside = {0};
    struct map boxes;
    size_t count = 0;
    int result;

    if (aside_open(&aside, all->store, err) < 0)
        return -1;
    if (all->engine->ops->list(all->engine, &infos, &count, err) < 0)
        return error_prefix(err, "list what runs");
    map_init(&boxes);
    result = recover_boxes(all, &boxes, infos, count, &aside, err);
    map_done(&boxes);
    if (result == 0 && !layers_collect(all)) /* boxes of them are still being torn down */
        layers_collect_soon(all);
    return result;
}
