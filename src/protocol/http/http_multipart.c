/* How it works
 *
 * A part ends where CR LF "--" boundary stands. Data is searched in place; only when a piece ends
 * with something that may become that delimiter, or inside of part headers, the bytes are carried
 * over to the next feed. The very first delimiter may stand at the very beginning: the reader acts
 * as if CR LF had been before it. */
#include "protocol/http/http_multipart.h"

#include "base/alloc.h"
#include "base/encode.h"

enum { BOUNDARY_MAX = 70, PART_HEAD_MAX = 16 * 1024, CARRY_MAX = PART_HEAD_MAX + 1024 };

enum part_state {
    PART_PREAMBLE, /* before the first delimiter; dropped */
    PART_TAIL,     /* behind a delimiter: "--", or blanks and a line end */
    PART_HEAD,     /* header lines up to the empty one */
    PART_BODY,
    PART_END, /* behind the closing delimiter; dropped */
};

struct http_multipart {
    const struct http_multipart_events *events;
    void *arg;
    enum part_state state;
    bool failed;
    size_t delimiter_len;
    char delimiter[BOUNDARY_MAX + 4]; /* CR LF "--" boundary */
    struct buf carry;
};

/* Value of a parameter of a header such as `form-data; name="x"`, unquoted into out. */
static bool get_parameter(struct str value, struct str wanted, struct buf *out)
{
    struct str rest = value;

    (void)str_split(&rest, ';');
    while (rest.p) {
        struct str name;
        size_t i = 0;

        while (i < rest.len && rest.p[i] != '=' && rest.p[i] != ';')
            i++;
        name = str_trim(str_n(rest.p, i));
        rest = str_skip(rest, i);
        if (!rest.len)
            return false;
        if (rest.p[0] == ';') {
            rest = str_skip(rest, 1);
            continue;
        }
        rest = str_skip(rest, 1);
        while (rest.len && (rest.p[0] == ' ' || rest.p[0] == '\t'))
            rest = str_skip(rest, 1);
        buf_clear(out);
        if (rest.len && rest.p[0] == '"') {
            for (i = 1; i < rest.len && rest.p[i] != '"'; i++) {
                if (rest.p[i] == '\\' && i + 1 < rest.len &&
                    (rest.p[i + 1] == '"' || rest.p[i + 1] == '\\'))
                    i++;
                (void)buf_add_char(out, rest.p[i]);
            }
            if (i >= rest.len)
                return false;
            rest = str_skip(rest, i + 1);
            (void)str_split(&rest, ';');
        } else {
            (void)buf_add_str(out, str_trim(str_split(&rest, ';')));
        }
        if (str_eq_nocase(name, wanted))
            return true;
    }
    return false;
}

static bool boundary_ok(struct str boundary)
{
    if (!boundary.len || boundary.len > BOUNDARY_MAX)
        return false;
    for (size_t i = 0; i < boundary.len; i++) {
        if (boundary.p[i] < ' ' || boundary.p[i] == 0x7f)
            return false;
    }
    return boundary.p[boundary.len - 1] != ' ';
}

struct http_multipart *http_multipart_new(struct str content_type,
                                          const struct http_multipart_events *events, void *arg)
{
    struct str rest = content_type, type = str_trim(str_split(&rest, ';'));
    struct http_multipart *reader;
    auto_buf struct buf boundary = {0};

    buf_init(&boundary, 1024);
    if (!str_eq_nocase(type, STR("multipart/form-data")) ||
        !get_parameter(content_type, STR("boundary"), &boundary) || boundary.overflowed ||
        !boundary_ok(buf_str(&boundary)))
        return NULL;
    reader = xcalloc(1, sizeof(*reader));
    reader->events = events;
    reader->arg = arg;
    memcpy(reader->delimiter, "\r\n--", 4);
    memcpy(reader->delimiter + 4, boundary.p, boundary.len);
    reader->delimiter_len = boundary.len + 4;
    buf_init(&reader->carry, CARRY_MAX);
    (void)buf_add_str(&reader->carry, STR("\r\n"));
    return reader;
}

void http_multipart_free(struct http_multipart *reader)
{
    if (!reader)
        return;
    buf_done(&reader->carry);
    free(reader);
}

bool http_multipart_complete(const struct http_multipart *reader)
{
    return reader->state == PART_END && !reader->failed;
}

/* How many bytes at the end of `in` may be the beginning of the delimiter. */
static size_t open_tail(const struct http_multipart *reader, struct str in)
{
    size_t longest = reader->delimiter_len - 1;
    size_t from = in.len > longest ? in.len - longest : 0;

    for (size_t i = from; i < in.len; i++) {
        const char *cr = memchr(in.p + i, '\r', in.len - i);

        if (!cr)
            return 0;
        i = (size_t)(cr - in.p);
        if (memcmp(cr, reader->delimiter, in.len - i) == 0)
            return in.len - i;
    }
    return 0;
}

/* Part or preamble bytes. Returns how many were used; the delimiter is used with them. */
static size_t take_data(struct http_multipart *reader, struct str in)
{
    const char *found = memmem(in.p, in.len, reader->delimiter, reader->delimiter_len);
    size_t len = found ? (size_t)(found - in.p) : in.len - open_tail(reader, in);
    bool inside = reader->state == PART_BODY;

    if (inside && len && reader->events->on_data(reader->arg, str_n(in.p, len)) < 0)
        reader->failed = true;
    if (!found || reader->failed)
        return len;
    if (inside && reader->events->on_part_end(reader->arg) < 0)
        reader->failed = true;
    reader->state = PART_TAIL;
    return len + reader->delimiter_len;
}

static size_t take_tail(struct http_multipart *reader, struct str in)
{
    size_t blanks = 0;

    if (in.len < 2)
        return 0;
    if (in.p[0] == '-' && in.p[1] == '-') {
        reader->state = PART_END;
        return 2;
    }
    while (blanks < in.len && (in.p[blanks] == ' ' || in.p[blanks] == '\t'))
        blanks++;
    if (in.len - blanks < 2) {
        reader->failed = blanks > 256;
        return 0;
    }
    if (in.p[blanks] != '\r' || in.p[blanks + 1] != '\n') {
        reader->failed = true;
        return 0;
    }
    reader->state = PART_HEAD;
    return blanks; /* the line end stays: with it an empty head is CR LF CR LF too */
}

static int begin_part(struct http_multipart *reader, struct str disposition)
{
    auto_buf struct buf name = {0}, filename = {0}, encoded = {0};
    struct str name_str = STR_NONE, filename_str = STR_NONE;

    buf_init(&name, PART_HEAD_MAX);
    buf_init(&filename, PART_HEAD_MAX);
    buf_init(&encoded, PART_HEAD_MAX);
    if (get_parameter(disposition, STR("name"), &name))
        name_str = buf_str(&name);
    if (get_parameter(disposition, STR("filename*"), &encoded)) {
        struct str rest = buf_str(&encoded), charset = str_split(&rest, '\'');

        (void)str_split(&rest, '\'');
        if (str_eq_nocase(charset, STR("utf-8")) && rest.p && url_decode(rest, false, &filename))
            filename_str = buf_str(&filename);
    }
    if (!filename_str.p && get_parameter(disposition, STR("filename"), &filename))
        filename_str = buf_str(&filename);
    return reader->events->on_part(reader->arg, name_str, filename_str);
}

static size_t take_head(struct http_multipart *reader, struct str in)
{
    const char *end = memmem(in.p, in.len, "\r\n\r\n", 4);
    struct str disposition = STR_NONE, lines;
    size_t len;

    if (!end) {
        reader->failed = in.len > PART_HEAD_MAX;
        return 0;
    }
    len = (size_t)(end - in.p) + 4;
    lines = str_n(in.p, len);
    reader->failed = len > PART_HEAD_MAX;
    while (lines.p && !reader->failed) {
        struct str line = str_split(&lines, '\n'), name;

        if (line.len && line.p[line.len - 1] == '\r')
            line.len--;
        name = str_split(&line, ':');
        if (line.p && str_eq_nocase(str_trim(name), STR("content-disposition")))
            disposition = str_trim(line);
    }
    if (!disposition.p || reader->failed || begin_part(reader, disposition) < 0) {
        reader->failed = true;
        return 0;
    }
    reader->state = PART_BODY;
    return len;
}

/* Uses what it can of `in`; the rest has to come again with more behind it. */
static size_t take(struct http_multipart *reader, struct str in)
{
    size_t used = 0;

    while (used < in.len && !reader->failed) {
        struct str rest = str_skip(in, used);
        enum part_state state = reader->state;
        size_t step = 0;

        switch (state) {
        case PART_PREAMBLE:
        case PART_BODY:
            step = take_data(reader, rest);
            break;
        case PART_TAIL:
            step = take_tail(reader, rest);
            break;
        case PART_HEAD:
            step = take_head(reader, rest);
            break;
        case PART_END:
            return in.len;
        }
        if (!step && state == reader->state)
            break;
        used += step;
    }
    return used;
}

int http_multipart_feed(struct http_multipart *reader, struct str data)
{
    /* Carried bytes are joined with as much new data as they may need, not with all of it. */
    while (reader->carry.len && data.len && !reader->failed) {
        size_t room = CARRY_MAX - reader->carry.len;
        size_t step = reader->state == PART_HEAD ? 1024 : 256;

        if (step > data.len)
            step = data.len;
        if (step > room) {
            reader->failed = true;
            break;
        }
        (void)buf_add(&reader->carry, data.p, step);
        data = str_skip(data, step);
        buf_drop(&reader->carry, take(reader, buf_str(&reader->carry)));
    }
    if (data.len && !reader->failed) {
        size_t used = take(reader, data);

        if (!reader->failed && !buf_add_str(&reader->carry, str_skip(data, used)))
            reader->failed = true;
    }
    return reader->failed ? -1 : 0;
}
