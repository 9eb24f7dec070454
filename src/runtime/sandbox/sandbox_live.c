/* What this process knows of sandboxes besides their rows.
 *
 * Each use would cost a write and a call to the provider if it were told at once. So the time of the
 * last use and the number of commands are kept here and written every FLUSH_US (and when we close);
 * and the provider is asked for more time only when less than half of it is left. Both may be lost
 * by a crash: then a sandbox looks unused for at most FLUSH_US too long, and the first use asks the
 * provider. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "protocol/fetch/fetch.h"
#include "runtime/sandbox/sandbox_parts.h"

enum { FLUSH_US = 10 * 1000000 };

struct live {
    int64_t used_us, flushed_us; /* wall */
    int64_t commands, jobs;      /* not in the row yet */
    int64_t expires_us;          /* monotonic; 0 = not known */
};

struct runtime_hold {
    pthread_cond_t freed;
    bool held;
    size_t users;    /* who has it or waits for it */
    struct str name; /* owned */
};

struct runtime_sandboxes {
    pthread_mutex_t lock; /* guards all below; never held while the store is asked */
    struct map live;      /* id -> struct live */
    struct map keys;      /* team and name -> struct runtime_hold */
    struct arena arena;
    struct str instance;
};

int runtime_sandboxes_open(struct runtime *runtime, struct error *err)
{
    struct runtime_sandboxes *all = xcalloc(1, sizeof(*all));

    (void)pthread_mutex_init(&all->lock, NULL);
    map_init(&all->live);
    map_init(&all->keys);
    runtime->sandboxes = all;
    runtime_claims_open(runtime);
    runtime_sweeps_open(runtime);
    return store_runtime_instance(runtime->config.store, &all->arena, &all->instance, err);
}

static void flush(struct runtime *runtime, struct str id, const struct live *live)
{
    struct error err;

    if (store_runtime_sandbox_used(runtime->config.store, id, live->used_us, live->commands,
                                   live->jobs, &err) < 0)
        log_warn("runtime", "sandbox=%.*s use not recorded, ignoring: %s", STR_ARG(id),
                 err.message);
}

void runtime_sandboxes_close(struct runtime *runtime)
{
    struct runtime_sandboxes *all = runtime->sandboxes;
    struct map_entry *entry;

    if (!all)
        return;
    runtime_sweeps_close(runtime);
    runtime_claims_close(runtime);
    map_for_each (&all->live, entry) {
        struct live *live = entry->value;

        if (live->used_us > live->flushed_us || live->commands || live->jobs)
            flush(runtime, str_n(entry->key, entry->key_len), live);
        free(live);
    }
    map_done(&all->live);
    map_done(&all->keys);
    arena_done(&all->arena);
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
    runtime->sandboxes = NULL;
}

struct str runtime_instance_name(const struct runtime *runtime)
{
    return runtime->sandboxes->instance;
}

/* With the lock held. */
static struct runtime_hold *hold_of(struct runtime_sandboxes *all, struct str full)
{
    struct runtime_hold *hold = map_get(&all->keys, full);

    if (!hold) {
        hold = xcalloc(1, sizeof(*hold));
        (void)pthread_cond_init(&hold->freed, NULL);
        hold->name = str_of(str_dup(full));
        (void)map_put(&all->keys, full, hold);
    }
    hold->users++;
    return hold;
}

/* With the lock held. */
static void let_go(struct runtime_sandboxes *all, struct runtime_hold *hold)
{
    if (--hold->users > 0)
        return;
    (void)map_remove(&all->keys, hold->name);
    (void)pthread_cond_destroy(&hold->freed);
    free((char *)(uintptr_t)hold->name.p);
    free(hold);
}

/* NULL when somebody else still has it at the deadline (0 = waits for ever). */
static struct runtime_hold *take(struct runtime *runtime, struct str team_id, struct str name,
                                 int64_t deadline_us)
{
    struct runtime_sandboxes *all = runtime->sandboxes;
    struct timespec until = clock_mono_at(deadline_us);
    struct runtime_hold *hold;
    auto_arena struct arena arena = {0};
    struct str full = str_of(arena_printf(&arena, "%.*s\n%.*s", STR_ARG(team_id), STR_ARG(name)));
    int r = 0;

    (void)pthread_mutex_lock(&all->lock);
    hold = hold_of(all, full);
    while (hold->held && r == 0)
        r = deadline_us ? pthread_cond_clockwait(&hold->freed, &all->lock, CLOCK_MONOTONIC, &until)
                        : pthread_cond_wait(&hold->freed, &all->lock);
    if (hold->held) {
        let_go(all, hold);
        hold = NULL;
    } else {
        hold->held = true;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return hold;
}

struct runtime_hold *runtime_hold(struct runtime *runtime, struct str team_id, struct str name)
{
    return take(runtime, team_id, name, 0);
}

struct runtime_hold *runtime_hold_soon(struct runtime *runtime, struct str team_id, struct str name,
                                       int64_t deadline_us, struct error *err)
{
    struct runtime_hold *hold = take(runtime, team_id, name, deadline_us);

    if (!hold)
        (void)error_set(err, ERROR_TIMEOUT, "another request for '%.*s' is still under way",
                        STR_ARG(name));
    return hold;
}

struct runtime_hold *runtime_hold_now(struct runtime *runtime, struct str team_id, struct str name)
{
    return take(runtime, team_id, name, clock_mono_us());
}

void runtime_hold_end(struct runtime *runtime, struct runtime_hold *hold)
{
    struct runtime_sandboxes *all = runtime->sandboxes;

    if (!hold)
        return;
    (void)pthread_mutex_lock(&all->lock);
    hold->held = false;
    (void)pthread_cond_signal(&hold->freed);
    let_go(all, hold);
    (void)pthread_mutex_unlock(&all->lock);
}

/* With the lock held. */
static struct live *live_of(struct runtime_sandboxes *all, struct str id)
{
    struct live *live = map_get(&all->live, id);

    if (!live) {
        live = xcalloc(1, sizeof(*live));
        (void)map_put(&all->live, id, live);
    }
    return live;
}

void runtime_live_used(struct runtime *runtime, struct str id, int64_t commands, int64_t jobs)
{
    struct runtime_sandboxes *all = runtime->sandboxes;
    int64_t now_us = clock_wall_us();
    struct live copy = {0}, *live;

    (void)pthread_mutex_lock(&all->lock);
    live = live_of(all, id);
    live->used_us = now_us;
    live->commands += commands;
    live->jobs += jobs;
    if (now_us - live->flushed_us >= FLUSH_US || now_us < live->flushed_us) {
        copy = *live;
        live->flushed_us = now_us;
        live->commands = live->jobs = 0;
    }
    (void)pthread_mutex_unlock(&all->lock);
    if (copy.used_us)
        flush(runtime, id, &copy);
}

int64_t runtime_live_last_used(struct runtime *runtime, struct str id, int64_t row_us)
{
    struct runtime_sandboxes *all = runtime->sandboxes;
    struct live *live;

    (void)pthread_mutex_lock(&all->lock);
    live = map_get(&all->live, id);
    if (live && live->used_us > row_us)
        row_us = live->used_us;
    (void)pthread_mutex_unlock(&all->lock);
    return row_us;
}

void runtime_live_extended(struct runtime *runtime, struct str id, int64_t ttl_s)
{
    struct runtime_sandboxes *all = runtime->sandboxes;

    (void)pthread_mutex_lock(&all->lock);
    live_of(all, id)->expires_us = ttl_s > 0 ? clock_mono_us() + ttl_s * 1000000 : 0;
    (void)pthread_mutex_unlock(&all->lock);
}

enum runtime_life runtime_live_life(struct runtime *runtime, struct str id, int64_t ttl_s)
{
    struct runtime_sandboxes *all = runtime->sandboxes;
    int64_t left_us, now_us = clock_mono_us();
    struct live *live;

    if (ttl_s <= 0)
        return LIFE_LONG;
    (void)pthread_mutex_lock(&all->lock);
    live = map_get(&all->live, id);
    left_us = live && live->expires_us ? live->expires_us - now_us : 0;
    (void)pthread_mutex_unlock(&all->lock);
    if (left_us <= 0)
        return LIFE_UNKNOWN;
    return left_us < ttl_s * 500000 ? LIFE_SHORT : LIFE_LONG;
}

void runtime_live_forget(struct runtime *runtime, struct str id)
{
    struct runtime_sandboxes *all = runtime->sandboxes;
    struct live *live;

    (void)pthread_mutex_lock(&all->lock);
    live = map_remove(&all->live, id);
    (void)pthread_mutex_unlock(&all->lock);
    if (live && (live->commands || live->jobs))
        flush(runtime, id, live);
    free(live);
}

struct counted {
    struct str id;
    struct live live;
};

void runtime_live_flush(struct runtime *runtime)
{
    struct runtime_sandboxes *all = runtime->sandboxes;
    auto_arena struct arena arena = {0};
    struct counted *counted;
    struct map_entry *entry;
    size_t count = 0;

    (void)pthread_mutex_lock(&all->lock);
    counted = arena_alloc(&arena, (all->live.count + 1) * sizeof(*counted));
    map_for_each (&all->live, entry) {
        struct live *live = entry->value;

        if (live->commands || live->jobs || live->used_us > live->flushed_us)
            counted[count++] =
                (struct counted){arena_str(&arena, str_n(entry->key, entry->key_len)), *live};
        live->flushed_us = live->used_us;
        live->commands = live->jobs = 0;
    }
    (void)pthread_mutex_unlock(&all->lock);
    for (size_t i = 0; i < count; i++)
        flush(runtime, counted[i].id, &counted[i].live);
}
