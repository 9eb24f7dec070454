/* The metadata filter is encoded three times by the SDKs: each name and value, then the list of
 * pairs, then the whole as one parameter. So {'a b': 'c&d'} comes as
 * metadata=a%252520b%3Dc%252526d; undone in the reverse order: the parameter, the list (whose '&'
 * and '=' then separate), each part. */
#include "edge/api_e2b/api_query.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/encode.h"
#include "protocol/http/http.h"
#include "protocol/json/json_shape.h"

static int bad(struct error *err, const char *name, const char *why)
{
    return error_set(err, ERROR_INVALID, "query parameter '%s' %s", name, why);
}

/* %XX-decoded text in the arena; STR_NONE when broken, not UTF-8, or with a NUL inside. */
static struct str decoded(struct str raw, struct arena *arena)
{
    auto_buf struct buf text = {0};

    buf_init(&text, HTTP_URL_MAX);
    if (!url_decode(raw, true, &text))
        return STR_NONE;
    if (text.len == 0)
        return STR("");
    if (memchr(text.p, '\0', text.len) || !str_valid_utf8(buf_str(&text)))
        return STR_NONE;
    return arena_str(arena, buf_str(&text));
}

static int read_metadata(struct str value, struct arena *arena, struct api_list_query *out,
                         struct error *err)
{
    struct str pairs = decoded(value, arena);

    if (!pairs.p)
        return bad(err, "metadata", "is badly encoded");
    if (!out->metadata)
        out->metadata = json_object();
    while (pairs.len) {
        struct str value_part = str_split(&pairs, '&');
        struct str name_part = str_split(&value_part, '=');
        struct str name = decoded(name_part, arena), text = decoded(value_part, arena);

        if (!value_part.p || str_find(value_part, '=') >= 0 || name.len == 0)
            return bad(err, "metadata", "must be a list of name=value pairs joined by '&'");
        if (!name.p || !text.p)
            return bad(err, "metadata", "is badly encoded");
        (void)json_object_set_new(out->metadata, name.p, json_str(text));
    }
    return 0;
}

static int read_state(struct str value, struct arena *arena, struct api_list_query *out,
                      struct error *err)
{
    (void)arena;
    while (value.p) {
        struct str state = str_split(&value, ',');

        if (str_is(state, "running"))
            out->running = true;
        else if (str_is(state, "paused"))
            out->paused = true;
        else if (state.len)
            return bad(err, "state", "knows 'running' and 'paused' only");
    }
    return 0;
}

static int read_started_after(struct str value, struct arena *arena, struct api_list_query *out,
                              struct error *err)
{
    (void)arena;
    if (!clock_parse(value, &out->started_after_us))
        return bad(err, "startedAfter", "must be a time like 2026-01-31T12:00:00Z");
    return 0;
}

static int read_template(struct str value, struct arena *arena, struct api_list_query *out,
                         struct error *err)
{
    (void)arena;
    (void)err;
    out->template_name = value.len ? value : STR_NONE;
    return 0;
}

static int read_order(struct str value, struct arena *arena, struct api_list_query *out,
                      struct error *err)
{
    (void)arena;
    if (!str_is(value, "asc") && !str_is(value, "desc"))
        return bad(err, "order", "must be 'asc' or 'desc'");
    out->ascending = str_is(value, "asc");
    return 0;
}

static int read_limit(struct str value, struct arena *arena, struct api_list_query *out,
                      struct error *err)
{
    uint64_t limit;

    (void)arena;
    if (!str_to_u64(value, &limit) || limit < 1 || limit > 100)
        return bad(err, "limit", "must be a number from 1 to 100");
    out->limit = (size_t)limit;
    return 0;
}

static int read_cursor(struct str value, struct arena *arena, struct api_list_query *out,
                       struct error *err)
{
    (void)arena;
    (void)err;
    out->cursor = value.len ? value : STR_NONE;
    return 0;
}

static const struct {
    const char *name;
    int (*read)(struct str value, struct arena *arena, struct api_list_query *out,
                struct error *err);
} parameters[] = {
    {"metadata", read_metadata}, {"state", read_state}, {"startedAfter", read_started_after},
    {"template", read_template}, {"order", read_order}, {"limit", read_limit},
    {"nextToken", read_cursor},
};

static int read_pair(struct str name, struct str raw, struct arena *arena,
                     struct api_list_query *out, struct error *err)
{
    for (size_t i = 0; i < sizeof(parameters) / sizeof(parameters[0]); i++) {
        struct str value;

        if (!str_is(name, parameters[i].name))
            continue;
        value = decoded(raw, arena);
        if (!value.p)
            return bad(err, parameters[i].name, "is badly encoded");
        return parameters[i].read(value, arena, out, err);
    }
    return 0;
}

int api_query_list(struct str query, struct arena *arena, struct api_list_query *out,
                   struct error *err)
{
    *out = (struct api_list_query){.limit = 100};
    while (query.p) {
        struct str raw = str_split(&query, '&');
        struct str name = str_split(&raw, '=');

        /* "state%5B%5D" and the like are other people's parameters. */
        if (read_pair(name, raw, arena, out, err) < 0)
            return -1;
    }
    if (!out->running && !out->paused)
        out->running = out->paused = true;
    return 0;
}

void api_query_done(struct api_list_query *query)
{
    json_decref(query->metadata);
    query->metadata = NULL;
}

int api_query_get(struct str query, const char *name, struct arena *arena, struct str *out,
                  struct error *err)
{
    *out = STR_NONE;
    while (query.p) {
        struct str raw = str_split(&query, '&');

        if (!str_is(str_split(&raw, '='), name))
            continue;
        *out = decoded(raw, arena);
        if (!out->p)
            return bad(err, name, "is badly encoded");
        if (!out->len)
            *out = STR_NONE;
    }
    return 0;
}

int api_query_number(struct str query, const char *name, struct arena *arena, uint64_t fallback,
                     uint64_t max, uint64_t *out, struct error *err)
{
    struct str text;

    *out = fallback;
    if (api_query_get(query, name, arena, &text, err) < 0)
        return -1;
    if (text.p && (!str_to_u64(text, out) || *out > max))
        return error_set(err, ERROR_INVALID, "query parameter '%s' must be a number up to %llu",
                         name, (unsigned long long)max);
    return 0;
}

static const char *const levels[] = {"debug", "info", "warn", "error"};

const char *api_level_name(int64_t level)
{
    return level >= 0 && level <= 3 ? levels[level] : "info";
}

int api_query_level(struct str query, struct arena *arena, int64_t *out, struct error *err)
{
    struct str level;

    *out = 0;
    if (api_query_get(query, "level", arena, &level, err) < 0)
        return -1;
    for (int64_t i = 0; level.p && i <= 3; i++)
        if (str_is(level, levels[i])) {
            *out = i;
            return 0;
        }
    return level.p ? bad(err, "level", "must be debug, info, warn or error") : 0;
}

int api_query_backward(struct str query, struct arena *arena, bool *out, struct error *err)
{
    struct str direction;

    if (api_query_get(query, "direction", arena, &direction, err) < 0)
        return -1;
    if (direction.p && !str_is(direction, "forward") && !str_is(direction, "backward"))
        return bad(err, "direction", "must be 'forward' or 'backward'");
    *out = str_is(direction, "backward");
    return 0;
}
