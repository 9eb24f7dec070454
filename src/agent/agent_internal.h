/* Shared by the files of this folder. */
#pragma once

#include <pthread.h>

#include "agent/agent.h"
#include "agent/agent_settings.h"
#include "provider/provider.h"

struct agent_backend;
struct agent_events;
struct agent_follow;
struct agent_jobs;
struct agent_runs;
struct agent_sandboxes;
struct agent_sessions;
struct agent_sweeps;
struct agent_terminals;

struct agents {
    struct agents_config config;
    struct agent_backend *backends; /* configured ones, then registered runners (agent_backend.c) */
    pthread_rwlock_t backends_lock;
    struct agent_events *events;       /* agent_event.c */
    struct agent_sandboxes *sandboxes; /* agent_sandbox_live.c */
    struct agent_runs *runs;           /* agent_running.c */
    struct agent_sweeps *sweeps;       /* agent_sweep.c */
    struct agent_follow *follow;       /* agent_follow.c */
    struct agent_jobs *jobs;           /* agent_job.c */
    struct agent_terminals *terminals; /* agent_terminal.c */
    struct agent_sessions *sessions;   /* agent_session.c */
    struct agent_timer *timer;     /* agent_timer.c: health every 30 s, stale cleanup hourly, ... */
    struct agent_secrets *secrets; /* agent_mask.c */
};

/* Called by agents_open() and, in the opposite order, by agents_close() in agent.c. A close also
 * finds its part never opened or half open. */
int agent_secrets_open(struct agents *agents);
void agent_secrets_close(struct agents *agents);
int agent_timer_open(struct agents *agents);
int agent_backends_open(struct agents *agents, struct error *err);
void agent_backends_close(struct agents *agents);
/* Until no check is under way. */
void agent_backends_wait(struct agents *agents);
/* Checks the profiles of the file against what the backends can do. */
int agent_profiles_open(struct agents *agents, struct error *err);
int agent_events_open(struct agents *agents, struct error *err);
void agent_events_close(struct agents *agents);
void agent_runs_open(struct agents *agents);
void agent_runs_close(struct agents *agents);
int agent_jobs_open(struct agents *agents, struct error *err);
void agent_jobs_close(struct agents *agents);
/* Rows of sandboxes in the engine of this process follow it. After jobs: those of what ended end too. */
int agent_follow_open(struct agents *agents, struct error *err);
void agent_follow_close(struct agents *agents);
int agent_sessions_open(struct agents *agents, struct error *err);
void agent_sessions_close(struct agents *agents);

/* The operator's own team. */
bool agent_is_operator(const struct agents *agents, struct str team_id);
/* URLs of this team must not lead into our own networks. */
bool agent_public_only(const struct agents *agents, struct str team_id);

/* With a list of allowed commands: no variable that changes what is run, no hook that is not on it.
 * ERROR_FORBIDDEN. Either may be NULL. */
int agent_command_check_env(struct agents *agents, const json_t *env, struct error *err);
int agent_command_check_hooks(struct agents *agents, const json_t *hooks, struct error *err);

/* fn(agents) every period_s, each on a thread of its own, so that a slow one delays no other. For
 * what no event can start. Before agent_timer_start(). */
void agent_timer_add(struct agents *agents, int64_t period_s, void (*fn)(struct agents *agents));
void agent_timer_start(struct agents *agents);
void agent_timer_stop(struct agents *agents);

/* agent_mask() for JSON text, which stays JSON. */
void agent_mask_json(const struct agents *agents, struct str team_id, char *text);
/* Makes one known from now on; STR_NONE = the operator's. Too short ones are not taken: they would
 * blot out common words. */
void agent_secret_add(struct agents *agents, struct str team_id, struct str secret);
