/* One at a time: what several builds need and nobody has yet is made by the first of them, and the others wait and find it. */
#include <string.h>

#include "base/cond.h"
#include "domain/build/build_internal.h"
#include "store/platform/store_event.h"

enum { LOOK_MS = 200 }; /* whether the build is still wanted */

static bool is_taken(const struct builds *all, const char *key)
{
    struct list *at;

    list_for_each (at, &all->turns)
        if (strcmp(container_of(at, struct build_turn, link)->key, key) == 0)
            return true;
    return false;
}

static void tell(struct build *build, const char *key)
{
    struct builds *all = build->all;
    bool taken;

    (void)pthread_mutex_lock(&all->lock);
    taken = is_taken(all, key);
    (void)pthread_mutex_unlock(&all->lock);
    if (!taken)
        return;
    log_line(&build->log, STORE_LEVEL_INFO, BASE_STEP,
             "[base] another build is making it: waiting");
    log_flush(&build->log);
}

int turn_take(struct build *build, const char *key, struct build_turn *turn, struct error *err)
{
    struct builds *all = build->all;
    int r;

    *turn = (struct build_turn){.key = key};
    tell(build, key);
    (void)pthread_mutex_lock(&all->lock);
    while ((r = build_check(build, err)) == 0 && is_taken(all, key))
        (void)cond_wait_ms(&all->turned, &all->lock, LOOK_MS);
    if (r == 0)
        list_push_back(&all->turns, &turn->link);
    (void)pthread_mutex_unlock(&all->lock);
    return r;
}

void turn_give(struct build *build, struct build_turn *turn)
{
    struct builds *all = build->all;

    (void)pthread_mutex_lock(&all->lock);
    list_remove(&turn->link);
    (void)pthread_cond_broadcast(&all->turned);
    (void)pthread_mutex_unlock(&all->lock);
}
