/* Watchers and hooks of rooms above. A lock is held for reading while they are called, so that whoever takes them away waits. */
#include "domain/sandbox/sandbox_hooks.h"

#include <assert.h>

#include "domain/sandbox/sandbox_internal.h"

void watchers_init(struct sandboxes *all)
{
    (void)pthread_rwlock_init(&all->watchers.lock, NULL);
    (void)pthread_rwlock_init(&all->watchers.hooks_lock, NULL);
}

void watchers_done(struct sandboxes *all)
{
    (void)pthread_rwlock_destroy(&all->watchers.lock);
    (void)pthread_rwlock_destroy(&all->watchers.hooks_lock);
}

void watchers_call(struct sandboxes *all)
{
    struct watchers *watchers = &all->watchers;

    (void)pthread_rwlock_rdlock(&watchers->lock);
    for (size_t i = 0; i < SANDBOXES_WATCHERS_MAX; i++)
        if (watchers->all[i].fn)
            watchers->all[i].fn(watchers->all[i].arg);
    (void)pthread_rwlock_unlock(&watchers->lock);
}

void sandboxes_watch(struct sandboxes *all, sandboxes_watch_fn *fn, void *arg)
{
    struct watchers *watchers = &all->watchers;
    size_t i = 0;

    (void)pthread_rwlock_wrlock(&watchers->lock);
    while (i < SANDBOXES_WATCHERS_MAX && watchers->all[i].fn)
        i++;
    assert(i < SANDBOXES_WATCHERS_MAX);
    watchers->all[i] = (struct watcher){fn, arg};
    (void)pthread_rwlock_unlock(&watchers->lock);
}

void sandboxes_unwatch(struct sandboxes *all, const void *arg)
{
    struct watchers *watchers = &all->watchers;

    (void)pthread_rwlock_wrlock(&watchers->lock);
    for (size_t i = 0; i < SANDBOXES_WATCHERS_MAX; i++)
        if (watchers->all[i].arg == arg)
            watchers->all[i] = (struct watcher){0};
    (void)pthread_rwlock_unlock(&watchers->lock);
}

void sandboxes_set_hooks(struct sandboxes *all, const struct sandboxes_hooks *hooks)
{
    (void)pthread_rwlock_wrlock(&all->watchers.hooks_lock);
    all->watchers.hooks = hooks ? *hooks : (struct sandboxes_hooks){0};
    (void)pthread_rwlock_unlock(&all->watchers.hooks_lock);
}

static const struct sandboxes_hooks *hooks_hold(struct sandboxes *all)
{
    (void)pthread_rwlock_rdlock(&all->watchers.hooks_lock);
    return &all->watchers.hooks;
}

static void hooks_release(struct sandboxes *all)
{
    (void)pthread_rwlock_unlock(&all->watchers.hooks_lock);
}

bool hooks_box_ended(struct sandboxes *all, const char *box_id)
{
    const struct sandboxes_hooks *hooks = hooks_hold(all);
    bool theirs = hooks->box_ended && hooks->box_ended(hooks->arg, box_id);

    hooks_release(all);
    return theirs;
}
