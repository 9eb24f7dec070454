/* Pull requests at the git host of a session's repository.
 *
 * Which host: the repository's URL says its name; its kind and the URL of its API are the operator's
 * configuration (git_hosts), or built in for github.com. The server asks it, never the sandbox. */
#pragma once

#include "runtime/session/session_internal.h"

struct pull_place {
    struct str host; /* in lower case, with the port of http(s) when it is not the usual one */
    struct str owner, name;
    bool deep; /* there is more in front of the owner */
};
/* pull_url.c: strings are of the arena. False when the URL names no host, owner and repository
 * in plain words. */
bool pull_place_of(struct str repo, struct arena *arena, struct pull_place *out);

enum pull_kind { PULL_GITHUB, PULL_GITEA };

struct session_pull {
    enum pull_kind kind;
    struct pull_place place;
    const char *api; /* what stands in front of "/repos/..." */
    const char *token;
    struct str head, base, title, body;
    bool draft;
    int64_t deadline_us; /* of opening it; 0 before */
};

/* All that can be known before anything is pushed: the host, the branches, the token. Asks the host for
 * the repository's own branch when nobody names a base. `push` has branch, message and remote as they
 * will be used. */
int session_pull_prepare(struct live_session *live, const struct runtime_push *push,
                         const char *token, struct arena *arena, struct session_pull *out,
                         struct error *err);
/* After the push: opens it, or finds the one that is open already. Tells git.pr.*. */
int session_pull_open(struct live_session *live, struct session_pull *pull, struct arena *arena,
                      struct runtime_pulled *out, struct error *err);
