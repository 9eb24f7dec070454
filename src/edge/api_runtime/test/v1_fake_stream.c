/* The parts of the fake domain that go on by themselves: sessions, events, terminals, logs of jobs. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/list.h"
#include "edge/api_runtime/test/v1_fake.h"
#include "runtime/command/terminal.h"
#include "runtime/job/job.h"
#include "runtime/sandbox/kept.h"
#include "runtime/session/changes.h"
#include "runtime/session/session.h"

enum { EVENTS = 5000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- sessions ---- */

static int session(struct str id, struct session *out, struct error *err)
{
    if (out)
        *out = (struct session){
            .id = STR("ses_1"), .state = SESSION_RUNNING, .sandbox_id = STR(V1_FAKE_ID)};
    if (v1_fake.fail.code) {
        *err = v1_fake.fail;
        return -1;
    }
    return str_is(id, "ses_1") ? 0 : error_set(err, ERROR_NOT_FOUND, "no such session");
}

int session_new(struct runtime *runtime, const struct runtime_caller *caller,
                const struct session_request *request, bool wait, struct arena *arena,
                struct session *out, struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)request;
    (void)wait;
    (void)arena;
    return session(STR("ses_1"), out, err);
}

int session_get(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                struct arena *arena, struct session *out, struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)arena;
    return session(id, out, err);
}

int session_list(struct runtime *runtime, const struct runtime_caller *caller, struct arena *arena,
                 struct session **out, size_t *out_count, struct error *err)
{
    (void)runtime;
    (void)caller;
    *out = arena_alloc(arena, sizeof(**out));
    *out_count = 1;
    return session(STR("ses_1"), *out, err);
}

#define SIMPLE(name)                                                                      \
    int name(struct runtime *runtime, const struct runtime_caller *caller, struct str id, \
             struct error *err)                                                           \
    {                                                                                     \
        (void)runtime;                                                                    \
        (void)caller;                                                                     \
        return session(id, NULL, err);                                                    \
    }
SIMPLE(session_pause)
SIMPLE(session_resume)
SIMPLE(session_interrupt)

int session_send(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                 struct str text, struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)text;
    return session(id, NULL, err);
}

int session_cancel(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                   bool kill_sandbox, struct error *forced, struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)kill_sandbox;
    (void)forced;
    return session(id, NULL, err);
}

int session_approve(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    struct str request_id, struct str option, bool allow, struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)request_id;
    (void)option;
    (void)allow;
    return session(id, NULL, err);
}

int session_snapshot(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                     struct str alias, struct arena *arena, struct runtime_snapshot *out,
                     struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)alias;
    (void)arena;
    *out = (struct runtime_snapshot){.id = STR("snap_1")};
    return session(id, NULL, err);
}

int session_push(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                 const struct runtime_push *push, struct arena *arena, struct runtime_pushed *out,
                 struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)arena;
    *out = (struct runtime_pushed){.branch = STR("b"), .commit = STR("c")};
    if (push->pull)
        out->pull = (struct runtime_pulled){.number = 7, .base = push->pull->base};
    return session(id, NULL, err);
}

int session_history(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    int64_t limit, json_t **out, struct error *err)
{
    (void)runtime;
    (void)caller;
    if (session(id, NULL, err) < 0)
        return -1;
    *out = json_pack("{s:n, s:[], s:I}", "branch", "commits", "limit", (json_int_t)limit);
    return 0;
}

int session_changes(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    struct arena *arena, struct session_changes *out, struct error *err)
{
    static struct session_change items[] = {
        {.path = STR_INIT("bad\xff"),
         .status = 'A',
         .added = 1,
         .diff = STR_INIT("diff"),
         .cut = true},
        {.path = STR_INIT("image"), .status = 'D', .binary = true, .diff = STR_INIT("diff")},
    };

    (void)runtime;
    (void)caller;
    (void)arena;
    *out = (struct session_changes){.kind = STR("repository"), .items = items, .count = 2};
    return session(id, NULL, err);
}

/* ---- events: ids 1, 2, 3, ... ---- */

struct event_watch {
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

static struct runtime_event_text text_of(size_t i, struct arena *arena)
{
    return (struct runtime_event_text){
        .id = (int64_t)i + 1,
        .type = str_of(events[i].type),
        .json = str_of(arena_printf(arena, "{\"id\":%zu,%*s\"type\":\"%s\"}", i + 1,
                                    v1_fake.event_pad, "", events[i].type))};
}

/* Under the lock. */
static size_t collect(struct str agent_id, int64_t since, size_t max, struct arena *arena,
                      struct runtime_event_text **out)
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
        struct event_watch *watch = container_of(node, struct event_watch, node);

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

int runtime_event_list(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct runtime_event_filter *filter, int64_t since, size_t limit,
                       struct arena *arena, struct runtime_event_texts *out, struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)err;
    (void)pthread_mutex_lock(&lock);
    v1_fake.store_reads++;
    out->count = collect(filter->agent_id, since, limit, arena, &out->items);
    out->more = out->count == limit;
    (void)pthread_mutex_unlock(&lock);
    return 0;
}

int runtime_event_last(struct runtime *runtime, const struct runtime_caller *caller,
                       const struct runtime_event_filter *filter, size_t limit, struct arena *arena,
                       struct runtime_event_texts *out, struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)err;
    (void)pthread_mutex_lock(&lock);
    out->count = collect(filter->agent_id, event_count > limit ? (int64_t)(event_count - limit) : 0,
                         limit, arena, &out->items);
    out->more = out->count == limit;
    (void)pthread_mutex_unlock(&lock);
    return 0;
}

struct event_watch *event_watch_new(struct runtime *runtime, const struct runtime_caller *caller,
                                    const struct runtime_event_filter *filter,
                                    void (*wake)(void *arg), void *arg)
{
    struct event_watch *watch = xcalloc(1, sizeof(*watch));

    (void)runtime;
    (void)caller;
    *watch = (struct event_watch){.agent_id = filter->agent_id, .wake = wake, .arg = arg};
    (void)pthread_mutex_lock(&lock);
    watch->from = event_count;
    list_push_back(&watchers, &watch->node);
    (void)pthread_mutex_unlock(&lock);
    return watch;
}

size_t event_watch_read(struct event_watch *watch, int64_t since, size_t max, struct arena *arena,
                        struct runtime_event_text **out, bool *out_missed)
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

void event_watch_free(struct event_watch *watch)
{
    (void)pthread_mutex_lock(&lock);
    list_remove(&watch->node);
    (void)pthread_mutex_unlock(&lock);
    free(watch);
}

/* ---- one terminal: prints what is typed ---- */

struct terminal {
    struct terminal_viewer viewer;
};

static struct terminal the_terminal;

int terminal_request_check(const struct terminal_request *request, struct error *err)
{
    (void)request;
    (void)err;
    return 0;
}

int terminal_open(struct runtime *runtime, const struct runtime_caller *caller,
                  const struct terminal_request *request, const struct terminal_viewer *viewer,
                  char out_id[RUNTIME_ID_SIZE], struct terminal **out, struct error *err)
{
    (void)runtime;
    (void)caller;
    if (v1_fake.terminal_fails)
        return error_set(err, ERROR_UNSUPPORTED, "provider 'x' has no pty");
    (void)snprintf(out_id, RUNTIME_ID_SIZE, "%s", request->terminal_id.len ? "term_old" : "term_1");
    the_terminal.viewer = *viewer;
    *out = &the_terminal;
    v1_fake.terminals++;
    return 0;
}

bool v1_fake_print(const char *text)
{
    if (v1_fake.terminals == 0) /* what was written before it was counted is seen */
        abort();
    return the_terminal.viewer.on_data(the_terminal.viewer.arg, str_of(text));
}

void v1_fake_exit(int code)
{
    the_terminal.viewer.on_end(the_terminal.viewer.arg, code, NULL);
}

void terminal_input(struct terminal *terminal, struct str data)
{
    (void)terminal->viewer.on_data(terminal->viewer.arg, data);
}

void terminal_resize(struct terminal *terminal, uint16_t cols, uint16_t rows)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "[%ux%u]", cols, rows);
    (void)terminal->viewer.on_data(terminal->viewer.arg, str_of(text));
}

void terminal_resume(struct terminal *terminal)
{
    (void)terminal;
}

void terminal_leave(struct terminal *terminal)
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

int runtime_execution_get(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str sandbox_id, struct str id, struct arena *arena,
                          struct store_execution *out, struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)arena;
    if (!str_is(id, "exe_1"))
        return error_set(err, ERROR_NOT_FOUND, "no such execution");
    return find_execution(sandbox_id, out, err);
}

int runtime_execution_list(struct runtime *runtime, const struct runtime_caller *caller,
                           struct str sandbox_id, const struct store_execution_page *page,
                           struct arena *arena, struct store_execution **out, size_t *out_count,
                           struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)page;
    *out = arena_alloc(arena, sizeof(**out));
    *out_count = 1;
    return find_execution(sandbox_id, *out, err);
}

/* "0123456789" again and again. */
int job_logs_check(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                   struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)id;
    (void)err;
    return 0;
}

int job_logs(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
             const struct job_read *read, provider_sink_fn *sink, void *arg, int64_t *out_next,
             struct error *err)
{
    int64_t after = read->after;
    size_t limit = read->limit;
    bool follow = read->follow;
    struct timespec pause = {.tv_nsec = 20000000};

    (void)runtime;
    (void)caller;
    (void)id;
    do {
        char text[100];
        size_t n = 0;

        while (n < sizeof(text) && n < limit && after < (int64_t)v1_fake.log_at)
            text[n++] = (char)('0' + after++ % 10);
        if (n && sink(arg, str_n(text, n)) < 0)
            return error_set(err, ERROR_CONFLICT, "given up");
        limit -= n;
        if (!n && follow) {
            (void)nanosleep(&pause, NULL);
            follow = false; /* as if wait_ms had passed */
        }
        *out_next = after;
    } while (limit && (follow || after < (int64_t)v1_fake.log_at));
    return 0;
}
