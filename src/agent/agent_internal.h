/* Shared by the files of this folder. */
#pragma once

#include <pthread.h>

#include "agent/agent.h"
#include "agent/agent_settings.h"
#include "provider/provider.h"

struct agent_backend;
struct agent_events;
struct agent_jobs;
struct agent_sessions;

struct agents {
    struct agents_config config;
    struct agent_backend *backends; /* configured ones, then registered runners (agent_backend.c) */
    pthread_rwlock_t backends_lock;
    struct agent_events *events;     /* agent_event.c */
    struct agent_jobs *jobs;         /* agent_job.c */
    struct agent_sessions *sessions; /* agent_session.c */
    struct agent_timer *timer; /* agent_timer.c: health every 30 s, stale cleanup hourly, ... */
};

/* Called by agents_open() and agents_close() in agent.c, in this order. */
int agent_backends_open(struct agents *agents, struct error *err);
void agent_backends_close(struct agents *agents);
int agent_events_open(struct agents *agents, struct error *err);
void agent_events_close(struct agents *agents);
int agent_jobs_open(struct agents *agents, struct error *err);
void agent_jobs_close(struct agents *agents);
int agent_sessions_open(struct agents *agents, struct error *err);
void agent_sessions_close(struct agents *agents);

/* One thread; fn(agents) every period_s. For what no event can start. Before agent_timer_start(). */
void agent_timer_add(struct agents *agents, int64_t period_s, void (*fn)(struct agents *agents));
void agent_timer_start(struct agents *agents);
void agent_timer_stop(struct agents *agents);

/* "***" in place of every secret this process knows (keys of backends, tokens in URLs); changes text
 * in place. For messages of others before they are stored or told. */
void agent_mask(const struct agents *agents, char *text);
