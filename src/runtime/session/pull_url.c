/* Host, owner and name of a repository, out of its URL. What is not plainly one is refused: a token is
 * sent to where this says. */
#include <ctype.h>

#include "runtime/session/pull.h"

enum { HOST_MAX = 253, PART_MAX = 100 };

static bool plain_part(struct str part)
{
    if (part.len == 0 || part.len > PART_MAX || str_is(part, ".") || str_is(part, "..") ||
        part.p[0] == '-')
        return false;
    for (size_t i = 0; i < part.len; i++)
        if (!isalnum((unsigned char)part.p[i]) && !strchr("._-", part.p[i]))
            return false;
    return !memchr(part.p, '\0', part.len);
}

static bool plain_host(struct str host)
{
    if (host.len == 0 || host.len > HOST_MAX || host.p[0] == '-' || host.p[0] == '.')
        return false;
    for (size_t i = 0; i < host.len; i++)
        if (!isalnum((unsigned char)host.p[i]) && host.p[i] != '.' && host.p[i] != '-')
            return false;
    return host.p[host.len - 1] != '.' && str_find_str(host, STR("..")) < 0;
}

/* "a/b/owner/name.git/" */
static bool read_path(struct str path, struct pull_place *out)
{
    struct str before = STR_NONE;
    size_t count = 0;

    while (path.len && path.p[path.len - 1] == '/')
        path.len--;
    if (str_ends(path, STR(".git")))
        path.len -= 4;
    while (path.p) {
        struct str part = str_split(&path, '/');

        if (!plain_part(part))
            return false;
        before = out->name;
        out->name = part;
        count++;
    }
    out->owner = before;
    out->deep = count > 2;
    return count >= 2;
}

struct authority {
    struct str host, port;
};

static bool read_authority(struct str text, struct authority *out)
{
    ptrdiff_t at = str_find(text, '@'), colon;
    uint64_t port;

    if (at >= 0)
        text = str_skip(text, (size_t)at + 1);
    colon = str_find(text, ':');
    out->host = colon < 0 ? text : str_n(text.p, (size_t)colon);
    out->port = colon < 0 ? STR_NONE : str_skip(text, (size_t)colon + 1);
    if (colon >= 0 && (!str_to_u64(out->port, &port) || port == 0 || port > 65535))
        return false;
    /* A second '@' is here too: who reads it otherwise would see another host. */
    return plain_host(out->host);
}

bool pull_place_of(struct str repo, struct arena *arena, struct pull_place *out)
{
    /* The port of ssh says nothing about the API. */
    static const struct {
        const char *scheme, *port;
        bool matters;
    } schemes[] = {{"https://", "443", true}, {"http://", "80", true}, {"ssh://", NULL, false}};
    struct authority authority = {0};
    struct str rest = repo, port;
    ptrdiff_t colon;

    *out = (struct pull_place){0};
    if (!repo_valid(repo))
        return false;
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        if (!str_starts(repo, str_of(schemes[i].scheme)))
            continue;
        rest = str_skip(repo, strlen(schemes[i].scheme));
        if (!read_authority(str_split(&rest, '/'), &authority) || !read_path(rest, out))
            return false;
        port = schemes[i].matters && !str_is(authority.port, schemes[i].port) ? authority.port
                                                                              : STR_NONE;
        out->host =
            arena_lower(arena, str_of(arena_printf(arena, "%.*s%s%.*s", STR_ARG(authority.host),
                                                   port.len ? ":" : "", STR_ARG(port))));
        out->owner = arena_str(arena, out->owner);
        out->name = arena_str(arena, out->name);
        return true;
    }
    /* user@host:path */
    colon = str_find(repo, ':');
    if (colon <= 0 || str_find_str(repo, STR("://")) >= 0 ||
        str_find(str_n(repo.p, (size_t)colon), '@') <= 0 ||
        !read_authority(str_n(repo.p, (size_t)colon), &authority))
        return false;
    rest = str_skip(repo, (size_t)colon + 1);
    while (rest.len && rest.p[0] == '/')
        rest = str_skip(rest, 1);
    if (!read_path(rest, out))
        return false;
    out->host = arena_lower(arena, authority.host);
    out->owner = arena_str(arena, out->owner);
    out->name = arena_str(arena, out->name);
    return true;
}
