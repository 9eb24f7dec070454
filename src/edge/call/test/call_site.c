#include "edge/call/test/call_site.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/test.h"
#include "edge/call/call_pipe.h"
#include "store/platform/store_audit.h"

enum { BODY_MAX = 1000 };

struct test_call {
    CALL_EXTENDS;
    struct call_pipe pipe;
};

struct call_site site;

int get(const int *counter)
{
    return __atomic_load_n(counter, __ATOMIC_SEQ_CST);
}

static void add(int *counter)
{
    __atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST);
}

void hold(bool held)
{
    __atomic_store_n(&site.held, held, __ATOMIC_SEQ_CST);
}

void hold_undo(bool held)
{
    __atomic_store_n(&site.undo_held, held, __ATOMIC_SEQ_CST);
}

void stay(void)
{
    add(&site.begun);
    while (__atomic_load_n(&site.held, __ATOMIC_SEQ_CST))
        (void)usleep(1000);
}

/* ---- instead of the domain and the store ---- */

int api_keys_find(struct api_keys *keys, struct str key, struct api_key_owner *out,
                  struct error *err)
{
    (void)keys;
    add(&site.finds);
    if (str_is(key, "slow"))
        stay();
    if (str_is(key, "wrong"))
        return error_set(err, ERROR_UNAUTHORIZED, "wrong key");
    *out = (struct api_key_owner){.team_id = "team", .key_id = "k", .found_us = 1};
    return 0;
}

enum api_key_peek api_keys_peek(struct api_keys *keys, struct str key, struct api_key_owner *out)
{
    (void)keys;
    if (!str_is(key, "known") && !str_is(key, "stale"))
        return API_KEY_UNSEEN;
    *out =
        (struct api_key_owner){.team_id = "team", .key_id = "k", .found_us = str_is(key, "known")};
    return API_KEY_KNOWN;
}

bool api_keys_current(struct api_keys *keys, const struct api_key_owner *owner)
{
    (void)keys;
    return owner->found_us > 0;
}

int store_audit_add(struct store *store, const struct store_audit *entry, struct error *err)
{
    (void)store, (void)entry, (void)err;
    return 0;
}

/* ---- the trace ---- */

void __real_call_set_state(struct call *call, enum call_state to);
void __wrap_call_set_state(struct call *call, enum call_state to);

void __wrap_call_set_state(struct call *call, enum call_state to)
{
    static const char *const names[] = {"opened", "asking",  "reading",   "waiting",  "running",
                                        "moving", "undoing", "answering", "orphaned", "over"};
    enum call_state from = atomic_load(&call->state);
    size_t used = strlen(site.path);

    __real_call_set_state(call, to);
    site.seen[from][to] = true;
    if (str_is(call->path, "/x"))
        (void)snprintf(site.path + used, sizeof(site.path) - used, "%s%s", used ? " " : "",
                       names[to]);
}

/* ---- an API ---- */

static bool wants(const struct call *call, const char *word)
{
    return str_find_str(call->query, str_of(word)) >= 0;
}

static int admit(struct call *call, struct error *err)
{
    if (wants(call, "refused"))
        return error_set(err, ERROR_QUOTA, "not admitted");
    add(&site.admitted);
    return 0;
}

static void leave(struct call *call)
{
    (void)call;
    add(&site.left);
}

static void answer(struct call *call)
{
    if (wants(call, "bytes")) {
        struct error err = {0};

        (void)close(0);
        CHECK_INT(call_answer_bytes(call, 200, "text/plain", STR("some bytes"), &err), 0);
        CHECK_INT(call->reply_fd, 0);
    } else if (wants(call, "long")) {
        char *text = xcalloc(1, CALL_SITE_LONG + 1);

        memset(text, 'x', CALL_SITE_LONG);
        call_answer_text(call, 200, text);
    } else {
        call_answer_static(call, 200, STR("fine"));
    }
    if (wants(call, "made"))
        call->made = STR("box");
}

/* Until its client has gone, who reads nothing of it. */
static void stream(struct test_call *call)
{
    static const char some[64 * 1024];

    call_pipe_begin(&call->pipe, 200, "text/plain");
    add(&site.begun);
    while (call_pipe_write(&call->pipe, str_n(some, sizeof(some))) == 0)
        continue;
}

static int step(struct call *call, struct error *err)
{
    (void)err;
    add(&site.stepped);
    if (wants(call, "stay2"))
        stay();
    answer(call);
    return 0;
}

static int handle(struct call *call, struct error *err)
{
    add(&site.handled);
    if (wants(call, "stay1"))
        stay();
    if (wants(call, "fail"))
        return error_set(err, ERROR_CONFLICT, "as was asked for");
    if (wants(call, "patient")) {
        add(&site.begun);
        WAIT_FOR(call_unwanted(call));
        return call_set_unwanted(call, err);
    }
    if (wants(call, "stream"))
        stream((struct test_call *)call);
    else if (wants(call, "move"))
        call_move(call, LANE_SECOND, step);
    else
        answer(call);
    return 0;
}

static char *write_error(int status, const char *message)
{
    char *text = NULL;

    CHECK(asprintf(&text, "%d: %s", status, message) > 0);
    return text;
}

static void fail(struct call *call, const struct error *err)
{
    call_fault(call, err, write_error);
}

static int kill_made(struct call *call, struct error *err)
{
    (void)call, (void)err;
    while (__atomic_load_n(&site.undo_held, __ATOMIC_SEQ_CST))
        (void)usleep(1000);
    add(&site.killed);
    return 0;
}

static void gone(struct call *call)
{
    call_pipe_close(&((struct test_call *)call)->pipe);
}

static enum call_end finish(struct call *call)
{
    struct call_pipe *pipe = &((struct test_call *)call)->pipe;

    if (!call->ex || !pipe->writes)
        return CALL_REPLY;
    call_pipe_finish(pipe, false);
    return CALL_SENT;
}

static void done(struct call *call)
{
    call_pipe_done(&((struct test_call *)call)->pipe);
    add(&site.over);
}

static const struct call_ops ops = {.name = "test",
                                    .keep_hint = "name it",
                                    .admit = admit,
                                    .leave = leave,
                                    .handle = handle,
                                    .fail = fail,
                                    .kill = kill_made,
                                    .gone = gone,
                                    .finish = finish,
                                    .done = done};

static void on_request(struct http_exchange *ex, void *arg)
{
    struct test_call *call = xcalloc(1, sizeof(*call));

    (void)arg;
    call_pipe_init(&call->pipe, &call->call);
    call_begin(&call->call, &site.desk, ex);
    if (str_is(call->path, "/x"))
        site.traced = &call->call;
    call->body_max = BODY_MAX;
    call->public = wants(&call->call, "public");
    call->no_body = wants(&call->call, "raw");
    call->file_max = wants(&call->call, "file") ? BODY_MAX : 0;
    call->cancels = wants(&call->call, "patient");
    call->only_for_client = wants(&call->call, "only");
    call_start(&call->call);
}

static struct shares *one_each(void)
{
    return shares_new(&(struct shares_config){.each_max = 1, .waiting_max = 1});
}

void call_site_start(void)
{
    static int store; /* nobody looks into it */

    log_set_level(LOG_ERROR);
    site.desk = (struct call_desk){
        .ops = &ops,
        .limits = http_limits_new(&(struct http_limits_config){.body_bytes = 1 << 20}),
        .store = (struct store *)&store,
        .file_directory = "/tmp",
        .work_lane = LANE_UNDO,
        .lanes = {[LANE_FIRST] = {workers_new(1, 1), one_each()},
                  [LANE_SECOND] = {workers_new(1, 1), one_each()},
                  [LANE_UNDO] = {workers_new(1, 1), NULL}}};
    http_site_start_with(&site.http, on_request, NULL, 300);
}
