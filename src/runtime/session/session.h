/* Sessions: an agent at work in a sandbox. provision = sandbox -> sandbox-agent -> clone -> agent
 * session (ACP). Messages in, events out ("session.*", "agent.*", "permission.*", "git.*"; by
 * event.h with the session's id).
 *
 * States: created -> running <-> paused -> completed | failed | canceled. A message to one that has
 * ended starts it again; messages while paused wait for the resume. */
#pragma once

#include "runtime/backend/profile.h"
#include "runtime/core/runtime.h"

struct session {
    struct str id, reason;
    enum session_state state;
    struct str sandbox_id, agent, repo, branch, profile, provider;
    enum permission permission;
    struct str snapshot_id, checkpoint;
    struct str task_id, agent_id;
    struct str acp_session, workdir; /* of the agent, once provisioned */
    struct str base_url;             /* of sandbox-agent, while it is attached */
    int64_t port;                    /* where sandbox-agent answers in the sandbox */
    int64_t created_at_us, updated_at_us;
};

struct session_request {
    struct runtime_overrides overrides;
    struct str agent;        /* mock, claude, codex, ... */
    struct str sandbox_id;   /* one of the runtime's that is there; STR_NONE = one of its own */
    struct str repo, branch; /* to clone; STR_NONE = an empty workspace */
    struct str permission;   /* STR_NONE = the profile's */
    struct str mode;         /* agentMode; STR_NONE = build */
    struct str agent_id, task_id;
    struct str checkpoint; /* alias or snapshot id to restore from; STR_NONE = github/o/r#branch
                                  of the repo, when there is one; "none" = not even that */
    struct str message;    /* the first one; STR_NONE */
    struct str git_token;  /* for clone and push; never stored in clear, never logged */
    json_t *env;
};

/* Returns when the row is written; provisioning goes on in the background and tells by events
 * (session.created, session.provisioned, session.running | session.failed). wait: returns when it
 * is provisioned or failed. */
int session_new(struct runtime *runtime, const struct runtime_caller *caller,
                const struct session_request *request, bool wait, struct arena *arena,
                struct session *out, struct error *err);
int session_get(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                struct arena *arena, struct session *out, struct error *err);
int session_list(struct runtime *runtime, const struct runtime_caller *caller, struct arena *arena,
                 struct session **out, size_t *out_count, struct error *err);
int session_send(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                 struct str text, struct error *err);
int session_pause(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                  struct error *err);
int session_resume(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                   struct error *err);
/* Stops what the agent does now; the session goes on. */
int session_interrupt(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                      struct error *err);
/* Ends it; its sandbox is paused. kill_sandbox: killed, with forced as for runtime_sandbox_kill(). */
int session_cancel(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                   bool kill_sandbox, struct error *forced, struct error *err);
/* Answers permission.requested. */
int session_approve(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    struct str request_id, struct str option, bool allow, struct error *err);

struct runtime_snapshot;
int session_snapshot(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                     struct str alias, struct arena *arena, struct runtime_snapshot *out,
                     struct error *err);

struct runtime_pull {
    struct str title, body; /* STR_NONE = the first line of the commit's message, none */
    struct str base;        /* STR_NONE = the session's branch, or the repository's own */
    bool draft;
};
struct runtime_push {
    struct str branch, message, remote; /* STR_NONE = "task-ID", a default, origin */
    struct str token; /* for this push; STR_NONE = the one the session was given */
    bool force;
    const struct runtime_pull *pull; /* open a pull request then; NULL = no */
};
struct runtime_pulled {
    int64_t number; /* 0 = none was wanted */
    struct str url, base;
    bool existed; /* it was open already */
};
struct runtime_pushed {
    struct str branch, commit;
    bool nothing; /* there was nothing to commit or push */
    struct runtime_pulled pull;
};
/* A refused push is ERROR_CONFLICT; the class (auth, commit-message, no-commits, remote-rejected, unknown) begins the
 * message and is in the event git.push.failed. So is a refused pull request (auth, pull-request); what
 * was pushed stays. */
int session_push(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                 const struct runtime_push *push, struct arena *arena, struct runtime_pushed *out,
                 struct error *err);
enum { SESSION_HISTORY = 20, SESSION_HISTORY_MAX = 200 };
/* {"branch", "commits": [{"commit", "author", "email", "at", "subject"}]}, the newest first. Without a
 * repository it is ERROR_CONFLICT. */
int session_history(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    int64_t limit, json_t **out, struct error *err);

/* ---- opened and closed by runtime_main.c ---- */

int sessions_open(struct runtime *runtime, struct error *err);
void sessions_close(struct runtime *runtime);
/* The first step of an end: lets go of the streams of sessions, which may lead through this process's
 * own proxy and would keep it from draining. */
void runtime_quiet(struct runtime *runtime);
