/* Those who wait for events. Adding an event compares it with each watcher's filter, by hashes, and
 * wakes the ones it is for. A watcher that was woken and has not read yet is not woken again.
 *
 * Reading remembers how far memory was searched, so that a watcher of few events among many does not
 * look through all of them each time. */
#include <stdlib.h>

#include "base/alloc.h"
#include "runtime/core/event_internal.h"
#include "runtime/core/runtime_parts.h"

struct event_watch {
    struct list node;
    struct runtime_events *events;
    struct event_keys keys;
    struct str type;
    void (*wake)(void *arg);
    void *arg;
    bool woken;
    int64_t told_id;     /* the last one that was given out */
    int64_t searched_id; /* nothing else matches up to here */
    char bytes[];
};

/* FNV-1a: only speeds up comparing, so it need not be hard to collide with. */
static uint64_t hash_of(struct str text)
{
    uint64_t hash = 0xcbf29ce484222325ULL;

    for (size_t i = 0; i < text.len; i++)
        hash = (hash ^ (unsigned char)text.p[i]) * 0x100000001b3ULL;
    return hash;
}

void event_keys_set(struct event_keys *keys, const struct str text[EVENT_KEYS])
{
    for (size_t i = 0; i < EVENT_KEYS; i++) {
        keys->text[i] = text[i];
        keys->hash[i] = text[i].p ? hash_of(text[i]) : 0;
    }
}

bool event_matches(const struct runtime_event_made *event, const struct event_keys *wanted,
                   struct str type)
{
    if (event->state == EVENT_DROPPED)
        return false;
    for (size_t i = 0; i < EVENT_KEYS; i++)
        if (wanted->text[i].p && (wanted->hash[i] != event->keys.hash[i] ||
                                  !str_eq(wanted->text[i], event->keys.text[i])))
            return false;
    if (!type.p || type.len == 0)
        return true;
    return type.p[type.len - 1] == '.' ? str_starts(event->type, type) : str_eq(event->type, type);
}

size_t ring_after(const struct runtime_events *events, int64_t id)
{
    size_t low = 0, high = events->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (ring_at(events, middle)->id <= id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct runtime_event_text event_text(const struct runtime_event_made *event, struct arena *arena)
{
    return (struct runtime_event_text){.id = event->id,
                                       .type = arena_str(arena, event->type),
                                       .json = arena_str(arena, event->json)};
}

void watchers_wake(struct runtime_events *events, const struct runtime_event_made *event)
{
    struct list *node;

    list_for_each (node, &events->watchers) {
        struct event_watch *watch = container_of(node, struct event_watch, node);

        if (!watch->woken && event_matches(event, &watch->keys, watch->type)) {
            watch->woken = true;
            watch->wake(watch->arg);
        }
    }
}

bool runtime_event_watched(struct runtime *runtime, const struct runtime_caller *caller,
                           const struct runtime_event *event)
{
    const struct str texts[EVENT_KEYS] = {caller->team_id, event->sandbox_id, event->session_id,
                                          event->process_id, event->agent_id};
    struct runtime_events *events = runtime->events;
    struct runtime_event_made like = {.type = event->type};
    bool watched = false;
    struct list *node;

    (void)pthread_mutex_lock(&events->lock);
    if (!list_empty(&events->watchers))
        event_keys_set(&like.keys, texts);
    list_for_each (node, &events->watchers) {
        struct event_watch *watch = container_of(node, struct event_watch, node);

        watched = event_matches(&like, &watch->keys, watch->type);
        if (watched)
            break;
    }
    (void)pthread_mutex_unlock(&events->lock);
    return watched;
}

struct event_watch *event_watch_new(struct runtime *runtime, const struct runtime_caller *caller,
                                    const struct runtime_event_filter *filter,
                                    void (*wake)(void *arg), void *arg)
{
    struct str texts[EVENT_KEYS + 1] = {caller->team_id,    filter->sandbox_id, filter->session_id,
                                        filter->process_id, filter->agent_id,   filter->type};
    struct event_watch *watch;
    size_t size = 0;
    char *at;

    for (size_t i = 0; i <= EVENT_KEYS; i++)
        size += texts[i].len;
    watch = xcalloc(1, sizeof(*watch) + size);
    at = watch->bytes;
    for (size_t i = 0; i <= EVENT_KEYS; i++) {
        if (!texts[i].p)
            continue;
        memcpy(at, texts[i].p, texts[i].len);
        texts[i].p = at;
        at += texts[i].len;
    }
    event_keys_set(&watch->keys, texts);
    watch->type = texts[EVENT_KEYS];
    watch->events = runtime->events;
    watch->wake = wake;
    watch->arg = arg;
    watch->told_id = INT64_MAX; /* the first read says where it begins */
    (void)pthread_mutex_lock(&watch->events->lock);
    list_push_back(&watch->events->watchers, &watch->node);
    (void)pthread_mutex_unlock(&watch->events->lock);
    return watch;
}

size_t event_watch_read(struct event_watch *watch, int64_t since, size_t max, struct arena *arena,
                        struct runtime_event_text **out, bool *out_missed)
{
    struct runtime_events *events = watch->events;
    int64_t from = since;
    size_t count = 0, i;

    max = max > RUNTIME_EVENTS_MAX ? RUNTIME_EVENTS_MAX : max;
    *out = arena_alloc(arena, (max + 1) * sizeof(**out));
    (void)pthread_mutex_lock(&events->lock);
    watch->woken = false;
    if (since >= watch->told_id && watch->searched_id > from)
        from = watch->searched_id;
    *out_missed = from < events->gone_id;
    for (i = ring_after(events, from); i < events->shown && count < max; i++)
        if (event_matches(ring_at(events, i), &watch->keys, watch->type))
            (*out)[count++] = event_text(ring_at(events, i), arena);
    watch->told_id = count ? (*out)[count - 1].id : since;
    /* Where the search ended: everything before the next index was looked at. */
    watch->searched_id = i > 0 ? ring_at(events, i - 1)->id : from;
    (void)pthread_mutex_unlock(&events->lock);
    return count;
}

void event_watch_free(struct event_watch *watch)
{
    if (!watch)
        return;
    (void)pthread_mutex_lock(&watch->events->lock);
    list_remove(&watch->node);
    (void)pthread_mutex_unlock(&watch->events->lock);
    free(watch);
}
