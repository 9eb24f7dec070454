/* Snapshots: a sandbox's files under a name, to start others from. */
#include <inttypes.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/log.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "domain/sandbox/sandbox_room.h"
#include "domain/sandbox/sandbox_stats.h"
#include "domain/sandbox/sandbox_view.h"
#include "store/core/store_name.h"
#include "store/platform/store_layer.h"
#include "store/platform/store_snapshot.h"

enum { LIMIT_MAX = 100, CURSOR_MAX = 256 };

static int bad_name(struct str name, struct error *err)
{
    return error_set(err, ERROR_INVALID,
                     "'%.*s' is not a name: it is made of a-z, 0-9, '-' and '_', with an optional "
                     "':tag'",
                     (int)(name.len < 100 ? name.len : 100), name.p ? name.p : "");
}

/* Checks that the team may give this name. */
static int read_name(struct sandboxes *all, struct str team_id, struct str text,
                     struct arena *arena, struct store_name *out, struct error *err)
{
    struct store_template template;
    struct str slug;

    *out = (struct store_name){.name = STR(""), .tag = STR("default")};
    if (!text.p)
        return 0;
    if (!store_name_parse(text, arena, out) || id_valid(out->name))
        return bad_name(text, err);
    if (store_team_slug(all->store, team_id, arena, &slug, err) < 0)
        return -1;
    if (out->team.p && !str_eq(out->team, slug) && !str_eq(out->team, team_id))
        return error_set(err, ERROR_FORBIDDEN, "'%.*s' is not your team's name",
                         STR_ARG(out->team));
    if (store_template_get(all->store, team_id, out->name, arena, &template, err) == 0 &&
        !template.is_snapshot)
        return error_set(err, ERROR_CONFLICT, "'%.*s' is the name of a template",
                         STR_ARG(out->name));
    return 0;
}

static void view_of(const struct store_snapshot *row, struct str slug, struct arena *arena,
                    struct snapshot_view *out)
{
    *out = (struct snapshot_view){.created_at_us = row->created_at_us};
    if (row->name.len) {
        out->name = str_of(arena_printf(arena, "%.*s/%.*s", STR_ARG(slug), STR_ARG(row->name)));
        out->id = str_of(arena_printf(arena, "%.*s:%.*s", STR_ARG(out->name), STR_ARG(row->tag)));
    } else {
        out->id =
            str_of(arena_printf(arena, "%.*s:%.*s", STR_ARG(row->template_id), STR_ARG(row->tag)));
    }
}

int sandbox_snapshot(struct sandboxes *all, struct str team_id, struct str id, struct str text,
                     struct arena *arena, struct snapshot_view *out, struct error *err)
{
    struct store_snapshot snapshot;
    struct store_name name;
    struct sealed sealed;
    struct str slug;
    bool freed = false;
    int result;

    if (read_name(all, team_id, text, arena, &name, err) < 0 ||
        store_team_slug(all->store, team_id, arena, &slug, err) < 0 ||
        layers_seal(all, team_id, id, arena, &sealed, err) < 0)
        return -1;
    snapshot = (struct store_snapshot){
        .tag = name.tag,
        .team_id = team_id,
        .name = name.name,
        .source_id = sealed.row.id,
        .layers = sealed.layers,
        .cpu_count = sealed.row.cpu_count,
        .mem_mb = sealed.row.mem_mb,
        .disk_mb = sealed.row.disk_mb,
        .created_at_us = clock_wall_us(),
        .setup = sealed.row.setup,
    };
    result = room_take(all, team_id, sealed.bytes, err);
    if (result == 0) {
        result = store_snapshot_put(all->store, &snapshot, arena, &freed, err);
        room_taken(all);
    }
    layers_unpin(all, &sealed.pin);
    if (result < 0 || freed)
        layers_collect_soon(all);
    if (result < 0)
        return error_prefix(err, "snapshot");
    view_of(&snapshot, slug, arena, out);
    history_snapshot(all, sealed.row.id, out->id);
    stats_add(all, STAT_SNAPSHOTS);
    log_info("sandbox", "snapshot id=%.*s name=%.*s", STR_ARG(sealed.row.id), STR_ARG(out->id));
    return 0;
}

/* base64url("<created_at_us>__<template>__<tag>"). */
static struct str make_cursor(const struct store_snapshot *last, struct arena *arena)
{
    return cursor_encode(arena_printf(arena, "%" PRId64 "__%.*s__%.*s", last->created_at_us,
                                      STR_ARG(last->template_id), STR_ARG(last->tag)),
                         arena);
}

static int read_cursor(struct str cursor, struct arena *arena, struct store_snapshot_query *out,
                       struct error *err)
{
    struct str rest = STR_NONE;
    bool ok = cursor_decode(cursor, CURSOR_MAX, arena, &out->after_us, &rest);
    ptrdiff_t at = ok ? str_find_str(rest, STR("__")) : -1;

    if (at < 0 || !id_valid(str_n(rest.p, (size_t)at)))
        return error_set(err, ERROR_INVALID, "Invalid next token");
    out->after_template = str_n(rest.p, (size_t)at);
    out->after_tag = str_skip(rest, (size_t)at + 2);
    return 0;
}

/* False when there cannot be such a snapshot. */
static bool set_name(struct sandboxes *all, struct str team_id, struct str text, struct str slug,
                     struct arena *arena, struct store_snapshot_query *out)
{
    struct store_name name;

    (void)all;
    if (!text.p)
        return true;
    if (!store_name_parse(text, arena, &name) ||
        (name.team.p && !str_eq(name.team, slug) && !str_eq(name.team, team_id)))
        return false;
    out->name = name.name;
    out->tag = name.tag_given ? name.tag : STR_NONE;
    return true;
}

int snapshot_list(struct sandboxes *all, const struct snapshot_filter *filter, struct arena *arena,
                  struct snapshot_page *out, struct error *err)
{
    struct store_snapshot_query query = {
        .team_id = filter->team_id, .source_id = filter->sandbox_id, .limit = filter->limit + 1};
    struct store_snapshot *rows;
    struct str slug;
    size_t count;

    *out = (struct snapshot_page){0};
    if (filter->limit < 1 || filter->limit > LIMIT_MAX)
        return error_set(err, ERROR_INVALID, "Limit must be from 1 to %d", LIMIT_MAX);
    if ((filter->cursor.p && read_cursor(filter->cursor, arena, &query, err) < 0) ||
        store_team_slug(all->store, filter->team_id, arena, &slug, err) < 0)
        return -1;
    if (!set_name(all, filter->team_id, filter->name, slug, arena, &query))
        return 0;
    if (store_snapshot_page(all->store, &query, arena, &rows, &count, err) < 0)
        return -1;
    if (count > filter->limit) {
        count = filter->limit;
        out->next_cursor = make_cursor(&rows[count - 1], arena);
    }
    out->items = arena_alloc(arena, (count + 1) * sizeof(*out->items));
    out->count = count;
    for (size_t i = 0; i < count; i++) {
        struct store_shared size;

        view_of(&rows[i], slug, arena, &out->items[i]);
        if (store_layers_shared(all->store, rows[i].layers, &size, err) < 0)
            return -1;
        out->items[i].bytes = size.bytes;
        out->items[i].shared_bytes = size.shared;
        out->items[i].shared_with = size.users;
    }
    return 0;
}

int snapshot_delete(struct sandboxes *all, struct str team_id, struct str name, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_template template;
    bool freed = false;

    if (store_template_get(all->store, team_id, name, &arena, &template, err) < 0)
        return -1;
    if (!str_eq(template.team_id, team_id))
        return error_set(err, ERROR_FORBIDDEN, "template '%.*s' belongs to somebody else",
                         STR_ARG(template.id));
    if (!template.is_snapshot)
        return error_set(err, ERROR_UNSUPPORTED, "only snapshots can be deleted");
    if (store_snapshot_delete(all->store, template.id, template.tag, &freed, err) < 0) {
        if (err->code == ERROR_NOT_FOUND)
            return error_set(err, ERROR_NOT_FOUND, "template '%.*s' not found",
                             (int)(name.len < 128 ? name.len : 128), name.p);
        return -1;
    }
    if (freed)
        layers_collect_soon(all);
    log_info("sandbox", "deleted snapshot=%.*s", (int)(name.len < 128 ? name.len : 128), name.p);
    return 0;
}
