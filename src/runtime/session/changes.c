/* Changes of a session's workspace: one constant script around "git diff", and a parser for its output.
 *
 * The script compares the working tree with the commit that HEAD was when the session began (the reflog has it), so that
 * commits of the agent count as well. Untracked files are added to a copy of the index, which leaves the
 * repository as it is. A workspace without a repository began empty: the files that are younger than the session are new.
 *
 * The output: "KIND BASE LENGTH\n", LENGTH bytes of "git diff --raw --numstat -z", and the diffs up to the end. */
#include "runtime/session/changes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"
#include "runtime/run/run.h"
#include "runtime/sandbox/sandbox.h"
#include "runtime/session/session.h"

enum {
    CHANGES_MS = 20000,
    ERRORS_MAX = 240,
    PRINTED_MAX = CHANGES_LIST_MAX + CHANGES_DIFF_MAX + 512
};

static const char script[] =
    "command -v git >/dev/null || { echo none - 0; exit 0; }\n"
    "cd \"$QS_DIR\" || exit 8\n"
    "export GIT_OPTIONAL_LOCKS=0 GIT_TERMINAL_PROMPT=0 LC_ALL=C\n"
    "t=$(mktemp -d) || exit 8\n"
    "trap 'rm -rf \"$t\"' EXIT\n"
    "top=$(git rev-parse --show-toplevel 2>/dev/null) && cd \"$top\" && kind=repository"
    " || kind=directory\n"
    "base=\n"
    "if [ $kind = repository ]; then\n"
    "  i=$(git rev-parse --git-path index) && [ -f \"$i\" ] && cp \"$i\" \"$t/index\"\n"
    "  base=$(git rev-parse -q --verify \"HEAD@{$QS_SINCE}^{commit}\" 2>/dev/null) ||"
    " base=$(git rev-parse -q --verify HEAD) || base=\n"
    /* A repository that the agent has begun: its first commit is a change, too. */
    "  first=$(git log -g --date=unix --format='%gd %gs' HEAD 2>/dev/null | tail -n 1)\n"
    "  at=${first#*\\{}\n"
    "  case $first in *'} commit (initial)'*) [ \"${at%%\\}*}\" -ge \"$QS_SINCE_S\" ] && base= ;;"
    " esac\n"
    "  export GIT_INDEX_FILE=\"$t/index\"\n"
    "  git add -A -N . >/dev/null 2>&1\n"
    "else\n"
    "  git init -q --bare \"$t/git\" || exit 8\n"
    "  export GIT_DIR=\"$t/git\" GIT_WORK_TREE=\"$PWD\" GIT_INDEX_FILE=\"$t/index\"\n"
    "  git config core.bare false\n"
    "  find . -xdev -name '.?*' -prune -o -type f -newermt \"@$QS_SINCE_S\" -print0 |"
    " head -z -n 500 | git --literal-pathspecs add -N --pathspec-from-file=- --pathspec-file-nul"
    " >/dev/null 2>&1\n"
    "fi\n"
    "changes() { git -c core.quotePath=false -c diff.noprefix=false -c diff.mnemonicPrefix=false"
    " diff --no-color --no-ext-diff --no-textconv --no-renames --ignore-submodules=dirty \"$@\""
    " ${base:-4b825dc642cb6eb9a060e54bf8d69288fbee4904} --; }\n" /* else git's empty tree */
    "changes --raw --numstat -z | head -c $QS_LIST_MAX >\"$t/list\"\n"
    "printf '%s %s %s\\n' $kind \"${base:--}\" $(wc -c <\"$t/list\")\n"
    "cat \"$t/list\"\n"
    "changes -p | head -c $QS_DIFF_MAX\n";

/* ---- reading ---- */

static bool is_status(char c)
{
    return c == 'A' || c == 'M' || c == 'D' || c == 'T';
}

/* ":100644 100644 5626abf 814f4a4 M": the status comes last. */
static bool take_raw(struct str meta, struct str path, struct session_changes *out)
{
    char status = meta.p[meta.len - 1];

    if (!is_status(status) || !path.len)
        return false;
    if (out->count == CHANGES_FILES_MAX)
        out->truncated = true;
    else
        out->items[out->count++] = (struct session_change){.path = path, .status = status};
    return true;
}

/* "ADDED\tREMOVED\tPATH"; "-" for both of a binary file. at: the file that is expected next. */
static bool take_counts(struct str token, size_t *at, struct session_changes *out)
{
    struct str added = str_split(&token, '\t'), removed = str_split(&token, '\t');
    uint64_t more = 0, less = 0;
    bool binary = str_is(added, "-") && str_is(removed, "-");

    if (!token.p || (!binary && (!str_to_u64(added, &more) || !str_to_u64(removed, &less))))
        return false;
    /* A file whose times alone have changed is in the first list only. */
    while (*at < out->count && !str_eq(out->items[*at].path, token))
        (*at)++;
    if (*at == out->count)
        return true;
    out->items[*at].binary = binary;
    out->items[*at].added = (int64_t)(more < INT32_MAX ? more : INT32_MAX);
    out->items[*at].removed = (int64_t)(less < INT32_MAX ? less : INT32_MAX);
    (*at)++;
    return true;
}

/* NUL ends each token; the last one may be cut. */
static void read_list(struct str list, struct session_changes *out)
{
    size_t at = 0;

    while (list.len) {
        const char *end = memchr(list.p, '\0', list.len);
        struct str token = str_n(list.p, end ? (size_t)(end - list.p) : 0), path;

        if (!end)
            break;
        list = str_skip(list, token.len + 1);
        if (token.len && token.p[0] == ':') {
            end = memchr(list.p, '\0', list.len);
            if (!end)
                break;
            path = str_n(list.p, (size_t)(end - list.p));
            list = str_skip(list, path.len + 1);
            if (!take_raw(token, path, out))
                break;
        } else if (!take_counts(token, &at, out)) {
            break;
        }
    }
    if (list.len)
        out->truncated = true;
}

/* Git quotes names with these. */
static bool is_quoted(struct str path)
{
    for (size_t i = 0; i < path.len; i++)
        if ((unsigned char)path.p[i] < 0x20 || path.p[i] == 0x7f || path.p[i] == '"' ||
            path.p[i] == '\\')
            return true;
    return false;
}

/* Is "a/PATH b/PATH" (or both quoted) about this file? */
static bool is_header_of(struct str header, struct str path)
{
    size_t half = path.len + 2;

    if (header.len && header.p[0] == '"')
        return is_quoted(path);
    return header.len == 2 * half + 1 && str_starts(header, STR("a/")) &&
           str_eq(str_n(header.p + 2, path.len), path) && header.p[half] == ' ' &&
           str_starts(str_skip(header, half + 1), STR("b/")) &&
           str_eq(str_skip(header, half + 3), path);
}

#define DIFF_HEADER "diff --git "

/* Where the next file's diff begins, or the end. Lines of a file's content begin with one of " +-\\", so none of them is
 * taken for a header. */
static size_t next_header(struct str text)
{
    for (size_t i = 0; i < text.len;) {
        ptrdiff_t end = str_find(str_skip(text, i), '\n');

        if (end < 0)
            break;
        i += (size_t)end + 1;
        if (str_starts(str_skip(text, i), STR(DIFF_HEADER)))
            return i;
    }
    return text.len;
}

static void read_diffs(struct str text, bool cut, struct session_changes *out)
{
    size_t at = 0;

    while (str_starts(text, STR(DIFF_HEADER))) {
        struct str diff = str_n(text.p, next_header(text)), line = diff;
        size_t i;

        line = str_skip(str_split(&line, '\n'), strlen(DIFF_HEADER));
        text = str_skip(text, diff.len);
        for (i = at; i < out->count && !is_header_of(line, out->items[i].path); i++)
            ;
        if (i == out->count)
            continue;
        /* A file that became a link has two: the first was removed, the second is new. */
        at = i + (out->items[i].status != 'T');
        if (!out->items[i].diff.len)
            out->items[i].diff = diff;
        else
            out->items[i].diff.len = (size_t)(diff.p + diff.len - out->items[i].diff.p);
        out->items[i].cut = cut && !text.len;
    }
}

bool session_changes_parse(struct str text, struct arena *arena, struct session_changes *out)
{
    struct str line = str_split(&text, '\n');
    uint64_t length = 0;
    bool cut;

    *out = (struct session_changes){.kind = str_split(&line, ' ')};
    out->base = str_split(&line, ' ');
    if (!text.p || !line.p || !str_to_u64(line, &length) || length > text.len ||
        (!str_is(out->kind, "repository") && !str_is(out->kind, "directory") &&
         !str_is(out->kind, "none")) ||
        out->base.len > 64)
        return false;
    if (str_is(out->base, "-"))
        out->base = STR("");
    out->items = arena_alloc(arena, CHANGES_FILES_MAX * sizeof(*out->items));
    out->truncated = length >= CHANGES_LIST_MAX;
    read_list(str_n(text.p, (size_t)length), out);
    text = str_skip(text, (size_t)length);
    cut = text.len >= CHANGES_DIFF_MAX;
    out->truncated |= cut;
    read_diffs(text, cut, out);
    return true;
}

/* ---- asking ---- */

static json_t *script_env(const struct session *session)
{
    int64_t since_s = session->created_at_us / 1000000;
    time_t at = (time_t)since_s;
    char number[24], date[40];
    struct tm tm;

    (void)snprintf(number, sizeof(number), "%" PRId64, since_s);
    (void)strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S +0000", gmtime_r(&at, &tm));
    return json_pack("{s:o, s:s, s:s, s:s, s:s}", "QS_DIR", json_str(session->workdir), "QS_SINCE",
                     date, "QS_SINCE_S", number, "QS_LIST_MAX", "131072", "QS_DIFF_MAX", "1048576");
}

_Static_assert(CHANGES_LIST_MAX == 131072 && CHANGES_DIFF_MAX == 1048576,
               "as script_env() has them");

int session_changes(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    struct arena *arena, struct session_changes *out, struct error *err)
{
    struct runtime_caller looks = *caller;
    struct runtime_result result = {0};
    struct session session = {0};
    auto_json json_t *argv = json_pack("[s, s, s]", "sh", "-c", script), *env = NULL;
    struct runtime_command command = {
        .argv = argv, .timeout_ms = CHANGES_MS, .output_limit = PRINTED_MAX, .own = true};
    struct str told;
    int r;

    *out = (struct session_changes){0};
    if (session_get(runtime, caller, id, arena, &session, err) < 0)
        return -1;
    if (!session.workdir.len || !session.sandbox_id.len)
        return error_set(err, ERROR_CONFLICT, "session '%.*s' has no workspace yet", STR_ARG(id));
    command.env = env = script_env(&session);
    looks.looks = true;
    if (runtime_exec(runtime, &looks, session.sandbox_id, &command, &result, err) < 0)
        return err->code != ERROR_CONFLICT
                   ? -1
                   : error_set(err, ERROR_CONFLICT,
                               "the sandbox of session '%.*s' does not run: resume the session to "
                               "see its changes",
                               STR_ARG(id));
    told = str_trim(buf_str(&result.err));
    if (told.len > ERRORS_MAX)
        told = str_skip(told, told.len - ERRORS_MAX);
    if (result.timed_out)
        r = error_set(err, ERROR_TIMEOUT, "git took longer than %d s in '%.*s'", CHANGES_MS / 1000,
                      STR_ARG(session.workdir));
    else if (result.exit_code != 0 ||
             !session_changes_parse(arena_str(arena, buf_str(&result.out)), arena, out))
        r = error_set(err, ERROR_CONFLICT, "the changes in '%.*s' cannot be read: %.*s",
                      STR_ARG(session.workdir),
                      STR_ARG(told.len ? told : STR("unexpected output")));
    else
        r = 0;
    runtime_result_done(&result);
    return r;
}
