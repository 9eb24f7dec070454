/* Pages of sandboxes. The store finds them by its indexes: by state, by template, and by tags that
 * stand for pairs of metadata. A tag is a hash, so what is found is compared with what is wanted. */
#include <inttypes.h>

#include "base/buf.h"
#include "base/encode.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_table.h"
#include "domain/sandbox/sandbox_view.h"
#include "protocol/json/json_shape.h"

enum {
    LIMIT_MAX = 100,
    CHUNK = 256, /* rows per query when most of them may not match */
    CURSOR_MAX = 128,
};

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

bool cursor_decode(struct str cursor, size_t max, struct arena *arena, int64_t *out_us,
                   struct str *out_rest)
{
    auto_buf struct buf text = {0};
    struct str all;
    ptrdiff_t at;

    buf_init(&text, max);
    if (cursor.len > max || !base64_decode(cursor, &text) || text.overflowed || text.len == 0 ||
        memchr(text.p, '\0', text.len))
        return false;
    all = arena_str(arena, buf_str(&text));
    at = str_find_str(all, STR("__"));
    if (at < 0 || !str_to_i64(str_n(all.p, (size_t)at), out_us))
        return false;
    *out_rest = str_skip(all, (size_t)at + 2);
    return true;
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
    if (!cursor_decode(cursor, CURSOR_MAX, arena, &out->after_us, &out->after_id) ||
        !id_valid(out->after_id))
        return error_set(err, ERROR_INVALID, "Invalid next token");
    return 0;
}

#define KEY_TAG "exo.sandbox.key"

/* The name by which a pair is looked up: its own but for the labels of the runtime, of which each of its sandboxes has up to
 * eight. The key has two names, and one tag; the rest is the same on many sandboxes, or asked for rarely: those who look
 * for it have all rows compared. STR_NONE = it has no tag. */
static struct str tag_name(struct str name)
{
    static const char *const untagged[] = {"quicksand.id", "quicksand.instance",
                                           "quicksand.spec-hash", "quicksand.team",
                                           "exo.sandbox.spec-hash"};

    for (size_t i = 0; i < sizeof(untagged) / sizeof(untagged[0]); i++)
        if (str_is(name, untagged[i]))
            return STR_NONE;
    return str_is(name, "quicksand.key") ? STR(KEY_TAG) : name;
}

/* FNV-1a of "name\0value", as 16 hex digits. */
static struct str tag_of(struct str name, struct str value, struct arena *arena)
{
    const struct str parts[] = {name, str_n("", 1), value};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < parts[i].len; k++)
            hash = (hash ^ (unsigned char)parts[i].p[k]) * UINT64_C(0x100000001b3);
    return str_of(arena_printf(arena, "%016" PRIx64, hash));
}

size_t tags_of(const struct pair *metadata, size_t count, struct arena *arena, struct str **out)
{
    size_t tags = 0;

    *out = arena_alloc(arena, (count + 1) * sizeof(**out));
    for (size_t i = 0; i < count; i++) {
        struct str name = tag_name(metadata[i].name);
        struct str tag = name.p ? tag_of(name, metadata[i].value, arena) : STR_NONE;
        size_t same = 0;

        while (same < tags && !str_eq((*out)[same], tag))
            same++;
        if (tag.p && same == tags)
            (*out)[tags++] = tag;
    }
    return tags;
}

static bool has_metadata(const struct sandbox_filter *filter, struct str text)
{
    auto_json json_t *has = NULL;
    struct error ignored;

    if (filter->metadata_count == 0)
        return true;
    if (json_parse(text, &has, &ignored) < 0)
        return false;
    for (size_t i = 0; i < filter->metadata_count; i++) {
        const struct pair *wanted = &filter->metadata[i];
        const json_t *there = json_object_getn(has, wanted->name.p, wanted->name.len);

        if (!json_is_string(there) ||
            !str_eq(str_n(json_string_value(there), json_string_length(there)), wanted->value))
            return false;
    }
    return true;
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
        struct table_shown shown = {0};
        struct sandbox_view view;

        if (!table_visible(listing->all, listing->filter->team_id, rows[i].id, &shown) ||
            !has_metadata(listing->filter, rows[i].metadata))
            continue;
        view_shown(listing->all, &rows[i], &shown, &view);
        if (view.state == SANDBOX_PAUSED ? !listing->filter->paused : !listing->filter->running)
            continue;
        if (page->count == listing->filter->limit)
            listing->more = true;
        else
            view_copy(&view, listing->arena, &page->items[page->count++]);
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

/* As many of the pairs as the store takes; all of them are compared with what it finds. */
static void add_tags(const struct sandbox_filter *filter, struct arena *arena,
                     struct store_sandbox_query *query)
{
    struct str *tags;
    size_t count = tags_of(filter->metadata, filter->metadata_count, arena, &tags);

    query->tag_count = count < STORE_QUERY_TAGS ? count : STORE_QUERY_TAGS;
    for (size_t i = 0; i < query->tag_count; i++)
        query->tags[i] = tags[i];
}

/* Whatever has the tags has the pairs, but for hashes that collide. */
static bool tags_say_all(const struct sandbox_filter *filter,
                         const struct store_sandbox_query *query)
{
    for (size_t i = 0; i < filter->metadata_count; i++)
        if (str_is(tag_name(filter->metadata[i].name), KEY_TAG))
            return false;
    return query->tag_count == filter->metadata_count;
}

/* Row by row. */
static int count_compared(struct sandboxes *all, const struct sandbox_filter *filter,
                          const struct store_sandbox_query *like, struct sandbox_page *out,
                          struct error *err)
{
    struct store_sandbox_query query = *like;
    size_t count = CHUNK;
    char last[ID_SIZE];

    query.after_us = 0;
    query.after_id = STR_NONE;
    query.paused = false;
    query.limit = CHUNK;
    out->total_running = 0;
    while (count == CHUNK) {
        auto_arena struct arena scratch = {0};
        struct store_sandbox *rows;

        if (store_sandbox_page(all->store, &query, &scratch, &rows, &count, err) < 0)
            return -1;
        for (size_t i = 0; i < count; i++)
            out->total_running += has_metadata(filter, rows[i].metadata);
        if (count && str_copy(rows[count - 1].id, last, sizeof(last))) {
            query.after_us = rows[count - 1].started_at_us;
            query.after_id = str_of(last);
        }
    }
    return 0;
}

static int count_running(struct sandboxes *all, const struct sandbox_filter *filter,
                         const struct store_sandbox_query *query, struct sandbox_page *out,
                         struct error *err)
{
    out->total_running = table_running_of(all, filter->team_id);
    if (!filter->running ||
        (!filter->metadata_count && !query->template_id.p && !query->started_after_us))
        return 0;
    if (!tags_say_all(filter, query))
        return count_compared(all, filter, query, out, err);
    return store_sandbox_count_running(all->store, query, &out->total_running, err);
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
        .limit = filter->limit + 1,
    };
    struct store_template template;

    *out = (struct sandbox_page){0};
    if (filter->limit < 1 || filter->limit > LIMIT_MAX)
        return error_set(err, ERROR_INVALID, "Limit must be from 1 to %d", LIMIT_MAX);
    if (filter->cursor.p && read_cursor(filter->cursor, arena, &query, err) < 0)
        return -1;
    out->items = arena_alloc(arena, filter->limit * sizeof(*out->items));
    if (!filter->running && !filter->paused)
        return 0;
    if (filter->template_name.p) {
        if (store_template_get(all->store, filter->team_id, filter->template_name, arena, &template,
                               err) < 0)
            return err->code == ERROR_NOT_FOUND ? 0 : -1;
        query.template_id = template.id;
    }
    add_tags(filter, arena, &query);
    if (query.tag_count < filter->metadata_count)
        query.limit = CHUNK;
    if (list_rows(&listing, &query, err) < 0)
        return -1;
    return count_running(all, filter, &query, out, err);
}
