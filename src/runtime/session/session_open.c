/* Sessions are taken up when the process starts, and let go when it ends: they themselves go on. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cond.h"
#include "base/log.h"
#include "runtime/session/session_internal.h"

enum { KEEP_ALIVE_S = 60, CLOSE_MS = 5000 };

struct live_session *live_new(struct runtime *runtime, const struct runtime_caller *caller,
                              const struct store_session *row)
{
    struct live_session *live = xcalloc(1, sizeof(*live));
    struct str *const texts[] = {
        &live->row.id,
        &live->row.team_id,
        &live->row.reason,
        &live->row.sandbox_id,
        &live->row.agent,
        &live->row.repo,
        &live->row.branch,
        &live->row.profile,
        &live->row.provider,
        &live->row.mode,
        &live->row.snapshot_id,
        &live->row.checkpoint,
        &live->row.agent_id,
        &live->row.task_id,
        &live->row.acp_server,
        &live->row.acp_session,
        &live->row.sandbox_agent_token,
        &live->row.workdir,
    };

    buf_init(&live->said, SESSION_SAID_MAX);
    live->runtime = runtime;
    live->refs = 1;
    (void)pthread_mutex_init(&live->lock, NULL);
    cond_init(&live->changed);
    list_init(&live->notes);
    live->row = *row;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        *texts[i] = arena_str(&live->arena, texts[i]->p ? *texts[i] : STR(""));
    live->caller = (struct runtime_caller){
        .team_id = live->row.team_id,
        .actor = arena_str(&live->arena, caller->actor.p ? caller->actor : STR("session"))};
    live->permissions = json_object();
    live->git_token = xstrdup("");
    live->next_id = 1000000; /* above those of a process before this one */
    acp_feed_init(&live->feed);
    return live;
}

/* ---- taken up ---- */

/* Provisioning begins again (the sandbox is found by its key); those that ran are followed when their
 * sandbox is awake, or when a message waits. */
static int take_up(struct runtime *runtime, enum session_state state, struct error *err)
{
    static const struct runtime_caller nobody = {0};
    struct sessions *sessions = runtime->sessions;
    auto_arena struct arena arena = {0};
    struct store_session *rows;
    size_t count;

    if (store_session_in_state(runtime->config.store, state, &arena, &rows, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        struct live_session *live = live_new(runtime, &nobody, &rows[i]);

        /* As if its events had broken off: whether it sleeps or is gone is found out first. */
        live->lost = rows[i].sandbox_id.len > 0 && rows[i].acp_session.len > 0;
        live->orphan_id = -1;
        (void)map_put(&sessions->live, live->row.id, live);
        session_kick(live);
    }
    if (count)
        log_info("session", "taken up: %zu %s", count, name_of(&session_state_names, state));
    return 0;
}

/* A sandbox whose agent is thinking must not fall asleep; and who could not get a worker gets one. */
static void keep_alive(struct runtime *runtime)
{
    struct sessions *sessions = runtime->sessions;
    struct map_entry *entry;
    struct live_session **all;
    size_t count = 0;

    (void)pthread_mutex_lock(&sessions->lock);
    all = xcalloc(sessions->live.count + 1, sizeof(*all));
    map_for_each (&sessions->live, entry) {
        all[count] = entry->value;
        all[count++]->refs++;
    }
    (void)pthread_mutex_unlock(&sessions->lock);
    for (size_t i = 0; i < count; i++) {
        auto_arena struct arena arena = {0};
        struct runtime_use use;
        struct error err;
        bool at_work;

        (void)pthread_mutex_lock(&all[i]->lock);
        at_work = all[i]->prompt != NULL && all[i]->attached;
        session_wake(all[i]);
        (void)pthread_mutex_unlock(&all[i]->lock);
        if (at_work && runtime_use(runtime, &all[i]->caller, all[i]->row.sandbox_id, 0, &arena,
                                   &use, &err) < 0)
            log_warn("session", "id=%.*s %s", STR_ARG(all[i]->row.id), err.message);
        session_unref(all[i]);
    }
    free(all);
}

int sessions_open(struct runtime *runtime, struct error *err)
{
    struct sessions *sessions = xcalloc(1, sizeof(*sessions));

    runtime->sessions = sessions;
    (void)pthread_mutex_init(&sessions->lock, NULL);
    map_init(&sessions->live);
    sessions->hub = fetch_hub_new();
    sessions->workers = workers_new_elastic(SESSION_WORKERS, SESSION_QUEUE_MAX);
    runtime_timer_add(runtime, "sessions", KEEP_ALIVE_S, true, keep_alive);
    return take_up(runtime, SESSION_CREATED, err) < 0 || take_up(runtime, SESSION_RUNNING, err) < 0
               ? -1
               : 0;
}

void runtime_quiet(struct runtime *runtime)
{
    struct sessions *sessions = runtime->sessions;
    struct map_entry *entry;
    struct live_session **all;
    size_t count = 0;

    (void)pthread_mutex_lock(&sessions->lock);
    sessions->closing = true;
    all = xcalloc(sessions->live.count + 1, sizeof(*all));
    map_for_each (&sessions->live, entry)
        all[count++] = entry->value;
    (void)pthread_mutex_unlock(&sessions->lock);
    for (size_t i = 0; i < count; i++) {
        struct session_streams streams;

        (void)pthread_mutex_lock(&all[i]->lock);
        streams = session_stream_take(all[i]);
        (void)pthread_mutex_unlock(&all[i]->lock);
        session_stream_close(streams);
    }
    free(all);
}

void sessions_close(struct runtime *runtime)
{
    struct sessions *sessions = runtime->sessions;
    struct map_entry *entry;

    if (!sessions)
        return;
    runtime_quiet(runtime);
    /* One that waits for a slow backend is not waited for: the process ends. */
    if (workers_free_within(sessions->workers, CLOSE_MS) < 0)
        return;
    map_for_each (&sessions->live, entry)
        session_unref(entry->value);
    fetch_hub_free(sessions->hub);
    map_done(&sessions->live);
    (void)pthread_mutex_destroy(&sessions->lock);
    free(sessions);
    runtime->sessions = NULL;
}
