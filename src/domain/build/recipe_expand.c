/* Variables in what steps say. */
#include "base/buf.h"
#include "domain/build/recipe.h"

enum { EXPANDED_MAX = 1024 * 1024, DEPTH_MAX = 8 };

static bool name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

static size_t name_len(struct str text)
{
    size_t len = 0;

    while (len < text.len && name_char(text.p[len], len == 0))
        len++;
    return len;
}

struct expansion {
    recipe_lookup_fn *lookup;
    void *arg;
    struct buf *out;
};

static void expand(const struct expansion *by, struct str text, int depth);

/* Index of the brace that ends it, or -1. */
static ptrdiff_t closing(struct str text)
{
    int open = 1;

    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] == '}' && --open == 0)
            return (ptrdiff_t)i;
        if (text.p[i] == '$' && i + 1 < text.len && text.p[i + 1] == '{')
            open++;
    }
    return -1;
}

/* What stands between the braces. False: it is nothing we know. */
static bool expand_braced(const struct expansion *by, struct str inner, int depth)
{
    size_t len = name_len(inner);
    struct str value = by->lookup(by->arg, str_n(inner.p, len)), rest = str_skip(inner, len);

    if (len == 0)
        return false;
    if (rest.len == 0) {
        (void)buf_add_str(by->out, value);
        return true;
    }
    if (rest.len < 2 || rest.p[0] != ':' || (rest.p[1] != '-' && rest.p[1] != '+'))
        return false;
    if (rest.p[1] == '-' && value.len)
        (void)buf_add_str(by->out, value);
    else if ((rest.p[1] == '-') == (value.len == 0))
        expand(by, str_skip(rest, 2), depth + 1);
    return true;
}

/* How much of the text, which begins with '$', was a variable; 0 = it is only that character. */
static size_t expand_one(const struct expansion *by, struct str text, int depth)
{
    struct str rest = str_skip(text, 1);
    size_t len = name_len(rest);
    ptrdiff_t end;

    if (len) {
        (void)buf_add_str(by->out, by->lookup(by->arg, str_n(rest.p, len)));
        return len + 1;
    }
    if (rest.len == 0 || rest.p[0] != '{')
        return 0;
    rest = str_skip(rest, 1);
    end = closing(rest);
    if (end < 0 || !expand_braced(by, str_n(rest.p, (size_t)end), depth))
        return 0;
    return (size_t)end + 3;
}

static void expand(const struct expansion *by, struct str text, int depth)
{
    while (text.len) {
        size_t len = text.p[0] == '$' && depth < DEPTH_MAX ? expand_one(by, text, depth) : 0;

        if (!len) {
            (void)buf_add_char(by->out, text.p[0]);
            len = 1;
        }
        text = str_skip(text, len);
    }
}

struct str recipe_expand(struct str text, recipe_lookup_fn *lookup, void *arg, struct arena *arena)
{
    auto_buf struct buf out = {0};
    struct expansion by = {lookup, arg, &out};

    if (str_find(text, '$') < 0)
        return text;
    buf_init(&out, EXPANDED_MAX);
    expand(&by, text, 0);
    return arena_str(arena, buf_str(&out));
}
