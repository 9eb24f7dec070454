/* The parts of the fake domain that go on by themselves: sessions, events, terminals. */
#include <pthread.h>

#include "agent/agent_kept.h"
#include "agent/agent_session.h"
#include "agent/agent_terminal.h"
#include "api_v1/v1_fake.h"
#include "base/alloc.h"
#include "base/list.h"

enum { EVENTS = 5000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- sessions ---- */

static int session(struct str id, struct agent_session *out, struct error *err)
{
    if (out)
        *out = (struct agent_session){
            .id = STR("ses_1"), .state = STR("running"), .sandbox_id = STR(V1_FAKE_ID)};
    if (v1_fake.fail.code) {
        *err = v1_fake.fail;
        return -1;
    }
    return str_is(id, "ses_1") ? 0 : error_set(err, ERROR_NOT_FOUND, "no such session");
}

int agent_session_new(struct agents *agents, const struct agent_caller *caller,
                      const struct agent_session_request *request, bool wait, struct arena *arena,
                      struct agent_session *out, struct error *err)
{
    (void)agents;
    (void)caller;
    (void)request;
    (void)wait;
    (void)arena;
    return session(STR("ses_1"), out, err);
}

int agent_session_get(struct agents *agents, const struct agent_caller *caller, struct str id,
                      struct arena *arena, struct agent_session *out, struct error *err)
{
    (void)agents;
    (void)caller;
    (void)arena;
    return session(id, out, err);
}

int agent_session_list(struct agents *agents, const struct agent_caller *caller,
                       struct arena *arena, struct agent_session **out, size_t *out_count,
                       struct error *err)
{
    (void)agents;
    (void)caller;
    *out = arena_alloc(arena, sizeof(**out));
    *out_count = 1;
    return session(STR("ses_1"), *out, err);
}

#define SIMPLE(name)                                                                  \
    int name(struct agents *agents, const struct agent_caller *caller, struct str id, \
             struct error *err)                                                       \
    {                                                                                 \
        (void)agents;                                                                 \
        (void)caller;                                                                 \
        return session(id, NULL, err);                                                \
    }
SIMPLE(agent_session_pause)
SIMPLE(agent_session_resume)
SIMPLE(agent_session_interrupt)

int agent_session_send(struct agents *agents, const struct agent_caller *caller, struct str id,
                       struct str text, struct error *err)
{
    (void)agents;
    (void)caller;
    (void)text;
    return session(id, NULL, err);
}

int agent_session_cancel(struct agents *agents, const struct agent_caller *caller, struct str id,
                         bool kill_sandbox, struct error *forced, struct error *err)
{
    (void)agents;
    (void)caller;
    (void)kill_sandbox;
    (void)forced;
    return session(id, NULL, err);
}

int agent_session_approve(struct agents *agents, const struct agent_caller *caller, struct str id,
                          struct str request_id, struct str option, bool allow, struct error *err)
{
    (void)agents;
    (void)caller;
    (void)request_id;
    (void)option;
    (void)allow;
    return session(id, NULL, err);
}

int agent_session_snapshot(struct agents *agents, const struct agent_caller *caller, struct str id,
                           struct str alias, struct arena *arena, struct agent_snapshot *out,
                           struct error *err)
{
    (void)agents;
    (void)caller;
    (void)alias;
    (void)arena;
    *out = (struct agent_snapshot){.id = STR("snap_1")};
    return session(id, NULL, err);
}

int agent_session_push(struct agents *agents, const struct agent_caller *caller, struct str id,
                       const struct agent_push *push, struct arena *arena, struct agent_pushed *out,
                       struct error *err)
{
    (void)agents;
    (void)caller;
    (void)arena;
    *out = (struct agent_pushed){.branch = STR("b"), .commit = STR("c")};
    if (push->pull)
        out->pull = (struct agent_pulled){.number = 7, .base = push->pull->base};
    return session(id, NULL, err);
}

/* ---- events: ids 1, 2, 3, ... ---- */

struct agent_watch {
    struct list node;
    struct str agent_id;
    size_t from; /* events there were when it began */
    void (*wake)(void *arg);
    void *arg;
};

static struct {
    char type[32], agent_id[16];
} events[EVENTS];
static size_t event_count;
static struct list watchers = {&watchers, &watchers};

static bool matches(size_t i, struct str agent_id)
{
    return !agent_id.len || str_is(agent_id, events[i].agent_id);
}

static struct agent_event_text text_of(size_t i, struct arena *arena)
{
    return (struct agent_event_text){
        .id = (int64_t)i + 1,
        .type = str_of(events[i].type),
        .json = str_of(arena_printf(arena, "{\"id\":%zu,%*s\"type\":\"%s\"}", i + 1,
                                    v1_fake.event_pad, "", events[i].type))};
}

/* Under the lock. */
static size_t collect(struct str agent_id, int64_t since, size_t max, struct arena *arena,
                      struct agent_event_text **out)
{
    size_t count = 0;

    *out = arena_alloc(arena, (max + 1) * sizeof(**out));
    for (size_t i = (size_t)since; i < event_count && count < max; i++)
        if (matches(i, agent_id))
            (*out)[count++] = text_of(i, arena);
    return count;
}

void v1_fake_event(const char *type, const char *agent_id)
{
    struct list *node;

    (void)pthread_mutex_lock(&lock);
    if (event_count < EVENTS) {
        (void)snprintf(events[event_count].type, sizeof(events[0].type), "%s", type);
        (void)snprintf(events[event_count].agent_id, sizeof(events[0].agent_id), "%s", agent_id);
        event_count++;
    }
    list_for_each (node, &watchers) {
        struct agent_watch *watch = container_of(node, struct agent_watch, node);

        if (matches(event_count - 1, watch->agent_id))
            watch->wake(watch->arg);
    }
    (void)pthread_mutex_unlock(&lock);
}

size_t v1_fake_watchers(void)
{
    struct list *node;
    size_t count = 0;

    (void)pthread_mutex_lock(&lock);
    list_for_each (node, &watchers)
        count++;
    (void)pthread_mutex_unlock(&lock);
    return count;
}

int agent_event_list(struct agents *agents, const struct agent_caller *caller,
                     const struct agent_event_filter *filter, int64_t since, size_t limit,
                     struct arena *arena, struct agent_event_texts *out, struct error *err)
{
    (void)agents;
    (void)caller;
    (void)err;
    (void)pthread_mutex_lock(&lock);
    v1_fake.store_reads++;
    out->count = collect(filter->agent_id, since, limit, arena, &out->items);
    (void)pthread_mutex_unlock(&lock);
    return 0;
}

int agent_event_last(struct agents *agents, const struct agent_caller *caller,
                     const struct agent_event_filter *filter, size_t limit, struct arena *arena,
                     struct agent_event_texts *out, struct error *err)
{
    (void)agents;
    (void)caller;
    (void)err;
    (void)pthread_mutex_lock(&lock);
    out->count = collect(filter->agent_id, event_count > limit ? (int64_t)(event_count - limit) : 0,
                         limit, arena, &out->items);
    (void)pthread_mutex_unlock(&lock);
    return 0;
}

struct agent_watch *agent_watch_new(struct agents *agents, const struct agent_caller *caller,
                                    const struct agent_event_filter *filter,
                                    void (*wake)(void *arg), void *arg)
{
    struct agent_watch *watch = xcalloc(1, sizeof(*watch));

    (void)agents;
    (void)caller;
    *watch = (struct agent_watch){.agent_id = filter->agent_id, .wake = wake, .arg = arg};
    (void)pthread_mutex_lock(&lock);
    watch->from = event_count;
    list_push_back(&watchers, &watch->node);
    (void)pthread_mutex_unlock(&lock);
    return watch;
}

size_t agent_watch_read(struct agent_watch *watch, int64_t since, size_t max, struct arena *arena,
                        struct agent_event_text **out, bool *out_missed)
{
    size_t count;

    (void)pthread_mutex_lock(&lock);
    if (since > (int64_t)event_count) /* a wall clock: from now on */
        since = (int64_t)watch->from;
    count = collect(watch->agent_id, since, max, arena, out);
    *out_missed = v1_fake.memory_missed;
    (void)pthread_mutex_unlock(&lock);
    return count;
}

void agent_watch_free(struct agent_watch *watch)
{
    (void)pthread_mutex_lock(&lock);
    list_remove(&watch->node);
    (void)pthread_mutex_unlock(&lock);
    free(watch);
}

/* ---- one terminal: prints what is typed ---- */

struct agent_terminal {
    struct agent_terminal_viewer viewer;
};

static struct agent_terminal the_terminal;

int agent_terminal_open(struct agents *agents, const struct agent_caller *caller,
                        const struct agent_terminal_request *request,
                        const struct agent_terminal_viewer *viewer, char out_id[AGENT_ID_SIZE],
                        struct agent_terminal **out, struct error *err)
{
    (void)agents;
    (void)caller;
    if (v1_fake.terminal_fails)
        return error_set(err, ERROR_UNSUPPORTED, "provider 'x' has no pty");
    (void)snprintf(out_id, AGENT_ID_SIZE, "%s", request->terminal_id.len ? "term_old" : "term_1");
    the_terminal.viewer = *viewer;
    *out = &the_terminal;
    v1_fake.terminals++;
    return 0;
}

bool v1_fake_print(const char *text)
{
    return the_terminal.viewer.on_data(the_terminal.viewer.arg, str_of(text));
}

void v1_fake_exit(int code)
{
    the_terminal.viewer.on_end(the_terminal.viewer.arg, code, NULL);
}

void agent_terminal_input(struct agent_terminal *terminal, struct str data)
{
    (void)terminal->viewer.on_data(terminal->viewer.arg, data);
}

void agent_terminal_resize(struct agent_terminal *terminal, uint16_t cols, uint16_t rows)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "[%ux%u]", cols, rows);
    (void)terminal->viewer.on_data(terminal->viewer.arg, str_of(text));
}

void agent_terminal_resume(struct agent_terminal *terminal)
{
    (void)terminal;
}

void agent_terminal_leave(struct agent_terminal *terminal)
{
    (void)terminal;
    v1_fake.terminals--;
}

/* ---- kept output ---- */

static int find_execution(struct str sandbox_id, struct store_execution *out, struct error *err)
{
    *out = (struct store_execution){
        .id = STR("exe_1"), .sandbox_id = STR(V1_FAKE_ID), .out = STR("kept"), .err = STR("")};
    return str_is(sandbox_id, V1_FAKE_ID) ? 0 : error_set(err, ERROR_NOT_FOUND, "no such sandbox");
}

int agent_execution_get(struct agents *agents, const struct agent_caller *caller,
                        struct str sandbox_id, struct str id, struct arena *arena,
                        struct store_execution *out, struct error *err)
{
    (void)agents;
    (void)caller;
    (void)arena;
    if (!str_is(id, "exe_1"))
        return error_set(err, ERROR_NOT_FOUND, "no such execution");
    return find_execution(sandbox_id, out, err);
}

int agent_execution_list(struct agents *agents, const struct agent_caller *caller,
                         struct str sandbox_id, const struct store_execution_page *page,
                         struct arena *arena, struct store_execution **out, size_t *out_count,
                         struct error *err)
{
    (void)agents;
    (void)caller;
    (void)page;
    *out = arena_alloc(arena, sizeof(**out));
    *out_count = 1;
    return find_execution(sandbox_id, *out, err);
}
