#include "dockerfile/dockerfile.h"

#include "base/buf.h"
#include "dockerfile/words.h"

enum { TEXT_SHOWN = 400 };

struct reader {
    struct dockerfile *out;
    struct arena *arena;
    struct str rest; /* STR_NONE behind the last line */
    int line;        /* of the one read last */
    size_t capacity;
    struct error *err;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static struct str skip_blanks(struct str s)
{
    while (s.len && is_blank(s.p[0]))
        s = str_skip(s, 1);
    return s;
}

static bool next_line(struct reader *reader, struct str *out)
{
    if (!reader->rest.p)
        return false;
    *out = str_split(&reader->rest, '\n');
    reader->line++;
    /* What follows the last newline is no line. */
    if (!reader->rest.p && out->len == 0)
        return false;
    if (out->len && out->p[out->len - 1] == '\r')
        out->len--;
    return true;
}

/* "# name = value": a directive, when no other line stands before it. */
static bool read_directive(struct str line, struct str *name, struct str *value)
{
    line = str_trim(line);
    if (!line.len || line.p[0] != '#')
        return false;
    *value = str_skip(line, 1);
    *name = str_trim(str_split(value, '='));
    if (!value->p || !name->len || str_find(*name, ' ') >= 0)
        return false;
    *value = str_trim(*value);
    return true;
}

static int read_directives(struct reader *reader)
{
    struct dockerfile *out = reader->out;
    bool escape_seen = false;

    for (;;) {
        struct str before = reader->rest, line, name, value;

        if (!next_line(reader, &line))
            return 0;
        if (!read_directive(line, &name, &value) ||
            (!str_eq_nocase(name, STR("syntax")) && !str_eq_nocase(name, STR("escape")) &&
             !str_eq_nocase(name, STR("check")))) {
            reader->rest = before;
            reader->line--;
            return 0;
        }
        if (!str_eq_nocase(name, STR("escape")))
            continue;
        if (escape_seen || (!str_is(value, "\\") && !str_is(value, "`")))
            return error_set(reader->err, ERROR_INVALID,
                             "%s:%d: the directive 'escape' is given once, as \\ or `", out->file,
                             reader->line);
        out->escape = value.p[0];
        escape_seen = true;
    }
}

/* Does the line go on in the next one? Two escapes at its end are none. */
static bool cut_continuation(struct str *line, char escape)
{
    struct str s = *line;

    while (s.len && is_blank(s.p[s.len - 1]))
        s.len--;
    if (!s.len || s.p[s.len - 1] != escape || (s.len > 1 && s.p[s.len - 2] == escape))
        return false;
    s.len--;
    *line = s;
    return true;
}

static bool is_comment(struct str line)
{
    line = skip_blanks(line);
    return line.len && line.p[0] == '#';
}

/* One instruction on one line, from `line` on. */
static struct str join_lines(struct reader *reader, struct str line)
{
    struct buf joined;
    struct str out;
    bool more = cut_continuation(&line, reader->out->escape);

    buf_init(&joined, DOCKERFILE_MAX);
    (void)buf_add_str(&joined, skip_blanks(line));
    while (more && next_line(reader, &line)) {
        if (is_comment(line) || !str_trim(line).len)
            continue;
        more = cut_continuation(&line, reader->out->escape);
        (void)buf_add_str(&joined, line);
    }
    out = arena_str(reader->arena, buf_str(&joined));
    buf_done(&joined);
    return out;
}

/* ---- here-documents ---- */

/* The word at s, quotes included. */
static struct str word_at(struct str s, char escape)
{
    bool closed;

    return str_n(s.p, words_length(s, escape, &closed));
}

static bool name_valid(struct str name)
{
    for (size_t i = 0; i < name.len; i++)
        if (strchr("<>|&;()$`\\\"' \t", name.p[i]))
            return false;
    return name.len > 0;
}

/* "<<NAME", "<<-NAME", "3<<'NAME'". */
static bool heredoc_of(struct str word, struct dockerfile_heredoc *out, bool *chomp)
{
    struct str s = word;

    while (s.len && s.p[0] >= '0' && s.p[0] <= '9')
        s = str_skip(s, 1);
    if (!str_starts(s, STR("<<")))
        return false;
    s = str_skip(s, 2);
    *chomp = s.len && s.p[0] == '-';
    if (*chomp)
        s = str_skip(s, 1);
    *out = (struct dockerfile_heredoc){.word = word, .name = s};
    if (s.len >= 2 && (s.p[0] == '\'' || s.p[0] == '"') && s.p[s.len - 1] == s.p[0]) {
        out->name = str_n(s.p + 1, s.len - 2);
        out->quoted = true;
    }
    return name_valid(out->name);
}

static struct str skip_tabs(struct str line)
{
    while (line.len && line.p[0] == '\t')
        line = str_skip(line, 1);
    return line;
}

static int read_heredoc(struct reader *reader, int first, struct dockerfile_heredoc *doc,
                        bool chomp)
{
    const char *begin = reader->rest.p;
    struct buf content;
    struct str line;

    buf_init(&content, DOCKERFILE_MAX);
    while (next_line(reader, &line)) {
        if (chomp)
            line = skip_tabs(line);
        if (str_eq(line, doc->name)) {
            doc->raw = str_n(begin, (size_t)(line.p + line.len - begin));
            doc->content = arena_str(reader->arena, buf_str(&content));
            buf_done(&content);
            return 0;
        }
        (void)buf_add_str(&content, line);
        (void)buf_add_char(&content, '\n');
    }
    buf_done(&content);
    return error_set(reader->err, ERROR_INVALID,
                     "%s:%d: the here-document '%.*s' does not end: a line '%.*s' is missing",
                     reader->out->file, first, STR_ARG(doc->name), STR_ARG(doc->name));
}

static int read_heredocs(struct reader *reader, struct dockerfile_instruction *in)
{
    struct dockerfile_heredoc docs[DOCKERFILE_HEREDOCS_MAX];
    struct str rest = in->rest;
    size_t count = 0;

    for (rest = skip_blanks(rest); rest.len; rest = skip_blanks(rest)) {
        struct str word = word_at(rest, reader->out->escape);
        bool chomp;

        rest = str_skip(rest, word.len ? word.len : 1);
        if (count == DOCKERFILE_HEREDOCS_MAX)
            return error_set(reader->err, ERROR_INVALID, "%s:%d: more than %d here-documents",
                             reader->out->file, in->line, DOCKERFILE_HEREDOCS_MAX);
        if (!heredoc_of(word, &docs[count], &chomp))
            continue;
        if (read_heredoc(reader, in->line, &docs[count], chomp) < 0)
            return -1;
        count++;
    }
    if (count) {
        in->heredocs = arena_alloc(reader->arena, count * sizeof(docs[0]));
        memcpy(in->heredocs, docs, count * sizeof(docs[0]));
        in->heredoc_count = count;
    }
    return 0;
}

/* ---- instructions ---- */

static struct str capitals(struct arena *arena, struct str s)
{
    struct str copy = arena_str(arena, s);
    char *p = (char *)(uintptr_t)copy.p;

    for (size_t i = 0; i < copy.len; i++)
        if (p[i] >= 'a' && p[i] <= 'z')
            p[i] = (char)(p[i] - ('a' - 'A'));
    return copy;
}

static struct dockerfile_instruction *add_instruction(struct reader *reader)
{
    struct dockerfile *out = reader->out;

    if (out->count == reader->capacity) {
        size_t capacity = reader->capacity ? reader->capacity * 2 : 32;
        struct dockerfile_instruction *grown =
            arena_alloc(reader->arena, capacity * sizeof(*grown));

        if (out->count)
            memcpy(grown, out->instructions, out->count * sizeof(*grown));
        out->instructions = grown;
        reader->capacity = capacity;
    }
    return &out->instructions[out->count++];
}

/* For people: one line, not too long, all of it characters. */
static struct str shown(struct arena *arena, struct str keyword, struct str rest)
{
    struct str text =
        str_of(arena_printf(arena, "%.*s %.*s", STR_ARG(keyword), STR_ARG(str_trim(rest))));
    size_t len = text.len < TEXT_SHOWN ? text.len : TEXT_SHOWN;

    while (len && len < text.len && ((unsigned char)text.p[len] & 0xc0) == 0x80)
        len--;
    return str_trim(str_n(text.p, len));
}

static int read_instruction(struct reader *reader, struct str line)
{
    struct dockerfile_instruction *in;
    int first = reader->line;
    struct str joined = join_lines(reader, line), word = joined;
    size_t len = 0;

    if (reader->out->count == DOCKERFILE_INSTRUCTIONS_MAX)
        return error_set(reader->err, ERROR_INVALID, "%s:%d: more than %d instructions",
                         reader->out->file, first, DOCKERFILE_INSTRUCTIONS_MAX);
    while (len < word.len && !is_blank(word.p[len]))
        len++;
    word.len = len;
    if (!word.len)
        return 0; /* an escape alone, and nothing behind it */
    in = add_instruction(reader);
    *in = (struct dockerfile_instruction){.line = first,
                                          .keyword = capitals(reader->arena, word),
                                          .rest = str_trim(str_skip(joined, len))};
    in->text = shown(reader->arena, in->keyword, in->rest);
    if (str_is(in->keyword, "RUN") || str_is(in->keyword, "COPY") || str_is(in->keyword, "ADD"))
        return read_heredocs(reader, in);
    return 0;
}

int dockerfile_parse(struct str text, const char *file, struct arena *arena, struct dockerfile *out,
                     struct error *err)
{
    struct reader reader = {.out = out, .arena = arena, .rest = text, .err = err};
    struct str line;

    *out = (struct dockerfile){.file = file, .escape = '\\'};
    if (text.len > DOCKERFILE_MAX)
        return error_set(err, ERROR_LIMIT, "%s is longer than %d bytes", file, DOCKERFILE_MAX);
    if (!str_valid_utf8(text) || (text.len && memchr(text.p, '\0', text.len)))
        return error_set(err, ERROR_INVALID, "%s is not a text (UTF-8)", file);
    if (str_starts(reader.rest, STR("\xef\xbb\xbf")))
        reader.rest = str_skip(reader.rest, 3);
    if (read_directives(&reader) < 0)
        return -1;
    while (next_line(&reader, &line))
        if (str_trim(line).len && !is_comment(line) && read_instruction(&reader, line) < 0)
            return -1;
    return 0;
}
