/* Rows of sandboxes in the engine of this process follow it: whoever made, paused, resumed or ended one,
 * by whatever API, the runtime's row, its events and its bill say so within a moment.
 *
 * The engine writes an event in the transaction of each change, into the same store. They are read in
 * order, from where the last reading ended (the store remembers, so a restart loses nothing), on a
 * thread that is told when there are new ones; who lists or looks for a sandbox reads them at once. What
 * the runtime did itself is in the row before its event is read: an event that is older than what the
 * row knows changes nothing. A sandbox without a row, made by E2B's API, gets one: it is adopted, with
 * the engine's id, and keeps the time limit it has there.
 *
 * The end of a machine is the engine's to tell, and so is the reason. Whoever else finds it gone first (the
 * watch of a job, a command) asks the engine's own row, which has the reason before the machine ends.
 *
 * Now and then, and at the start, both sides are compared, for whatever was missed. */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/id.h"
#include "base/log.h"
#include "base/thread.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"
#include "runtime/sandbox/follow.h"
#include "runtime/sandbox/sandbox_parts.h"
#include "store/platform/store_event.h"
#include "store/platform/store_sandbox.h"

enum {
    PAGE = 256,
    STRAYS_MAX = 1000,
    LATER_MAX = 1024,
    SETTLE_MS = 20, /* who asked for a change notes it first */
    BUSY_MS = 50,
    OUR_OWN_S = 60, /* the row of one that we made comes within that */
    END_MS = 1000,  /* between the end of a machine and the engine's word about it */
};

/* Those of the engine's events that change a row, by the state that they lead to. */
static const char *const told_types[] = {
    [SANDBOX_CREATING] = "created",
    [SANDBOX_RUNNING] = "resumed",
    [SANDBOX_PAUSED] = "paused",
    [SANDBOX_ENDED] = "killed",
};
static const struct names told_type_names = NAMES("type of an event", told_types);

/* What happened to a machine. */
struct told {
    char machine[ID_SIZE];
    enum sandbox_state state;
    char detail[40];
    int64_t at_us;
};

struct runtime_follow {
    struct str provider; /* name of the backend that is the engine */
    atomic_bool kicked;  /* there may be events that were not read */

    pthread_mutex_t turn; /* one reader at a time; guards what follows */
    int64_t seq;
    struct told *later; /* their sandbox was busy */
    size_t later_count;

    pthread_mutex_t
        lock; /* guards what follows, and kicked while the thread looks whether to sleep */
    pthread_cond_t changed;
    uint64_t changes; /* how often the engine has changed something */
    size_t waiting;   /* for the next change, besides the thread */
    bool reading;     /* somebody does */
    bool closing;
    struct thread thread;
};

/* What applying an event leads to may look for sandboxes again. */
static _Thread_local bool is_reader;

static void reader_begin(struct runtime_follow *follow)
{
    (void)pthread_mutex_lock(&follow->lock);
    while (follow->reading)
        (void)pthread_cond_wait(&follow->changed, &follow->lock);
    follow->reading = true;
    (void)pthread_mutex_unlock(&follow->lock);
    is_reader = true;
}

static void reader_end(struct runtime_follow *follow)
{
    is_reader = false;
    (void)pthread_mutex_lock(&follow->lock);
    follow->reading = false;
    (void)pthread_cond_broadcast(&follow->changed);
    (void)pthread_mutex_unlock(&follow->lock);
}

static const char *embedded_name(const struct runtime *runtime)
{
    const struct runtime_settings *settings = runtime->config.settings;

    for (size_t i = 0; runtime->config.embedded && i < settings->backend_count; i++)
        if (strcmp(settings->backends[i].type, "e2b") == 0 &&
            strcmp(settings->backends[i].api_url, "embedded") == 0)
            return settings->backends[i].name;
    return NULL;
}

/* ---- one that the runtime did not make ---- */

struct adoption {
    struct runtime *runtime;
    struct store_runtime_sandbox row;
};

static int insert_adopted(void *arg, const struct store_runtime_event *events, size_t count,
                          struct error *err)
{
    const struct adoption *adoption = arg;
    struct store_runtime_claim claim = {
        .row = &adoption->row, .events = events, .event_count = count};

    return store_runtime_claim(adoption->runtime->config.store, &claim, err);
}

static struct runtime_caller engine_of(struct str team_id)
{
    return (struct runtime_caller){.team_id = team_id, .actor = STR("engine")};
}

/* metadata: of the sandbox, parsed. The label says whose it is, as on E2B's API. */
static void fill_adopted(const struct runtime *runtime, const struct store_sandbox *sandbox,
                         const json_t *metadata, struct store_runtime_sandbox *row)
{
    struct str agent_id = json_get_str(metadata, "quicksand.agent");

    *row = (struct store_runtime_sandbox){
        .agent_id = agent_id.len ? agent_id : STR_NONE,
        .id = sandbox->id,
        .team_id = sandbox->team_id,
        .provider = runtime->follow->provider,
        .external_id = sandbox->id,
        .token = sandbox->access_token.len ? sandbox->access_token : STR_NONE,
        .image = sandbox->alias.len ? sandbox->alias : sandbox->template_id,
        .metadata = sandbox->metadata,
        .state = SANDBOX_RUNNING,
        .idle_s = sandbox->timeout_s,
        .adopted = true,
        .created_at_us = sandbox->started_at_us,
        .last_used_at_us = sandbox->started_at_us,
        .running_since_us = sandbox->started_at_us,
        .state_at_us = sandbox->started_at_us,
    };
}

static void adopt(struct runtime *runtime, const struct store_sandbox *sandbox)
{
    struct adoption adoption = {.runtime = runtime};
    struct runtime_caller caller = engine_of(sandbox->team_id);
    auto_json json_t *created = NULL, *started = NULL, *metadata = NULL;
    struct error err;

    if (json_parse(sandbox->metadata, &metadata, &err) < 0)
        metadata = json_object();
    fill_adopted(runtime, sandbox, metadata, &adoption.row);
    created = json_pack("{s:o, s:o, s:s}", "provider", json_str(adoption.row.provider), "image",
                        json_str(adoption.row.image), "by", "e2b");
    started = json_pack("{s:o, s:o}", "external_id", json_str(sandbox->id), "provider",
                        json_str(adoption.row.provider));
    const struct runtime_event events[] = {
        runtime_row_event_of(&caller, &adoption.row, "sandbox.created", created),
        runtime_row_event_of(&caller, &adoption.row, "sandbox.started", started),
    };

    if (runtime_event_add_with(runtime, &caller, events, 2, insert_adopted, &adoption, &err) < 0 &&
        err.code != ERROR_EXISTS)
        log_error("runtime", "sandbox=%.*s of the engine not adopted: %s", STR_ARG(sandbox->id),
                  err.message);
}

static bool is_held(struct runtime *runtime, struct str team_id, struct str name)
{
    struct runtime_hold *hold = runtime_hold_now(runtime, team_id, name);

    if (hold)
        runtime_hold_end(runtime, hold);
    return !hold;
}

/* We are making it: its labels name a row that waits for it, and its hooks may take minutes before that row names the
 * machine; or they name what somebody holds, whose row comes when it runs. A fork that E2B's API made of one of ours has
 * the labels too, but nothing waits for it. */
static bool in_the_making(struct runtime *runtime, const struct store_sandbox *sandbox)
{
    auto_arena struct arena arena = {0};
    auto_json json_t *metadata = NULL;
    struct store_runtime_sandbox row;
    struct error ignored;
    struct str id;

    if (str_find_str(sandbox->metadata, runtime_instance_name(runtime)) < 0 ||
        json_parse(sandbox->metadata, &metadata, &ignored) < 0)
        return false;
    id = json_get_str(metadata, "quicksand.id");
    if (store_runtime_sandbox_get(runtime->config.store, sandbox->team_id, id, &arena, &row,
                                  &ignored) == 0)
        return row.state == SANDBOX_CREATING;
    return is_held(runtime, sandbox->team_id, id);
}

/* ---- one event ---- */

static const char *why_ended(const char *reason)
{
    if (strcmp(reason, "killed") == 0)
        return "killed through the engine's own API";
    if (strcmp(reason, "timeout") == 0)
        return "its time was up (timeout)";
    return reason[0] ? reason : "it has ended";
}

/* false: nothing new. */
static bool change(struct runtime *runtime, const struct store_runtime_sandbox *row,
                   const struct told *told)
{
    struct runtime_caller caller = engine_of(row->team_id);

    if (told->state == SANDBOX_ENDED)
        return runtime_row_ended(runtime, &caller, row, told->detail[0] ? told->detail : "gone",
                                 why_ended(told->detail), told->at_us);
    return runtime_row_told(runtime, &caller, row, told->state, told->at_us);
}

/* The row may know of something later, but not of what is so now. */
static void make_later(struct told *told, const struct store_runtime_sandbox *row)
{
    if (told->at_us <= row->state_at_us)
        told->at_us = row->state_at_us + 1;
}

/* false: somebody is at work on it, who will note what he does. */
static bool apply(struct runtime *runtime, const struct told *told)
{
    auto_arena struct arena arena = {0};
    struct store *store = runtime->config.store;
    struct str machine = str_n(told->machine, strlen(told->machine));
    struct store_runtime_sandbox row;
    struct runtime_hold *hold;
    struct store_sandbox sandbox;
    struct error err = {0};

    if (store_runtime_sandbox_by_machine(store, machine, &arena, &row, &err) < 0) {
        if (err.code == ERROR_NOT_FOUND && told->state == SANDBOX_CREATING &&
            store_sandbox_get(store, machine, &arena, &sandbox, &err) == 0 &&
            !in_the_making(runtime, &sandbox))
            adopt(runtime, &sandbox);
        return true;
    }
    if (row.destroyed_at_us || told->state == SANDBOX_CREATING)
        return true;
    hold = runtime_hold_now(runtime, row.team_id, row.id);
    if (!hold)
        return false;
    (void)change(runtime, &row, told);
    runtime_hold_end(runtime, hold);
    return true;
}

static void put_off(struct runtime_follow *follow, const struct told *told)
{
    /* What is lost here is found when both sides are compared. */
    if (follow->later_count < LATER_MAX)
        follow->later[follow->later_count++] = *told;
}

static void apply_or_put_off(struct runtime *runtime, const struct told *told)
{
    struct runtime_follow *follow = runtime->follow;
    bool waits = false;

    /* In their order. */
    for (size_t i = 0; i < follow->later_count && !waits; i++)
        waits = strcmp(follow->later[i].machine, told->machine) == 0;
    if (waits || !apply(runtime, told))
        put_off(follow, told);
}

static void apply_later(struct runtime *runtime)
{
    struct runtime_follow *follow = runtime->follow;
    size_t count = follow->later_count;

    follow->later_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct told told = follow->later[i];

        apply_or_put_off(runtime, &told);
    }
}

static struct told told_of(struct str machine, enum sandbox_state state, struct str detail,
                           int64_t at_us)
{
    struct told told = {.state = state, .at_us = at_us};

    (void)str_copy(machine, told.machine, sizeof(told.machine));
    (void)str_copy(detail, told.detail, sizeof(told.detail));
    return told;
}

static void take_event(struct runtime *runtime, const struct store_event *event)
{
    unsigned state;
    struct told told;

    if (!name_find(&told_type_names, event->type, &state))
        return; /* of what no row says anything */
    told = told_of(event->sandbox_id, state, event->detail, event->at_us);
    apply_or_put_off(runtime, &told);
}

static void read_events(struct runtime *runtime)
{
    struct runtime_follow *follow = runtime->follow;
    struct error err = {0};
    size_t count;

    do {
        auto_arena struct arena arena = {0};
        struct store_event_query query = {
            .ascending = true, .after_seq = follow->seq, .limit = PAGE};
        struct store_event *events;

        if (store_event_page(runtime->config.store, &query, &arena, &events, &count, &err) < 0) {
            log_error("runtime", "events of the engine not read: %s", err.message);
            atomic_store(&follow->kicked, true);
            return;
        }
        for (size_t i = 0; i < count; i++) {
            follow->seq = events[i].seq;
            take_event(runtime, &events[i]);
        }
        if (count && store_runtime_follow(runtime->config.store, follow->seq, &err) < 0)
            log_warn("runtime", "how far the engine was followed is not stored: %s", err.message);
    } while (count == PAGE);
}

/* Nothing is to be read, and nobody is about to apply what he has read. */
static bool up_to_date(struct runtime_follow *follow)
{
    bool yes;

    (void)pthread_mutex_lock(&follow->lock);
    yes = !follow->reading && !atomic_load(&follow->kicked);
    (void)pthread_mutex_unlock(&follow->lock);
    return yes;
}

void runtime_follow_now(struct runtime *runtime)
{
    struct runtime_follow *follow = runtime->follow;

    if (!follow || is_reader || up_to_date(follow))
        return;
    reader_begin(follow);
    if (atomic_exchange(&follow->kicked, false))
        read_events(runtime);
    reader_end(follow);
}

/* ---- comparing ---- */

/* Adopted with all that happened to it since. */
static void adopt_late(struct runtime *runtime, struct str machine)
{
    auto_arena struct arena arena = {0};
    struct store_event_query query = {.sandbox_id = machine, .ascending = true, .limit = PAGE};
    struct store_event *events;
    struct store_sandbox sandbox;
    struct error err = {0};
    size_t count = 0;

    if (store_sandbox_get(runtime->config.store, machine, &arena, &sandbox, &err) < 0 ||
        in_the_making(runtime, &sandbox))
        return;
    adopt(runtime, &sandbox);
    query.team_id = sandbox.team_id;
    do {
        if (store_event_page(runtime->config.store, &query, &arena, &events, &count, &err) < 0)
            return;
        for (size_t i = 0; i < count; i++) {
            query.after_seq = events[i].seq;
            take_event(runtime, &events[i]);
        }
    } while (count == PAGE);
}

static void settle_stray(struct runtime *runtime, const struct store_runtime_stray *stray)
{
    enum sandbox_state state = stray->state == SANDBOX_LOST ? SANDBOX_ENDED : stray->state;
    struct told told = told_of(stray->machine, state, stray->reason, stray->at_us);

    make_later(&told, &stray->row);
    apply_or_put_off(runtime, &told);
}

/* before_us: those of the engine that are younger may be about to get a row. */
static void compare(struct runtime *runtime, int64_t before_us)
{
    auto_arena struct arena arena = {0};
    struct runtime_follow *follow = runtime->follow;
    struct store_runtime_stray *strays = NULL;
    struct error err = {0};
    size_t count = 0;

    reader_begin(follow);
    if (store_runtime_strays(runtime->config.store, follow->provider, before_us, STRAYS_MAX, &arena,
                             &strays, &count, &err) < 0)
        log_error("runtime", "sandboxes not compared with the engine's: %s", err.message);
    for (size_t i = 0; i < count; i++)
        if (strays[i].row.id.p)
            settle_stray(runtime, &strays[i]);
        else
            adopt_late(runtime, strays[i].machine);
    reader_end(follow);
    if (count)
        log_info("runtime", "sandboxes that had not followed the engine: %zu", count);
}

static void compare_now(struct runtime *runtime)
{
    runtime_follow_now(runtime);
    compare(runtime, clock_wall_us() - (int64_t)OUR_OWN_S * 1000000);
}

/* ---- one whose machine is not there any more ---- */

static uint64_t changes_until_now(struct runtime_follow *follow)
{
    uint64_t changes;

    (void)pthread_mutex_lock(&follow->lock);
    changes = follow->changes;
    (void)pthread_mutex_unlock(&follow->lock);
    return changes;
}

/* false: the time is over, or everything ends. */
static bool wait_for_change(struct runtime_follow *follow, uint64_t after, int64_t until_us)
{
    bool changed, late = false;

    (void)pthread_mutex_lock(&follow->lock);
    follow->waiting++;
    while (!follow->closing && !late && follow->changes == after)
        late = !cond_wait_until(&follow->changed, &follow->lock, until_us);
    follow->waiting--;
    changed = follow->changes != after;
    (void)pthread_mutex_unlock(&follow->lock);
    return changed;
}

/* 1 = it ends or has ended, *out says why; 0 = it is there; -1 = the engine knows nothing of it. */
static int engine_end(struct runtime *runtime, struct str machine, struct told *out)
{
    auto_arena struct arena arena = {0};
    struct store_sandbox sandbox;
    struct error err;

    if (store_sandbox_get(runtime->config.store, machine, &arena, &sandbox, &err) < 0)
        return err.code == ERROR_NOT_FOUND ? -1 : 0;
    if (sandbox.life.state != SANDBOX_KILLING && sandbox.life.state != SANDBOX_ENDED)
        return 0;
    *out = told_of(machine, SANDBOX_ENDED, sandbox.end_reason,
                   sandbox.ended_at_us ? sandbox.ended_at_us : clock_wall_us());
    return 1;
}

bool runtime_follow_end(struct runtime *runtime, const struct store_runtime_sandbox *row,
                        bool *out_changed)
{
    struct runtime_follow *follow = runtime->follow;
    int64_t until_us = clock_mono_us() + END_MS * INT64_C(1000);
    struct told told;
    uint64_t changes;
    int known;

    *out_changed = false;
    if (!follow || !str_eq(row->provider, follow->provider))
        return false;
    do {
        changes = changes_until_now(follow);
        known = engine_end(runtime, row->external_id, &told);
    } while (known == 0 && wait_for_change(follow, changes, until_us));
    if (known > 0) {
        make_later(&told, row);
        *out_changed = change(runtime, row, &told);
    }
    return known >= 0;
}

/* ---- the thread ---- */

void runtime_engine_changed(struct runtime *runtime)
{
    struct runtime_follow *follow = runtime->follow;

    if (!follow)
        return;
    (void)pthread_mutex_lock(&follow->lock);
    follow->changes++;
    if (!atomic_exchange(&follow->kicked, true) || follow->waiting)
        (void)pthread_cond_broadcast(&follow->changed);
    (void)pthread_mutex_unlock(&follow->lock);
}

static bool has_later(struct runtime_follow *follow)
{
    bool has;

    reader_begin(follow);
    has = follow->later_count > 0;
    reader_end(follow);
    return has;
}

/* Until there is something to read, or wait_ms are over. false: everything ends. */
static bool rest(struct runtime_follow *follow, int wait_ms, bool until_kicked)
{
    int64_t until_us = clock_mono_us() + wait_ms * INT64_C(1000);
    bool closing, late = false;

    (void)pthread_mutex_lock(&follow->lock);
    while (!follow->closing && !late && !(until_kicked && atomic_load(&follow->kicked)))
        if (wait_ms)
            late = !cond_wait_until(&follow->changed, &follow->lock, until_us);
        else
            (void)pthread_cond_wait(&follow->changed, &follow->lock);
    closing = follow->closing;
    (void)pthread_mutex_unlock(&follow->lock);
    return !closing;
}

static void run(void *arg)
{
    struct runtime *runtime = arg;
    struct runtime_follow *follow = runtime->follow;

    while (rest(follow, has_later(follow) ? BUSY_MS : 0, true) && rest(follow, SETTLE_MS, false)) {
        reader_begin(follow);
        apply_later(runtime);
        reader_end(follow);
        runtime_follow_now(runtime);
    }
}

static int begin(struct runtime *runtime, struct error *err)
{
    struct runtime_follow *follow = runtime->follow;

    if (store_runtime_followed(runtime->config.store, &follow->seq, err) < 0)
        return -1;
    /* The first time: what is there is compared, history is not told again. */
    if (!follow->seq && store_event_newest(runtime->config.store, &follow->seq, err) < 0)
        return -1;
    atomic_store(&follow->kicked, true);
    runtime_follow_now(runtime);
    compare(runtime, INT64_MAX);
    return thread_start(&follow->thread, "follow", THREAD_STACK_DEFAULT, run, runtime, err);
}

void runtime_follow_init(struct runtime *runtime)
{
    const char *provider = embedded_name(runtime);
    struct runtime_follow *follow;

    if (!provider)
        return;
    follow = runtime->follow = xcalloc(1, sizeof(*follow));
    follow->provider = str_of(provider);
    follow->later = xcalloc(LATER_MAX, sizeof(*follow->later));
    (void)pthread_mutex_init(&follow->lock, NULL);
    cond_init(&follow->changed);
}

int runtime_follow_open(struct runtime *runtime, struct error *err)
{
    int64_t period_s = runtime->config.settings->health_interval_s;

    runtime_timer_add(runtime, "reconcile", period_s, true, runtime_reconcile);
    if (!runtime->follow)
        return 0;
    runtime_timer_add(runtime, "compare", period_s, true, compare_now);
    return begin(runtime, err);
}

void runtime_follow_close(struct runtime *runtime)
{
    struct runtime_follow *follow = runtime->follow;

    if (!follow)
        return;
    (void)pthread_mutex_lock(&follow->lock);
    follow->closing = true;
    (void)pthread_cond_broadcast(&follow->changed);
    (void)pthread_mutex_unlock(&follow->lock);
    thread_join(&follow->thread);
}

void runtime_follow_done(struct runtime *runtime)
{
    struct runtime_follow *follow = runtime->follow;

    if (!follow)
        return;
    (void)pthread_cond_destroy(&follow->changed);
    (void)pthread_mutex_destroy(&follow->lock);
    free(follow->later);
    free(follow);
    runtime->follow = NULL;
}
