/* Repositories of sessions: names made of URLs, delivery of what the agent did, and the history.
 *
 * The push is one script whose words come from its environment, never from its text. The token is
 * given to git by a credential helper that reads the environment too, so that it is in no argument,
 * no URL and no file. */
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"
#include "runtime/session/pull.h"
#include "runtime/session/session_internal.h"

enum { PUSH_TIMEOUT_MS = 120000, PUSH_TRIES = 3, HISTORY_TIMEOUT_MS = 30000 };

/* An extended regular expression for the first line of a commit's message. */
static const char conventional[] = "(feat|fix|docs|chore|refactor|test|ci)(\\(.+\\))?!?: .{1,100}$";

/* "host/path" of any form of URL, without scheme, user, ".git" and slashes around. */
static struct str place_of(struct str repo, size_t *out_host)
{
    ptrdiff_t scheme = str_find_str(repo, STR("://")), at;

    if (scheme >= 0)
        repo = str_skip(repo, (size_t)scheme + 3);
    for (*out_host = 0; *out_host < repo.len && repo.p[*out_host] != '/'; (*out_host)++)
        ;
    at = str_find(str_n(repo.p, *out_host), '@');
    if (at >= 0) {
        repo = str_skip(repo, (size_t)at + 1);
        *out_host -= (size_t)at + 1;
    }
    /* user@host:path */
    if (scheme < 0 && str_find(str_n(repo.p, *out_host), ':') >= 0)
        *out_host = (size_t)str_find(repo, ':');
    while (repo.len && repo.p[repo.len - 1] == '/')
        repo.len--;
    if (str_ends(repo, STR(".git")))
        repo.len -= 4;
    return repo;
}

/* The host is part of it: another server's repository of the same name is another. */
void session_alias(struct str repo, struct str branch, struct arena *arena, struct str *out)
{
    struct str owner, name, place;
    struct str ref = branch.len ? branch : STR("main");
    size_t host;

    *out = STR("");
    if (!repo_owner_and_name(repo, &owner, &name))
        return;
    place = place_of(repo, &host);
    if (str_eq_nocase(str_n(place.p, host), STR("github.com")))
        *out = str_of(arena_printf(arena, "github/%.*s#%.*s", STR_ARG(str_skip(place, host + 1)),
                                   STR_ARG(ref)));
    else if (host == 0)
        *out = str_of(arena_printf(arena, "git%.*s#%.*s", STR_ARG(place), STR_ARG(ref)));
    else
        *out = str_of(arena_printf(arena, "git/%.*s/%.*s#%.*s", (int)host, place.p,
                                   STR_ARG(str_skip(place, host + 1)), STR_ARG(ref)));
}

const char *session_push_class(struct str text)
{
    static const struct {
        const char *words, *class;
    } table[] = {
        {"could not read Username", "auth"},
        {"could not read Password", "auth"},
        {"Authentication failed", "auth"},
        {"Permission denied", "auth"},
        {"Permission to", "auth"},
        {"The requested URL returned error: 403", "auth"},
        {"The requested URL returned error: 401", "auth"},
        {"access denied", "auth"},
        {"Repository not found", "auth"},
        {"not a conventional commit", "commit-message"},
        {"src refspec", "no-commits"},
        {"does not have any commits yet", "no-commits"},
        {"unknown revision", "no-commits"},
        {"[rejected]", "remote-rejected"},
        {"[remote rejected]", "remote-rejected"},
        {"non-fast-forward", "remote-rejected"},
        {"protected branch", "remote-rejected"},
        {"pre-receive hook declined", "remote-rejected"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (str_find_str(text, str_of(table[i].words)) >= 0)
            return table[i].class;
    return "unknown";
}

static const char push_script[] =
    "set -e\n"
    "cd \"$QS_DIR\"\n"
    "export GIT_TERMINAL_PROMPT=0\n"
    "git rev-parse --is-inside-work-tree >/dev/null\n"
    "conventional() { LC_ALL=C.UTF-8 grep -Eqx -- \"$QS_CONVENTIONAL\"; }\n"
    "refuse() { printf \"not a conventional commit: '%.60s'; use TYPE(SCOPE): SUBJECT (types: feat,"
    " fix, docs, chore, refactor, test, ci; subject: at most 100 characters)\\n\" \"$1\" >&2;"
    " exit 1; }\n"
    "if [ -n \"$QS_CONVENTIONAL\" ]; then\n"
    "  line=$(printf '%s\\n' \"$QS_MESSAGE\" | head -n 1)\n"
    "  printf '%s\\n' \"$line\" | conventional || refuse \"$line\"\n"
    "  git log --no-merges --format=%s HEAD --not --remotes 2>/dev/null | while IFS= read -r line; "
    "do\n"
    "    printf '%s\\n' \"$line\" | conventional || refuse \"$line\"\n"
    "  done\n"
    "fi\n"
    "git checkout -q -B \"$QS_BRANCH\"\n"
    "git add -A\n"
    "if ! git diff --cached --quiet; then\n"
    "  git -c user.name='Quicksand Agent' -c user.email=agent@quicksand.local"
    " commit -q -m \"$QS_MESSAGE\"\n"
    "fi\n"
    "git rev-parse --verify -q HEAD >/dev/null || { echo 'does not have any commits yet' >&2;"
    " exit 1; }\n"
    /* A new branch without a commit that the session's own branch lacks would say that there is work in it. */
    "base=refs/remotes/origin/${QS_BASE:-HEAD}\n"
    "if [ \"$QS_REMOTE\" = origin ] && git rev-parse --verify -q \"$base\" >/dev/null &&\n"
    "  ! git rev-parse --verify -q \"refs/remotes/origin/$QS_BRANCH\" >/dev/null &&\n"
    "  git merge-base --is-ancestor HEAD \"$base\"; then\n"
    "  echo nothing; git rev-parse HEAD; exit 0\n"
    "fi\n"
    "push() { git -c credential.helper= \"$@\" push --porcelain $QS_FORCE \"$QS_REMOTE\""
    " \"HEAD:refs/heads/$QS_BRANCH\" 2>&1; }\n"
    "if [ -n \"$QS_TOKEN\" ]; then\n"
    "  said=$(push -c credential.helper='!f() { echo username=x-access-token;"
    " echo \"password=$QS_TOKEN\"; }; f') || { echo \"$said\" >&2; exit 1; }\n"
    "else\n"
    "  said=$(push -c core.askPass=) || { echo \"$said\" >&2; exit 1; }\n"
    "fi\n"
    "case $said in *'[up to date]'*) echo nothing;; *) echo pushed;; esac\n"
    "git rev-parse HEAD\n";

struct push_words {
    struct str branch, message, remote, dir;
    struct str base; /* the branch that the session was opened on; "" = the default one */
    const char *token;
    bool force, conventional;
};

static int push_once(const struct session_place *place, const struct push_words *words,
                     char **out_commit, struct error *err)
{
    json_t *env = json_pack(
        "{s:s%,s:s%,s:s%,s:s%,s:s%,s:s,s:s,s:s}", "QS_BASE", words->base.len ? words->base.p : "",
        words->base.len, "QS_DIR", words->dir.p, words->dir.len, "QS_BRANCH", words->branch.p,
        words->branch.len, "QS_MESSAGE", words->message.p, words->message.len, "QS_REMOTE",
        words->remote.p, words->remote.len, "QS_TOKEN", words->token, "QS_FORCE",
        words->force ? "--force" : "", "QS_CONVENTIONAL", words->conventional ? conventional : "");
    int r;

    if (!env)
        return error_set(err, ERROR_INVALID, "branch, message or remote is not valid UTF-8");
    r = session_script(place, push_script, env, PUSH_TIMEOUT_MS, out_commit, err);
    json_decref(env);
    return r;
}

void session_mask_token(char *text, const char *token)
{
    size_t len = strlen(token);
    char *at;

    while (len >= 4 && (at = strstr(text, token)) != NULL) {
        memset(at, '*', 3);
        memmove(at + 3, at + len, strlen(at + len) + 1);
    }
}

static int push_tries(struct live_session *live, const struct session_place *place,
                      const struct push_words *words, char **out_commit, struct error *err)
{
    for (int i = 1;; i++) {
        const char *class;

        if (push_once(place, words, out_commit, err) == 0)
            return 0;
        session_mask_token(err->message, words->token);
        runtime_mask(live->runtime, live->caller.team_id, err->message);
        class = session_push_class(str_of(err->message));
        if (err->code != ERROR_INTERNAL)
            return -1;
        if (strcmp(class, "unknown") != 0 || i >= PUSH_TRIES) {
            err->code = ERROR_CONFLICT;
            return error_prefix(err, "%s", class);
        }
        (void)usleep((useconds_t)i * 1000000);
    }
}

char *session_git_token(struct live_session *live)
{
    auto_arena struct arena arena = {0};
    struct str profile;
    char *token;

    (void)pthread_mutex_lock(&live->lock);
    token = live->git_token[0] ? xstrdup(live->git_token) : NULL;
    profile = arena_str(&arena, live->row.profile);
    (void)pthread_mutex_unlock(&live->lock);
    if (!token)
        token = profile_git_token(live->runtime, &live->caller, profile);
    if (token)
        runtime_secret_add(live->runtime, live->caller.team_id, str_of(token));
    return token ? token : xstrdup("");
}

/* A branch that belongs to this session alone: the branch it was opened on, which may be the
 * repository's default, is pushed to only by name. With live->lock held. */
static struct str own_branch(const struct live_session *live, struct arena *arena)
{
    struct str branch = str_of(arena_printf(arena, "task-%.*s", STR_ARG(live->row.task_id)));

    if (live->row.task_id.len && repo_branch_valid(branch))
        return branch;
    return str_of(arena_printf(arena, "task-%.*s", STR_ARG(live->row.id)));
}

/* What the push is made of, in the arena. */
static int read_words(struct live_session *live, const struct runtime_push *push,
                      struct arena *arena, struct push_words *out, struct error *err)
{
    struct str profile;

    (void)pthread_mutex_lock(&live->lock);
    out->dir = arena_str(arena, live->row.workdir);
    out->base = arena_str(arena, live->row.branch.p ? live->row.branch : STR(""));
    out->branch = push->branch.len ? push->branch : own_branch(live, arena);
    profile = arena_str(arena, live->row.profile);
    (void)pthread_mutex_unlock(&live->lock);
    out->conventional = profile_conventional_commits(live->runtime, &live->caller, profile);
    out->message = push->message.len ? push->message : STR("chore(agent): update files");
    out->remote = push->remote.len ? push->remote : STR("origin");
    if (!repo_branch_valid(out->branch))
        return error_set(err, ERROR_INVALID, "'%.*s' is not a name for a branch",
                         STR_ARG(out->branch));
    if (out->remote.p[0] == '-' || (!repo_plain(out->remote, "._-") && !repo_valid(out->remote)))
        return error_set(err, ERROR_INVALID, "'%.*s' is not a remote", STR_ARG(out->remote));
    return 0;
}

static int push_and_tell(struct live_session *live, const struct session_place *place,
                         const struct push_words *words, struct arena *arena,
                         struct runtime_pushed *out, struct error *err)
{
    auto_free char *commit = NULL;
    struct error cause = {0};
    struct str rest;

    session_tell(live, "git.push.started",
                 json_pack("{s:s%}", "branch", words->branch.p, words->branch.len));
    if (push_tries(live, place, words, &commit, &cause) < 0) {
        session_tell(live, "git.push.failed",
                     json_pack("{s:s%,s:s,s:o}", "branch", words->branch.p, words->branch.len,
                               "class", session_push_class(str_of(cause.message)), "message",
                               json_str(str_of(cause.message))));
        *err = cause;
        return -1;
    }
    out->branch = arena_str(arena, words->branch);
    rest = str_of(commit);
    out->nothing = str_is(str_split(&rest, '\n'), "nothing");
    out->commit = arena_str(arena, str_trim(rest));
    session_tell(live, "git.push.succeeded",
                 json_pack("{s:s%,s:o,s:b}", "branch", words->branch.p, words->branch.len, "commit",
                           json_str(out->commit), "nothing", out->nothing));
    return 0;
}

int live_session_push(struct live_session *live, const struct runtime_push *push,
                      struct arena *arena, struct runtime_pushed *out, struct error *err)
{
    struct session_place place = {.runtime = live->runtime, .caller = &live->caller};
    struct push_words words = {.force = push->force};
    struct session_pull pull = {0};
    struct runtime_push known = *push;
    auto_free char *token = NULL;

    token = push->token.len ? str_dup(push->token) : session_git_token(live);
    words.token = token;
    runtime_secret_add(live->runtime, live->caller.team_id, str_of(token));
    if (read_words(live, push, arena, &words, err) < 0)
        return -1;
    known.branch = words.branch;
    known.message = words.message;
    known.remote = words.remote;
    if (push->pull && session_pull_prepare(live, &known, token, arena, &pull, err) < 0)
        return -1;
    (void)pthread_mutex_lock(&live->lock);
    place.sandbox_id = arena_str(arena, live->row.sandbox_id);
    (void)pthread_mutex_unlock(&live->lock);
    if (push_and_tell(live, &place, &words, arena, out, err) < 0)
        return -1;
    return push->pull ? session_pull_open(live, &pull, arena, &out->pull, err) : 0;
}

/* ---- history ---- */

/* One commit a record (0x1e), its fields apart by 0x1f. */
static const char history_script[] =
    "cd \"$QS_DIR\" && git rev-parse --is-inside-work-tree >/dev/null || exit 3\n"
    "git symbolic-ref -q --short HEAD || echo\n"
    "git rev-parse --verify -q HEAD >/dev/null || exit 0\n"
    "TZ=UTC0 git log -n \"$QS_LIMIT\" --date=format-local:%Y-%m-%dT%H:%M:%SZ"
    " --format=%H%x1f%an%x1f%ae%x1f%ad%x1f%s%x1e\n";

static json_t *read_commit(struct str record)
{
    static const char *const names[] = {"commit", "author", "email", "at", "subject"};
    json_t *commit = json_object();

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        (void)json_object_set_new(commit, names[i], json_str(str_split(&record, '\x1f')));
    return commit;
}

static json_t *read_history(struct str text)
{
    struct str branch = str_split(&text, '\n');
    json_t *commits = json_array();

    for (text = str_trim(text); text.len; text = str_trim(text)) {
        /* What follows the last end of a record was cut off: there was more than is read. */
        if (str_find(text, '\x1e') < 0)
            break;
        (void)json_array_append_new(commits, read_commit(str_split(&text, '\x1e')));
    }
    return json_pack("{s:o, s:o}", "branch", branch.len ? json_str(branch) : json_null(), "commits",
                     commits);
}

int live_session_history(struct live_session *live, int64_t limit, json_t **out, struct error *err)
{
    struct session_place place = {.runtime = live->runtime, .caller = &live->caller};
    auto_arena struct arena arena = {0};
    auto_free char *text = NULL, *number = xasprintf("%lld", (long long)limit);
    auto_json json_t *env = NULL;

    (void)pthread_mutex_lock(&live->lock);
    place.sandbox_id = arena_str(&arena, live->row.sandbox_id);
    env = json_pack("{s:s%,s:s}", "QS_DIR", live->row.workdir.p, live->row.workdir.len, "QS_LIMIT",
                    number);
    (void)pthread_mutex_unlock(&live->lock);
    if (session_script(&place, history_script, env, HISTORY_TIMEOUT_MS, &text, err) < 0) {
        if (err->code == ERROR_INTERNAL)
            err->code = ERROR_CONFLICT;
        return error_prefix(err, "history of the session's repository");
    }
    *out = read_history(str_of(text));
    return 0;
}
