#include "cli/core/cli_pattern.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_table.h"
#include "protocol/json/json_shape.h"

enum { LINE_MAX_BYTES = 1024 * 1024 };

/* What stands between "{{" and "}}", and what follows; false when the pattern has no more of them. out->p is NULL when
 * one is not closed. */
static bool next_hole(struct str *rest, struct str *before, struct str *out)
{
    ptrdiff_t open = str_find_str(*rest, STR("{{")), close;

    if (open < 0)
        return false;
    *before = str_n(rest->p, (size_t)open);
    *rest = str_skip(*rest, (size_t)open + 2);
    close = str_find_str(*rest, STR("}}"));
    *out = close < 0 ? STR_NONE : str_trim(str_n(rest->p, (size_t)close));
    if (close >= 0)
        *rest = str_skip(*rest, (size_t)close + 2);
    return true;
}

static bool take_json(struct str *hole)
{
    if (!str_starts(*hole, STR("json ")))
        return false;
    *hole = str_trim(str_skip(*hole, 5));
    return true;
}

int cli_pattern_check(const char *pattern, struct error *err)
{
    struct str rest = str_of(pattern), before, hole;

    while (next_hole(&rest, &before, &hole)) {
        if (!hole.p)
            return error_set(err, ERROR_INVALID, "a '{{' is not closed");
        (void)take_json(&hole);
        if (!str_starts(hole, STR(".")))
            return error_set(
                err, ERROR_INVALID,
                "'{{%.*s}}' is no member: write {{.id}}, {{.metadata.owner}} or {{json .}}",
                STR_ARG(hole));
    }
    return 0;
}

static void add_plain(struct buf *out, struct str text)
{
    for (size_t i = 0; text.p && i < text.len; i++) {
        bool escaped = text.p[i] == '\\' && i + 1 < text.len;

        if (escaped && (text.p[i + 1] == 't' || text.p[i + 1] == 'n'))
            (void)buf_add_char(out, text.p[++i] == 't' ? '\t' : '\n');
        else
            (void)buf_add_char(out, text.p[i]);
    }
}

static void add_member(struct buf *out, const json_t *row, struct str hole)
{
    bool as_json = take_json(&hole);
    auto_free char *path = str_dup(str_skip(hole, 1)), *text = NULL;
    const json_t *value = path[0] ? cli_print_member(row, path) : row;

    text =
        as_json || !path[0] ? (value ? json_text(value) : xstrdup("null")) : cli_print_text(value);
    (void)buf_add_str(out, str_of(cli_defuse(text, false)));
}

char *cli_pattern_fill(const char *pattern, const json_t *row)
{
    struct str rest = str_of(pattern), before, hole;
    struct buf out;

    buf_init(&out, LINE_MAX_BYTES);
    while (next_hole(&rest, &before, &hole) && hole.p) {
        add_plain(&out, before);
        add_member(&out, row, hole);
    }
    add_plain(&out, rest);
    return buf_take(&out);
}
