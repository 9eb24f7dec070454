/* Sessions as the edge sees them: rows, states, and the words that change them. */
#include "runtime/session/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/backend.h"
#include "runtime/core/event.h"
#include "runtime/session/session_internal.h"

enum { CLOSE_MS = 3000 }; /* the server's own goodbye may hang */

/* ---- references ---- */

struct live_session *session_ref(struct live_session *live)
{
    struct sessions *sessions = live->runtime->sessions;

    (void)pthread_mutex_lock(&sessions->lock);
    live->refs++;
    (void)pthread_mutex_unlock(&sessions->lock);
    return live;
}

void session_free(struct live_session *live)
{
    session_stream_close(session_stream_take(live));
    acp_feed_done(&live->feed);
    buf_done(&live->prompt_answer);
    buf_done(&live->said);
    json_decref(live->permissions);
    json_decref(live->overrides.network);
    json_decref(live->overrides.lifecycle);
    json_decref(live->overrides.limits);
    json_decref(live->overrides.env);
    json_decref(live->overrides.mcp);
    json_decref(live->overrides.mounts);
    json_decref(live->overrides.options);
    free(live->git_token);
    arena_done(&live->arena);
    (void)pthread_mutex_destroy(&live->lock);
    (void)pthread_cond_destroy(&live->changed);
    free(live);
}

void session_unref(struct live_session *live)
{
    struct sessions *sessions = live->runtime->sessions;
    bool last;

    (void)pthread_mutex_lock(&sessions->lock);
    last = --live->refs == 0;
    (void)pthread_mutex_unlock(&sessions->lock);
    if (last)
        session_free(live);
}

void session_wake(struct live_session *live)
{
    if (live->runtime->sessions->closing)
        return;
    if (live->working) {
        live->again = true;
        return;
    }
    live->working = true;
    (void)session_ref(live);
    live->work = (struct work){.run = session_work};
    if (workers_run(live->runtime->sessions->workers, &live->work) < 0) {
        /* The timer looks again. */
        live->working = false;
        log_warn("session", "id=%.*s has to wait: too much to do", STR_ARG(live->row.id));
        session_unref(live);
    }
}

void session_kick(struct live_session *live)
{
    (void)pthread_mutex_lock(&live->lock);
    session_wake(live);
    (void)pthread_mutex_unlock(&live->lock);
}

/* ---- rows and events ---- */

bool session_in(const struct live_session *live, enum session_state state)
{
    return live->row.state == state;
}

/* ---- live ones ---- */

static int check_owner(const struct runtime_caller *caller, const struct store_session *row,
                       struct error *err)
{
    if (!caller->agent_id.len || str_eq(caller->agent_id, row->agent_id))
        return 0;
    return error_set(err, ERROR_FORBIDDEN, "session '%.*s' belongs to another agent",
                     STR_ARG(row->id));
}

/* Finds it, or takes it up from its row. A reference for the caller; NULL with err. */
static struct live_session *live_get(struct runtime *runtime, const struct runtime_caller *caller,
                                     struct str id, struct error *err)
{
    struct sessions *sessions = runtime->sessions;
    auto_arena struct arena arena = {0};
    struct store_session row = {0};
    struct live_session *live;

    if (store_session_get(runtime->config.store, caller->team_id, id, &arena, &row, err) < 0)
        return NULL;
    if (check_owner(caller, &row, err) < 0)
        return NULL;
    (void)pthread_mutex_lock(&sessions->lock);
    live = map_get(&sessions->live, id);
    if (!live) {
        live = live_new(runtime, caller, &row);
        (void)map_put(&sessions->live, live->row.id, live);
    }
    live->refs++;
    (void)pthread_mutex_unlock(&sessions->lock);
    return live;
}

/* ---- seen ---- */

void session_view(const struct store_session *row, struct arena *arena, struct session *out)
{
    *out = (struct session){
        .id = arena_str(arena, row->id),
        .state = row->state,
        .reason = arena_str(arena, row->reason),
        .sandbox_id = arena_str(arena, row->sandbox_id),
        .agent = arena_str(arena, row->agent),
        .repo = arena_str(arena, row->repo),
        .branch = arena_str(arena, row->branch),
        .profile = arena_str(arena, row->profile),
        .provider = arena_str(arena, row->provider),
        .permission = row->permission,
        .snapshot_id = arena_str(arena, row->snapshot_id),
        .checkpoint = arena_str(arena, row->checkpoint),
        .task_id = arena_str(arena, row->task_id),
        .agent_id = arena_str(arena, row->agent_id),
        .acp_session = arena_str(arena, row->acp_session),
        .workdir = arena_str(arena, row->workdir),
        .port = row->port,
        .created_at_us = row->created_at_us,
        .updated_at_us = row->updated_at_us,
    };
}

int session_get(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                struct arena *arena, struct session *out, struct error *err)
{
    struct store_session row;
    struct live_session *live;

    if (store_session_get(runtime->config.store, caller->team_id, id, arena, &row, err) < 0)
        return -1;
    if (check_owner(caller, &row, err) < 0)
        return -1;
    session_view(&row, arena, out);
    (void)pthread_mutex_lock(&runtime->sessions->lock);
    live = map_get(&runtime->sessions->live, id);
    if (live)
        live->refs++;
    (void)pthread_mutex_unlock(&runtime->sessions->lock);
    if (live) {
        (void)pthread_mutex_lock(&live->lock);
        if (live->attached)
            out->base_url = arena_str(arena, live->public_url);
        (void)pthread_mutex_unlock(&live->lock);
        session_unref(live);
    }
    return 0;
}

int session_list(struct runtime *runtime, const struct runtime_caller *caller, struct arena *arena,
                 struct session **out, size_t *out_count, struct error *err)
{
    struct store_session *rows;
    size_t count;

    if (store_session_list(runtime->config.store, caller->team_id, arena, &rows, &count, err) < 0)
        return -1;
    *out = arena_alloc(arena, (count + 1) * sizeof(**out));
    *out_count = 0;
    for (size_t i = 0; i < count; i++)
        if (!caller->agent_id.len || str_eq(caller->agent_id, rows[i].agent_id))
            session_view(&rows[i], arena, &(*out)[(*out_count)++]);
    return 0;
}

/* ---- changed ---- */

/* Lets the lock go. r: what is known already. */
static int saved(struct live_session *live, int r, struct error *err)
{
    struct error problem;

    if (session_save(live, &problem) == 0 || r < 0)
        return r;
    *err = problem;
    return -1;
}

/* And the reference. */
static int done(struct live_session *live, int r, struct error *err)
{
    r = saved(live, r, err);
    session_unref(live);
    return r;
}

int session_send(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                 struct str text, struct error *err)
{
    struct live_session *live;
    int r;

    if (text.len == 0 || text.len > SESSION_MESSAGE_MAX || !str_valid_utf8(text) ||
        memchr(text.p, 0, text.len))
        return error_set(err, ERROR_INVALID, "'message' must be text of 1 to %d bytes",
                         SESSION_MESSAGE_MAX);
    live = live_get(runtime, caller, id, err);
    if (!live)
        return -1;
    (void)pthread_mutex_lock(&live->lock);
    session_pen_take(live); /* until its event is written nobody reads it */
    (void)pthread_mutex_unlock(&live->lock);
    r = store_message_add(runtime->config.store, live->row.id, text, SESSION_MESSAGES_MAX, err);
    (void)pthread_mutex_lock(&live->lock);
    if (r == 0) {
        session_event(live, "session.message", json_pack("{s:o}", "text", json_str(text)));
        live->failures = 0;
        if (session_in(live, SESSION_COMPLETED) || session_in(live, SESSION_FAILED) ||
            session_in(live, SESSION_CANCELED)) {
            char reason[40];
            bool was_lost = session_in(live, SESSION_CANCELED) || live->row.workdir.len == 0;

            (void)snprintf(reason, sizeof(reason), "resume-after-%s",
                           name_of(&session_state_names, live->row.state));
            /* What was never provisioned, or whose sandbox is gone, begins at the beginning. */
            session_set_state(live, was_lost ? SESSION_CREATED : SESSION_RUNNING, reason);
        }
        session_wake(live);
    }
    session_pen_return(live);
    return done(live, r, err);
}

static int wrong_state(const struct live_session *live, const char *what, struct error *err)
{
    return error_set(err, ERROR_CONFLICT, "session '%.*s' is %s and cannot be %s",
                     STR_ARG(live->row.id), name_of(&session_state_names, live->row.state), what);
}

int session_pause(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                  struct error *err)
{
    struct session_streams streams = {0};
    struct live_session *live;
    int r = 0;

    live = live_get(runtime, caller, id, err);
    if (!live)
        return -1;
    (void)pthread_mutex_lock(&live->lock);
    if (!session_in(live, SESSION_PAUSED) && !session_in(live, SESSION_RUNNING) &&
        !session_in(live, SESSION_COMPLETED))
        r = wrong_state(live, "paused", err);
    else if (!session_in(live, SESSION_PAUSED)) {
        session_set_state(live, SESSION_PAUSED, "asked");
        streams = session_stream_take(live);
        live->prompt_seq = 0;
    }
    r = saved(live, r, err);
    session_stream_close(streams);
    if (r == 0)
        r = runtime_sandbox_pause(runtime, &live->caller, live->row.sandbox_id, err);
    session_unref(live);
    return r;
}

int session_resume(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                   struct error *err)
{
    struct live_session *live;
    int r = 0;

    live = live_get(runtime, caller, id, err);
    if (!live)
        return -1;
    (void)pthread_mutex_lock(&live->lock);
    if (session_in(live, SESSION_PAUSED)) {
        live->failures = 0;
        live->follow = true;
        session_set_state(live, SESSION_RUNNING, "resumed");
        session_wake(live);
    } else if (!session_in(live, SESSION_RUNNING) && !session_in(live, SESSION_CREATED))
        r = wrong_state(live, "resumed", err);
    return done(live, r, err);
}

static int busy_agent(const struct live_session *live, struct error *err)
{
    return error_set(err, ERROR_UNAVAILABLE, "the agent of session '%.*s' takes no messages",
                     STR_ARG(live->row.id));
}

int session_interrupt(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                      struct error *err)
{
    struct live_session *live;
    int r = 0;

    live = live_get(runtime, caller, id, err);
    if (!live)
        return -1;
    (void)pthread_mutex_lock(&live->lock);
    if (!live->attached)
        r = wrong_state(live, "interrupted: no agent is at work", err);
    else {
        if (session_post_cancel(live))
            session_event(live, "session.interrupted", NULL);
        else
            r = busy_agent(live, err);
        /* The message may still be on its way, and come after this. */
        live->interrupted = session_in(live, SESSION_RUNNING) && !live->orphan_id &&
                            !(live->prompt && live->prompt_taken);
    }
    return done(live, r, err);
}

/* Its agent is told, but not waited for. */
static void close_channel(struct live_session *live)
{
    auto_arena struct arena arena = {0};
    struct error ignored;

    if (live->row.acp_server.len)
        (void)acp_rest(live->runtime->config.fetch, &live->target, "DELETE",
                       arena_printf(&arena, "/v1/acp/%s", live->row.acp_server.p), STR_NONE,
                       CLOSE_MS, NULL, &ignored);
}

int session_cancel(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                   bool kill_sandbox, struct error *forced, struct error *err)
{
    struct session_streams streams = {0};
    struct live_session *live;
    bool was_attached, over;
    int r;

    live = live_get(runtime, caller, id, err);
    if (!live)
        return -1;
    (void)pthread_mutex_lock(&live->lock);
    over = session_in(live, SESSION_CANCELED);
    was_attached = live->attached;
    if (!over)
        session_set_state(live, SESSION_CANCELED, "asked");
    streams = session_stream_take(live);
    live->prompt_seq = 0;
    r = session_save(live, err);
    session_stream_close(streams);
    if (was_attached)
        close_channel(live);
    if (r == 0 && live->row.sandbox_id.len && live->row.owns_sandbox) {
        r = kill_sandbox
                ? runtime_sandbox_kill(runtime, &live->caller, live->row.sandbox_id, forced, err)
                : runtime_sandbox_pause(runtime, &live->caller, live->row.sandbox_id, err);
        if (r < 0 && !kill_sandbox && err->code == ERROR_UNSUPPORTED)
            session_sandbox_runs_on(live, err);
        if (r < 0 && !(kill_sandbox && err->errnum == ENODEV) &&
            (err->code == ERROR_NOT_FOUND || err->code == ERROR_CONFLICT ||
             err->code == ERROR_UNSUPPORTED))
            r = 0;
    }
    session_unref(live);
    return r;
}

int session_approve(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    struct str request_id, struct str option, bool allow, struct error *err)
{
    auto_free char *name = str_dup(request_id.p ? request_id : STR(""));
    struct live_session *live;
    json_t *pending;
    int r = 0;

    live = live_get(runtime, caller, id, err);
    if (!live)
        return -1;
    (void)pthread_mutex_lock(&live->lock);
    pending = json_object_get(live->permissions, name);
    if (!pending)
        r = error_set(err, ERROR_NOT_FOUND, "session '%.*s' asks for no permission '%s'",
                      STR_ARG(id), name);
    else {
        struct str chosen = option.len ? option : json_get_str(pending, allow ? "allow" : "deny");

        if (session_post(
                live, acp_result_text(json_object_get(pending, "id"), session_selected(chosen)))) {
            session_event(live, allow ? "permission.granted" : "permission.denied",
                          json_pack("{s:s}", "request_id", name));
            (void)json_object_del(live->permissions, name);
        } else
            r = busy_agent(live, err);
    }
    return done(live, r, err);
}

int session_snapshot(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                     struct str alias, struct arena *arena, struct runtime_snapshot *out,
                     struct error *err)
{
    struct live_session *live;
    struct str name = alias;
    int r;

    live = live_get(runtime, caller, id, err);
    if (!live)
        return -1;
    if (name.len == 0)
        session_alias(live->row.repo, live->row.branch, arena, &name);
    session_tell(live, "sandbox.snapshot.started", NULL);
    r = live->row.sandbox_id.len == 0
            ? error_set(err, ERROR_CONFLICT, "session '%.*s' has no sandbox yet", STR_ARG(id))
            : runtime_snapshot_create(runtime, &live->caller, live->row.sandbox_id, name, -1, arena,
                                      out, err);
    (void)pthread_mutex_lock(&live->lock);
    if (r == 0) {
        live->row.snapshot_id = arena_str(&live->arena, out->id);
        live->row.checkpoint = arena_str(&live->arena, name.len ? name : out->id);
        session_note_row(live);
        session_event(
            live, "sandbox.snapshot.succeeded",
            json_pack("{s:s,s:s}", "snapshot_id", out->id.p, "alias", live->row.checkpoint.p));
    } else
        session_event(live, "sandbox.snapshot.failed",
                      json_pack("{s:o}", "message", json_str(str_of(err->message))));
    session_unlock(live);
    session_unref(live);
    return r;
}

int session_push(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                 const struct runtime_push *push, struct arena *arena, struct runtime_pushed *out,
                 struct error *err)
{
    struct live_session *live;
    int r;

    *out = (struct runtime_pushed){0};
    live = live_get(runtime, caller, id, err);
    if (!live)
        return -1;
    r = live->row.workdir.len == 0
            ? error_set(err, ERROR_CONFLICT, "session '%.*s' has no workspace yet", STR_ARG(id))
            : live_session_push(live, push, arena, out, err);
    session_unref(live);
    return r;
}

int session_history(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    int64_t limit, json_t **out, struct error *err)
{
    struct live_session *live = live_get(runtime, caller, id, err);
    int r;

    if (!live)
        return -1;
    r = live->row.workdir.len == 0
            ? error_set(err, ERROR_CONFLICT, "session '%.*s' has no workspace yet", STR_ARG(id))
            : live_session_history(live, limit, out, err);
    session_unref(live);
    return r;
}
