/* Looking at sandboxes: the store has what they are, the table says which of them are visible. */
#include <inttypes.h>

#include "base/buf.h"
#include "base/encode.h"
#include "sandbox/sandbox_internal.h"
#include "json/json_shape.h"

enum {
    LIMIT_MAX = 100,
    CHUNK = 256, /* rows per query when most of them may not match */
    CURSOR_MAX = 128,
};

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
        .metadata = row->metadata,
        .state = row->life.state == STORE_SANDBOX_PAUSED ? SANDBOX_PAUSED : SANDBOX_RUNNING,
        .started_at_us = row->started_at_us,
        .end_at_us = row->life.end_at_us,
        .cpu_count = row->cpu_count,
        .mem_mb = row->mem_mb,
        .disk_mb = row->disk_mb,
        .internet = row->internet,
        .internet_given = row->internet_given,
        .auto_pause = row->life.auto_pause,
        .auto_resume = row->auto_resume,
    };
    if (row->life.state == STORE_SANDBOX_PAUSED)
        out->paused_to = row->life.memory ? STR("memory") : STR("disk");
    if (row->life.resumed_from != STORE_RESUMED_NEVER)
        out->resumed_from =
            row->life.resumed_from == STORE_RESUMED_MEMORY ? STR("memory") : STR("disk");
}

int sandbox_get(struct sandboxes *all, struct str team_id, struct str id, struct arena *arena,
                struct sandbox_view *out, struct error *err)
{
    struct store_sandbox row;

    if (!table_visible(all, team_id, id))
        return sandbox_not_found(id, err);
    if (store_sandbox_get(all->store, id, arena, &row, err) < 0)
        return -1;
    if (row.life.state != STORE_SANDBOX_RUNNING && row.life.state != STORE_SANDBOX_PAUSED)
        return sandbox_not_found(id, err);
    view_from_row(all, &row, out);
    return 0;
}

struct str cursor_encode(const char *text, struct arena *arena)
{
    size_t len = BASE64_LEN(strlen(text));
    char *cursor = arena_alloc(arena, len + 1);

    base64_encode(cursor, text, strlen(text));
    for (size_t i = 0; i < len; i++)
        cursor[i] = (char)(cursor[i] == '+' ? '-' : cursor[i] == '/' ? '_' : cursor[i]);
    while (len > 0 && cursor[len - 1] == '=')
        len--;
    return str_n(cursor, len);
}

struct str cursor_decode(struct str cursor, size_t max, struct arena *arena)
{
    auto_buf struct buf text = {0};

    buf_init(&text, max);
    if (cursor.len > max || !base64_decode(cursor, &text) || text.overflowed || text.len == 0 ||
        memchr(text.p, '\0', text.len))
        return STR_NONE;
    return arena_str(arena, buf_str(&text));
}

/* base64url("<started_at_us>__<id>"). */
static struct str make_cursor(const struct sandbox_view *last, struct arena *arena)
{
    return cursor_encode(
        arena_printf(arena, "%" PRId64 "__%.*s", last->started_at_us, STR_ARG(last->id)), arena);
}

static int read_cursor(struct str cursor, struct arena *arena, struct store_sandbox_query *out,
                       struct error *err)
{
    struct str rest = cursor_decode(cursor, CURSOR_MAX, arena), us;
    ptrdiff_t at = rest.p ? str_find_str(rest, STR("__")) : -1;

    if (at < 0)
        return error_set(err, ERROR_INVALID, "Invalid next token");
    us = str_n(rest.p, (size_t)at);
    rest = str_skip(rest, (size_t)at + 2);
    if (!str_to_i64(us, &out->after_us) || !id_valid(rest))
        return error_set(err, ERROR_INVALID, "Invalid next token");
    out->after_id = rest;
    return 0;
}

static bool has_metadata(const json_t *wanted, struct str text)
{
    auto_json json_t *has = NULL;
    /* jansson's iterators do not change what they walk over. */
    json_t *pairs = (json_t *)(uintptr_t)wanted, *value;
    struct error ignored;
    const char *name;

    if (json_object_size(wanted) == 0)
        return true;
    if (json_parse(text, &has, &ignored) < 0)
        return false;
    json_object_foreach(pairs, name, value)
    {
        const json_t *there = json_object_get(has, name);

        if (!there || !json_equal(there, value))
            return false;
    }
    return true;
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
    out->metadata = arena_str(arena, view->metadata);
}

static void copy_row(const struct sandboxes *all, const struct store_sandbox *row,
                     struct arena *arena, struct sandbox_view *out)
{
    struct sandbox_view view;

    view_from_row(all, row, &view);
    view_copy(&view, arena, out);
}

struct listing {
    struct sandboxes *all;
    const struct sandbox_filter *filter;
    struct arena *arena;
    struct sandbox_page *page;
    bool more;
};

/* One query's worth. *out_last says that there is nothing behind it. The rows live in memory of
 * their own: a filter that matches one in a thousand must not keep the other 999. */
static int list_chunk(struct listing *listing, struct store_sandbox_query *query, bool *out_last,
                      struct error *err)
{
    auto_arena struct arena scratch = {0};
    struct sandbox_page *page = listing->page;
    struct store_sandbox *rows;
    size_t count;

    if (store_sandbox_page(listing->all->store, query, &scratch, &rows, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count && !listing->more; i++) {
        if (!table_visible(listing->all, listing->filter->team_id, rows[i].id) ||
            !has_metadata(listing->filter->metadata, rows[i].metadata))
            continue;
        if (page->count == listing->filter->limit)
            listing->more = true;
        else
            copy_row(listing->all, &rows[i], listing->arena, &page->items[page->count++]);
    }
    *out_last = count < query->limit;
    if (count) {
        query->after_us = rows[count - 1].started_at_us;
        query->after_id = arena_str(listing->arena, rows[count - 1].id);
    }
    return 0;
}

static int list_rows(struct listing *listing, struct store_sandbox_query *query, struct error *err)
{
    struct sandbox_page *page = listing->page;
    bool last = false;

    while (!last && !listing->more)
        if (list_chunk(listing, query, &last, err) < 0)
            return -1;
    if (listing->more)
        page->next_cursor = make_cursor(&page->items[page->count - 1], listing->arena);
    return 0;
}

int sandbox_list(struct sandboxes *all, const struct sandbox_filter *filter, struct arena *arena,
                 struct sandbox_page *out, struct error *err)
{
    struct listing listing = {.all = all, .filter = filter, .arena = arena, .page = out};
    struct store_sandbox_query query = {
        .team_id = filter->team_id,
        .running = filter->running,
        .paused = filter->paused,
        .started_after_us = filter->started_after_us,
        .ascending = filter->ascending,
        .limit = json_object_size(filter->metadata) ? CHUNK : filter->limit + 1,
    };
    struct store_template template;

    *out = (struct sandbox_page){.total_running = table_running_of(all, filter->team_id)};
    if (filter->limit < 1 || filter->limit > LIMIT_MAX)
        return error_set(err, ERROR_INVALID, "Limit must be from 1 to %d", LIMIT_MAX);
    if (filter->cursor.p && read_cursor(filter->cursor, arena, &query, err) < 0)
        return -1;
    out->items = arena_alloc(arena, filter->limit * sizeof(*out->items));
    if (!filter->running && !filter->paused)
        return 0;
    if (filter->template_name.p) {
        if (store_template_find(all->store, filter->team_id, filter->template_name, arena,
                                &template, err) < 0)
            return err->code == ERROR_NOT_FOUND ? 0 : -1;
        query.template_id = template.id;
    }
    return list_rows(&listing, &query, err);
}
