/* What a repository's URL may be, and the names made of it. */
#include "runtime/sandbox/repo.h"

#include <string.h>

bool repo_plain(struct str text, const char *extra)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              strchr(extra, c)) ||
            c == '\0')
            return false;
    }
    return text.len > 0;
}

bool repo_valid(struct str repo)
{
    static const char *const schemes[] = {"https://", "http://", "ssh://", "git://", "file:///"};
    ptrdiff_t colon = str_find(repo, ':');

    if (!repo.p || repo.len > 1024 || !repo_plain(repo, "/._-:@~%+=?&,"))
        return false;
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
        if (str_starts(repo, str_of(schemes[i])) && repo.len > strlen(schemes[i]))
            return true;
    if (repo.p[0] == '/')
        return true;
    /* user@host:path; "x::y" would name a helper. */
    return colon > 0 && str_find(str_n(repo.p, (size_t)colon), '@') > 0 &&
           (size_t)colon + 1 < repo.len && repo.p[colon + 1] != ':' && repo.p[0] != '-';
}

bool repo_branch_valid(struct str branch)
{
    return branch.p && branch.len <= 200 && repo_plain(branch, "/._-") && branch.p[0] != '-' &&
           branch.p[0] != '/' && branch.p[0] != '.' && branch.p[branch.len - 1] != '/' &&
           branch.p[branch.len - 1] != '.' && str_find_str(branch, STR("..")) < 0 &&
           str_find_str(branch, STR("//")) < 0 && !str_ends(branch, STR(".lock"));
}

int repo_check(struct str repo, struct str branch, struct error *err)
{
    if (repo.len && !repo_valid(repo))
        return error_set(err, ERROR_INVALID,
                         "'repo' is not a URL of a repository (https, ssh, git, user@host:path)");
    if (branch.len && !repo_branch_valid(branch))
        return error_set(err, ERROR_INVALID, "'branch': '%.*s' is not a name for a branch",
                         STR_ARG(branch));
    return 0;
}

bool repo_owner_and_name(struct str path, struct str *owner, struct str *name)
{
    size_t at;

    while (path.len && path.p[path.len - 1] == '/')
        path.len--;
    if (str_ends(path, STR(".git")))
        path.len -= 4;
    for (at = path.len; at > 0 && path.p[at - 1] != '/' && path.p[at - 1] != ':'; at--)
        ;
    *name = str_skip(path, at);
    if (at < 2 || name->len == 0)
        return false;
    path.len = at - 1;
    for (at = path.len; at > 0 && path.p[at - 1] != '/' && path.p[at - 1] != ':'; at--)
        ;
    *owner = str_skip(path, at);
    return owner->len > 0;
}

void repo_folder(struct str repo, struct arena *arena, struct str *out)
{
    struct str owner, name = STR_NONE;

    (void)repo_owner_and_name(repo, &owner, &name);
    if (!repo_plain(name, "._-") || name.p[0] == '.' || name.p[0] == '-')
        name = STR("repo");
    *out = arena_str(arena, name);
}
