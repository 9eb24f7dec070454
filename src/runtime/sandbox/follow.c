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
 * Now and then, and at the start, both sides are compared, for whatever was missed. */
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/id.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"
#include "runtime/sandbox/sandbox_internal.h"
#include "store/core/store.h"

enum {
    PAGE = 256,
    STRAYS_MAX = 1000,
    LATER_MAX = 1024,
    SETTLE_MS = 20, /* who asked for a change notes it first */
    BUSY_MS = 50,
    OUR_OWN_S = 60, /* the row of one that we made comes within that */
};

/* What happened to a machine. */
struct told {
    char machine[ID_SIZE];
    char type[16]; /* created, paused, resumed, killed */
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

    pthread_mutex_t lock; /* guards closing, and kicked while the thread looks whether to sleep */
    pthread_cond_t changed;
    bool closing, has_thread;
    pthread_t thread;
};

/* What applying an event leads to may look for sandboxes again. */
static _Thread_local bool is_reader;

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

/* metadata: of the box, parsed. The label says whose it is, as on E2B's API. */
static void fill_adopted(const struct runtime *runtime, const struct store_sandbox *box,
                         const json_t *metadata, struct store_runtime_sandbox *row)
{
    struct str agent_id = json_get_str(metadata, "quicksand.agent");

    *row = (struct store_runtime_sandbox){
        .agent_id = agent_id.len ? agent_id : STR_NONE,
        .id = box->id,
        .team_id = box->team_id,
        .provider = runtime->follow->provider,
        .external_id = box->id,
        .token = box->access_token.len ? box->access_token : STR_NONE,
        .image = box->alias.len ? box->alias : box->template_id,
        .metadata = box->metadata,
        .state = STR("running"),
        .idle_s = box->timeout_s,
        .adopted = true,
        .created_at_us = box->started_at_us,
        .last_used_at_us = box->started_at_us,
        .running_since_us = box->started_at_us,
        .state_at_us = box->started_at_us,
    };
}

static void adopt(struct runtime *runtime, const struct store_sandbox *box)
{
    struct adoption adoption = {.runtime = runtime};
    struct runtime_caller caller = engine_of(box->team_id);
    auto_json json_t *created = NULL, *started = NULL, *metadata = NULL;
    struct error err;

    if (json_parse(box->metadata, &metadata, &err) < 0)
        metadata = json_object();
    fill_adopted(runtime, box, metadata, &adoption.row);
    created = json_pack("{s:o, s:o, s:s}", "provider", json_str(adoption.row.provider), "image",
                        json_str(adoption.row.image), "by", "e2b");
    started = json_pack("{s:o, s:o}", "external_id", json_str(box->id), "provider",
                        json_str(adoption.row.provider));
    const struct runtime_event events[] = {
        runtime_row_event_of(&caller, &adoption.row, "sandbox.created", created),
        runtime_row_event_of(&caller, &adoption.row, "sandbox.started", started),
    };

    if (runtime_event_add_with(runtime, &caller, events, 2, insert_adopted, &adoption, &err) < 0 &&
        err.code != ERROR_EXISTS)
        log_error("runtime", "sandbox=%.*s of the engine not adopted: %s", STR_ARG(box->id),
                  err.message);
}

/* Those that we make carry our name, and their rows come as soon as they run. */
static bool is_ours(const struct runtime *runtime, const struct store_sandbox *box)
{
    return str_find_str(box->metadata, runtime_instance_name(runtime)) >= 0;
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

static void change(struct runtime *runtime, const struct store_runtime_sandbox *row,
                   const struct told *told)
{
    struct runtime_caller caller = engine_of(row->team_id);

    if (strcmp(told->type, "paused") == 0)
        runtime_row_told(runtime, &caller, row, "paused", told->at_us);
    else if (strcmp(told->type, "resumed") == 0)
        runtime_row_told(runtime, &caller, row, "running", told->at_us);
    else if (strcmp(told->type, "killed") == 0)
        (void)runtime_row_ended(runtime, &caller, row, told->detail[0] ? told->detail : "gone",
                                why_ended(told->detail), told->at_us);
}

/* false: somebody is at work on it, who will note what he does. */
static bool apply(struct runtime *runtime, const struct told *told)
{
    auto_arena struct arena arena = {0};
    struct store *store = runtime->config.store;
    struct str machine = str_n(told->machine, strlen(told->machine));
    struct store_runtime_sandbox row;
    struct runtime_key_lock *lock;
    struct store_sandbox box;
    struct error err = {0};

    if (store_runtime_sandbox_by_machine(store, machine, &arena, &row, &err) < 0) {
        if (err.code == ERROR_NOT_FOUND && strcmp(told->type, "created") == 0 &&
            store_sandbox_get(store, machine, &arena, &box, &err) == 0 && !is_ours(runtime, &box))
            adopt(runtime, &box);
        return true;
    }
    if (row.destroyed_at_us || strcmp(told->type, "created") == 0)
        return true;
    lock = runtime_key_lock_now(runtime, row.team_id, row.id);
    if (!lock)
        return false;
    change(runtime, &row, told);
    runtime_key_unlock(runtime, lock);
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

static struct told told_of(struct str machine, struct str type, struct str detail, int64_t at_us)
{
    struct told told = {.at_us = at_us};

    (void)str_copy(machine, told.machine, sizeof(told.machine));
    (void)str_copy(type, told.type, sizeof(told.type));
    (void)str_copy(detail, told.detail, sizeof(told.detail));
    return told;
}

static bool matters(struct str type)
{
    static const char *const types[] = {"created", "paused", "resumed", "killed"};

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (str_is(type, types[i]))
            return true;
    return false;
}

/* With the turn held. */
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
            if (matters(events[i].type)) {
                struct told told = told_of(events[i].sandbox_id, events[i].type, events[i].detail,
                                           events[i].at_us);

                apply_or_put_off(runtime, &told);
            }
        }
        if (count && store_runtime_follow(runtime->config.store, follow->seq, &err) < 0)
            log_warn("runtime", "how far the engine was followed is not stored: %s", err.message);
    } while (count == PAGE);
}

void runtime_follow_now(struct runtime *runtime)
{
    struct runtime_follow *follow = runtime->follow;

    if (!follow || is_reader || !atomic_load(&follow->kicked))
        return;
    (void)pthread_mutex_lock(&follow->turn);
    is_reader = true;
    if (atomic_exchange(&follow->kicked, false))
        read_events(runtime);
    is_reader = false;
    (void)pthread_mutex_unlock(&follow->turn);
}

/* ---- comparing ---- */

/* We are making it: its hooks may take minutes before its row names the machine. */
static bool in_the_making(struct runtime *runtime, const struct store_sandbox *box)
{
    auto_arena struct arena arena = {0};
    auto_json json_t *metadata = NULL;
    struct store_runtime_sandbox row;
    struct error ignored;

    return is_ours(runtime, box) && json_parse(box->metadata, &metadata, &ignored) == 0 &&
           store_runtime_sandbox_get(runtime->config.store, box->team_id,
                                     json_get_str(metadata, "quicksand.id"), &arena, &row,
                                     &ignored) == 0 &&
           str_is(row.state, "creating");
}

/* Adopted with all that happened to it since. */
static void adopt_late(struct runtime *runtime, struct str machine)
{
    auto_arena struct arena arena = {0};
    struct store_event_query query = {.sandbox_id = machine, .ascending = true, .limit = PAGE};
    struct store_event *events;
    struct store_sandbox box;
    struct error err = {0};
    size_t count = 0;

    if (store_sandbox_get(runtime->config.store, machine, &arena, &box, &err) < 0 ||
        in_the_making(runtime, &box))
        return;
    adopt(runtime, &box);
    query.team_id = box.team_id;
    do {
        if (store_event_page(runtime->config.store, &query, &arena, &events, &count, &err) < 0)
            return;
        for (size_t i = 0; i < count; i++) {
            struct told told = told_of(machine, events[i].type, events[i].detail, events[i].at_us);

            query.after_seq = events[i].seq;
            if (matters(events[i].type))
                apply_or_put_off(runtime, &told);
        }
    } while (count == PAGE);
}

static void settle_stray(struct runtime *runtime, const struct store_runtime_stray *stray)
{
    const char *type = str_is(stray->state, "paused")    ? "paused"
                       : str_is(stray->state, "running") ? "resumed"
                                                         : "killed";
    struct told told =
        told_of(stray->machine, str_of(type), stray->reason, stray->at_us ? stray->at_us : 0);

    /* The row may know of something later, but not of what is so now. */
    if (told.at_us <= stray->row.state_at_us)
        told.at_us = stray->row.state_at_us + 1;
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

    (void)pthread_mutex_lock(&follow->turn);
    is_reader = true;
    if (store_runtime_strays(runtime->config.store, follow->provider, before_us, STRAYS_MAX, &arena,
                             &strays, &count, &err) < 0)
        log_error("runtime", "sandboxes not compared with the engine's: %s", err.message);
    for (size_t i = 0; i < count; i++)
        if (strays[i].row.id.p)
            settle_stray(runtime, &strays[i]);
        else
            adopt_late(runtime, strays[i].machine);
    is_reader = false;
    (void)pthread_mutex_unlock(&follow->turn);
    if (count)
        log_info("runtime", "sandboxes that had not followed the engine: %zu", count);
}

static void compare_now(struct runtime *runtime)
{
    runtime_follow_now(runtime);
    compare(runtime, clock_wall_us() - (int64_t)OUR_OWN_S * 1000000);
}

/* ---- the thread ---- */

void runtime_engine_changed(struct runtime *runtime)
{
    struct runtime_follow *follow = runtime->follow;

    if (!follow || atomic_exchange(&follow->kicked, true))
        return;
    (void)pthread_mutex_lock(&follow->lock);
    (void)pthread_cond_signal(&follow->changed);
    (void)pthread_mutex_unlock(&follow->lock);
}

static bool has_later(struct runtime_follow *follow)
{
    bool has;

    (void)pthread_mutex_lock(&follow->turn);
    has = follow->later_count > 0;
    (void)pthread_mutex_unlock(&follow->turn);
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

static void *run(void *arg)
{
    struct runtime *runtime = arg;
    struct runtime_follow *follow = runtime->follow;

    while (rest(follow, has_later(follow) ? BUSY_MS : 0, true) && rest(follow, SETTLE_MS, false)) {
        (void)pthread_mutex_lock(&follow->turn);
        is_reader = true;
        apply_later(runtime);
        is_reader = false;
        (void)pthread_mutex_unlock(&follow->turn);
        runtime_follow_now(runtime);
    }
    return NULL;
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
    follow->has_thread = pthread_create(&follow->thread, NULL, run, runtime) == 0;
    return follow->has_thread ? 0
                              : error_set(err, ERROR_INTERNAL, "no thread to follow the engine");
}

int runtime_follow_open(struct runtime *runtime, struct error *err)
{
    const char *provider = embedded_name(runtime);
    struct runtime_follow *follow;

    runtime_timer_add(runtime, runtime->config.settings->health_interval_s, runtime_reconcile);
    if (!provider)
        return 0;
    follow = runtime->follow = xcalloc(1, sizeof(*follow));
    follow->provider = str_of(provider);
    follow->later = xcalloc(LATER_MAX, sizeof(*follow->later));
    (void)pthread_mutex_init(&follow->turn, NULL);
    (void)pthread_mutex_init(&follow->lock, NULL);
    cond_init(&follow->changed);
    runtime_timer_add(runtime, runtime->config.settings->health_interval_s, compare_now);
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
    if (follow->has_thread)
        (void)pthread_join(follow->thread, NULL);
    (void)pthread_cond_destroy(&follow->changed);
    (void)pthread_mutex_destroy(&follow->lock);
    (void)pthread_mutex_destroy(&follow->turn);
    free(follow->later);
    free(follow);
    runtime->follow = NULL;
}
