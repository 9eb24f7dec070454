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
#include "runtime/sandbox/sandbox_internal.h"

enum { FLUSH_US = 10 * 1000000 };

struct live {
    int64_t used_us, flushed_us; /* wall */
    int64_t commands, jobs;      /* not in the row yet */
    int64_t expires_us;          /* monotonic; 0 = not known */
};

struct runtime_key_lock {
    pthread_cond_t freed;
    bool held;
    size_t users;    /* who has it or waits for it */
    struct str name; /* owned */
};

struct runtime_sandboxes {
    pthread_mutex_t lock; /* guards all below */
    struct map live;      /* id -> struct live */
    struct map keys;      /* team and name -> struct runtime_key_lock */
    struct map bash;      /* provider and image -> "y" or "n" */
    struct arena arena;
    struct str instance;
};

int runtime_sandboxes_open(struct runtime *runtime, struct error *err)
{
    struct runtime_sandboxes *all = xcalloc(1, sizeof(*all));

    (void)pthread_mutex_init(&all->lock, NULL);
    map_init(&all->live);
    map_init(&all->keys);
    map_init(&all->bash);
    runtime->sandboxes = all;
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
    map_for_each (&all->live, entry) {
        struct live *live = entry->value;

        if (live->used_us > live->flushed_us || live->commands || live->jobs)
            flush(runtime, str_n(entry->key, entry->key_len), live);
        free(live);
    }
    map_done(&all->live);
    map_done(&all->keys);
    map_done(&all->bash);
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
static struct runtime_key_lock *key_lock_of(struct runtime_sandboxes *all, struct str full)
{
    struct runtime_key_lock *lock = map_get(&all->keys, full);

    if (!lock) {
        lock = xcalloc(1, sizeof(*lock));
        (void)pthread_cond_init(&lock->freed, NULL);
        lock->name = str_of(str_dup(full));
        (void)map_put(&all->keys, full, lock);
    }
    lock->users++;
    return lock;
}

/* With the lock held. */
static void let_go(struct runtime_sandboxes *all, struct runtime_key_lock *lock)
{
    if (--lock->users > 0)
        return;
    (void)map_remove(&all->keys, lock->name);
    (void)pthread_cond_destroy(&lock->freed);
    free((char *)(uintptr_t)lock->name.p);
    free(lock);
}

/* NULL when somebody else still has it at end_ms (monotonic; 0 = waits for ever). */
static struct runtime_key_lock *take(struct runtime *runtime, struct str team_id, struct str name,
                                     int64_t end_ms)
{
    struct runtime_sandboxes *all = runtime->sandboxes;
    struct timespec until = {.tv_sec = end_ms / 1000, .tv_nsec = end_ms % 1000 * 1000000};
    struct runtime_key_lock *lock;
    auto_arena struct arena arena = {0};
    struct str full = str_of(arena_printf(&arena, "%.*s\n%.*s", STR_ARG(team_id), STR_ARG(name)));
    int r = 0;

    (void)pthread_mutex_lock(&all->lock);
    lock = key_lock_of(all, full);
    while (lock->held && r == 0)
        r = end_ms ? pthread_cond_clockwait(&lock->freed, &all->lock, CLOCK_MONOTONIC, &until)
                   : pthread_cond_wait(&lock->freed, &all->lock);
    if (lock->held) {
        let_go(all, lock);
        lock = NULL;
    } else {
        lock->held = true;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return lock;
}

struct runtime_key_lock *runtime_key_lock(struct runtime *runtime, struct str team_id,
                                          struct str name)
{
    return take(runtime, team_id, name, 0);
}

struct runtime_key_lock *runtime_key_lock_soon(struct runtime *runtime, struct str team_id,
                                               struct str name, struct error *err)
{
    struct runtime_key_lock *lock = take(runtime, team_id, name, fetch_deadline());

    if (!lock)
        (void)error_set(err, ERROR_TIMEOUT, "another request for '%.*s' is still under way",
                        STR_ARG(name));
    return lock;
}

struct runtime_key_lock *runtime_key_lock_now(struct runtime *runtime, struct str team_id,
                                              struct str name)
{
    return take(runtime, team_id, name, clock_mono_ms());
}

void runtime_key_unlock(struct runtime *runtime, struct runtime_key_lock *lock)
{
    struct runtime_sandboxes *all = runtime->sandboxes;

    if (!lock)
        return;
    (void)pthread_mutex_lock(&all->lock);
    lock->held = false;
    (void)pthread_cond_signal(&lock->freed);
    let_go(all, lock);
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

void runtime_live_flush(struct runtime *runtime)
{
    struct runtime_sandboxes *all = runtime->sandboxes;
    struct map_entry *entry;

    (void)pthread_mutex_lock(&all->lock);
    map_for_each (&all->live, entry) {
        struct live *live = entry->value;

        if (live->commands || live->jobs || live->used_us > live->flushed_us)
            flush(runtime, str_n(entry->key, entry->key_len), live);
        live->flushed_us = live->used_us;
        live->commands = live->jobs = 0;
    }
    (void)pthread_mutex_unlock(&all->lock);
}

static char yes[] = "y", no[] = "n";
enum { IMAGES_MAX = 4096 };

static struct str image_name(struct arena *arena, struct str provider, struct str image)
{
    return str_of(arena_printf(arena, "%.*s\n%.*s", STR_ARG(provider), STR_ARG(image)));
}

int runtime_live_bash(struct runtime *runtime, struct str provider, struct str image)
{
    struct runtime_sandboxes *all = runtime->sandboxes;
    auto_arena struct arena arena = {0};
    struct str name = image_name(&arena, provider, image);
    const char *known;

    (void)pthread_mutex_lock(&all->lock);
    known = map_get(&all->bash, name);
    (void)pthread_mutex_unlock(&all->lock);
    return known ? known == yes : -1;
}

void runtime_live_set_bash(struct runtime *runtime, struct str provider, struct str image,
                           bool bash)
{
    struct runtime_sandboxes *all = runtime->sandboxes;
    auto_arena struct arena arena = {0};
    struct str name = image_name(&arena, provider, image);

    (void)pthread_mutex_lock(&all->lock);
    if (all->bash.count < IMAGES_MAX)
        (void)map_put(&all->bash, name, bash ? yes : no);
    (void)pthread_mutex_unlock(&all->lock);
}
