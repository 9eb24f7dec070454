#include "dockerfile/pattern.h"

/* The class at p[*at], which is '['; *at is behind it afterwards. A class without an end matches nothing. */
static bool match_class(struct str p, size_t *at, char c)
{
    bool negated = false, hit = false;
    size_t i = *at + 1;

    if (i < p.len && (p.p[i] == '^' || p.p[i] == '!')) {
        negated = true;
        i++;
    }
    for (bool first = true; i < p.len && (first || p.p[i] != ']'); first = false) {
        char low, high;

        if (p.p[i] == '\\' && i + 1 < p.len)
            i++;
        low = high = p.p[i++];
        if (i + 1 < p.len && p.p[i] == '-' && p.p[i + 1] != ']') {
            high = p.p[i + 1];
            i += 2;
        }
        hit = hit || (low <= c && c <= high);
    }
    if (i >= p.len) {
        *at = p.len;
        return false;
    }
    *at = i + 1;
    return hit != negated && c != '/';
}

/* One character of the pattern, no star, against c. */
static bool match_one(struct str p, size_t *at, char c)
{
    char want = p.p[*at];

    if (want == '[')
        return match_class(p, at, c);
    if (want == '\\' && *at + 1 < p.len)
        want = p.p[++*at];
    else if (want == '?') {
        ++*at;
        return c != '/';
    }
    ++*at;
    return want == c;
}

/* Where to go on from when what follows a star does not match: the star takes one more. */
struct retry {
    bool is_set;
    size_t pattern, path;
};

struct matcher {
    struct str p, s;
    size_t pi, si;
    struct retry star;  /* within a directory */
    struct retry deep;  /* across directories */
    bool deep_at_names; /* "**" and '/': what follows begins a name */
};

static void take_star(struct matcher *m, bool deep)
{
    if (deep && m->pi + 1 < m->p.len && m->p.p[m->pi + 1] == '*') {
        while (m->pi < m->p.len && m->p.p[m->pi] == '*')
            m->pi++;
        m->deep_at_names = m->pi < m->p.len && m->p.p[m->pi] == '/';
        if (m->deep_at_names)
            m->pi++;
        m->deep = (struct retry){true, m->pi, m->si};
        m->star = (struct retry){0};
        return;
    }
    m->star = (struct retry){true, ++m->pi, m->si};
}

static bool go_back(struct matcher *m)
{
    if (m->star.is_set && m->star.path < m->s.len && m->s.p[m->star.path] != '/') {
        m->si = ++m->star.path;
        m->pi = m->star.pattern;
        return true;
    }
    m->star = (struct retry){0};
    if (!m->deep.is_set)
        return false;
    do {
        if (m->deep.path >= m->s.len)
            return false;
        m->deep.path++;
    } while (m->deep_at_names && m->s.p[m->deep.path - 1] != '/');
    m->si = m->deep.path;
    m->pi = m->deep.pattern;
    return true;
}

bool pattern_match(struct str pattern, struct str path, bool deep)
{
    struct matcher m = {.p = pattern, .s = path};

    for (;;) {
        if (m.pi == m.p.len && m.si == m.s.len)
            return true;
        if (m.pi < m.p.len && m.p.p[m.pi] == '*') {
            take_star(&m, deep);
            continue;
        }
        if (m.pi < m.p.len && m.si < m.s.len && match_one(m.p, &m.pi, m.s.p[m.si])) {
            m.si++;
            continue;
        }
        if (!go_back(&m))
            return false;
    }
}

bool pattern_is_plain(struct str pattern)
{
    for (size_t i = 0; i < pattern.len; i++)
        if (strchr("*?[\\", pattern.p[i]))
            return false;
    return true;
}

/* ---- .dockerignore ---- */

/* Without '/' at both ends, "." and doubled '/'; ".." takes away what is before it. */
static struct str clean(struct arena *arena, struct str path)
{
    char *out = arena_alloc(arena, path.len + 1);
    size_t len = 0;

    while (path.p) {
        struct str part = str_split(&path, '/');

        if (!part.len || str_is(part, "."))
            continue;
        if (str_is(part, "..")) {
            while (len && out[--len] != '/')
                continue;
            continue;
        }
        if (len)
            out[len++] = '/';
        memcpy(out + len, part.p, part.len);
        len += part.len;
    }
    return str_n(out, len);
}

int ignore_parse(struct str text, const char *file, struct arena *arena, struct ignore *out,
                 struct error *err)
{
    size_t room = 1;

    *out = (struct ignore){0};
    if (text.len > IGNORE_MAX || (text.len && memchr(text.p, '\0', text.len)))
        return error_set(err, ERROR_INVALID, "%s is not a text of at most %d bytes", file,
                         IGNORE_MAX);
    if (str_starts(text, STR("\xef\xbb\xbf")))
        text = str_skip(text, 3);
    for (size_t i = 0; i < text.len; i++)
        room += text.p[i] == '\n';
    if (room > IGNORE_PATTERNS_MAX)
        return error_set(err, ERROR_LIMIT, "%s has more than %d lines", file, IGNORE_PATTERNS_MAX);
    out->patterns = arena_alloc(arena, room * sizeof(*out->patterns));
    while (text.p) {
        struct str line = str_split(&text, '\n');
        struct ignore_pattern pattern = {0};

        if (str_starts(line, STR("#")))
            continue;
        line = str_trim(line);
        if (str_starts(line, STR("!"))) {
            pattern.except = true;
            line = str_trim(str_skip(line, 1));
        }
        pattern.text = clean(arena, line);
        if (!pattern.text.len)
            continue;
        out->has_exceptions = out->has_exceptions || pattern.except;
        out->patterns[out->count++] = pattern;
    }
    return 0;
}

static bool matches_or_parent(struct str pattern, struct str path)
{
    if (pattern_match(pattern, path, true))
        return true;
    for (size_t i = path.len; i-- > 1;)
        if (path.p[i] == '/' && pattern_match(pattern, str_n(path.p, i), true))
            return true;
    return false;
}

bool ignore_matches(const struct ignore *ignore, struct str path)
{
    /* The last one decides: it is looked for from the end. */
    for (size_t i = ignore->count; i-- > 0;)
        if (matches_or_parent(ignore->patterns[i].text, path))
            return !ignore->patterns[i].except;
    return false;
}
