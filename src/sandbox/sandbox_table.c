/* The table of all sandboxes of this process, by id, and every change of state.
 *
 *            table_add            table_run             table_take / condemn / expiry
 *   (nothing) -------> CREATING ----------> RUNNING ---------------------------------> KILLING
 *                          |                                                            |  ^ |
 *                          +---------- table_fail ------------------------------------->+  +-+ retry
 *                                                                                       |
 *                                                                   table_remove -> (nothing)
 *
 * Boxes without an owner (warm ones that failed, leftovers of a crash) enter as KILLING. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "sandbox/sandbox_internal.h"

struct team_count {
    size_t running;
};

void table_init(struct sandboxes *all)
{
    (void)pthread_mutex_init(&all->lock, NULL);
    cond_init_monotonic(&all->due);
    cond_init_monotonic(&all->settled);
    map_init(&all->table);
    map_init(&all->teams);
}

void table_done(struct sandboxes *all)
{
    struct map_entry *entry;

    map_for_each (&all->table, entry)
        free(entry->value);
    map_for_each (&all->teams, entry)
        free(entry->value);
    map_done(&all->table);
    map_done(&all->teams);
    free(all->schedule);
    (void)pthread_cond_destroy(&all->due);
    (void)pthread_cond_destroy(&all->settled);
    (void)pthread_mutex_destroy(&all->lock);
}

static struct team_count *count_of(struct sandboxes *all, const char *team_id)
{
    struct team_count *count = map_get(&all->teams, str_of(team_id));

    if (!count) {
        count = xcalloc(1, sizeof(*count));
        (void)map_put(&all->teams, str_of(team_id), count);
    }
    return count;
}

static struct sandbox *add_entry(struct sandboxes *all, const char *id, enum sandbox_state state)
{
    struct sandbox *sandbox = xcalloc(1, sizeof(*sandbox));

    (void)str_copy(str_of(id), sandbox->id, sizeof(sandbox->id));
    sandbox->state = state;
    sandbox->scheduled_at = NOT_SCHEDULED;
    (void)map_put(&all->table, str_of(id), sandbox);
    return sandbox;
}

static void move(struct sandboxes *all, struct sandbox *sandbox, enum sandbox_state to)
{
    enum sandbox_state from = sandbox->state;

    assert(from < to);
    if (from == SANDBOX_RUNNING) {
        all->running--;
        count_of(all, sandbox->team_id)->running--;
    }
    if (to == SANDBOX_RUNNING) {
        all->running++;
        count_of(all, sandbox->team_id)->running++;
    }
    if (to == SANDBOX_KILLING)
        all->live--;
    sandbox->state = to;
}

int table_add(struct sandboxes *all, const char *id, struct str team_id, struct sandbox **out,
              struct error *err)
{
    struct sandbox *sandbox = NULL;
    int result = 0;

    if (team_id.len == 0 || team_id.len >= TEAM_ID_SIZE)
        return error_set(err, ERROR_INTERNAL, "bad team id");
    (void)pthread_mutex_lock(&all->lock);
    if (all->max_running && all->live >= all->max_running) {
        result = error_set(err, ERROR_QUOTA, "the limit of %zu running sandboxes is reached",
                           all->max_running);
    } else if (map_get(&all->table, str_of(id))) {
        result = error_set(err, ERROR_EXISTS, "sandbox '%s' is there already", id);
    } else {
        sandbox = add_entry(all, id, SANDBOX_CREATING);
        (void)str_copy(team_id, sandbox->team_id, sizeof(sandbox->team_id));
        all->live++;
    }
    (void)pthread_mutex_unlock(&all->lock);
    *out = sandbox;
    return result;
}

bool table_adopt(struct sandboxes *all, const char *id, struct str team_id, int64_t end_at_us,
                 int64_t revision)
{
    struct sandbox *sandbox;

    if (team_id.len == 0 || team_id.len >= TEAM_ID_SIZE)
        return false;
    (void)pthread_mutex_lock(&all->lock);
    sandbox = add_entry(all, id, SANDBOX_CREATING);
    (void)str_copy(team_id, sandbox->team_id, sizeof(sandbox->team_id));
    all->live++;
    (void)pthread_mutex_unlock(&all->lock);
    return table_run(all, sandbox, end_at_us, revision);
}

bool table_run(struct sandboxes *all, struct sandbox *sandbox, int64_t end_at_us, int64_t revision)
{
    bool alive;

    (void)pthread_mutex_lock(&all->lock);
    alive = !sandbox->died;
    if (alive) {
        move(all, sandbox, SANDBOX_RUNNING);
        sandbox->revision = revision;
        schedule_set(all, sandbox, end_at_us);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return alive;
}

void table_fail(struct sandboxes *all, struct sandbox *sandbox, const char *reason)
{
    (void)pthread_mutex_lock(&all->lock);
    move(all, sandbox, SANDBOX_KILLING);
    sandbox->reason = reason;
    (void)pthread_mutex_unlock(&all->lock);
}

static struct sandbox *find(struct sandboxes *all, struct str team_id, struct str id)
{
    struct sandbox *sandbox = map_get(&all->table, id);

    if (!sandbox || sandbox->state != SANDBOX_RUNNING || !str_is(team_id, sandbox->team_id))
        return NULL;
    return sandbox;
}

struct sandbox *table_take(struct sandboxes *all, struct str team_id, struct str id,
                           const char *reason)
{
    struct sandbox *sandbox;

    (void)pthread_mutex_lock(&all->lock);
    sandbox = find(all, team_id, id);
    if (sandbox) {
        move(all, sandbox, SANDBOX_KILLING);
        sandbox->reason = reason;
        schedule_unset(all, sandbox);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return sandbox;
}

struct sandbox *table_take_first(struct sandboxes *all)
{
    struct sandbox *sandbox = all->schedule[0];

    schedule_unset(all, sandbox);
    if (sandbox->state == SANDBOX_RUNNING) {
        move(all, sandbox, SANDBOX_KILLING);
        sandbox->reason = "timeout";
    }
    return sandbox;
}

void table_condemn(struct sandboxes *all, const char *id, const char *reason)
{
    struct sandbox *sandbox;

    (void)pthread_mutex_lock(&all->lock);
    sandbox = map_get(&all->table, str_of(id));
    if (sandbox && sandbox->state == SANDBOX_CREATING) {
        sandbox->died = true;
    } else if (!sandbox || sandbox->state == SANDBOX_RUNNING) {
        if (sandbox)
            move(all, sandbox, SANDBOX_KILLING);
        else
            sandbox = add_entry(all, id, SANDBOX_KILLING);
        sandbox->reason = reason;
        sandbox->condemned = true;
        all->condemned++;
        schedule_set(all, sandbox, 0);
    }
    (void)pthread_mutex_unlock(&all->lock);
}

bool table_has(struct sandboxes *all, const char *id)
{
    bool found;

    (void)pthread_mutex_lock(&all->lock);
    found = map_get(&all->table, str_of(id)) != NULL;
    (void)pthread_mutex_unlock(&all->lock);
    return found;
}

bool table_visible(struct sandboxes *all, struct str team_id, struct str id)
{
    bool found;

    (void)pthread_mutex_lock(&all->lock);
    found = find(all, team_id, id) != NULL;
    (void)pthread_mutex_unlock(&all->lock);
    return found;
}

bool table_set_end(struct sandboxes *all, struct str id, int64_t end_at_us, int64_t revision)
{
    struct sandbox *sandbox;
    bool runs;

    (void)pthread_mutex_lock(&all->lock);
    sandbox = map_get(&all->table, id);
    runs = sandbox && sandbox->state == SANDBOX_RUNNING;
    if (runs && revision > sandbox->revision) {
        sandbox->revision = revision;
        schedule_set(all, sandbox, end_at_us);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return runs;
}

/* 0.2 s, 0.4 s, ... 25.6 s. */
void table_retry_later(struct sandboxes *all, struct sandbox *sandbox)
{
    unsigned shift;

    (void)pthread_mutex_lock(&all->lock);
    shift = sandbox->attempts < 7 ? sandbox->attempts : 7;
    sandbox->attempts++;
    schedule_set(all, sandbox, clock_wall_us() + ((int64_t)200000 << shift));
    (void)pthread_mutex_unlock(&all->lock);
}

void table_remove(struct sandboxes *all, struct sandbox *sandbox)
{
    (void)pthread_mutex_lock(&all->lock);
    assert(sandbox->state == SANDBOX_KILLING && sandbox->scheduled_at == NOT_SCHEDULED);
    (void)map_remove(&all->table, str_of(sandbox->id));
    (void)pthread_mutex_unlock(&all->lock);
    free(sandbox);
}

size_t table_running_of(struct sandboxes *all, struct str team_id)
{
    const struct team_count *count;
    size_t running;

    (void)pthread_mutex_lock(&all->lock);
    count = map_get(&all->teams, team_id);
    running = count ? count->running : 0;
    (void)pthread_mutex_unlock(&all->lock);
    return running;
}

size_t sandboxes_running(struct sandboxes *all)
{
    size_t running;

    (void)pthread_mutex_lock(&all->lock);
    running = all->running;
    (void)pthread_mutex_unlock(&all->lock);
    return running;
}
