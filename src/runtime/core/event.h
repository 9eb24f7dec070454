/* What happened: an append-only record with a monotonic id, and those who wait for more.
 *
 * Ids are microseconds of the wall clock, made strictly increasing, so that they stay so across
 * restarts. Recent events are kept in memory; older ones are in the store. Output of processes is
 * only passed on (transient), never stored here. Secrets are masked before anything is kept. */
#pragma once

#include "runtime/core/runtime.h"

struct runtime_event {
    int64_t id;                                                       /* set when it is added */
    struct str type;                                                  /* "sandbox.created", ... */
    struct str sandbox_id, session_id, process_id, agent_id, task_id; /* STR_NONE = none */
    struct str actor;
    json_t *data; /* object or NULL; borrowed when adding */
};

struct runtime_event_filter {
    struct str sandbox_id, session_id, process_id, agent_id; /* STR_NONE = any */
    struct str type; /* exact, or a prefix that ends in '.' ; STR_NONE = any */
};

/* Never fails its caller: what cannot be stored is logged, and passed on nevertheless. */
void runtime_event_add(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct runtime_event *event);
/* Several in one transaction. */
void runtime_event_add_all(struct runtime *runtime, const struct runtime_caller *caller,
                           const struct runtime_event *all, size_t count);
/* Several, together with the change they are about: store() writes their rows in its transaction, and
 * they are only passed on when it succeeds. Others' later events wait for it: no event is told before one with a
 * smaller id. store() must not add events itself. */
struct store_runtime_event;
typedef int runtime_event_store_fn(void *arg, const struct store_runtime_event *rows, size_t count,
                                   struct error *err);
int runtime_event_add_with(struct runtime *runtime, const struct runtime_caller *caller,
                           const struct runtime_event *all, size_t count,
                           runtime_event_store_fn *store, void *arg, struct error *err);
/* The same when somebody else commits: their rows, and then whether they are in the store. Quick, and asks the store for nothing. */
struct runtime_events_held;
struct runtime_events_held *runtime_event_hold(struct runtime *runtime,
                                               const struct runtime_caller *caller,
                                               const struct runtime_event *all, size_t count,
                                               const struct store_runtime_event **out_rows);
void runtime_event_settle(struct runtime *runtime, struct runtime_events_held *held_consume,
                          bool stored);
/* In two steps: made, which asks nobody, and added later. transient: it gets no row. */
struct runtime_event_made;
struct runtime_event_made *runtime_event_make(struct runtime *runtime,
                                              const struct runtime_caller *caller,
                                              const struct runtime_event *event, bool transient);
void runtime_event_add_made(struct runtime *runtime, struct runtime_event_made *made_consume);
/* The same without a row. */
void runtime_event_pass(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct runtime_event *event);

/* Somebody watches who would be told of an event like this now. Quick. */
bool runtime_event_watched(struct runtime *runtime, const struct runtime_caller *caller,
                           const struct runtime_event *event);

/* One event as JSON text {"id","ts","type","sandbox","session","process","agent","task","actor",
 * "data"}; absent members are left out. */
struct runtime_event_text {
    int64_t id;
    struct str type, json;
};
struct runtime_event_texts {
    struct runtime_event_text *items;
    size_t count;
    bool more; /* there may be */
};

enum { RUNTIME_EVENTS_MAX = 1000 };
/* Those after `since`, oldest first, at most limit, and at most about 4 MiB of text, which is charged to the thread's account
 * of memory. May read the store: for workers. */
int runtime_event_list(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct runtime_event_filter *filter, int64_t since, size_t limit,
                       struct arena *arena, struct runtime_event_texts *out, struct error *err);
/* The newest that match, oldest first; bounded in the same way. */
int runtime_event_last(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct runtime_event_filter *filter, size_t limit, struct arena *arena,
                       struct runtime_event_texts *out, struct error *err);

/* A watcher is woken on the thread of whoever adds a matching event: wake() must only pass the word
 * on (loop_post). It then reads with event_watch_read(), which never blocks. */
struct event_watch;
struct event_watch *event_watch_new(struct runtime *runtime, const struct runtime_caller *caller,
                                    const struct runtime_event_filter *filter,
                                    void (*wake)(void *arg), void *arg);
/* Up to max events after `since` from memory. *out_missed: older ones are no longer in memory (read
 * them with runtime_event_list()). */
size_t event_watch_read(struct event_watch *watch, int64_t since, size_t max, struct arena *arena,
                        struct runtime_event_text **out, bool *out_missed);
/* wake() is not called after it returned. */
void event_watch_free(struct event_watch *watch);
