/* What happened: an append-only record with a monotonic id, and those who wait for more.
 *
 * Ids are microseconds of the wall clock, made strictly increasing, so that they stay so across
 * restarts. Recent events are kept in memory; older ones are in the store. Output of processes is
 * only passed on (transient), never stored here. Secrets are masked before anything is kept. */
#pragma once

#include "agent/agent.h"

struct agent_event {
    int64_t id;                                                       /* set when it is added */
    struct str type;                                                  /* "sandbox.created", ... */
    struct str sandbox_id, session_id, process_id, agent_id, task_id; /* STR_NONE = none */
    struct str actor;
    json_t *data; /* object or NULL; borrowed when adding */
};

struct agent_event_filter {
    struct str sandbox_id, session_id, process_id, agent_id; /* STR_NONE = any */
    struct str type; /* exact, or a prefix that ends in '.' ; STR_NONE = any */
};

/* Never fails its caller: what cannot be stored is logged, and passed on nevertheless. */
void agent_event_add(struct agents *agents, const struct agent_caller *caller,
                     const struct agent_event *event);
/* Several in one transaction. */
void agent_event_add_all(struct agents *agents, const struct agent_caller *caller,
                         const struct agent_event *all, size_t count);
/* Several, together with the change they are about: store() writes their rows in its transaction, and
 * they are only passed on when it succeeds. Others' events wait meanwhile. */
struct store_runtime_event;
typedef int agent_event_store_fn(void *arg, const struct store_runtime_event *rows, size_t count,
                                 struct error *err);
int agent_event_add_with(struct agents *agents, const struct agent_caller *caller,
                         const struct agent_event *all, size_t count, agent_event_store_fn *store,
                         void *arg, struct error *err);
/* The same without a row. */
void agent_event_pass(struct agents *agents, const struct agent_caller *caller,
                      const struct agent_event *event);

/* Somebody watches who would be told of an event like this now. Quick. */
bool agent_event_watched(struct agents *agents, const struct agent_caller *caller,
                         const struct agent_event *event);

/* One event as JSON text {"id","ts","type","sandbox","session","process","agent","task","actor",
 * "data"}; absent members are left out. */
struct agent_event_text {
    int64_t id;
    struct str type, json;
};
struct agent_event_texts {
    struct agent_event_text *items;
    size_t count;
};

enum { AGENT_EVENTS_MAX = 1000 };
/* Those after `since`, oldest first, at most limit. May read the store: for workers. */
int agent_event_list(struct agents *agents, const struct agent_caller *caller,
                     const struct agent_event_filter *filter, int64_t since, size_t limit,
                     struct arena *arena, struct agent_event_texts *out, struct error *err);
/* The newest that match, oldest first. */
int agent_event_last(struct agents *agents, const struct agent_caller *caller,
                     const struct agent_event_filter *filter, size_t limit, struct arena *arena,
                     struct agent_event_texts *out, struct error *err);

/* A watcher is woken on the thread of whoever adds a matching event: wake() must only pass the word
 * on (loop_post). It then reads with agent_watch_read(), which never blocks. */
struct agent_watch;
struct agent_watch *agent_watch_new(struct agents *agents, const struct agent_caller *caller,
                                    const struct agent_event_filter *filter,
                                    void (*wake)(void *arg), void *arg);
/* Up to max events after `since` from memory. *out_missed: older ones are no longer in memory (read
 * them with agent_event_list()). */
size_t agent_watch_read(struct agent_watch *watch, int64_t since, size_t max, struct arena *arena,
                        struct agent_event_text **out, bool *out_missed);
/* wake() is not called after it returned. */
void agent_watch_free(struct agent_watch *watch);
