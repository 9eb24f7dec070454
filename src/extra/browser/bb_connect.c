/* Clients that connect to a session's browser, and people who look at it. */
#include "base/alloc.h"
#include "base/clock.h"
#include "extra/browser/bb_internal.h"
#include "protocol/json/json_shape.h"

enum { VIEW_S = 3600, VIEW_MAX_S = 86400 };

/* What is left to do when it leaves, on a worker: the call is long gone then. */
struct bb_left {
    struct work work;
    struct bb *bb;
    char id[40];
};

static void left_run(struct work *work)
{
    struct bb_left *left = container_of(work, struct bb_left, work);

    browser_left(left->bb->config.browsers, str_of(left->id));
}

static void left_done(struct work *work)
{
    free(container_of(work, struct bb_left, work));
}

/* On the loop. When no worker takes it, the session ends at its time. Not on the control lane: no team's share limits how
 * many clients leave at once. */
static void on_left(void *arg)
{
    struct bb_left *left = arg;

    if (workers_run(left->bb->config.lanes[BB_LANE_WAIT].workers, &left->work) < 0)
        free(left);
}

static void note_client(struct bb_call *call, struct str id)
{
    struct bb_left *left = xcalloc(1, sizeof(*left));

    left->bb = call->bb;
    left->work = (struct work){.run = left_run, .done = left_done, .loop = call->loop};
    (void)str_copy(id, left->id, sizeof(left->id));
    browser_joined(call->bb->config.browsers, id);
    call->left = left;
    call->join.ended = on_left;
    call->join.arg = left;
}

int bb_connect(struct bb_call *call, struct error *err)
{
    struct store_browser_session session = {0};
    struct str path = STR_NONE, until = bb_query(call, "until");
    int64_t until_s = 0;

    if (until.len && (!str_to_i64(until, &until_s) || until_s < 1))
        return error_set(err, ERROR_INVALID, "'until' must be a time in seconds");
    if (browser_connect(call->bb->config.browsers, call->params[0], until_s,
                        bb_query(call, "signingKey"), &call->arena, &session, &path, err) < 0)
        return -1;
    call->joins = true;
    call->join =
        (struct call_join){.sandbox_id = session.sandbox_id, .path = path, .port = BROWSER_PORT};
    if (!until_s)
        note_client(call, session.id);
    call_answer(&call->call, 101, NULL);
    return 0;
}

void bb_take_over(struct bb_call *call)
{
    http_on_done(call->ex, NULL, NULL);
    call->left = NULL; /* `ended` has it now */
    call->bb->config.join(call->bb->config.join_arg, call->loop, call->ex, &call->join);
}

void bb_forget(struct bb_call *call)
{
    if (call->left)
        on_left(call->left);
    call->left = NULL;
}

/* ---- the live view ---- */

/* What comes from inside and goes into a link. */
static bool is_plain(struct str id)
{
    bool good = id.len > 0 && id.len <= 64;

    for (size_t i = 0; good && i < id.len; i++)
        good = (id.p[i] >= 'A' && id.p[i] <= 'Z') || (id.p[i] >= 'a' && id.p[i] <= 'z') ||
               (id.p[i] >= '0' && id.p[i] <= '9') || id.p[i] == '-';
    return good;
}

static json_t *view_url(struct bb_call *call, const struct store_browser_session *session,
                        int64_t until_s, const char *signature, struct str page)
{
    auto_arena struct arena arena = {0};
    bool named = is_plain(page);

    return json_string(arena_printf(&arena, "%.*s/v1/live#session=%.*s&until=%lld&key=%s%s%.*s",
                                    STR_ARG(call->origin), STR_ARG(session->id), (long long)until_s,
                                    signature, named ? "&page=" : "", named ? (int)page.len : 0,
                                    named ? page.p : ""));
}

static json_t *write_page(struct bb_call *call, const struct store_browser_session *session,
                          int64_t until_s, const char *signature, const json_t *page)
{
    struct str id = json_get_str(page, "id");

    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o}", "id", json_str(id), "url",
        json_str(json_get_str(page, "url")), "title", json_str(json_get_str(page, "title")),
        "faviconUrl",
        json_str(json_get_str(page, "faviconUrl").len ? json_get_str(page, "faviconUrl") : STR("")),
        "debuggerUrl", view_url(call, session, until_s, signature, id), "debuggerFullscreenUrl",
        view_url(call, session, until_s, signature, id));
}

static int read_until(struct bb_call *call, int64_t *out, struct error *err)
{
    struct str given = bb_query(call, "expiresIn");
    int64_t seconds = VIEW_S;

    if (given.len && (!str_to_i64(given, &seconds) || seconds < 1 || seconds > VIEW_MAX_S))
        return error_set(err, ERROR_INVALID, "'expiresIn' must be from 1 to %d seconds",
                         VIEW_MAX_S);
    *out = clock_wall_us() / 1000000 + seconds;
    return 0;
}

int bb_sessions_debug(struct bb_call *call, struct error *err)
{
    struct store_browser_session session = {0};
    auto_json json_t *pages = NULL;
    json_t *list = json_array(), *page;
    char signature[BROWSER_SIGNATURE_SIZE];
    auto_arena struct arena arena = {0};
    int64_t until_s = 0;
    size_t i;

    arena_defer(&call->arena, (void (*)(void *))json_decref, list);
    if (read_until(call, &until_s, err) < 0 || bb_running_session(call, &session, err) < 0 ||
        browser_pages(call->bb->config.browsers, &session, &pages, err) < 0)
        return -1;
    browser_sign(call->bb->config.browsers, session.id, until_s, signature);
    json_array_foreach (pages, i, page)
        (void)json_array_append_new(list, write_page(call, &session, until_s, signature, page));
    call_answer(&call->call, 200,
                json_pack("{s:o, s:o, s:s, s:O}", "debuggerUrl",
                          view_url(call, &session, until_s, signature, STR_NONE),
                          "debuggerFullscreenUrl",
                          view_url(call, &session, until_s, signature, STR_NONE), "wsUrl",
                          arena_printf(&arena, "ws%.*s/v1/connect/%.*s?until=%lld&signingKey=%s",
                                       STR_ARG(str_skip(call->origin, 4)), STR_ARG(session.id),
                                       (long long)until_s, signature),
                          "pages", list));
    return 0;
}
