/* Pull requests: what is asked of GitHub's API and of Gitea's, which are alike.
 *
 * The answer is a stranger's text: bounded, its words masked, its numbers and addresses checked. An open
 * request for the same branches counts as success, so that all of it may be repeated. */
#include "runtime/session/pull.h"

#include <ctype.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/fetch/fetch.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"

enum {
    CALL_MS = 30000,
    ALL_S = 60, /* opening one and looking for it */
    ANSWER_MAX = 4 * 1024 * 1024,
    TITLE_MAX = 256,
    BODY_MAX = 65536,
    TOKEN_MAX = 4096,
    URL_MAX = 2048,
    SAID_MAX = 160, /* of the host's own words */
    PAGES_MAX = 10,
    PAGE = 30,
};

/* ---- one call ---- */

struct answer {
    int status;
    json_t *json; /* NULL = it was none */
};

static void answer_done(struct answer *answer)
{
    json_decref(answer->json);
}
#define auto_answer __attribute__((cleanup(answer_done)))

/* target: after "/repos/OWNER/NAME". -1: there was no answer. */
static int call(struct live_session *live, const struct session_pull *pull, const char *method,
                const char *target, struct str body, struct answer *out, struct error *err)
{
    bool github = pull->kind == PULL_GITHUB;
    auto_free char *authorization = xasprintf("%s %s", github ? "Bearer" : "token", pull->token);
    auto_free char *url = xasprintf("%s/repos/%.*s/%.*s%s", pull->api, STR_ARG(pull->place.owner),
                                    STR_ARG(pull->place.name), target);
    const struct pair headers[] = {
        {STR("authorization"), str_of(authorization)},
        {STR("content-type"), STR("application/json")},
        {STR("accept"), github ? STR("application/vnd.github+json") : STR("application/json")},
        {STR("x-github-api-version"), STR("2022-11-28")},
    };
    struct fetch_request request = {.method = method,
                                    .url = url,
                                    .headers = headers,
                                    .header_count = github ? 4 : 3,
                                    .body = body,
                                    .timeout_ms = CALL_MS,
                                    .deadline_us = pull->deadline_us,
                                    .response_max = ANSWER_MAX,
                                    .reach = FETCH_ANYWHERE};
    auto_response struct fetch_response response = {0};
    struct error ignored;

    if (fetch_call(live->runtime->config.fetch, &request, &response, err) < 0) {
        if (err->code != ERROR_TIMEOUT)
            err->code = ERROR_UNAVAILABLE;
        return error_prefix(err, "git host '%.*s'", STR_ARG(pull->place.host));
    }
    out->status = response.status;
    (void)json_parse(buf_str(&response.body), &out->json, &ignored);
    return 0;
}

/* "message", and that of the first of "errors". */
static char *words_of(const json_t *json)
{
    const json_t *first = json_array_get(json_object_get(json, "errors"), 0);
    struct str message = json_get_str(json, "message");
    struct str detail = json_is_string(first)
                            ? str_n(json_string_value(first), json_string_length(first))
                            : json_get_str(first, "message");
    char *text = xasprintf("%.*s%s%.*s", STR_ARG(message), message.len && detail.len ? ": " : "",
                           STR_ARG(detail));

    for (char *p = text; *p; p++)
        if (iscntrl((unsigned char)*p))
            *p = ' ';
    return text;
}

static bool says_exists(const struct answer *answer)
{
    auto_free char *text = words_of(answer->json);

    return (answer->status == 422 || answer->status == 409) && strstr(text, "already exists");
}

/* Masked before it is cut: half a token is not found. */
static void mask(const struct live_session *live, const struct session_pull *pull, char *text)
{
    session_mask_token(text, pull->token);
    runtime_mask(live->runtime, live->caller.team_id, text);
}

static int refused(const struct live_session *live, const struct session_pull *pull,
                   const struct answer *answer, struct error *err)
{
    auto_free char *text = words_of(answer->json);
    int status = answer->status;
    size_t len;

    mask(live, pull, text);
    len = strlen(text) < SAID_MAX ? strlen(text) : SAID_MAX;
    while (len && ((unsigned char)text[len] & 0xC0) == 0x80) /* not inside of a character */
        len--;
    return error_set(err, status == 429 || status >= 500 ? ERROR_UNAVAILABLE : ERROR_CONFLICT,
                     "%s: git host '%.*s' answered %d%s%.*s",
                     status == 401 || status == 403 ? "auth" : "pull-request",
                     STR_ARG(pull->place.host), status, len ? ": " : "", (int)len, text);
}

/* ---- before the push ---- */

static int find_host(const struct runtime *runtime, struct session_pull *pull, struct error *err)
{
    const struct pull_place *place = &pull->place;
    const json_t *record = json_object_get(runtime->config.settings->git_hosts, place->host.p);

    if (record) {
        pull->kind = str_is(json_get_str(record, "type"), "gitea") ? PULL_GITEA : PULL_GITHUB;
        pull->api = json_get_str(record, "api_url").p;
    } else if (str_is(place->host, "github.com")) {
        pull->kind = PULL_GITHUB;
        pull->api = "https://api.github.com";
    } else {
        return error_set(
            err, ERROR_INVALID,
            "'pr': git host '%.*s' is not known; nothing was pushed. The operator names "
            "it in the runtime's configuration: \"git_hosts\": {\"HOST\": {\"type\": "
            "\"github\" or \"gitea\"}}",
            place->host.len < 64 ? (int)place->host.len : 64, place->host.p);
    }
    if (str_is(place->host, "github.com") && place->deep)
        return error_set(err, ERROR_INVALID,
                         "'pr': a repository of '%.*s' is OWNER/NAME; nothing was pushed",
                         STR_ARG(place->host));
    return 0;
}

static int check_token(const char *token, struct error *err)
{
    if (!*token)
        return error_set(err, ERROR_CONFLICT,
                         "auth: a pull request needs a token: give 'git_token', or the session's "
                         "profile a gitToken; nothing was pushed");
    for (const char *p = token; *p; p++)
        if (*p <= ' ' || *p > '~' || p - token >= TOKEN_MAX)
            return error_set(err, ERROR_INVALID,
                             "the token for git must be of printable characters without blanks, at "
                             "most %d",
                             TOKEN_MAX);
    return 0;
}

/* The repository's own branch. */
static int ask_base(struct live_session *live, struct session_pull *pull, struct arena *arena,
                    struct error *err)
{
    auto_answer struct answer answer = {0};

    if (call(live, pull, "GET", "", STR_NONE, &answer, err) < 0)
        return -1;
    if (answer.status != 200)
        return refused(live, pull, &answer, err);
    pull->base = arena_str(arena, json_get_str(answer.json, "default_branch"));
    if (!repo_branch_valid(pull->base))
        return error_set(err, ERROR_CONFLICT,
                         "pull-request: git host '%.*s' told no default branch: give 'pr.base'",
                         STR_ARG(pull->place.host));
    return 0;
}

static int find_base(struct live_session *live, struct session_pull *pull, struct arena *arena,
                     struct error *err)
{
    if (pull->base.len == 0) {
        (void)pthread_mutex_lock(&live->lock);
        pull->base = arena_str(arena, live->row.branch);
        (void)pthread_mutex_unlock(&live->lock);
        if ((pull->base.len == 0 || str_eq(pull->base, pull->head)) &&
            ask_base(live, pull, arena, err) < 0)
            return -1;
    }
    if (!repo_branch_valid(pull->base))
        return error_set(err, ERROR_INVALID, "'pr.base': '%.*s' is not a name for a branch",
                         pull->base.len < 200 ? (int)pull->base.len : 200, pull->base.p);
    if (str_eq(pull->base, pull->head))
        return error_set(err, ERROR_INVALID,
                         "'pr': '%.*s' cannot be pulled into itself: give another 'branch' or "
                         "'pr.base'; nothing was pushed",
                         STR_ARG(pull->head));
    return 0;
}

static int set_words(const struct runtime_push *push, struct arena *arena, struct session_pull *out,
                     struct error *err)
{
    const struct runtime_pull *wanted = push->pull;
    struct str message = push->message, line = str_split(&message, '\n');

    out->title = str_trim(wanted->title.len ? wanted->title : line);
    if (!wanted->title.len && out->title.len > TITLE_MAX)
        out->title.len = TITLE_MAX;
    out->body = wanted->body.p ? wanted->body : STR("");
    if (out->title.len == 0 || out->title.len > TITLE_MAX ||
        memchr(out->title.p, '\n', out->title.len))
        return error_set(err, ERROR_INVALID, "'pr.title' must be one line of at most %d bytes",
                         TITLE_MAX);
    if (out->body.len > BODY_MAX)
        return error_set(err, ERROR_LIMIT, "'pr.body' has more than %d bytes", BODY_MAX);
    /* Gitea has no member for it: the title says so. */
    if (out->draft && out->kind == PULL_GITEA)
        out->title = str_of(arena_printf(arena, "WIP: %.*s", STR_ARG(out->title)));
    return 0;
}

int session_pull_prepare(struct live_session *live, const struct runtime_push *push,
                         const char *token, struct arena *arena, struct session_pull *out,
                         struct error *err)
{
    struct str repo = push->remote;

    *out = (struct session_pull){
        .token = token, .head = push->branch, .base = push->pull->base, .draft = push->pull->draft};
    if (str_is(repo, "origin")) {
        (void)pthread_mutex_lock(&live->lock);
        repo = arena_str(arena, live->row.repo);
        (void)pthread_mutex_unlock(&live->lock);
    }
    if (!pull_place_of(repo, arena, &out->place))
        return error_set(err, ERROR_INVALID,
                         "'pr' needs a repository with host, owner and name in its URL (http, "
                         "https, ssh, user@host:path): the session's, or 'remote'");
    if (find_host(live->runtime, out, err) < 0 || check_token(token, err) < 0 ||
        set_words(push, arena, out, err) < 0)
        return -1;
    return find_base(live, out, arena, err);
}

/* ---- after it ---- */

static int take(const struct live_session *live, const struct session_pull *pull,
                const json_t *json, struct arena *arena, struct runtime_pulled *out,
                struct error *err)
{
    struct str url = json_get_str(json, "html_url");
    char *text = arena_printf(arena, "%.*s", STR_ARG(url.len <= URL_MAX ? url : STR("")));

    out->number = json_integer_value(json_object_get(json, "number"));
    if (out->number <= 0)
        return error_set(err, ERROR_UNAVAILABLE,
                         "pull-request: git host '%.*s' answered without a number",
                         STR_ARG(pull->place.host));
    mask(live, pull, text);
    out->url = fetch_url_ok(text) ? str_of(text) : STR("");
    out->base = pull->base;
    return 0;
}

static bool is_ours(const struct session_pull *pull, const json_t *item)
{
    const json_t *head = json_object_get(item, "head");
    struct str full = json_get_str(json_object_get(head, "repo"), "full_name");
    struct str owner = str_split(&full, '/');

    return str_is(json_get_str(item, "state"), "open") &&
           str_eq(json_get_str(head, "ref"), pull->head) &&
           str_eq(json_get_str(json_object_get(item, "base"), "ref"), pull->base) &&
           str_eq_nocase(owner, pull->place.owner) && str_eq_nocase(full, pull->place.name);
}

/* The one that is open. GitHub looks for it; Gitea lists them, that of the last push first. */
static int find_open(struct live_session *live, const struct session_pull *pull,
                     struct arena *arena, struct runtime_pulled *out, struct error *err)
{
    for (int page = 1; page <= PAGES_MAX; page++) {
        auto_answer struct answer answer = {0};
        auto_free char *target =
            pull->kind == PULL_GITHUB
                ? xasprintf("/pulls?state=open&head=%.*s:%.*s&base=%.*s&per_page=%d&page=%d",
                            STR_ARG(pull->place.owner), STR_ARG(pull->head), STR_ARG(pull->base),
                            PAGE, page)
                : xasprintf("/pulls?state=open&sort=recentupdate&base_branch=%.*s&limit=%d&page=%d",
                            STR_ARG(pull->base), PAGE, page);
        json_t *item;
        size_t i;

        if (call(live, pull, "GET", target, STR_NONE, &answer, err) < 0)
            return -1;
        if (answer.status != 200 || !json_is_array(answer.json))
            return refused(live, pull, &answer, err);
        json_array_foreach (answer.json, i, item)
            if (is_ours(pull, item))
                return take(live, pull, item, arena, out, err);
        if (json_array_size(answer.json) == 0)
            break;
    }
    return error_set(err, ERROR_CONFLICT,
                     "pull-request: git host '%.*s' says that there is one already, and does not "
                     "list it",
                     STR_ARG(pull->place.host));
}

static int open_or_find(struct live_session *live, const struct session_pull *pull,
                        struct arena *arena, struct runtime_pulled *out, struct error *err)
{
    auto_answer struct answer answer = {0};
    auto_json json_t *body =
        json_pack("{s:o,s:o,s:o,s:o}", "title", json_str(pull->title), "head", json_str(pull->head),
                  "base", json_str(pull->base), "body", json_str(pull->body));
    auto_free char *text = NULL;

    if (pull->kind == PULL_GITHUB)
        (void)json_object_set_new(body, "draft", json_boolean(pull->draft));
    text = json_text(body);
    if (call(live, pull, "POST", "/pulls", str_of(text), &answer, err) < 0)
        return -1;
    if (answer.status == 201)
        return take(live, pull, answer.json, arena, out, err);
    if (!says_exists(&answer))
        return refused(live, pull, &answer, err);
    out->existed = true;
    return find_open(live, pull, arena, out, err);
}

static void add_what_stays(const struct session_pull *pull, struct error *err)
{
    size_t len = strlen(err->message);

    (void)snprintf(err->message + len, sizeof(err->message) - len,
                   "; '%.*s' is pushed, and the same request tries again", STR_ARG(pull->head));
}

int session_pull_open(struct live_session *live, struct session_pull *pull, struct arena *arena,
                      struct runtime_pulled *out, struct error *err)
{
    struct error cause = {0};
    int r;

    session_tell(
        live, "git.pr.started",
        json_pack("{s:o,s:o}", "branch", json_str(pull->head), "base", json_str(pull->base)));
    pull->deadline_us = clock_deadline(ALL_S, 0);
    r = open_or_find(live, pull, arena, out, &cause);
    if (r < 0) {
        *out = (struct runtime_pulled){0};
        mask(live, pull, cause.message);
        session_tell(live, "git.pr.failed",
                     json_pack("{s:o,s:o,s:o}", "branch", json_str(pull->head), "base",
                               json_str(pull->base), "message", json_str(str_of(cause.message))));
        add_what_stays(pull, &cause);
        *err = cause;
        return -1;
    }
    session_tell(live, "git.pr.succeeded",
                 json_pack("{s:o,s:o,s:I,s:o,s:b}", "branch", json_str(pull->head), "base",
                           json_str(pull->base), "number", (json_int_t)out->number, "url",
                           json_str(out->url), "existed", (int)out->existed));
    return 0;
}
