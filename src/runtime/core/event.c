/* Events are made as text once, given an id and put into a ring under one lock, so that the order of
 * ids is the order in memory; then watchers are woken, and the row is written outside of that lock.
 * The writer goes on when the row is there, so what is acknowledged has its events.
 *
 * Those that are to be seen only once their rows are there (runtime_event_add_with()) have their places in the ring
 * and are held: nobody sees them, or what came after them, until the store has answered.
 *
 * Reading: the ring holds everything after gone_id. What is asked from before comes from the store,
 * up to gone_id, and is continued from the ring: a row that is just being written is never missed. */
#include "runtime/core/event.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event_internal.h"
#include "runtime/core/runtime_parts.h"
#include "store/runtime/store_runtime.h"

enum { KEEP_DAYS = 30, KEEP_ROWS = 1000000, PRUNE_PERIOD_S = 600, PRUNE_BATCH = 1000 };
enum { PAGE_BYTES = 4 << 20, ROWS = 16 };

static void prune(struct runtime *runtime);

int runtime_events_open(struct runtime *runtime, struct error *err)
{
    struct runtime_events *events = xcalloc(1, sizeof(*events));

    (void)pthread_mutex_init(&events->lock, NULL);
    (void)pthread_cond_init(&events->settled, NULL);
    list_init(&events->watchers);
    runtime->events = events;
    if (store_runtime_event_last(runtime->config.store, &events->last_id, &events->rows, err) < 0)
        return -1;
    events->gone_id = events->last_id;
    runtime_timer_add(runtime, "forget-events", PRUNE_PERIOD_S, true, prune);
    return 0;
}

void runtime_events_close(struct runtime *runtime)
{
    struct runtime_events *events = runtime->events;

    if (!events)
        return;
    for (size_t i = 0; i < events->count; i++)
        free(ring_at(events, i));
    (void)pthread_cond_destroy(&events->settled);
    (void)pthread_mutex_destroy(&events->lock);
    free(events);
    runtime->events = NULL;
}

/* Some rows at a time: others use the store too. */
static void prune(struct runtime *runtime)
{
    struct runtime_events *events = runtime->events;
    int64_t before = clock_wall_us() - (int64_t)KEEP_DAYS * 24 * 3600 * 1000000;
    struct error err = {0};
    size_t count = 0;

    do {
        int64_t surplus;

        (void)pthread_mutex_lock(&events->lock);
        surplus = events->rows - KEEP_ROWS;
        (void)pthread_mutex_unlock(&events->lock);
        if (store_runtime_event_prune(runtime->config.store, before, surplus, PRUNE_BATCH, &count,
                                      &err) < 0) {
            log_warn("runtime", "old events are kept: %s", err.message);
            return;
        }
        (void)pthread_mutex_lock(&events->lock);
        events->rows -= (int64_t)count;
        (void)pthread_mutex_unlock(&events->lock);
    } while (count > 0);
}

/* ---- making the text ---- */

static void add_member(struct buf *out, const char *name, struct str value)
{
    if (!value.p || value.len == 0)
        return;
    json_out_str(out, name, value);
}

/* All but the id and the time, which come first and are known last. */
static char *render_rest(const struct runtime *runtime, const struct runtime_caller *caller,
                         const struct runtime_event *event)
{
    auto_free char *data = event->data ? json_text(event->data) : NULL;
    struct buf out;
    char *text;

    buf_init(&out, EVENT_BYTES_MAX);
    json_out_str(&out, "type", event->type);
    add_member(&out, "sandbox", event->sandbox_id);
    add_member(&out, "session", event->session_id);
    add_member(&out, "process", event->process_id);
    add_member(&out, "agent", event->agent_id);
    add_member(&out, "task", event->task_id);
    add_member(&out, "actor", event->actor.p ? event->actor : caller->actor);
    if (data && out.len + strlen(data) + 16 < EVENT_BYTES_MAX)
        json_out_raw(&out, "data", str_of(data));
    else if (data)
        json_out_raw(&out, "data", STR("{\"truncated\":true}"));
    json_out_close(&out, "}");
    if (out.overflowed) { /* ids of absurd length: nobody of ours makes them */
        buf_clear(&out);
        json_out_str(&out, "type", STR("event.too_long"));
        json_out_close(&out, "}");
    }
    text = buf_take(&out);
    runtime_mask_json(runtime, caller->team_id, text);
    return text;
}

/* One block with room for the head; strings are copied behind the struct. */
static struct runtime_event_made *make_event(const struct runtime *runtime,
                                             const struct runtime_caller *caller,
                                             const struct runtime_event *event)
{
    auto_free char *rest = render_rest(runtime, caller, event);
    struct str keys[EVENT_KEYS] = {caller->team_id, event->sandbox_id, event->session_id,
                                   event->process_id, event->agent_id};
    size_t size = 128 + strlen(rest) + event->type.len;
    struct runtime_event_made *made;
    char *at;

    for (size_t i = 0; i < EVENT_KEYS; i++)
        size += keys[i].len;
    made = xcalloc(1, sizeof(*made) + size);
    made->size = sizeof(*made) + size;
    at = made->bytes;
    for (size_t i = 0; i < EVENT_KEYS; i++) {
        if (!keys[i].p || keys[i].len == 0) {
            keys[i] = STR_NONE;
            continue;
        }
        memcpy(at, keys[i].p, keys[i].len);
        keys[i].p = at;
        at += keys[i].len;
    }
    event_keys_set(&made->keys, keys);
    memcpy(at, event->type.p, event->type.len);
    made->type = str_n(at, event->type.len);
    at += event->type.len;
    /* The rest stands where the longest head would end; the head is put right before it. */
    memcpy(at + 120, rest, strlen(rest));
    made->json = str_n(at + 120, strlen(rest));
    return made;
}

/* With the lock held: id and time are told now. */
static void put_head(struct runtime_event_made *event, int64_t id, int64_t now_us)
{
    char head[120], when[CLOCK_TEXT_SIZE];
    int len;

    clock_format(now_us, when);
    len = snprintf(head, sizeof(head), "{\"id\":%" PRId64 ",\"ts\":\"%s\",", id, when);
    event->id = id;
    event->json.p -= len;
    event->json.len += (size_t)len;
    memcpy(event->bytes + (event->json.p - event->bytes), head, (size_t)len);
}

/* ---- the ring ---- */

static void drop_oldest(struct runtime_events *events)
{
    struct runtime_event_made *oldest = events->ring[events->first];

    events->gone_id = oldest->id;
    events->bytes -= oldest->size;
    events->first = (events->first + 1) % RING_EVENTS;
    events->count--;
    events->shown--;
    free(oldest);
}

/* Before they get their numbers: one that is held is waited for rather than dropped. */
static void make_room(struct runtime_events *events, size_t count, size_t bytes)
{
    while (events->count + count > RING_EVENTS ||
           (events->count > 0 && events->bytes + bytes > RING_BYTES)) {
        if (events->shown > 0)
            drop_oldest(events);
        else
            (void)pthread_cond_wait(&events->settled, &events->lock);
    }
}

static void push(struct runtime_events *events, struct runtime_event_made *event)
{
    events->ring[(events->first + events->count++) % RING_EVENTS] = event;
    events->bytes += event->size;
}

/* All up to the first that is held. */
static void show(struct runtime_events *events)
{
    while (events->shown < events->count && ring_at(events, events->shown)->state != EVENT_HELD)
        watchers_wake(events, ring_at(events, events->shown++));
}

/* With the lock held: the row of an event that was just made, in the arena. */
static struct store_runtime_event row_of(const struct runtime_event_made *made, struct arena *arena)
{
    return (struct store_runtime_event){
        .id = made->id,
        .team_id = arena_str(arena, made->keys.text[KEY_TEAM]),
        .type = arena_str(arena, made->type),
        .sandbox_id = arena_str(arena, made->keys.text[KEY_SANDBOX]),
        .session_id = arena_str(arena, made->keys.text[KEY_SESSION]),
        .process_id = arena_str(arena, made->keys.text[KEY_PROCESS]),
        .agent_id = arena_str(arena, made->keys.text[KEY_AGENT]),
        .json = arena_str(arena, made->json),
    };
}

/* With the lock held. */
static void number(struct runtime_events *events, struct runtime_event_made *made)
{
    int64_t now = clock_wall_us();

    events->last_id = now > events->last_id ? now : events->last_id + 1;
    put_head(made, events->last_id, now);
}

/* Numbers it and passes it on. row: NULL when it is not to be stored. */
static void publish(struct runtime_events *events, struct runtime_event_made *made,
                    struct store_runtime_event *row, struct arena *arena)
{
    (void)pthread_mutex_lock(&events->lock);
    make_room(events, 1, made->size);
    number(events, made);
    if (row) {
        events->rows++;
        *row = row_of(made, arena);
    }
    push(events, made);
    show(events);
    (void)pthread_mutex_unlock(&events->lock);
}

/* Whoever goes on after its event finds it. */
static void wait_until_shown(struct runtime_events *events, int64_t id)
{
    (void)pthread_mutex_lock(&events->lock);
    while (events->shown < events->count && ring_at(events, events->shown)->id < id)
        (void)pthread_cond_wait(&events->settled, &events->lock);
    (void)pthread_mutex_unlock(&events->lock);
}

static void store_rows(struct runtime *runtime, const struct store_runtime_event *rows,
                       size_t count)
{
    struct error err = {0};

    if (store_runtime_event_insert(runtime->config.store, rows, count, &err) < 0)
        log_error("runtime", "event %" PRId64 " type=%.*s (and %zu more) was not stored: %s",
                  rows[0].id, STR_ARG(rows[0].type), count - 1, err.message);
    wait_until_shown(runtime->events, rows[count - 1].id);
}

void runtime_event_add_all(struct runtime *runtime, const struct runtime_caller *caller,
                           const struct runtime_event *all, size_t count)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_event *rows = arena_alloc(&arena, count * sizeof(*rows));

    for (size_t i = 0; i < count; i++)
        publish(runtime->events, make_event(runtime, caller, &all[i]), &rows[i], &arena);
    store_rows(runtime, rows, count);
}

struct runtime_event_made *runtime_event_make(struct runtime *runtime,
                                              const struct runtime_caller *caller,
                                              const struct runtime_event *event, bool transient)
{
    struct runtime_event_made *made = make_event(runtime, caller, event);

    made->transient = transient;
    return made;
}

void runtime_event_add_made(struct runtime *runtime, struct runtime_event_made *made_consume)
{
    auto_arena struct arena arena = {0};
    bool transient = made_consume->transient;
    struct store_runtime_event row;

    publish(runtime->events, made_consume, transient ? NULL : &row, &arena);
    if (!transient)
        store_rows(runtime, &row, 1);
}

struct runtime_events_held {
    struct arena arena; /* of what follows */
    struct runtime_event_made **made;
    struct store_runtime_event *rows;
    size_t count;
};

/* Numbers them and keeps their places. */
static void hold(struct runtime_events *events, struct runtime_events_held *held)
{
    size_t bytes = 0;

    for (size_t i = 0; i < held->count; i++)
        bytes += held->made[i]->size;
    (void)pthread_mutex_lock(&events->lock);
    make_room(events, held->count, bytes);
    for (size_t i = 0; i < held->count; i++) {
        number(events, held->made[i]);
        held->rows[i] = row_of(held->made[i], &held->arena);
        held->made[i]->state = EVENT_HELD;
        push(events, held->made[i]);
    }
    (void)pthread_mutex_unlock(&events->lock);
}

struct runtime_events_held *runtime_event_hold(struct runtime *runtime,
                                               const struct runtime_caller *caller,
                                               const struct runtime_event *all, size_t count,
                                               const struct store_runtime_event **out_rows)
{
    struct runtime_events_held *held = xcalloc(1, sizeof(*held));

    held->count = count;
    held->rows = arena_alloc(&held->arena, count * sizeof(*held->rows));
    held->made = arena_alloc(&held->arena, count * sizeof(struct runtime_event_made *));
    for (size_t i = 0; i < count; i++)
        held->made[i] = make_event(runtime, caller, &all[i]);
    hold(runtime->events, held);
    *out_rows = held->rows;
    return held;
}

void runtime_event_settle(struct runtime *runtime, struct runtime_events_held *held_consume,
                          bool stored)
{
    struct runtime_events *events = runtime->events;

    if (!held_consume)
        return;
    (void)pthread_mutex_lock(&events->lock);
    for (size_t i = 0; i < held_consume->count; i++)
        held_consume->made[i]->state = stored ? EVENT_SHOWN : EVENT_DROPPED;
    if (stored)
        events->rows += (int64_t)held_consume->count;
    show(events);
    (void)pthread_cond_broadcast(&events->settled);
    (void)pthread_mutex_unlock(&events->lock);
    arena_done(&held_consume->arena);
    free(held_consume);
}

int runtime_event_add_with(struct runtime *runtime, const struct runtime_caller *caller,
                           const struct runtime_event *all, size_t count,
                           runtime_event_store_fn *store, void *arg, struct error *err)
{
    const struct store_runtime_event *rows = NULL;
    struct runtime_events_held *held = runtime_event_hold(runtime, caller, all, count, &rows);
    int r = store(arg, rows, count, err);

    runtime_event_settle(runtime, held, r == 0);
    return r;
}

void runtime_event_add(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct runtime_event *event)
{
    runtime_event_add_all(runtime, caller, event, 1);
}

void runtime_event_pass(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct runtime_event *event)
{
    runtime_event_add_made(runtime, runtime_event_make(runtime, caller, event, true));
}

/* ---- reading ---- */

struct reader {
    struct runtime *runtime;
    struct arena *arena;
    struct event_keys keys;
    struct str type;
    struct store_runtime_query query;
    struct runtime_event_text *found;
    size_t count, limit;
    size_t bytes; /* of their texts */
};

static void reader_init(struct reader *reader, struct runtime *runtime,
                        const struct runtime_caller *caller,
                        const struct runtime_event_filter *filter, struct arena *arena,
                        size_t limit)
{
    struct str keys[EVENT_KEYS] = {caller->team_id, filter->sandbox_id, filter->session_id,
                                   filter->process_id, filter->agent_id};

    limit = limit > RUNTIME_EVENTS_MAX ? RUNTIME_EVENTS_MAX : limit;
    *reader = (struct reader){.runtime = runtime, .arena = arena, .type = filter->type};
    reader->limit = limit;
    reader->found = arena_alloc(arena, (limit + 1) * sizeof(*reader->found));
    event_keys_set(&reader->keys, keys);
    reader->query = (struct store_runtime_query){
        .team_id = caller->team_id,
        .sandbox_id = filter->sandbox_id,
        .session_id = filter->session_id,
        .process_id = filter->process_id,
        .agent_id = filter->agent_id,
        .type = filter->type,
    };
}

static bool wanted(const struct reader *reader, const struct runtime_event_made *event)
{
    return !event->transient && event_matches(event, &reader->keys, reader->type);
}

static bool is_full(const struct reader *reader)
{
    return reader->count == reader->limit || reader->bytes >= PAGE_BYTES;
}

static void add(struct reader *reader, struct runtime_event_text text)
{
    reader->found[reader->count++] = text;
    reader->bytes += text.json.len;
}

/* From the store, oldest or newest first, appended; a few rows at a time, since each may be EVENT_BYTES_MAX long. */
static int read_rows(struct reader *reader, int64_t after, int64_t upto, bool newest,
                     struct error *err)
{
    struct store_runtime_query *query = &reader->query;
    struct store_runtime_event *rows;
    size_t count = ROWS;

    query->after_id = after;
    query->upto_id = upto;
    query->newest = newest;
    while (count == ROWS && query->after_id < query->upto_id && !is_full(reader)) {
        size_t room = reader->limit - reader->count;

        query->limit = room < ROWS ? room : ROWS;
        if (store_runtime_event_list(reader->runtime->config.store, query, reader->arena, &rows,
                                     &count, err) < 0)
            return error_prefix(err, "events");
        for (size_t i = 0; i < count; i++)
            add(reader, (struct runtime_event_text){
                            .id = rows[i].id, .type = rows[i].type, .json = rows[i].json});
        if (count && newest)
            query->upto_id = rows[count - 1].id - 1;
        else if (count)
            query->after_id = rows[count - 1].id;
    }
    return 0;
}

static int give(const struct reader *reader, struct runtime_event_texts *out, struct error *err)
{
    *out = (struct runtime_event_texts){
        .items = reader->found, .count = reader->count, .more = is_full(reader)};
    return buf_account_reserve(reader->bytes, err);
}

static int64_t gone_id(struct runtime_events *events)
{
    int64_t id;

    (void)pthread_mutex_lock(&events->lock);
    id = events->gone_id;
    (void)pthread_mutex_unlock(&events->lock);
    return id;
}

int runtime_event_list(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct runtime_event_filter *filter, int64_t since, size_t limit,
                       struct arena *arena, struct runtime_event_texts *out, struct error *err)
{
    struct runtime_events *events = runtime->events;
    struct reader reader;
    int64_t from = since, gone = gone_id(events);

    reader_init(&reader, runtime, caller, filter, arena, limit);
    for (;;) {
        if (read_rows(&reader, from, gone, false, err) < 0)
            return -1;
        from = from > gone ? from : gone;
        (void)pthread_mutex_lock(&events->lock);
        if (events->gone_id <= from || is_full(&reader))
            break;
        gone = events->gone_id; /* memory lost more meanwhile: these are rows now */
        (void)pthread_mutex_unlock(&events->lock);
    }
    for (size_t i = ring_after(events, from); i < events->shown && !is_full(&reader); i++)
        if (wanted(&reader, ring_at(events, i)))
            add(&reader, event_text(ring_at(events, i), arena));
    (void)pthread_mutex_unlock(&events->lock);
    return give(&reader, out, err);
}

int runtime_event_last(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct runtime_event_filter *filter, size_t limit, struct arena *arena,
                       struct runtime_event_texts *out, struct error *err)
{
    struct runtime_events *events = runtime->events;
    struct reader reader;
    int64_t gone;

    reader_init(&reader, runtime, caller, filter, arena, limit);
    (void)pthread_mutex_lock(&events->lock);
    gone = events->gone_id;
    for (size_t i = events->shown; i > 0 && !is_full(&reader); i--)
        if (wanted(&reader, ring_at(events, i - 1)))
            add(&reader, event_text(ring_at(events, i - 1), arena));
    (void)pthread_mutex_unlock(&events->lock);
    if (read_rows(&reader, 0, gone, true, err) < 0)
        return -1;
    for (size_t i = 0; i < reader.count / 2; i++) {
        struct runtime_event_text other = reader.found[reader.count - 1 - i];

        reader.found[reader.count - 1 - i] = reader.found[i];
        reader.found[i] = other;
    }
    return give(&reader, out, err);
}
