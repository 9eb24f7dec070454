/* What the store is to know of a session.
 *
 * live->lock guards memory and is never held while the store is asked. What happens is noted with the lock held: rows,
 * events, messages that the agent has. When the lock is let go the notes are written in their order, by one thread at
 * a time: the one that has the pen. So a row is on disk before the event that tells of it, whoever made either, and the
 * hub's thread, which must not wait, leaves its notes to whoever is writing. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"
#include "runtime/session/session_internal.h"

enum note_kind { NOTE_ROW, NOTE_EVENT, NOTE_SEEN, NOTE_TAKEN };

struct note {
    struct list link;
    enum note_kind kind;
    struct store_session row;        /* its strings are the session's and stay */
    struct runtime_event_made *made; /* of an event */
    int64_t number;                  /* of the agent's event, or of the message */
};

static struct note *add_note(struct live_session *live, enum note_kind kind)
{
    struct note *note = xcalloc(1, sizeof(*note));

    note->kind = kind;
    list_push_back(&live->notes, &note->link);
    live->noted++;
    return note;
}

void session_note_row(struct live_session *live)
{
    live->row.updated_at_us = clock_wall_us();
    add_note(live, NOTE_ROW)->row = live->row;
    live->row_noted = live->noted;
}

void session_note_seen(struct live_session *live, int64_t acp_id)
{
    add_note(live, NOTE_SEEN)->number = acp_id;
}

void session_note_taken(struct live_session *live, int64_t seq)
{
    add_note(live, NOTE_TAKEN)->number = seq;
}

static struct str or_none(struct str text)
{
    return text.len ? text : STR_NONE;
}

static struct runtime_event event_of(const struct live_session *live, const char *type,
                                     struct str actor, json_t *data)
{
    return (struct runtime_event){
        .type = str_of(type),
        .session_id = live->row.id,
        .sandbox_id = or_none(live->row.sandbox_id),
        .agent_id = or_none(live->row.agent_id),
        .task_id = or_none(live->row.task_id),
        .actor = actor,
        .data = data,
    };
}

/* Pieces of what an agent says are passed on and not kept; the whole of it is, before what comes next. */
static void keep_said(struct live_session *live)
{
    auto_json json_t *data = NULL;
    struct runtime_event event;

    if (!live->said.len)
        return;
    data = json_pack("{s:o}", "text", json_str(buf_str(&live->said)));
    event = event_of(live, "agent.message", STR("agent"), data);
    add_note(live, NOTE_EVENT)->made =
        runtime_event_make(live->runtime, &live->caller, &event, false);
    buf_clear(&live->said);
}

void session_said(struct live_session *live, struct str text)
{
    if (live->said.len + text.len > SESSION_SAID_MAX)
        keep_said(live);
    (void)buf_add_str(&live->said, text); /* a piece that is larger than all may be is left out */
}

void session_event(struct live_session *live, const char *type, json_t *data_consume)
{
    struct runtime_event event = event_of(live, type, live->caller.actor, data_consume);

    keep_said(live);
    add_note(live, NOTE_EVENT)->made =
        runtime_event_make(live->runtime, &live->caller, &event, false);
    json_decref(data_consume);
}

void session_pass(struct live_session *live, const char *type, json_t *data)
{
    struct runtime_event event = event_of(live, type, STR("agent"), data);

    add_note(live, NOTE_EVENT)->made =
        runtime_event_make(live->runtime, &live->caller, &event, true);
}

void session_tell(struct live_session *live, const char *type, json_t *data_consume)
{
    (void)pthread_mutex_lock(&live->lock);
    session_event(live, type, data_consume);
    session_unlock(live);
}

void session_set_state(struct live_session *live, enum session_state state, const char *reason)
{
    char type[32];

    live->row.state = state;
    live->row.reason = arena_str(&live->arena, str_of(reason));
    session_note_row(live);
    (void)snprintf(type, sizeof(type), "session.%s", name_of(&session_state_names, state));
    session_event(live, type, json_pack("{s:o}", "reason", json_str(str_of(reason))));
    (void)pthread_cond_broadcast(&live->changed);
}

/* ---- writing ---- */

static int write_note(struct live_session *live, struct note *note, struct error *err)
{
    struct store *store = live->runtime->config.store;

    switch (note->kind) {
    case NOTE_ROW:
        return store_session_put(store, &note->row, err);
    case NOTE_EVENT:
        runtime_event_add_made(live->runtime, note->made);
        return 0;
    case NOTE_SEEN:
        return store_session_seen(store, live->row.id, note->number, err);
    case NOTE_TAKEN:
        return store_message_remove(store, live->row.id, note->number, err);
    }
    return 0;
}

/* With the lock and the pen; without the lock while it writes. */
static void write_notes(struct live_session *live)
{
    while (!list_empty(&live->notes)) {
        struct note *note = container_of(live->notes.next, struct note, link);
        struct error err = {0};
        int r;

        list_remove(&note->link);
        (void)pthread_mutex_unlock(&live->lock);
        r = write_note(live, note, &err);
        if (r < 0)
            log_error("session", "id=%.*s %s", STR_ARG(live->row.id), err.message);
        (void)pthread_mutex_lock(&live->lock);
        live->written++;
        if (r < 0 && note->kind == NOTE_ROW) {
            live->row_failed = live->written;
            live->row_error = err;
        }
        free(note);
    }
}

void session_pen_take(struct live_session *live)
{
    while (live->writing)
        (void)pthread_cond_wait(&live->changed, &live->lock);
    live->writing = true;
    write_notes(live);
}

void session_pen_return(struct live_session *live)
{
    write_notes(live);
    live->writing = false;
    (void)pthread_cond_broadcast(&live->changed);
}

int session_save(struct live_session *live, struct error *err)
{
    uint64_t mine = live->noted, row = live->row_noted;
    bool failed;

    while (live->written < mine) {
        session_pen_take(live);
        session_pen_return(live);
    }
    failed = row && live->row_failed >= row;
    if (failed)
        *err = live->row_error;
    (void)pthread_mutex_unlock(&live->lock);
    return failed ? -1 : 0;
}

void session_unlock(struct live_session *live)
{
    struct error logged;

    (void)session_save(live, &logged);
}

void session_unlock_soon(struct live_session *live)
{
    if (!live->writing && !list_empty(&live->notes)) {
        session_pen_take(live);
        session_pen_return(live);
    }
    (void)pthread_mutex_unlock(&live->lock);
}
