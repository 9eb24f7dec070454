/* Templates that are built: what they are called, who may see them, which build a tag names, and how they go. */
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_layers.h"
#include "domain/template/template.h"
#include "store/core/store_name.h"
#include "store/platform/store_build.h"
#include "store/platform/store_layer.h"

enum { TAGS_MAX = 32 };

static int full_name(struct store *store, const struct store_template *row, struct arena *arena,
                     struct str *out, struct error *err)
{
    struct str slug;

    *out = STR("");
    if (!row->name.len)
        return 0;
    if (store_team_slug(store, row->team_id, arena, &slug, err) < 0)
        return -1;
    *out = str_of(arena_printf(arena, "%.*s/%.*s", STR_ARG(slug), STR_ARG(row->name)));
    return 0;
}

static int64_t count_layers(struct str layers)
{
    int64_t count = 0;

    for (; layers.len; count++)
        (void)str_split(&layers, ',');
    return count;
}

/* What the row lacks. A template of which no build is tagged has the id, layers and sizes of its newest. */
static int view_of(struct store *store, const struct store_template *row, struct arena *arena,
                   struct template_view *out, struct error *err)
{
    struct store_template_builds builds;

    *out = (struct template_view){.row = *row, .build_status = STR("ready")};
    if (store_template_builds(store, row->id, arena, &builds, err) < 0 ||
        full_name(store, row, arena, &out->full_name, err) < 0)
        return -1;
    out->build_count = builds.count;
    if (builds.count)
        out->build_status = str_of(store_build_state_name(builds.newest));
    if (builds.count && !out->row.build_id.len) {
        out->row.build_id = builds.newest_id;
        out->row.layers = builds.layers;
        out->row.cpu_count = builds.cpu_count;
        out->row.mem_mb = builds.mem_mb;
        out->row.disk_mb = builds.disk_mb;
    }
    out->layer_count = count_layers(out->row.layers);
    return store_layers_bytes(store, out->row.layers, &out->layer_bytes, err);
}

int template_views(struct store *store, struct str team_id, struct arena *arena,
                   struct template_view **out, size_t *out_count, struct error *err)
{
    struct store_template *rows;

    if (store_template_list(store, team_id, arena, &rows, out_count, err) < 0)
        return -1;
    *out = arena_alloc(arena, (*out_count + 1) * sizeof(**out));
    for (size_t i = 0; i < *out_count; i++)
        if (view_of(store, &rows[i], arena, &(*out)[i], err) < 0)
            return -1;
    return 0;
}

/* The team's own, or a public one of others. */
static int find_seen(struct store *store, struct str team_id, struct str name, struct arena *arena,
                     struct store_template *out, struct error *err)
{
    if (store_template_get(store, team_id, name, arena, out, err) < 0)
        return -1;
    return out->is_snapshot
               ? error_set(err, ERROR_NOT_FOUND, "template '%.*s' not found", STR_ARG(name))
               : 0;
}

/* The team's own. A public one of others is there, but not theirs to change. */
static int find_own(struct store *store, struct str team_id, struct str name, struct arena *arena,
                    struct store_template *out, struct error *err)
{
    if (find_seen(store, team_id, name, arena, out, err) < 0)
        return -1;
    if (!str_eq(out->team_id, team_id))
        return error_set(err, ERROR_FORBIDDEN, "template '%.*s' is not yours to change",
                         STR_ARG(name));
    return 0;
}

int template_view(struct store *store, struct str team_id, struct str name, struct arena *arena,
                  struct template_view *out, struct error *err)
{
    struct store_template row;

    if (find_own(store, team_id, name, arena, &row, err) < 0)
        return -1;
    return view_of(store, &row, arena, out, err);
}

int template_look(struct store *store, struct str team_id, struct str name, struct arena *arena,
                  struct template_view *out, struct error *err)
{
    struct store_template row;

    if (find_seen(store, team_id, name, arena, &row, err) < 0)
        return -1;
    return view_of(store, &row, arena, out, err);
}

int template_builds(struct store *store, const struct store_build_query *wanted,
                    struct arena *arena, struct store_build **out, size_t *out_count,
                    struct error *err)
{
    return store_build_page(store, wanted, arena, out, out_count, err);
}

int template_set_public(struct store *store, struct str team_id, struct str name, bool is_public,
                        struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_template row;

    if (find_own(store, team_id, name, &arena, &row, err) < 0)
        return -1;
    return store_template_set_public(store, team_id, row.id, is_public, clock_wall_us(), err);
}

int template_delete(struct sandboxes *all, struct str team_id, struct str name, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_template row;
    bool freed;

    if (find_own(sandboxes_store(all), team_id, name, &arena, &row, err) < 0 ||
        store_template_delete(sandboxes_store(all), team_id, row.id, &freed, err) < 0)
        return -1;
    if (freed)
        layers_collect_soon(all);
    return 0;
}

/* ---- tags ---- */

/* Checked, in small letters, "a,b", each once. */
static int tags_text(const struct str *tags, size_t count, struct arena *arena, struct str *out,
                     struct error *err)
{
    auto_buf struct buf text = {0};

    if (count == 0 || count > TAGS_MAX)
        return error_set(err, ERROR_INVALID, "tags: from 1 to %d of them", TAGS_MAX);
    buf_init(&text, (size_t)TAGS_MAX * (STORE_NAME_MAX + 1));
    for (size_t i = 0; i < count; i++) {
        struct str tag;

        if (template_tag_check(tags[i], arena, &tag, err) < 0)
            return -1;
        if (!template_tags_have(buf_str(&text), tag))
            (void)buf_printf(&text, "%s%.*s", text.len ? "," : "", STR_ARG(tag));
    }
    *out = arena_str(arena, buf_str(&text));
    return 0;
}

bool template_tags_have(struct str tags, struct str tag)
{
    while (tags.len)
        if (str_eq(str_split(&tags, ','), tag))
            return true;
    return false;
}

int template_tag_check(struct str tag, struct arena *arena, struct str *out, struct error *err)
{
    struct store_name name;
    char *text;

    /* What follows the name's colon: a tag that has one itself is none. */
    if (tag.len && tag.len <= STORE_NAME_MAX) {
        text = arena_printf(arena, "x:%.*s", STR_ARG(tag));
        if (store_name_parse(str_of(text), arena, &name)) {
            *out = name.tag;
            return 0;
        }
    }
    return error_set(err, ERROR_INVALID,
                     "invalid tag '%.*s': tags are made of letters, digits, '-', '_' and '.'",
                     (int)(tag.len < 60 ? tag.len : 60), tag.p ? tag.p : "");
}

int template_tags_assign(struct sandboxes *all, struct str team_id, struct str target,
                         const struct str *tags, size_t count, struct arena *arena,
                         struct str *out_build_id, struct error *err)
{
    struct store_template row;
    struct store_name name;
    struct str text;
    bool freed;

    if (!store_name_parse(target, arena, &name))
        return error_set(err, ERROR_INVALID, "invalid target '%.*s': it is 'name:tag'",
                         (int)(target.len < 100 ? target.len : 100), target.p ? target.p : "");
    if (tags_text(tags, count, arena, &text, err) < 0 ||
        find_own(sandboxes_store(all), team_id, target, arena, &row, err) < 0 ||
        store_tag_assign(sandboxes_store(all),
                         &(struct store_tag_move){row.id, name.tag, text, clock_wall_us()}, arena,
                         out_build_id, &freed, err) < 0)
        return -1;
    if (freed)
        layers_collect_soon(all);
    return 0;
}

int template_tags_delete(struct sandboxes *all, struct str team_id, struct str name,
                         const struct str *tags, size_t count, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_template row;
    struct str text;
    bool freed;

    if (tags_text(tags, count, &arena, &text, err) < 0)
        return -1;
    if (template_tags_have(text, STR("default")))
        return error_set(err, ERROR_INVALID, "tag 'default' cannot be deleted");
    if (find_own(sandboxes_store(all), team_id, name, &arena, &row, err) < 0 ||
        store_tag_delete(sandboxes_store(all), row.id, text, &freed, err) < 0)
        return -1;
    if (freed)
        layers_collect_soon(all);
    return 0;
}

int template_tags(struct store *store, struct str team_id, struct str name, struct arena *arena,
                  struct template_tag **out, size_t *out_count, struct error *err)
{
    struct store_template row;
    struct store_tag *tags;

    if (find_seen(store, team_id, name, arena, &row, err) < 0 ||
        store_tag_list(store, row.id, arena, &tags, out_count, err) < 0)
        return -1;
    *out = arena_alloc(arena, (*out_count + 1) * sizeof(**out));
    for (size_t i = 0; i < *out_count; i++)
        (*out)[i] = (struct template_tag){tags[i].tag, tags[i].build_id, tags[i].created_at_us};
    return 0;
}
