/* After a start, whatever happened before: store and engine are compared, and each id is either
 * adopted or torn down.
 *
 *   row       box       what it is                               what is done
 *   running   running   a sandbox                                adopted (or ended, when its time is up)
 *   running   no/dead   the host or the box died                 torn down, "host restart"
 *   killing   any       a teardown that was cut off              torn down
 *   none      any       a create that was cut off, a warm box    torn down
 *
 * Teardowns are done by the expiry threads, several at a time; sandboxes_open() waits for them, but
 * not for ever. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "route/route.h"
#include "sandbox/sandbox_internal.h"

void route_publish(struct sandboxes *all, const char *id, struct str access_token)
{
    struct route route = {
        .state = ROUTE_RUNNING,
        .generation = atomic_fetch_add(&all->generation, 1) + 1,
    };

    (void)str_copy(str_of(id), route.id, sizeof(route.id));
    (void)str_copy(access_token, route.access_token, sizeof(route.access_token));
    routes_set(all->routes, &route);
}

static void recover_row(struct sandboxes *all, const struct store_sandbox *row, bool box_runs,
                        size_t *adopted)
{
    char id[ID_SIZE];

    if (!id_valid(row->id) || !str_copy(row->id, id, sizeof(id))) {
        log_error("sandbox", "the store has a sandbox with a bad id, ignoring");
        return;
    }
    if (row->state == STORE_SANDBOX_RUNNING && box_runs) {
        /* When its time is up, the expiry threads see to it at once. */
        route_publish(all, id, row->access_token);
        if (table_adopt(all, id, row->team_id, row->end_at_us, row->revision)) {
            (*adopted)++;
            return;
        }
    }
    table_condemn(all, id, row->state == STORE_SANDBOX_RUNNING ? "host restart" : "killed");
}

static int recover_boxes(struct sandboxes *all, struct map *boxes, struct box_info *infos,
                         size_t count, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_sandbox *rows;
    size_t row_count, adopted = 0;

    for (size_t i = 0; i < count; i++) {
        infos[i].id[ID_SIZE - 1] = '\0';
        (void)map_put(boxes, str_of(infos[i].id), &infos[i]);
    }
    if (store_sandbox_live(all->store, &arena, &rows, &row_count, err) < 0)
        return -1;
    for (size_t i = 0; i < row_count; i++) {
        const struct box_info *info = map_get(boxes, rows[i].id);

        recover_row(all, &rows[i], info && info->running, &adopted);
    }
    for (size_t i = 0; i < count; i++)
        if (!table_has(all, infos[i].id))
            table_condemn(all, infos[i].id, "leftover");
    if (row_count || count)
        log_info("sandbox", "recovered rows=%zu boxes=%zu adopted=%zu", row_count, count, adopted);
    return 0;
}

int recover_all(struct sandboxes *all, struct error *err)
{
    auto_free struct box_info *infos = NULL;
    struct map boxes;
    size_t count = 0;
    int result;

    if (all->engine->ops->list(all->engine, &infos, &count, err) < 0)
        return error_prefix(err, "list what runs");
    map_init(&boxes);
    result = recover_boxes(all, &boxes, infos, count, err);
    map_done(&boxes);
    return result;
}
