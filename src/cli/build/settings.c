#include "cli/build/settings.h"

#include "base/buf.h"
#include "base/near.h"
#include "protocol/json/json_shape.h"

struct reader {
    struct str rest;
    const char *file;
    int line;
    struct arena *arena;
    struct error *err;
};

static int fault(struct reader *reader, const char *what)
{
    return error_set(reader->err, ERROR_INVALID, "%s:%d: %s", reader->file, reader->line, what);
}

static void skip(struct reader *reader, size_t n)
{
    for (size_t i = 0; i < n && i < reader->rest.len; i++)
        reader->line += reader->rest.p[i] == '\n';
    reader->rest = str_skip(reader->rest, n);
}

/* Blanks, and with `lines` empty lines and comments. */
static void skip_blanks(struct reader *reader, bool lines)
{
    while (reader->rest.len) {
        char c = reader->rest.p[0];

        if (c == '#') {
            ptrdiff_t end = str_find(reader->rest, '\n');

            skip(reader, end < 0 ? reader->rest.len : (size_t)end);
        } else if (c == ' ' || c == '\t' || c == '\r' || (lines && c == '\n')) {
            skip(reader, 1);
        } else {
            return;
        }
    }
}

static int escaped(struct reader *reader, struct buf *out)
{
    static const char from[] = "\"\\nrtbfe", to[] = "\"\\\n\r\t\b\f\033";
    const char *at = reader->rest.len > 1 ? strchr(from, reader->rest.p[1]) : NULL;

    if (!at || !*at)
        return fault(reader, "this escape is not known");
    (void)buf_add_char(out, to[at - from]);
    skip(reader, 2);
    return 0;
}

/* From the quote on: "…", '…', and both with three quotes, over several lines. */
static int read_text(struct reader *reader, struct str *out)
{
    char quote = reader->rest.p[0];
    char ends[] = {quote, quote, quote};
    size_t quotes = str_starts(reader->rest, str_n(ends, 3)) ? 3 : 1;
    auto_buf struct buf text = {0};

    buf_init(&text, SETTINGS_MAX);
    skip(reader, quotes);
    if (quotes == 3 && str_starts(reader->rest, STR("\n")))
        skip(reader, 1);
    while (!str_starts(reader->rest, str_n(ends, quotes))) {
        if (!reader->rest.len || (quotes == 1 && reader->rest.p[0] == '\n'))
            return fault(reader, "a text has no end");
        if (quote == '"' && reader->rest.p[0] == '\\') {
            if (escaped(reader, &text) < 0)
                return -1;
            continue;
        }
        (void)buf_add_char(&text, reader->rest.p[0]);
        skip(reader, 1);
    }
    skip(reader, quotes);
    *out = arena_str(reader->arena, buf_str(&text));
    return 0;
}

static int read_number(struct reader *reader, int64_t *out)
{
    size_t len = 0;

    while (len < reader->rest.len && reader->rest.p[len] >= '0' && reader->rest.p[len] <= '9')
        len++;
    if (!str_to_i64(str_n(reader->rest.p, len), out))
        return fault(reader, "this needs a number");
    skip(reader, len);
    return 0;
}

struct setting {
    const char *name;
    struct str *text;
    int64_t *number;
};

enum { SETTINGS = 13 };

static int read_value(struct reader *reader, const struct setting *setting)
{
    struct str ignored;
    char c = reader->rest.len ? reader->rest.p[0] : '\0';

    if (setting->number)
        return read_number(reader, setting->number);
    if (c != '"' && c != '\'')
        return fault(reader, "this needs a text in quotes");
    return read_text(reader, setting->text ? setting->text : &ignored);
}

static int unknown(struct reader *reader, struct str name, const struct setting *known)
{
    const char *names[SETTINGS + 1] = {NULL}, *near;

    for (size_t i = 0; i < SETTINGS; i++)
        names[i] = known[i].name;
    near = near_word(name, names);
    return error_set(reader->err, ERROR_INVALID, "%s:%d: there is no setting '%.*s'%s%s%s",
                     reader->file, reader->line, STR_ARG(name), near ? "; did you mean '" : "",
                     near ? near : "", near ? "'?" : "");
}

static int read_setting(struct reader *reader, const struct setting *known)
{
    struct str name = reader->rest;
    size_t len = 0;

    while (len < name.len && !strchr(" \t\r\n=#", name.p[len]))
        len++;
    name.len = len;
    if (str_starts(name, STR("[")))
        return fault(reader, "tables are not known: all settings stand at the top");
    skip(reader, len);
    skip_blanks(reader, false);
    if (!str_starts(reader->rest, STR("=")))
        return fault(reader, "this is not 'name = value'");
    skip(reader, 1);
    skip_blanks(reader, false);
    for (size_t i = 0; i < SETTINGS; i++)
        if (str_is(name, known[i].name))
            return read_value(reader, &known[i]);
    return unknown(reader, name, known);
}

int settings_parse(struct str text, const char *file, struct arena *arena,
                   struct build_settings *out, struct error *err)
{
    struct reader reader = {.rest = text, .file = file, .line = 1, .arena = arena, .err = err};
    struct str id = STR_NONE;
    /* Without a place for it: E2B's own, which mean nothing here. */
    const struct setting known[SETTINGS] = {
        {"template_name", &out->name, NULL},
        {"name", &out->name, NULL},
        {"template_id", &id, NULL},
        {"dockerfile", &out->dockerfile, NULL},
        {"start_cmd", &out->start_cmd, NULL},
        {"ready_cmd", &out->ready_cmd, NULL},
        {"cpu_count", NULL, &out->cpu_count},
        {"memory_mb", NULL, &out->memory_mb},
        {"disk_mb", NULL, &out->disk_mb},
        {"disk_size_mb", NULL, &out->disk_mb},
        {"team_id", NULL, NULL},
        {"project_id", NULL, NULL},
        {"build_id", NULL, NULL},
    };

    *out = (struct build_settings){0};
    if (text.len > SETTINGS_MAX || (text.len && memchr(text.p, '\0', text.len)))
        return error_set(err, ERROR_INVALID, "%s is not a text of at most %d bytes", file,
                         SETTINGS_MAX);
    for (skip_blanks(&reader, true); reader.rest.len; skip_blanks(&reader, true)) {
        if (read_setting(&reader, known) < 0)
            return -1;
        skip_blanks(&reader, false);
        if (reader.rest.len && reader.rest.p[0] != '\n')
            return fault(&reader, "something stands behind the value");
    }
    if (!out->name.p)
        out->name = id;
    return 0;
}

void settings_apply(const struct build_settings *settings, json_t *recipe)
{
    if (settings->start_cmd.p)
        (void)json_object_set_new(recipe, "startCmd", json_str(settings->start_cmd));
    if (settings->ready_cmd.p)
        (void)json_object_set_new(recipe, "readyCmd", json_str(settings->ready_cmd));
}
