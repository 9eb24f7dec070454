/* What envds know of their sandbox's end: it and a grace period, after which they end the sandbox by
 * themselves. That is for the case that neither server nor warden is there any more; as long as they
 * are, they are faster. An envd that could not be told of a later end would end its sandbox too early,
 * so that is tried again until it succeeds. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_table.h"

enum { GRACE_MIN_S = 1 };

int64_t lease_seconds(const struct sandboxes *all, int64_t end_at_us)
{
    int64_t seconds = (end_at_us - now_us(all)) / 1000000;

    return (seconds < 0 ? 0 : seconds) + all->grace_s + GRACE_MIN_S;
}

static void set_failed(struct sandboxes *all, const char *id, int64_t revision, bool failed)
{
    struct sandbox *sandbox;

    (void)pthread_mutex_lock(&all->lock);
    sandbox = map_get(&all->table, str_of(id));
    if (sandbox && sandbox->revision <= revision)
        sandbox->lease_failed = failed;
    (void)pthread_mutex_unlock(&all->lock);
}

static bool tell(struct sandboxes *all, const char *id, int64_t end_at_us, int64_t revision)
{
    struct error err = {0};

    if (envd_lease(all->engine, id, lease_seconds(all, end_at_us), revision, &err) == 0)
        return true;
    log_warn("sandbox", "id=%s: %s, trying again", id, err.message);
    return false;
}

void lease_tell(struct sandboxes *all, const char *id, int64_t end_at_us, int64_t revision)
{
    if (tell(all, id, end_at_us, revision))
        return;
    set_failed(all, id, revision, true);
    lease_retry_later(all);
}

struct late {
    char id[ID_SIZE];
    int64_t end_at_us, revision;
};

static size_t find_late(struct sandboxes *all, struct late **out)
{
    struct map_entry *entry;
    size_t count = 0;

    (void)pthread_mutex_lock(&all->lock);
    *out = xcalloc(all->running + 1, sizeof(**out));
    map_for_each (&all->table, entry) {
        const struct sandbox *sandbox = entry->value;

        if (!sandbox->lease_failed ||
            (sandbox->state != SANDBOX_RUNNING && sandbox->state != SANDBOX_SEALING))
            continue;
        memcpy((*out)[count].id, sandbox->id, ID_SIZE);
        (*out)[count].end_at_us = sandbox->due_us;
        (*out)[count++].revision = sandbox->revision;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return count;
}

bool lease_retry(struct sandboxes *all)
{
    auto_free struct late *late = NULL;
    size_t count = find_late(all, &late);
    bool some = false;

    for (size_t i = 0; i < count; i++) {
        bool told = tell(all, late[i].id, late[i].end_at_us, late[i].revision);

        set_failed(all, late[i].id, late[i].revision, !told);
        some |= !told;
    }
    return some;
}
