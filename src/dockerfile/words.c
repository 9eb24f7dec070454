#include "dockerfile/words.h"

#include <jansson.h>

#include "protocol/json/json_shape.h"

enum { NESTING_MAX = 16 };

struct expansion {
    const struct words_lookup *lookup;
    struct buf *out;
    bool plain; /* quotes mean nothing */
    bool later; /* something was left for the server */
    unsigned depth;
    struct error *err;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

static bool starts_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool in_name(char c)
{
    return starts_name(c) || (c >= '0' && c <= '9');
}

static int expand_until(struct expansion *ex, struct str *text, char end);

/* A character that stands for itself. */
static void add_plain(struct expansion *ex, char c)
{
    /* A dollar for the server: what a variable that nobody sets is by default. */
    if (c == '$' && ex->lookup->defer)
        (void)buf_add_str(ex->out, STR("${QUICKSAND_DOLLAR:-$}"));
    else
        (void)buf_add_char(ex->out, c);
}

static void add_value(struct expansion *ex, struct str value)
{
    for (size_t i = 0; i < value.len; i++)
        add_plain(ex, value.p[i]);
}

/* What stands behind the operator, expanded, into `out`. */
static int expand_word(struct expansion *ex, struct str *text, struct buf *out)
{
    struct expansion inner = *ex;

    inner.out = out;
    inner.depth++;
    if (inner.depth > NESTING_MAX)
        return error_set(ex->err, ERROR_INVALID, "variables are nested too deeply");
    if (expand_until(&inner, text, '}') < 0)
        return -1;
    ex->later = inner.later;
    return 0;
}

struct braces {
    struct str name;
    bool colon;  /* empty is the same as unset */
    char op;     /* '-', '+', '?' or '\0' */
    size_t skip; /* bytes of "${NAME:-" */
};

static int read_braces(struct expansion *ex, struct str text, struct braces *out)
{
    size_t len = 2;

    while (len < text.len && in_name(text.p[len]))
        len++;
    *out = (struct braces){.name = str_n(text.p + 2, len - 2)};
    if (!out->name.len || !starts_name(out->name.p[0]))
        return error_set(ex->err, ERROR_INVALID, "'%.*s' names no variable",
                         STR_ARG(str_n(text.p, text.len < 40 ? text.len : 40)));
    if (len < text.len && text.p[len] == ':') {
        out->colon = true;
        len++;
    }
    if (len < text.len && strchr("-+?", text.p[len]))
        out->op = text.p[len++];
    else if (out->colon || len == text.len || text.p[len] != '}')
        return error_set(ex->err, ERROR_INVALID,
                         "of ${%.*s…} only ${name}, ${name:-word}, ${name:+word} and "
                         "${name:?word} are known",
                         STR_ARG(out->name));
    out->skip = len;
    return 0;
}

static int not_known(struct expansion *ex, struct str name)
{
    return error_set(ex->err, ERROR_INVALID,
                     "the value of $%.*s is not known here: set it with ARG or ENV", STR_ARG(name));
}

/* The server will know; the whole of it is left for then. */
static int leave(struct expansion *ex, const struct braces *in, struct str word)
{
    if (in->op == '?' || (!ex->lookup->defer && in->op != '-'))
        return not_known(ex, in->name);
    if (!ex->lookup->defer) {
        (void)buf_add_str(ex->out, word);
        return 0;
    }
    ex->later = true;
    (void)buf_printf(ex->out, "${%.*s", STR_ARG(in->name));
    if (in->op)
        (void)buf_printf(ex->out, ":%c%.*s", in->op, STR_ARG(word));
    (void)buf_add_char(ex->out, '}');
    return 0;
}

static int choose(struct expansion *ex, const struct braces *in, struct str word)
{
    struct str value = STR_NONE;
    enum words_known known = ex->lookup->find(ex->lookup->arg, in->name, &value);
    bool set = known == WORDS_SET && (!in->colon || value.len);

    if (known == WORDS_LATER)
        return leave(ex, in, word);
    if (in->op == '?' && !set)
        return error_set(ex->err, ERROR_INVALID, "%.*s: %.*s", STR_ARG(in->name),
                         STR_ARG(word.len ? word : STR("not set")));
    if (in->op == '+' ? set : (in->op == '-' && !set))
        (void)buf_add_str(ex->out, word); /* has its escapes already */
    else if (in->op != '+' && set)
        add_value(ex, value);
    return 0;
}

/* *text begins with "$"; it is behind the variable afterwards. */
static int expand_variable(struct expansion *ex, struct str *text)
{
    struct braces in = {0};
    auto_buf struct buf word = {0};

    buf_init(&word, WORDS_TEXT_MAX);
    if (text->len > 1 && text->p[1] == '{') {
        if (read_braces(ex, *text, &in) < 0)
            return -1;
        *text = str_skip(*text, in.skip);
        if (in.op && expand_word(ex, text, &word) < 0)
            return -1;
        if (!text->len || text->p[0] != '}')
            return error_set(ex->err, ERROR_INVALID, "${%.*s has no end", STR_ARG(in.name));
        *text = str_skip(*text, 1);
        return choose(ex, &in, buf_str(&word));
    }
    if (text->len < 2 || !starts_name(text->p[1])) {
        add_plain(ex, '$');
        *text = str_skip(*text, 1);
        return 0;
    }
    in.name = str_n(text->p + 1, 1);
    while (in.name.len + 1 < text->len && in_name(in.name.p[in.name.len]))
        in.name.len++;
    *text = str_skip(*text, in.name.len + 1);
    return choose(ex, &in, STR_NONE);
}

static int expand_single(struct expansion *ex, struct str *text)
{
    ptrdiff_t end = str_find(str_skip(*text, 1), '\'');

    if (end < 0)
        return error_set(ex->err, ERROR_INVALID, "a single quote is not closed");
    add_value(ex, str_n(text->p + 1, (size_t)end));
    *text = str_skip(*text, (size_t)end + 2);
    return 0;
}

static int expand_double(struct expansion *ex, struct str *text)
{
    char escape = ex->lookup->escape;

    for (*text = str_skip(*text, 1); text->len && text->p[0] != '"';) {
        if (text->p[0] == '$') {
            if (expand_variable(ex, text) < 0)
                return -1;
            continue;
        }
        if (text->p[0] == escape && text->len > 1 &&
            (text->p[1] == '"' || text->p[1] == '$' || text->p[1] == escape))
            *text = str_skip(*text, 1);
        add_plain(ex, text->p[0]);
        *text = str_skip(*text, 1);
    }
    if (!text->len)
        return error_set(ex->err, ERROR_INVALID, "a double quote is not closed");
    *text = str_skip(*text, 1);
    return 0;
}

/* Up to `end` outside of quotes, which stays; '\0' = all of it. */
static int expand_until(struct expansion *ex, struct str *text, char end)
{
    while (text->len && !(end && text->p[0] == end)) {
        char c = text->p[0];
        int rc = 0;

        if (c == '$') {
            rc = expand_variable(ex, text);
        } else if (c == '\'' && !ex->plain) {
            rc = expand_single(ex, text);
        } else if (c == '"' && !ex->plain) {
            rc = expand_double(ex, text);
        } else {
            if (c == ex->lookup->escape &&
                (!ex->plain ||
                 (text->len > 1 && (text->p[1] == '$' || text->p[1] == ex->lookup->escape))))
                *text = str_skip(*text, 1);
            if (text->len) {
                add_plain(ex, text->p[0]);
                *text = str_skip(*text, 1);
            }
        }
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int expand(struct expansion *ex, struct str text)
{
    if (expand_until(ex, &text, '\0') < 0)
        return -1;
    return ex->out->overflowed ? error_set(ex->err, ERROR_LIMIT, "the text gets too long") : 0;
}

int words_expand(struct str text, const struct words_lookup *lookup, struct buf *out,
                 bool *out_later, struct error *err)
{
    struct expansion ex = {.lookup = lookup, .out = out, .err = err};
    int rc = expand(&ex, text);

    if (out_later)
        *out_later = ex.later;
    return rc;
}

int words_expand_plain(struct str text, const struct words_lookup *lookup, struct buf *out,
                       struct error *err)
{
    struct expansion ex = {.lookup = lookup, .out = out, .plain = true, .err = err};

    return expand(&ex, text);
}

/* ---- splitting ---- */

static void add_word(struct arena *arena, struct words *out, struct str word)
{
    /* Powers of two: the room of a list is known by its count. */
    if ((out->count & (out->count - 1)) == 0) {
        size_t room = out->count ? out->count * 2 : 1;
        struct str *grown = arena_alloc(arena, room * sizeof(*grown));

        if (out->count)
            memcpy(grown, out->items, out->count * sizeof(*grown));
        out->items = grown;
    }
    out->items[out->count++] = word;
}

void words_split(struct str text, struct arena *arena, struct words *out)
{
    *out = (struct words){0};
    for (;;) {
        size_t len = 0;

        while (text.len && is_blank(text.p[0]))
            text = str_skip(text, 1);
        if (!text.len)
            return;
        while (len < text.len && !is_blank(text.p[len]))
            len++;
        add_word(arena, out, str_n(text.p, len));
        text = str_skip(text, len);
    }
}

size_t words_length(struct str text, char escape, bool *out_closed)
{
    char quote = '\0';
    size_t i = 0;

    for (; i < text.len; i++) {
        char c = text.p[i];

        if (c == escape && quote != '\'' && i + 1 < text.len)
            i++;
        else if (quote)
            quote = c == quote ? '\0' : quote;
        else if (c == '\'' || c == '"')
            quote = c;
        else if (is_blank(c))
            break;
    }
    *out_closed = !quote;
    return i;
}

int words_split_quoted(struct str text, char escape, struct arena *arena, struct words *out,
                       struct error *err)
{
    *out = (struct words){0};
    for (;;) {
        bool closed;
        size_t len;

        while (text.len && is_blank(text.p[0]))
            text = str_skip(text, 1);
        if (!text.len)
            return 0;
        len = words_length(text, escape, &closed);
        if (!closed)
            return error_set(err, ERROR_INVALID, "a quote is not closed");
        add_word(arena, out, str_n(text.p, len));
        text = str_skip(text, len);
    }
}

bool words_json(struct str text, struct arena *arena, struct words *out)
{
    auto_json json_t *list = NULL;
    struct error ignored = {0};

    *out = (struct words){0};
    text = str_trim(text);
    if (!text.len || text.p[0] != '[' || json_parse(text, &list, &ignored) < 0)
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);

        if (!json_is_string(item))
            return false;
        add_word(arena, out,
                 arena_str(arena, str_n(json_string_value(item), json_string_length(item))));
    }
    return true;
}

bool words_flag(struct str *rest, char escape, struct str *out_name, struct str *out_value)
{
    struct str text = str_trim(*rest), word;
    bool closed;

    word = str_n(text.p, words_length(text, escape, &closed));
    if (!str_starts(word, STR("--")))
        return false;
    *rest = str_trim(str_skip(text, word.len));
    *out_value = str_skip(word, 2);
    *out_name = str_split(out_value, '=');
    return true;
}

void words_quote(struct buf *out, struct str word)
{
    bool plain = word.len > 0;

    for (size_t i = 0; i < word.len; i++)
        if (!in_name(word.p[i]) && !strchr("-./:=,@%+", word.p[i]))
            plain = false;
    if (plain) {
        (void)buf_add_str(out, word);
        return;
    }
    (void)buf_add_char(out, '\'');
    for (size_t i = 0; i < word.len; i++)
        if (word.p[i] == '\'')
            (void)buf_add_str(out, STR("'\\''"));
        else
            (void)buf_add_char(out, word.p[i]);
    (void)buf_add_char(out, '\'');
}
