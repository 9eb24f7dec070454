#include "extra/browser/browser.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "domain/sandbox/sandbox.h"
#include "domain/secret/secret.h"
#include "domain/volume/volume.h"
#include "extra/browser/browser_internal.h"
#include "protocol/json/json_shape.h"

#define PURPOSE "browser"

enum {
    TIMEOUT_S = 3600,
    STOP_MS = 15 * 1000,
    ENDED_KEPT = 10000, /* sessions of a team that are over */
    FLAGS_MAX = 8,
    WIDTH = 1288, /* of the browsers that run already */
    HEIGHT = 711,
};

/* How many clients a session has. */
struct connected {
    struct list node;
    char id[UUID_SIZE];
    size_t count;
};

struct browsers *browsers_open(const struct browsers_config *config)
{
    struct browsers *all = xcalloc(1, sizeof(*all));

    all->config = *config;
    (void)pthread_mutex_init(&all->lock, NULL);
    list_init(&all->connected);
    browser_files_settle(all);
    return all;
}

void browsers_close(struct browsers *all)
{
    if (!all)
        return;
    while (!list_empty(&all->connected))
        free(container_of(list_pop_front(&all->connected), struct connected, node));
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
}

bool browser_runs(const struct store_browser_session *session)
{
    return str_is(session->status, "RUNNING");
}

/* ---- create ---- */

/* Chromium runs already, as most want it: only who wants something else has it started anew. */
static int adapt(struct browsers *all, const struct store_browser_session *session,
                 const struct browser_new *request, struct error *err)
{
    auto_arena struct arena arena = {0};
    const char *argv[FLAGS_MAX + 2] = {"/usr/local/bin/browser-restart"};
    const struct inside_command command = {.argv = argv};
    size_t count = 1;

    if (request->context_id.len)
        argv[count++] = request->persist ? "--context=keep" : "--context=copy";
    if (request->extension_id.len) {
        argv[count++] = "--extension";
        if (extension_give(all, session, request->extension_id, err) < 0)
            return -1;
    }
    if (request->width && (request->width != WIDTH || request->height != HEIGHT))
        argv[count++] = arena_printf(&arena, "--window-size=%lld,%lld", (long long)request->width,
                                     (long long)request->height);
    if (request->proxy.len)
        argv[count++] = arena_printf(&arena, "--proxy-server=%.*s", STR_ARG(request->proxy));
    if (request->ignore_certificates)
        argv[count++] = "--ignore-certificate-errors";
    if (count > 1 && inside_run(all, session, &command, NULL, err) < 0)
        return -1;
    return notes_begin(all, session, request->log, request->record, err);
}

static void make_row(const struct browser_new *request, const struct sandbox_view *view,
                     struct str id, struct store_browser_session *out)
{
    int64_t now_us = clock_wall_us();

    *out = (struct store_browser_session){
        .id = id,
        .team_id = request->team_id,
        .sandbox_id = view->id,
        .context_id = request->context_id.p ? request->context_id : STR(""),
        .status = STR("RUNNING"),
        .region = request->region,
        .metadata = request->metadata.p ? request->metadata : STR(""),
        .keep_alive = request->keep_alive,
        .persist = request->persist,
        .wants_log = request->log,
        .wants_record = request->record,
        .created_at_us = now_us,
        .updated_at_us = now_us,
        .expires_at_us = view->end_at_us,
    };
}

/* Nobody but we reaches the ports of it: they need a token that nobody is told. */
static int make_sandbox(struct browsers *all, const struct browser_new *request, struct str id,
                        const struct volume_mount *volume, struct arena *arena,
                        struct sandbox_view *out, struct error *err)
{
    const struct pair label = {STR("browserSession"), id};
    const struct sandbox_new wish = {
        .team_id = request->team_id,
        .template_name = STR(BROWSER_TEMPLATE),
        .timeout_s = request->timeout_s ? request->timeout_s : TIMEOUT_S,
        .secure = true,
        .internet = true,
        .is_private = true,
        .volumes = volume,
        .volume_count = volume ? 1 : 0,
        .metadata = &label,
        .metadata_count = 1,
    };

    return sandbox_create(all->config.sandboxes, &wish, arena, out, err);
}

static int find_context(struct browsers *all, const struct browser_new *request,
                        struct arena *arena, struct volume_mount *out, struct error *err)
{
    struct store_browser_context context = {0};

    if (browser_context_get(all, request->team_id, request->context_id, arena, &context, err) < 0)
        return -1;
    *out = (struct volume_mount){context.volume_id, STR(BROWSER_HOME "/.browser/context")};
    return 0;
}

int browser_create(struct browsers *all, const struct browser_new *request, struct arena *arena,
                   struct store_browser_session *out, struct error *err)
{
    struct volume_mount volume = {0};
    struct sandbox_view view = {0};
    char id[UUID_SIZE];
    struct error ignored;
    struct store_browser_extension extension = {0};

    id_uuid(id);
    browser_files_prune(all);
    if ((request->extension_id.len &&
         browser_extension_get(all, request->team_id, request->extension_id, arena, &extension,
                               err) < 0) ||
        (request->context_id.len && find_context(all, request, arena, &volume, err) < 0) ||
        make_sandbox(all, request, str_of(id), volume.name.len ? &volume : NULL, arena, &view,
                     err) < 0)
        return -1;
    make_row(request, &view, arena_str(arena, str_of(id)), out);
    if (store_browser_session_insert(all->config.store, out, ENDED_KEPT, err) < 0) {
        (void)sandbox_kill(all->config.sandboxes, request->team_id, view.id, &ignored);
        return -1;
    }
    if (adapt(all, out, request, err) == 0)
        return 0;
    (void)store_browser_session_end(all->config.store, out->id, STR("ERROR"), clock_wall_us(),
                                    &ignored);
    (void)sandbox_kill(all->config.sandboxes, request->team_id, view.id, &ignored);
    return -1;
}

/* ---- what became of it ---- */

/* A row that says RUNNING is true as long as its sandbox is there. */
static int settle(struct browsers *all, struct store_browser_session *session, struct arena *arena,
                  struct error *err)
{
    struct sandbox_view view;
    struct error gone = {0};
    int64_t now_us = clock_wall_us();
    bool over = now_us >= session->expires_at_us;

    if (!browser_runs(session) ||
        (!over && (sandbox_get(all->config.sandboxes, session->team_id, session->sandbox_id, arena,
                               &view, &gone) == 0 ||
                   gone.code != ERROR_NOT_FOUND)))
        return 0;
    session->status = over ? STR("TIMED_OUT") : STR("ERROR");
    session->ended_at_us = session->updated_at_us = over ? session->expires_at_us : now_us;
    return store_browser_session_end(all->config.store, session->id, session->status,
                                     session->ended_at_us, err);
}

int browser_get(struct browsers *all, struct str team_id, struct str id, struct arena *arena,
                struct store_browser_session *out, struct error *err)
{
    if (id.len >= UUID_SIZE)
        return error_set(err, ERROR_NOT_FOUND, "there is no session of that id");
    if (store_browser_session_find(all->config.store, team_id, id, arena, out, err) < 0)
        return -1;
    return settle(all, out, arena, err);
}

static bool fits(const struct store_browser_session *session, const struct browser_filter *filter)
{
    auto_json json_t *metadata = NULL;
    auto_free char *name = NULL;
    struct error ignored;

    if (filter->status.p && !str_eq(filter->status, session->status))
        return false;
    if (!filter->name.p)
        return true;
    if (!session->metadata.len || json_parse(session->metadata, &metadata, &ignored) < 0)
        return false;
    name = str_dup(filter->name);
    return str_eq(json_get_str(metadata, name), filter->value);
}

int browser_list(struct browsers *all, const struct browser_filter *filter, struct arena *arena,
                 struct store_browser_session **out, size_t *out_count, struct error *err)
{
    /* Ended ones have their last state; those that run may have ended meanwhile. */
    struct str status = str_is(filter->status, "RUNNING") ? filter->status : STR_NONE;
    size_t count;

    *out_count = 0;
    if (store_browser_session_list(all->config.store, filter->team_id, status, BROWSER_LIST_MAX,
                                   arena, out, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (settle(all, &(*out)[i], arena, err) < 0)
            return -1;
        if (fits(&(*out)[i], filter))
            (*out)[(*out_count)++] = (*out)[i];
    }
    return 0;
}

/* ---- the end ---- */

/* What it keeps is on the volume when Chromium has ended by itself. */
static void save(struct browsers *all, const struct store_browser_session *session)
{
    const char *const argv[] = {"/usr/local/bin/browser-stop", NULL};
    const struct inside_command command = {.argv = argv, .timeout_ms = STOP_MS};
    struct error err = {0};

    if (!session->persist)
        return;
    if (inside_run(all, session, &command, NULL, &err) < 0)
        log_warn("browser", "session=%.*s may not have kept all of its context: %s",
                 STR_ARG(session->id), err.message);
    (void)store_browser_context_touch(all->config.store, session->context_id, clock_wall_us(),
                                      &err);
}

int browser_release(struct browsers *all, struct str team_id, struct str id, struct arena *arena,
                    struct store_browser_session *out, struct error *err)
{
    if (browser_get(all, team_id, id, arena, out, err) < 0)
        return -1;
    if (!browser_runs(out))
        return 0;
    notes_keep(all, out);
    save(all, out);
    /* The row first: who looks meanwhile must not take it for a session that lost its sandbox. */
    out->status = STR("COMPLETED");
    out->ended_at_us = out->updated_at_us = clock_wall_us();
    if (store_browser_session_end(all->config.store, out->id, out->status, out->ended_at_us, err) <
        0)
        return -1;
    if (sandbox_kill(all->config.sandboxes, out->team_id, out->sandbox_id, err) < 0 &&
        err->code != ERROR_NOT_FOUND)
        return -1;
    return 0;
}

/* ---- connections ---- */

static struct str signed_text(struct str id, int64_t until_s, struct arena *arena)
{
    return until_s ? str_of(arena_printf(arena, "%.*s %lld", STR_ARG(id), (long long)until_s)) : id;
}

void browser_sign(struct browsers *all, struct str session_id, int64_t until_s,
                  char out[BROWSER_SIGNATURE_SIZE])
{
    auto_arena struct arena arena = {0};

    secret_sign(all->config.secrets, PURPOSE, signed_text(session_id, until_s, &arena), out);
}

/* The port, and the path on the next line. */
static int find_path(struct browsers *all, const struct store_browser_session *session,
                     struct arena *arena, struct str *out, struct error *err)
{
    auto_buf struct buf text = {0};
    struct str rest, path;

    buf_init(&text, 256);
    if (inside_read(all, session, BROWSER_HOME "/.browser/address", &text, err) < 0)
        return error_set(err, ERROR_UNAVAILABLE, "the session's browser does not run now");
    rest = buf_str(&text);
    (void)str_split(&rest, '\n');
    path = str_trim(rest);
    for (size_t i = 0; i < path.len; i++)
        if (path.p[i] <= ' ' || (unsigned char)path.p[i] >= 0x7f)
            path.len = 0;
    if (!str_starts(path, STR("/devtools/browser/")))
        return error_set(err, ERROR_UNAVAILABLE, "the session's browser does not run now");
    *out = arena_str(arena, path);
    return 0;
}

int browser_connect(struct browsers *all, struct str id, int64_t until_s, struct str signature,
                    struct arena *arena, struct store_browser_session *out, struct str *out_path,
                    struct error *err)
{
    if (id.len >= UUID_SIZE || !signature.len ||
        !secret_signed(all->config.secrets, PURPOSE, signed_text(id, until_s, arena), signature))
        return error_set(err, ERROR_FORBIDDEN,
                         "the signature is wrong: take 'connectUrl' from the session as it is");
    if (until_s && until_s < clock_wall_us() / 1000000)
        return error_set(err, ERROR_FORBIDDEN, "the link has expired: ask for a new one");
    if (browser_get(all, STR_NONE, id, arena, out, err) < 0)
        return -1;
    if (!browser_runs(out))
        return error_set(err, ERROR_NOT_FOUND, "session '%.*s' is over (%.*s)", STR_ARG(id),
                         STR_ARG(out->status));
    return find_path(all, out, arena, out_path, err);
}

/* Under the lock. */
static struct connected *find_connected(struct browsers *all, struct str id)
{
    struct list *node;

    list_for_each (node, &all->connected) {
        struct connected *connected = container_of(node, struct connected, node);

        if (str_is(id, connected->id))
            return connected;
    }
    return NULL;
}

void browser_joined(struct browsers *all, struct str id)
{
    struct connected *connected;

    (void)pthread_mutex_lock(&all->lock);
    connected = find_connected(all, id);
    if (!connected) {
        connected = xcalloc(1, sizeof(*connected));
        (void)str_copy(id, connected->id, sizeof(connected->id));
        list_push_back(&all->connected, &connected->node);
    }
    connected->count++;
    (void)pthread_mutex_unlock(&all->lock);
}

static bool was_last(struct browsers *all, struct str id)
{
    struct connected *connected;
    bool last = true;

    (void)pthread_mutex_lock(&all->lock);
    connected = find_connected(all, id);
    if (connected && --connected->count > 0)
        last = false;
    if (connected && last) {
        list_remove(&connected->node);
        free(connected);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return last;
}

void browser_left(struct browsers *all, struct str id)
{
    auto_arena struct arena arena = {0};
    struct store_browser_session session = {0};
    struct error err = {0};

    if (!was_last(all, id) || browser_get(all, STR_NONE, id, &arena, &session, &err) < 0 ||
        session.keep_alive)
        return;
    if (browser_release(all, session.team_id, id, &arena, &session, &err) < 0)
        log_warn("browser", "session=%.*s was left and did not end: %s", STR_ARG(id), err.message);
}

int browser_minutes(struct browsers *all, struct str team_id, int64_t *out, struct error *err)
{
    int64_t seconds = 0;

    if (store_browser_session_seconds(all->config.store, team_id, clock_wall_us(), &seconds, err) <
        0)
        return -1;
    *out = (seconds + 59) / 60;
    return 0;
}
