/* The table of all sandboxes of this process, by id, and every change of state, as store/core/sandbox_state.h allows them:
 *
 *   CREATING -> RUNNING           a create that succeeded
 *   RUNNING  -> PAUSING -> PAUSED    or back to RUNNING, when it could not be paused
 *   PAUSED   -> RESUMING -> RUNNING  or back to PAUSED
 *   RUNNING  -> SEALING -> RUNNING
 *   any      -> KILLING -> (gone)    tried again until it succeeds
 *
 * RUNNING and PAUSED belong to the table; in all other states there is one owner.
 * Boxes of nobody (warm ones that failed, leftovers of a crash) enter as KILLING. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/size.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_table.h"

struct team_count {
    size_t running;
    uint64_t started;
    int64_t live, cpu, mem_mb, disk_mb; /* disk_mb: also of the paused */
    double creates;                     /* that may be done now */
    int64_t creates_at_us;              /* monotonic */
};

void table_init(struct sandboxes *all)
{
    (void)pthread_mutex_init(&all->lock, NULL);
    cond_init(&all->due);
    cond_init(&all->settled);
    cond_init(&all->moved);
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
    (void)pthread_cond_destroy(&all->moved);
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

enum { STOP_AGAIN_US = 1000 * 1000 };

static bool is_running(enum sandbox_state state)
{
    return state == SANDBOX_RUNNING || state == SANDBOX_SEALING;
}

static bool is_live(enum sandbox_state state)
{
    return state != SANDBOX_PAUSED && state != SANDBOX_KILLING;
}

static void count_live(struct sandboxes *all, const struct sandbox *sandbox, int by)
{
    struct team_count *count = count_of(all, sandbox->team_id);

    all->live += (size_t)by;
    count->live += by;
    count->cpu += by * (int64_t)sandbox->cpu_count;
    count->mem_mb += by * sandbox->mem_mb;
}

void table_move(struct sandboxes *all, struct sandbox *sandbox, enum sandbox_state to)
{
    enum sandbox_state from = sandbox->state;
    bool runs;

    assert(from != to && sandbox_state_may(from, to));
    /* At the end of its time it counts as running until it stands still. */
    runs = is_running(to) ||
           (to == SANDBOX_PAUSING && sandbox->counts_as_running && sandbox->time_is_up);
    if (sandbox->counts_as_running != runs) {
        struct team_count *count = count_of(all, sandbox->team_id);

        sandbox->counts_as_running = runs;
        all->running += runs ? 1 : (size_t)-1;
        count->running += runs ? 1 : (size_t)-1;
        count->started += from == SANDBOX_CREATING;
    }
    if (is_live(from) != is_live(to))
        count_live(all, sandbox, is_live(to) ? 1 : -1);
    if (to == SANDBOX_KILLING)
        count_of(all, sandbox->team_id)->disk_mb -= sandbox->disk_mb;
    sandbox->state = to;
    if (to == SANDBOX_RUNNING || to == SANDBOX_PAUSED || to == SANDBOX_KILLING)
        (void)pthread_cond_broadcast(&all->moved);
}

static int over(struct error *err, const char *what, int64_t limit)
{
    return error_set(err, ERROR_QUOTA, "your team's limit of %lld %s is reached", (long long)limit,
                     what);
}

static int over_size(struct error *err, const char *what, int64_t limit_mb)
{
    char text[SIZE_TEXT];

    return error_set(err, ERROR_QUOTA, "your team's limit of %s of %s is reached",
                     size_text((uint64_t)limit_mb << 20, text), what);
}

int table_check_room(struct sandboxes *all, const struct table_new *wanted, struct error *err)
{
    const struct store_limits *limits = wanted->limits;
    const struct team_count *count = map_get(&all->teams, wanted->team_id);
    struct team_count none = {0};

    if (all->max_running && all->live >= all->max_running)
        return error_set(err, ERROR_QUOTA, "the limit of %zu running sandboxes is reached",
                         all->max_running);
    if (!limits)
        return 0;
    if (!count)
        count = &none;
    if (limits->sandboxes && count->live >= limits->sandboxes)
        return over(err, "running sandboxes", limits->sandboxes);
    if (limits->cpu && count->cpu + wanted->cpu_count > limits->cpu)
        return over(err, "CPUs", limits->cpu);
    if (limits->mem_mb && count->mem_mb + wanted->mem_mb > limits->mem_mb)
        return over_size(err, "memory", limits->mem_mb);
    if (limits->disk_mb && count->disk_mb + wanted->kept_mb + wanted->disk_mb > limits->disk_mb)
        return over_size(err, "disk", limits->disk_mb);
    return 0;
}

int64_t table_disk_mb(struct sandboxes *all, struct str team_id)
{
    const struct team_count *count;
    int64_t disk_mb;

    (void)pthread_mutex_lock(&all->lock);
    count = map_get(&all->teams, team_id);
    disk_mb = count ? count->disk_mb : 0;
    (void)pthread_mutex_unlock(&all->lock);
    return disk_mb;
}

void table_team_use(struct sandboxes *all, struct str team_id, struct store_limits *out)
{
    const struct team_count *count;

    (void)pthread_mutex_lock(&all->lock);
    count = map_get(&all->teams, team_id);
    *out = count ? (struct store_limits){.sandboxes = count->live,
                                         .cpu = count->cpu,
                                         .mem_mb = count->mem_mb,
                                         .disk_mb = count->disk_mb}
                 : (struct store_limits){0};
    (void)pthread_mutex_unlock(&all->lock);
}

/* A bucket that holds a minute's worth and fills up evenly. */
int table_rate(struct sandboxes *all, struct str team_id, const struct store_limits *limits,
               struct error *err)
{
    char id[TEAM_ID_SIZE];
    struct team_count *count;
    int64_t now = clock_mono_us();
    int result = 0;

    if (!limits->creates_per_minute || !str_copy(team_id, id, sizeof(id)))
        return 0;
    (void)pthread_mutex_lock(&all->lock);
    count = count_of(all, id);
    count->creates += count->creates_at_us ? (double)(now - count->creates_at_us) *
                                                 (double)limits->creates_per_minute / 60e6
                                           : (double)limits->creates_per_minute;
    if (count->creates > (double)limits->creates_per_minute)
        count->creates = (double)limits->creates_per_minute;
    count->creates_at_us = now;
    if (count->creates < 1)
        result = over(err, "creates per minute", limits->creates_per_minute);
    else
        count->creates -= 1;
    (void)pthread_mutex_unlock(&all->lock);
    return result;
}

static struct sandbox *add_sized(struct sandboxes *all, const struct table_new *wanted)
{
    struct sandbox *sandbox = add_entry(all, wanted->id, SANDBOX_CREATING);

    (void)str_copy(wanted->team_id, sandbox->team_id, sizeof(sandbox->team_id));
    sandbox->cpu_count = (uint32_t)wanted->cpu_count;
    sandbox->mem_mb = wanted->mem_mb;
    sandbox->disk_mb = wanted->disk_mb;
    count_live(all, sandbox, 1);
    count_of(all, sandbox->team_id)->disk_mb += sandbox->disk_mb;
    return sandbox;
}

int table_add(struct sandboxes *all, const struct table_new *wanted, struct sandbox **out,
              struct error *err)
{
    int result = 0;

    *out = NULL;
    if (wanted->team_id.len == 0 || wanted->team_id.len >= TEAM_ID_SIZE)
        return error_set(err, ERROR_INTERNAL, "bad team id");
    (void)pthread_mutex_lock(&all->lock);
    if (map_get(&all->table, str_of(wanted->id)))
        result = error_set(err, ERROR_EXISTS, "sandbox '%s' is there already", wanted->id);
    else
        result = table_check_room(all, wanted, err);
    if (result == 0)
        *out = add_sized(all, wanted);
    (void)pthread_mutex_unlock(&all->lock);
    return result;
}

bool table_adopt(struct sandboxes *all, const struct table_adopt *adopt)
{
    struct sandbox *sandbox;

    if (adopt->team_id.len == 0 || adopt->team_id.len >= TEAM_ID_SIZE)
        return false;
    (void)pthread_mutex_lock(&all->lock);
    sandbox = add_sized(all, &(struct table_new){.id = adopt->id,
                                                 .team_id = adopt->team_id,
                                                 .cpu_count = adopt->cpu_count,
                                                 .mem_mb = adopt->mem_mb,
                                                 .disk_mb = adopt->disk_mb});
    sandbox->auto_pause = adopt->auto_pause;
    sandbox->auto_pause_disk = adopt->auto_pause_disk;
    sandbox->revision = adopt->revision;
    sandbox->ending = adopt->ending;
    (void)pthread_mutex_unlock(&all->lock);
    if (!adopt->paused)
        return table_run(all, sandbox, adopt->end_at_us, adopt->revision);
    table_paused(all, sandbox, adopt->cold);
    return true;
}

bool table_run(struct sandboxes *all, struct sandbox *sandbox, int64_t end_at_us, int64_t revision)
{
    bool alive;

    (void)pthread_mutex_lock(&all->lock);
    alive = !sandbox->died;
    if (alive) {
        table_move(all, sandbox, SANDBOX_RUNNING);
        sandbox->revision = revision;
        sandbox->cold = sandbox->time_is_up = false;
        schedule_set(all, sandbox, end_at_us);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return alive;
}

void table_paused(struct sandboxes *all, struct sandbox *sandbox, bool cold)
{
    (void)pthread_mutex_lock(&all->lock);
    table_move(all, sandbox, SANDBOX_PAUSED);
    sandbox->cold = cold || sandbox->died;
    sandbox->died = sandbox->crashed = sandbox->time_is_up = false;
    sandbox->attempts = sandbox->pause_failures = 0;
    sandbox->paused_at_us = clock_mono_us();
    if (sandbox->ending)
        schedule_set(all, sandbox, now_us(all) + STOP_AGAIN_US);
    (void)pthread_mutex_unlock(&all->lock);
}

static bool is_due(const struct sandboxes *all, const struct sandbox *sandbox)
{
    return sandbox->due_us <= now_us(all);
}

bool table_awaits_end(const struct sandboxes *all, const struct sandbox *sandbox)
{
    return sandbox->state == SANDBOX_RUNNING && (sandbox->died || is_due(all, sandbox));
}

/* About to be paused: its files are wanted. */
static bool pause_due(const struct sandboxes *all, const struct sandbox *sandbox)
{
    return sandbox->auto_pause && is_due(all, sandbox);
}

/* The box of a running sandbox ended by itself, and its files are wanted: it is due to be paused. */
static void keep_crashed(struct sandboxes *all, struct sandbox *sandbox, enum sandbox_end reason)
{
    sandbox->crashed = true;
    sandbox->reason = reason;
    schedule_set(all, sandbox, 0);
}

bool table_sealed(struct sandboxes *all, struct sandbox *sandbox)
{
    bool alive;

    (void)pthread_mutex_lock(&all->lock);
    alive = !sandbox->died || sandbox->auto_pause;
    if (alive) {
        table_move(all, sandbox, SANDBOX_RUNNING);
        if (sandbox->died && !pause_due(all, sandbox))
            keep_crashed(all, sandbox, sandbox->reason);
        else
            schedule_set(all, sandbox, sandbox->due_us);
    } else {
        table_move(all, sandbox, SANDBOX_KILLING);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return alive;
}

void table_fail_died(struct sandboxes *all, struct sandbox *sandbox)
{
    (void)pthread_mutex_lock(&all->lock);
    table_move(all, sandbox, SANDBOX_KILLING);
    (void)pthread_mutex_unlock(&all->lock);
}

void table_fail(struct sandboxes *all, struct sandbox *sandbox, enum sandbox_end reason)
{
    (void)pthread_mutex_lock(&all->lock);
    table_move(all, sandbox, SANDBOX_KILLING);
    sandbox->reason = reason;
    (void)pthread_mutex_unlock(&all->lock);
}

/* Whatever a team may see of its own. */
struct sandbox *table_find(struct sandboxes *all, struct str team_id, struct str id)
{
    struct sandbox *sandbox = map_get(&all->table, id);

    if (!sandbox || sandbox->state == SANDBOX_CREATING || sandbox->state == SANDBOX_KILLING ||
        !str_is(team_id, sandbox->team_id))
        return NULL;
    return sandbox;
}

struct sandbox *table_take_first(struct sandboxes *all)
{
    struct sandbox *sandbox = all->schedule[0];

    schedule_unset(all, sandbox);
    if (sandbox->state == SANDBOX_RUNNING) {
        sandbox->time_is_up = true;
        table_move(all, sandbox, sandbox->auto_pause ? SANDBOX_PAUSING : SANDBOX_KILLING);
        if (!sandbox->crashed)
            sandbox->reason = END_TIMEOUT;
    } else if (sandbox->state == SANDBOX_PAUSED) {
        table_move(all, sandbox, SANDBOX_PAUSING);
    }
    return sandbox;
}

/* An end that somebody has to see to. */
static void condemn(struct sandboxes *all, struct sandbox *sandbox, enum sandbox_end reason)
{
    sandbox->reason = reason;
    sandbox->condemned = true;
    all->condemned++;
    schedule_set(all, sandbox, 0);
}

/* An envd that nobody ended at the end of its time ends its box by itself. */
static enum sandbox_end true_reason(const struct sandboxes *all, const struct sandbox *sandbox,
                                    enum sandbox_end reason)
{
    return sandbox && is_running(sandbox->state) && is_due(all, sandbox) && reason == END_CRASHED
               ? END_TIMEOUT
               : reason;
}

void table_condemn(struct sandboxes *all, const char *id, enum sandbox_end reason)
{
    struct sandbox *sandbox;

    (void)pthread_mutex_lock(&all->lock);
    sandbox = map_get(&all->table, str_of(id));
    reason = true_reason(all, sandbox, reason);
    if (!sandbox) {
        condemn(all, add_entry(all, id, SANDBOX_KILLING), reason);
    } else if (sandbox->state == SANDBOX_RUNNING && sandbox->auto_pause) {
        if (!pause_due(all, sandbox))
            keep_crashed(all, sandbox, reason);
    } else if (sandbox->state == SANDBOX_RUNNING) {
        table_move(all, sandbox, SANDBOX_KILLING);
        condemn(all, sandbox, reason);
    } else if (sandbox->state == SANDBOX_PAUSED) {
        sandbox->cold = true;
    } else if (sandbox->state != SANDBOX_KILLING) {
        sandbox->died = true;
        sandbox->reason = reason;
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

bool table_visible(struct sandboxes *all, struct str team_id, struct str id,
                   struct table_shown *out)
{
    const struct sandbox *sandbox;

    (void)pthread_mutex_lock(&all->lock);
    sandbox = table_find(all, team_id, id);
    if (out && sandbox)
        *out =
            (struct table_shown){.cold = sandbox->cold, .paused = sandbox->state == SANDBOX_PAUSED};
    (void)pthread_mutex_unlock(&all->lock);
    return sandbox != NULL;
}

int table_check_runs(struct sandboxes *all, struct str team_id, struct str id, struct error *err)
{
    const struct sandbox *sandbox;
    int result = 0;
    bool ends;

    (void)pthread_mutex_lock(&all->lock);
    sandbox = table_find(all, team_id, id);
    ends = sandbox && table_awaits_end(all, sandbox);
    if (!sandbox || (ends && !sandbox->auto_pause))
        result = sandbox_not_found(id, err);
    else if (!is_running(sandbox->state) || ends)
        result = error_set(err, ERROR_CONFLICT, "Sandbox %s is %spaused", sandbox->id,
                           ends || sandbox->state == SANDBOX_PAUSING ? "being " : "");
    (void)pthread_mutex_unlock(&all->lock);
    return result;
}

bool table_rebooted(struct sandboxes *all, const char *id)
{
    const struct sandbox *sandbox;
    bool rebooted;

    (void)pthread_mutex_lock(&all->lock);
    sandbox = map_get(&all->table, str_of(id));
    rebooted = sandbox && sandbox->rebooted && sandbox->state != SANDBOX_KILLING;
    (void)pthread_mutex_unlock(&all->lock);
    return rebooted;
}

bool table_set_end(struct sandboxes *all, struct str id, int64_t end_at_us, int64_t revision)
{
    struct sandbox *sandbox;
    bool runs;

    (void)pthread_mutex_lock(&all->lock);
    sandbox = map_get(&all->table, id);
    runs =
        sandbox && is_running(sandbox->state) && !sandbox->died && !table_awaits_end(all, sandbox);
    if (runs && revision > sandbox->revision) {
        sandbox->revision = revision;
        sandbox->due_us = end_at_us;
        if (sandbox->state == SANDBOX_RUNNING)
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
    schedule_set(all, sandbox, now_us(all) + ((int64_t)200000 << shift));
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

size_t table_targets(struct sandboxes *all, struct table_target **out)
{
    struct map_entry *entry;
    size_t count = 0;

    (void)pthread_mutex_lock(&all->lock);
    *out = xcalloc(all->running + 1, sizeof(**out));
    map_for_each (&all->table, entry) {
        const struct sandbox *sandbox = entry->value;

        if (!is_running(sandbox->state))
            continue;
        memcpy((*out)[count].id, sandbox->id, ID_SIZE);
        (*out)[count++].cpu_count = sandbox->cpu_count;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return count;
}

size_t table_teams(struct sandboxes *all, struct table_team **out)
{
    struct map_entry *entry;
    size_t count = 0;

    (void)pthread_mutex_lock(&all->lock);
    *out = xcalloc(all->teams.count + 1, sizeof(**out));
    map_for_each (&all->teams, entry) {
        const struct team_count *team = entry->value;

        if (!str_copy(str_n(entry->key, entry->key_len), (*out)[count].id, TEAM_ID_SIZE))
            continue;
        (*out)[count].running = team->running;
        (*out)[count++].started = team->started;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return count;
}

size_t sandboxes_running(struct sandboxes *all)
{
    size_t running;

    (void)pthread_mutex_lock(&all->lock);
    running = all->running;
    (void)pthread_mutex_unlock(&all->lock);
    return running;
}

int sandbox_not_found(struct str id, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' not found",
                     (int)(id.len < 64 ? id.len : 64), id.p ? id.p : "");
}
