/* Claims: who makes the machine of a row in 'creating' says so for as long as it works, however long a create, a
 * restore or its hooks take. In this process a claim is an entry of a list; other processes on the same store see it
 * in the row's last_used_at_us, which a timer renews. Without a claim, and RUNTIME_CLAIM_S after the last renewal,
 * the maker has died: ensure takes the row over, and the clean-up ends it. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "runtime/sandbox/sandbox_parts.h"

enum { RENEW_S = 30 };

struct runtime_claims {
    pthread_mutex_t lock; /* guards the list; not held while the store is asked */
    struct list all;
};

/* Claims that have ended, of all runtimes in this process: who waits for a row is woken by it. */
static struct {
    pthread_mutex_t lock;
    pthread_once_t once;
    pthread_cond_t changed;
    uint64_t count;
} ends = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

static void ends_init(void)
{
    cond_init(&ends.changed);
}

static void renew(struct runtime *runtime)
{
    struct runtime_claims *claims = runtime->claims;
    auto_arena struct arena arena = {0};
    struct list *pos;
    struct str *ids;
    size_t count = 0;

    (void)pthread_mutex_lock(&claims->lock);
    list_for_each (pos, &claims->all)
        count++;
    ids = arena_alloc(&arena, (count + 1) * sizeof(*ids));
    count = 0;
    list_for_each (pos, &claims->all)
        ids[count++] = arena_str(&arena, container_of(pos, struct runtime_claim, link)->id);
    (void)pthread_mutex_unlock(&claims->lock);
    for (size_t i = 0; i < count; i++) {
        struct error err;

        if (store_runtime_sandbox_used(runtime->config.store, ids[i], clock_wall_us(), 0, 0, &err) <
            0)
            log_warn("runtime", "sandbox=%.*s claim not renewed: %s", STR_ARG(ids[i]), err.message);
    }
}

void runtime_claims_open(struct runtime *runtime)
{
    struct runtime_claims *claims = xcalloc(1, sizeof(*claims));

    (void)pthread_mutex_init(&claims->lock, NULL);
    list_init(&claims->all);
    runtime->claims = claims;
    runtime_timer_add(runtime, "claims", RENEW_S, false, renew);
}

void runtime_claims_close(struct runtime *runtime)
{
    if (!runtime->claims)
        return;
    (void)pthread_mutex_destroy(&runtime->claims->lock);
    free(runtime->claims);
    runtime->claims = NULL;
}

void runtime_claim_begin(struct runtime *runtime, struct runtime_claim *claim, struct str id)
{
    runtime_claim_end(runtime, claim);
    claim->id = id;
    (void)pthread_mutex_lock(&runtime->claims->lock);
    list_push_back(&runtime->claims->all, &claim->link);
    (void)pthread_mutex_unlock(&runtime->claims->lock);
}

void runtime_claim_end(struct runtime *runtime, struct runtime_claim *claim)
{
    bool held;

    (void)pthread_mutex_lock(&runtime->claims->lock);
    held = !list_empty(&claim->link);
    list_remove(&claim->link);
    (void)pthread_mutex_unlock(&runtime->claims->lock);
    if (!held)
        return;
    (void)pthread_once(&ends.once, ends_init);
    (void)pthread_mutex_lock(&ends.lock);
    ends.count++;
    (void)pthread_cond_broadcast(&ends.changed);
    (void)pthread_mutex_unlock(&ends.lock);
}

uint64_t runtime_claim_ends(void)
{
    uint64_t count;

    (void)pthread_mutex_lock(&ends.lock);
    count = ends.count;
    (void)pthread_mutex_unlock(&ends.lock);
    return count;
}

void runtime_claim_wait(uint64_t seen, int64_t until_us)
{
    bool late = false;

    (void)pthread_once(&ends.once, ends_init);
    (void)pthread_mutex_lock(&ends.lock);
    while (ends.count == seen && !late)
        late = !cond_wait_until(&ends.changed, &ends.lock, until_us);
    (void)pthread_mutex_unlock(&ends.lock);
}

bool runtime_claim_held(struct runtime *runtime, struct str id)
{
    struct list *pos;
    bool held = false;

    (void)pthread_mutex_lock(&runtime->claims->lock);
    list_for_each (pos, &runtime->claims->all)
        held = held || str_eq(container_of(pos, struct runtime_claim, link)->id, id);
    (void)pthread_mutex_unlock(&runtime->claims->lock);
    return held;
}
