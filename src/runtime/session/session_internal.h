/* Shared by the files about sessions.
 *
 * A session that this process looks after is a live_session. Its row says what it should be; one
 * worker at a time (session_work(), started by session_kick()) makes it so: provisions, attaches,
 * hands over messages, notices that the sandbox is gone. Calls of the edge only change the row and
 * kick. Events of the agent and answers to prompts come on the hub's thread, which never waits: it
 * leaves a note and kicks. */
#pragma once

#include <pthread.h>

#include "base/list.h"
#include "base/map.h"
#include "protocol/loop/workers.h"
#include "runtime/core/runtime_parts.h"
#include "runtime/sandbox/repo.h"
#include "runtime/sandbox/sandbox.h"
#include "runtime/session/acp.h"
#include "runtime/session/session.h"
#include "store/runtime/store_session.h"

enum {
    SESSION_WORKERS = 64,
    SESSION_QUEUE_MAX = 16384,
    SESSION_TEAM_MAX = 2000,    /* that this process holds for one team */
    SESSION_MESSAGES_MAX = 100, /* that wait */
    SESSION_MESSAGE_MAX = 1024 * 1024,
    SESSION_PERMISSIONS_MAX = 100,     /* asked and not answered */
    SESSION_SAID_MAX = 256 * 1024,     /* bytes of what an agent says, in one event */
    SESSION_PERMISSION_NAME_MAX = 256, /* of a request, and of an option */
    SESSION_TRIES = 3,                 /* to attach or to provision, before it has failed */
    SESSION_STEADY_MS = 30000,         /* a stream that lasted so long has not failed at once */
    SESSION_POSTS_MAX = 64,            /* messages under way to an agent that takes none */
    /* What one agent may tell: so many at once, and so many per second. */
    SESSION_TOLD_BURST = 5000,
    SESSION_TOLD_PER_S = 500,
};

/* As a checkpoint: none, whatever the repository has. */
#define SESSION_NO_CHECKPOINT "none"

struct sessions {
    pthread_mutex_t lock; /* the map, and the references of live sessions */
    struct map live;      /* id -> struct live_session */
    _Atomic bool closing;
    struct fetch_hub *hub;
    struct workers *workers;
};

struct live_session {
    struct runtime *runtime;
    size_t refs;
    struct work work;

    pthread_mutex_t lock; /* all below; never held while the store is asked */
    pthread_cond_t changed;
    struct list notes;       /* not written yet, in their order (session_write.c) */
    uint64_t noted, written; /* how many */
    bool writing;            /* somebody has the pen */
    uint64_t row_noted;      /* which note was the last row */
    uint64_t row_failed;     /* which one could not be written last, and why */
    struct error row_error;
    bool working, again; /* a worker is at it; it shall look once more */
    struct arena arena;  /* strings of the row, the caller and the target */
    struct store_session row;
    struct runtime_caller caller;
    struct runtime_overrides overrides; /* of the request; strings in the arena, JSON owned */
    char *git_token;                    /* of the request; "" = none; never in the store */

    bool made_sandbox; /* by this provisioning, which nobody could use yet */
    bool attached;     /* target answers and the events are open */
    bool agent_exited; /* its process; the server is still there */
    bool follow;       /* attach although no message waits */
    bool turn_done;    /* the agent has answered */
    bool lost;         /* the stream of events broke: look why */
    int failures;      /* one after the other */
    struct acp_target target;
    struct str public_url; /* of the server, for people */
    int64_t next_id;       /* of requests */
    struct fetch_hub_stream *events, *prompt;
    struct acp_feed feed;
    int64_t prompt_seq; /* the message that is with the agent; 0 = none */
    bool prompt_over, prompt_taken;
    bool interrupted;  /* before the agent had it: to be told again */
    int64_t prompt_id; /* of the request */
    int64_t orphan_id; /* one whose answer can only come with the events; 0 = none, -1 = any */
    struct buf prompt_answer;
    int prompt_status;
    struct error prompt_error;
    struct buf said;     /* by the agent, since the last event that is kept */
    json_t *permissions; /* request id -> {"id", "allow", "deny"}: options, "" = none */
    size_t posts;        /* under way */
    int64_t attached_ms; /* monotonic */
    struct session_told {
        int64_t at_ms;         /* monotonic; when room was counted */
        int64_t room, dropped; /* events */
    } told;
};

/* ---- session_open.c ---- */

/* Copies the row. With one reference, which is the map's. */
struct live_session *live_new(struct runtime *runtime, const struct runtime_caller *caller,
                              const struct store_session *row);

/* ---- session.c ---- */

bool session_in(const struct live_session *live, enum session_state state); /* with the lock */
void session_kick(struct live_session *live); /* any thread; without the lock */
void session_wake(struct live_session *live); /* the same with the lock */
struct live_session *session_ref(struct live_session *live);
void session_unref(struct live_session *live);
void session_free(struct live_session *live); /* one that is in no map yet */
/* A row for those who ask: copied into the arena. */
void session_view(const struct store_session *row, struct arena *arena, struct session *out);

/* ---- session_write.c: rows and events ---- */

/* With live->lock held: noted, and written when it is let go. */
void session_note_row(struct live_session *live);
void session_note_seen(struct live_session *live, int64_t acp_id); /* an event of the agent */
void session_note_taken(struct live_session *live, int64_t seq);   /* a message is with the agent */
void session_event(struct live_session *live, const char *type, json_t *data_consume);
void session_pass(struct live_session *live, const char *type, json_t *data); /* without a row */
/* A piece of what the agent says; the whole is the event "agent.message" {text}, before the next event that is kept. */
void session_said(struct live_session *live, struct str text);
/* New state with its event "session.STATE" {reason}. Waiters are woken. */
void session_set_state(struct live_session *live, enum session_state state, const char *reason);
/* These let the lock go; what was noted until then is written when they return. -1: the row is not. */
int session_save(struct live_session *live, struct error *err);
void session_unlock(struct live_session *live);
/* For the hub: when somebody writes just now, the notes are left to him. */
void session_unlock_soon(struct live_session *live);
/* The right to ask the store about this session while nobody else writes: what was noted is written. With the
 * lock held, which the holder lets go as it asks. */
void session_pen_take(struct live_session *live);
void session_pen_return(struct live_session *live);

void session_tell(struct live_session *live, const char *type,
                  json_t *data_consume); /* session_event() without the lock */

/* ---- session_new.c ---- */

/* For one more of the team; ERROR_QUOTA when none may be let go. */
int session_make_room(struct sessions *sessions, struct str team_id, struct error *err);

/* ---- session_work.c ---- */

/* session_sandbox.c: the sandbox of its own is there. *out_restored: with the files of an earlier one. */
int session_ensure_sandbox(struct live_session *live, bool *out_restored, struct error *err);
/* Nobody works in the sandbox of a failed session: it is paused. Where its provider cannot pause, one that this provisioning made
 * is killed, because nobody has used it yet, and another runs on; an event says which. One that was given to the session is
 * left alone. */
void session_put_away_sandbox(struct live_session *live);
/* Logs it, and tells it as an event. */
void session_sandbox_runs_on(struct live_session *live, struct error *why);

void session_work(struct work *work);

/* ---- session_stream.c: with the lock held ---- */

void session_stream_open(struct live_session *live);
/* Takes the streams out; the caller closes them without the lock. */
struct session_streams {
    struct fetch_hub_stream *events, *prompt;
};
struct session_streams session_stream_take(struct live_session *live);
void session_stream_close(struct session_streams streams);
/* Hands a message to the agent; its end kicks. */
void session_prompt(struct live_session *live, int64_t seq, struct str text);
/* Sends something to the agent and does not wait. Takes the text. False: it does not take what was
 * sent before. */
bool session_post(struct live_session *live, char *text_consume);
/* The same: it shall end its turn. */
bool session_post_cancel(struct live_session *live);
/* Whether one more event of the agent may be told now. */
bool session_told_admit(struct session_told *told, int64_t now_ms);
/* Remembers that it asked. False when there is no room, when its names are too long, or when it asks
 * again under the name of a request that waits: the answer to that one must not be for this. */
bool session_expect(struct live_session *live, json_t *id, const json_t *options);
/* May this be done without asking? */
bool session_permitted(enum permission permission, struct str tool_kind);
/* The option that grants or refuses, of those offered; STR_NONE when there is none. */
struct str session_option(const json_t *options, bool allow);
/* The result of a request for permission; STR_NONE = nobody chose. */
json_t *session_selected(struct str option);

/* ---- bootstrap.c: blocking, without the lock ---- */

struct session_place {
    struct runtime *runtime;
    const struct runtime_caller *caller;
    struct str sandbox_id;
};
/* Runs a script with variables in its environment; *out_text (malloc()ed, may be NULL): what it
 * printed. A status that is not 0 is ERROR_INTERNAL with the end of its errors. */
int session_script(const struct session_place *place, const char *script, json_t *env,
                   int64_t timeout_ms, char **out_text, struct error *err);
/* The program of sandbox-agent is in the sandbox: of its template, or uploaded. */
int session_install(const struct session_place *place, struct error *err);
/* Makes the folder to work in (malloc()ed, absolute); clones unless it is there already. A clone that
 * fails is told in *out_clone_error ("" = fine) and leaves an empty folder. */
int session_workspace(const struct session_place *place, const struct store_session *row,
                      const char *git_token, char **out_dir, struct error *out_clone_error,
                      struct error *err);
/* url: where it will be. */
int session_start_server(const struct session_place *place, const struct store_session *row,
                         struct str url, struct error *err);

/* ---- session_mcp.c ---- */

/* Those of the request, else those of the profile, as ACP wants them. The gateway runs when it is among them. New reference. */
json_t *session_mcp_servers(struct live_session *live);

/* ---- git.c ---- */

/* "github/owner/name#branch" for a repository's URL; "" when it has no owner and name. */
void session_alias(struct str repo, struct str branch, struct arena *arena, struct str *out);
/* What a failed push was about: auth, commit-message, no-commits, remote-rejected, unknown. */
const char *session_push_class(struct str text);
/* The token must not come back in words of git or of a remote. */
void session_mask_token(char *text, const char *token);
/* For git: the request's, else the profile's; "" = none. malloc()ed. Without the lock. */
char *session_git_token(struct live_session *live);
int live_session_push(struct live_session *live, const struct runtime_push *push,
                      struct arena *arena, struct runtime_pushed *out, struct error *err);
int live_session_history(struct live_session *live, int64_t limit, json_t **out, struct error *err);
