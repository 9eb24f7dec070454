/* Sessions: an agent at work in a sandbox. provision = sandbox -> sandbox-agent -> clone -> agent
 * session (ACP). Messages in, events out ("session.*", "agent.*", "permission.*", "git.*"; by
 * agent_event.h with the session's id).
 *
 * States: created -> running <-> paused -> completed | failed | canceled. A message to one that has
 * ended starts it again; messages while paused wait for the resume. */
#pragma once

#include "agent/agent.h"
#include "agent/agent_profile.h"

struct agent_session {
    struct str id, state, reason;
    struct str sandbox_id, agent, repo, branch, profile, provider;
    struct str permission; /* ask, edit, bypass */
    struct str snapshot_id, checkpoint;
    struct str task_id, agent_id;
    struct str acp_session, workdir; /* of the agent, once provisioned */
    struct str base_url;             /* of sandbox-agent, while it is attached */
    int64_t port;                    /* where sandbox-agent answers in the sandbox */
    int64_t created_at_us, updated_at_us;
};

struct agent_session_request {
    struct agent_overrides overrides;
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
int agent_session_new(struct agents *agents, const struct agent_caller *caller,
                      const struct agent_session_request *request, bool wait, struct arena *arena,
                      struct agent_session *out, struct error *err);
int agent_session_get(struct agents *agents, const struct agent_caller *caller, struct str id,
                      struct arena *arena, struct agent_session *out, struct error *err);
int agent_session_list(struct agents *agents, const struct agent_caller *caller,
                       struct arena *arena, struct agent_session **out, size_t *out_count,
                       struct error *err);
int agent_session_send(struct agents *agents, const struct agent_caller *caller, struct str id,
                       struct str text, struct error *err);
int agent_session_pause(struct agents *agents, const struct agent_caller *caller, struct str id,
                        struct error *err);
int agent_session_resume(struct agents *agents, const struct agent_caller *caller, struct str id,
                         struct error *err);
/* Stops what the agent does now; the session goes on. */
int agent_session_interrupt(struct agents *agents, const struct agent_caller *caller, struct str id,
                            struct error *err);
/* Ends it; its sandbox is paused. kill_sandbox: killed, with forced as for agent_sandbox_kill(). */
int agent_session_cancel(struct agents *agents, const struct agent_caller *caller, struct str id,
                         bool kill_sandbox, struct error *forced, struct error *err);
/* Answers permission.requested. */
int agent_session_approve(struct agents *agents, const struct agent_caller *caller, struct str id,
                          struct str request_id, struct str option, bool allow, struct error *err);

struct agent_snapshot;
int agent_session_snapshot(struct agents *agents, const struct agent_caller *caller, struct str id,
                           struct str alias, struct arena *arena, struct agent_snapshot *out,
                           struct error *err);

struct agent_pull {
    struct str title, body; /* STR_NONE = the first line of the commit's message, none */
    struct str base;        /* STR_NONE = the session's branch, or the repository's own */
    bool draft;
};
struct agent_push {
    struct str branch, message, remote; /* STR_NONE = the session's, a default, origin */
    struct str token; /* for this push; STR_NONE = the one the session was given */
    bool force;
    const struct agent_pull *pull; /* open a pull request then; NULL = no */
};
struct agent_pulled {
    int64_t number; /* 0 = none was wanted */
    struct str url, base;
    bool existed; /* it was open already */
};
struct agent_pushed {
    struct str branch, commit;
    bool nothing; /* there was nothing to commit or push */
    struct agent_pulled pull;
};
/* A refused push is ERROR_CONFLICT; the class (auth, no-commits, remote-rejected, unknown) begins the
 * message and is in the event git.push.failed. So is a refused pull request (auth, pull-request); what
 * was pushed stays. */
int agent_session_push(struct agents *agents, const struct agent_caller *caller, struct str id,
                       const struct agent_push *push, struct arena *arena, struct agent_pushed *out,
                       struct error *err);
