/* The ring of recent events, shared by event.c and watch.c. */
#pragma once

#include <pthread.h>

#include "base/list.h"
#include "runtime/core/event.h"

enum {
    RING_EVENTS = 8192,
    RING_BYTES = 64 << 20, /* whatever comes first */
    EVENT_BYTES_MAX = 256 << 10,
    EVENT_KEYS = 5,
};

/* What filters look at. Hashes make comparing cheap; equal ones are compared in full. */
enum event_key { KEY_TEAM, KEY_SANDBOX, KEY_SESSION, KEY_PROCESS, KEY_AGENT };

struct event_keys {
    struct str text[EVENT_KEYS]; /* STR_NONE = none (of an event), any (of a filter) */
    uint64_t hash[EVENT_KEYS];
};

/* In the ring: its row is being written, with others that must be there first; or that was not possible. */
enum event_state { EVENT_SHOWN, EVENT_HELD, EVENT_DROPPED };

struct runtime_event_made {
    int64_t id;
    bool transient;
    enum event_state state;
    struct event_keys keys;
    struct str type, json;
    size_t size;
    char bytes[]; /* all the strings */
};

struct runtime_events {
    pthread_mutex_t lock;   /* guards all below; never held while the store is asked */
    pthread_cond_t settled; /* one that was held is not any more */
    struct runtime_event_made *ring[RING_EVENTS];
    size_t first, count, bytes;
    size_t shown;    /* of count: those before the first that is held */
    int64_t last_id; /* of the newest event */
    int64_t gone_id; /* up to here memory may lack something; the store has it */
    int64_t rows;    /* in the store, about */
    struct list watchers;
};

void event_keys_set(struct event_keys *keys, const struct str text[EVENT_KEYS]);
bool event_matches(const struct runtime_event_made *event, const struct event_keys *wanted,
                   struct str type);
/* With the lock held. Index (from the oldest) of the first event after id. */
size_t ring_after(const struct runtime_events *events, int64_t id);
static inline struct runtime_event_made *ring_at(const struct runtime_events *events, size_t index)
{
    return events->ring[(events->first + index) % RING_EVENTS];
}
struct runtime_event_text event_text(const struct runtime_event_made *event, struct arena *arena);
/* With the lock held. */
void watchers_wake(struct runtime_events *events, const struct runtime_event_made *event);
