/* Looking at sandboxes: the store has what they are, the table says which of them are visible. */
#include <assert.h>

#include "base/clock.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_table.h"
#include "domain/sandbox/sandbox_view.h"

void view_from_row(const struct sandboxes *all, const struct store_sandbox *row,
                   struct sandbox_view *out)
{
    *out = (struct sandbox_view){
        .id = row->id,
        .team_id = row->team_id,
        .template_id = row->template_id,
        .alias = row->alias.len ? row->alias : STR_NONE,
        .domain = str_of(all->domain),
        .access_token = row->access_token.len ? row->access_token : STR_NONE,
        .traffic_token = row->traffic_token.len ? row->traffic_token : STR_NONE,
        .ingress = row->ingress,
        .metadata = row->metadata,
        .state = row->life.listed == SANDBOX_PAUSED ? SANDBOX_PAUSED : SANDBOX_RUNNING,
        .pausing = row->life.state == SANDBOX_PAUSING,
        .started_at_us = row->started_at_us,
        .end_at_us = row->life.end_at_us,
        .cpu_count = row->cpu_count,
        .mem_mb = row->mem_mb,
        .disk_mb = row->disk_mb,
        .internet = row->internet,
        .internet_given = row->internet_given,
        .network = row->network,
        .auto_pause = row->life.auto_pause,
        .auto_resume = row->auto_resume,
        .volumes = row->volumes,
    };
    if (row->life.listed == SANDBOX_PAUSED)
        out->paused_to = row->life.memory ? STR("memory") : STR("disk");
    if (row->life.resumed_from != STORE_RESUMED_NEVER)
        out->resumed_from =
            row->life.resumed_from == STORE_RESUMED_MEMORY ? STR("memory") : STR("disk");
}

void view_shown(const struct sandboxes *all, struct store_sandbox *row,
                const struct table_shown *shown, struct sandbox_view *out)
{
    /* The end of a pause could not be written. */
    if (row->life.state == SANDBOX_PAUSING && shown->paused)
        row->life.listed = SANDBOX_PAUSED;
    view_from_row(all, row, out);
    if (shown->cold && out->paused_to.p)
        out->paused_to = STR("disk");
}

/* Like sandbox_not_found(), but tells a team why its sandbox is gone, as long as that is known. */
static int gone(struct sandboxes *all, struct str team_id, struct str id, struct arena *arena,
                struct error *err)
{
    char at[CLOCK_TEXT_SIZE];
    struct store_sandbox row;

    if (!id_valid(id) || store_sandbox_get(all->store, id, arena, &row, err) < 0 ||
        !str_eq(row.team_id, team_id) || !row.end_reason.len)
        return sandbox_not_found(id, err);
    if (row.life.state != SANDBOX_ENDED)
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' not found: it is ending (%.*s)",
                         STR_ARG(id), STR_ARG(row.end_reason));
    clock_format(row.ended_at_us, at);
    return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' not found: it ended at %s (%.*s)",
                     STR_ARG(id), at, STR_ARG(row.end_reason));
}

int sandbox_get(struct sandboxes *all, struct str team_id, struct str id, struct arena *arena,
                struct sandbox_view *out, struct error *err)
{
    struct store_sandbox row;
    struct table_shown shown = {0};

    if (!table_visible(all, team_id, id, &shown))
        return gone(all, team_id, id, arena, err);
    if (store_sandbox_get(all->store, id, arena, &row, err) < 0)
        return -1;
    if (row.life.listed != SANDBOX_RUNNING && row.life.listed != SANDBOX_PAUSED)
        return sandbox_not_found(id, err);
    view_shown(all, &row, &shown, out);
    return 0;
}

bool sandbox_known(struct sandboxes *all, struct str id)
{
    char text[ID_SIZE];

    return str_copy(id, text, sizeof(text)) && table_has(all, text);
}

void view_copy(const struct sandbox_view *view, struct arena *arena, struct sandbox_view *out)
{
    *out = *view;
    out->id = arena_str(arena, view->id);
    out->team_id = arena_str(arena, view->team_id);
    out->template_id = arena_str(arena, view->template_id);
    if (view->alias.p)
        out->alias = arena_str(arena, view->alias);
    if (view->access_token.p)
        out->access_token = arena_str(arena, view->access_token);
    if (view->traffic_token.p)
        out->traffic_token = arena_str(arena, view->traffic_token);
    out->network = arena_str(arena, view->network);
    out->ingress = arena_str(arena, view->ingress);
    out->metadata = arena_str(arena, view->metadata);
    out->volumes = arena_str(arena, view->volumes);
    if (view->warning.p)
        out->warning = arena_str(arena, view->warning);
}

size_t sandbox_view_metadata(const struct sandbox_view *view, struct arena *arena,
                             struct pair **out)
{
    return pairs_read(view->metadata, arena, out);
}

size_t sandbox_view_volumes(const struct sandbox_view *view,
                            struct volume_mount out[SANDBOX_VOLUMES_MAX])
{
    struct mount_line lines[BOX_VOLUMES_MAX];
    size_t count = mounts_read(view->volumes, lines);

    static_assert((int)SANDBOX_VOLUMES_MAX == (int)BOX_VOLUMES_MAX, "the same limit");
    for (size_t i = 0; i < count; i++)
        out[i] = lines[i].mount;
    return count;
}
