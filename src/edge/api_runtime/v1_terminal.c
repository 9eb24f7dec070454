/* A terminal in a browser: one WebSocket and one terminal, joined.
 *
 * The worker of the request finds the sandbox, so that a wrong key, id or owner is an ordinary answer.
 * Then the connection is upgraded, and a second errand opens the PTY, which may have to wake the
 * sandbox; a failure there closes the socket with 1011 and the reason. The first frame is the text
 * {"type":"ready","terminal_id":...}; then all that the PTY prints, as binary frames.
 *
 * From the client: text {"type":"resize","cols","rows"} and {"type":"input","data"}; any other text,
 * and binary, is input.
 *
 * Output comes on the terminal's thread into a bounded buffer; the loop sends from it. When the
 * browser is slower, the terminal is told to wait. */
#include "runtime/command/terminal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "edge/api_runtime/v1_socket.h"
#include "edge/api_runtime/v1_types.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/sandbox.h"
#include "runtime/session/session.h"

enum { OUTPUT_HIGH = 256 * 1024, OUTPUT_MAX = 16 * OUTPUT_HIGH, SIDE_MAX = 1000 };

struct terminal {
    struct v1_stream stream;
    struct v1 *v1;
    struct loop *loop;
    struct arena arena;
    struct runtime_caller caller;
    struct terminal_request request;
    bool protocol; /* the client offered ours */
    struct v1_socket *socket;
    struct terminal *terminal;
    char id[RUNTIME_ID_SIZE];
    atomic_int holds; /* the socket, the work, a posted errand */
    bool ready;
    struct work work;
    struct error err; /* why it could not be opened */

    pthread_mutex_t lock; /* guards the rest */
    struct buf output;
    bool stalled, posted, ended, lost;
    int exit_code;
    struct error why;
    struct loop_errand errand;
};

static void unref(struct terminal *terminal)
{
    if (atomic_fetch_sub(&terminal->holds, 1) > 1)
        return;
    v1_share_stream_end(terminal->v1, terminal->caller.team_id);
    (void)pthread_mutex_destroy(&terminal->lock);
    buf_done(&terminal->output);
    arena_done(&terminal->arena);
    free(terminal);
}

/* ---- from the PTY ---- */

/* Under the lock, on any thread. */
static void post(struct terminal *terminal)
{
    if (terminal->posted)
        return;
    terminal->posted = true;
    atomic_fetch_add(&terminal->holds, 1);
    loop_post(terminal->loop, &terminal->errand);
}

static bool on_data(void *arg, struct str data)
{
    struct terminal *terminal = arg;
    bool more;

    (void)pthread_mutex_lock(&terminal->lock);
    (void)buf_add_str(&terminal->output, data);
    more = terminal->output.len < OUTPUT_HIGH;
    terminal->stalled = !more;
    post(terminal);
    (void)pthread_mutex_unlock(&terminal->lock);
    return more;
}

static void on_end(void *arg, int exit_code, const struct error *why)
{
    struct terminal *terminal = arg;

    (void)pthread_mutex_lock(&terminal->lock);
    terminal->ended = true;
    terminal->exit_code = exit_code;
    terminal->lost = why != NULL;
    if (why)
        terminal->why = *why;
    post(terminal);
    (void)pthread_mutex_unlock(&terminal->lock);
}

/* ---- to the browser ---- */

static void close_failed(struct terminal *terminal, struct error *why)
{
    runtime_mask(terminal->v1->config.runtime, terminal->caller.team_id, why->message);
    v1_socket_close(terminal->socket, WEBSOCKET_FAILED, str_of(why->message));
}

static void close_ended(struct terminal *terminal)
{
    char reason[64];

    (void)snprintf(reason, sizeof(reason), "exited with %d", terminal->exit_code);
    if (terminal->lost)
        close_failed(terminal, &terminal->why);
    else
        v1_socket_close(terminal->socket, WEBSOCKET_NORMAL, str_of(reason));
}

static void flush(struct terminal *terminal)
{
    bool resume, ended;

    if (!terminal->socket || !terminal->ready ||
        v1_socket_pending(terminal->socket) > V1_SOCKET_HIGH_WATER)
        return;
    (void)pthread_mutex_lock(&terminal->lock);
    if (terminal->output.len)
        (void)v1_socket_send(terminal->socket, false, buf_str(&terminal->output));
    buf_clear(&terminal->output);
    resume = terminal->stalled;
    terminal->stalled = false;
    ended = terminal->ended;
    (void)pthread_mutex_unlock(&terminal->lock);
    if (resume)
        terminal_resume(terminal->terminal);
    if (ended)
        close_ended(terminal);
}

static void on_posted(struct loop_errand *errand)
{
    struct terminal *terminal = container_of(errand, struct terminal, errand);

    (void)pthread_mutex_lock(&terminal->lock);
    terminal->posted = false;
    (void)pthread_mutex_unlock(&terminal->lock);
    flush(terminal);
    unref(terminal);
}

/* ---- from the browser ---- */

static void on_socket_drain(void *arg)
{
    flush(arg);
}

static uint16_t side(const json_t *json, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(json, name));

    return (uint16_t)(value < 1 ? 0 : value > SIDE_MAX ? SIDE_MAX : value);
}

/* True when the text was one of our messages. */
static bool on_control(struct terminal *terminal, struct str text)
{
    auto_json json_t *json = NULL;
    struct str type, data;
    struct error ignored;

    if (!str_starts(text, STR("{")) || json_parse(text, &json, &ignored) < 0)
        return false;
    type = json_get_str(json, "type");
    data = json_get_str(json, "data");
    if (str_is(type, "resize")) {
        uint16_t cols = side(json, "cols"), rows = side(json, "rows");

        if (cols && rows)
            terminal_resize(terminal->terminal, cols, rows);
        return true;
    }
    if (!str_is(type, "input") || !data.p)
        return false;
    terminal_input(terminal->terminal, data);
    return true;
}

static void on_message(void *arg, struct str data, bool text)
{
    struct terminal *terminal = arg;

    if (data.len && !(text && on_control(terminal, data)))
        terminal_input(terminal->terminal, data);
}

/* Nothing comes from the PTY afterwards; a errand that was posted still does. */
static void leave(struct terminal *terminal)
{
    if (!terminal->terminal)
        return;
    terminal_leave(terminal->terminal);
    terminal->terminal = NULL;
}

static void on_socket_closed(void *arg)
{
    struct terminal *terminal = arg;

    terminal->socket = NULL;
    v1_stream_remove(terminal->v1, &terminal->stream);
    leave(terminal);
    log_info("v1", "terminal=%s of sandbox=%.*s left", terminal->id,
             STR_ARG(terminal->request.sandbox_id));
    unref(terminal);
}

static const struct v1_socket_events socket_events = {
    .on_message = on_message,
    .on_drain = on_socket_drain,
    .on_closed = on_socket_closed,
};

/* ---- opening ---- */

static void open_run(struct work *work)
{
    struct terminal *terminal = container_of(work, struct terminal, work);
    struct terminal_viewer viewer = {.on_data = on_data, .on_end = on_end, .arg = terminal};

    if (terminal_open(terminal->v1->config.runtime, &terminal->caller, &terminal->request, &viewer,
                      terminal->id, &terminal->terminal, &terminal->err) < 0)
        terminal->terminal = NULL;
}

static void open_done(struct work *work)
{
    struct terminal *terminal = container_of(work, struct terminal, work);
    auto_buf struct buf text = {0};

    if (!terminal->socket) {
        leave(terminal); /* the browser was faster */
    } else if (!terminal->terminal) {
        close_failed(terminal, &terminal->err);
        log_warn("v1", "no terminal in sandbox=%.*s: %s", STR_ARG(terminal->request.sandbox_id),
                 terminal->err.message);
    } else {
        buf_init(&text, 96);
        json_out_open(&text, NULL, '{');
        json_out_str(&text, "type", STR("ready"));
        json_out_str(&text, "terminal_id", str_of(terminal->id));
        json_out_close(&text, "}");
        (void)v1_socket_send(terminal->socket, true, buf_str(&text));
        terminal->ready = true;
        v1_socket_pause(terminal->socket, false);
        flush(terminal);
    }
    unref(terminal);
}

static void on_server_drain(struct v1_stream *stream)
{
    struct terminal *terminal = container_of(stream, struct terminal, stream);

    if (terminal->socket)
        v1_socket_close(terminal->socket, WEBSOCKET_GOING_AWAY, STR("the server is stopping"));
}

static void take_over(struct v1_call *call)
{
    static const struct pair type = {STR_INIT("Content-Type"), STR_INIT("application/json")};
    struct terminal *terminal = call->taken;
    auto_free char *text = NULL;

    http_on_done(call->ex, NULL, NULL);
    terminal->socket =
        v1_socket_new(call->ex, terminal->protocol ? "quicksand" : NULL, &socket_events, terminal);
    call->status = terminal->socket ? 101 : 400;
    if (!terminal->socket) {
        text = v1_error_text("invalid", "this is no WebSocket request of version 13", false, NULL);
        http_reply(call->ex, 400, &type, 1, str_of(text));
        unref(terminal);
        return;
    }
    v1_stream_add(terminal->v1, &terminal->stream);
    terminal->work = (struct work){.run = open_run, .done = open_done, .loop = terminal->loop};
    atomic_fetch_add(&terminal->holds, 1);
    if (atomic_load(&terminal->v1->draining)) {
        on_server_drain(&terminal->stream);
        unref(terminal);
    } else if (workers_run(terminal->v1->config.lanes[V1_LANE_WORK].workers, &terminal->work) < 0) {
        v1_socket_close(terminal->socket, WEBSOCKET_FAILED, STR("the server is busy"));
        unref(terminal);
    }
}

static void forget(void *taken)
{
    unref(taken);
}

static struct str copied(struct terminal *terminal, struct str s)
{
    return s.len ? arena_str(&terminal->arena, s) : STR_NONE;
}

/* workdir: where the shell starts unless the client says otherwise. */
static int prepare(struct v1_call *call, struct str sandbox_id, struct str session_id,
                   struct str workdir, struct error *err)
{
    int64_t cols = 0, rows = 0;
    struct terminal_request asked = {0};
    struct str id, cwd;
    struct terminal *terminal;

    if (v1_query_int(call, "cols", 1, SIDE_MAX, &cols, err) < 0 ||
        v1_query_int(call, "rows", 1, SIDE_MAX, &rows, err) < 0 ||
        v1_query_str(call, "terminal_id", &id, err) < 0 ||
        v1_query_str(call, "cwd", &cwd, err) < 0 ||
        v1_query_str(call, "user", &asked.user, err) < 0 ||
        v1_query_str(call, "argv", &asked.argv, err) < 0 ||
        v1_query_str(call, "env", &asked.env, err) < 0 || terminal_request_check(&asked, err) < 0 ||
        v1_share_stream(call->v1, call->caller.team_id, err) < 0)
        return -1;
    terminal = xcalloc(1, sizeof(*terminal));
    terminal->v1 = call->v1;
    terminal->loop = call->loop;
    terminal->stream = (struct v1_stream){.loop = call->loop, .end = on_server_drain};
    terminal->caller = (struct runtime_caller){.team_id = copied(terminal, call->caller.team_id),
                                               .agent_id = copied(terminal, call->caller.agent_id),
                                               .actor = copied(terminal, call->caller.actor)};
    terminal->request = (struct terminal_request){.sandbox_id = copied(terminal, sandbox_id),
                                                  .session_id = copied(terminal, session_id),
                                                  .terminal_id = copied(terminal, id),
                                                  .cols = (uint16_t)cols,
                                                  .rows = (uint16_t)rows,
                                                  .cwd = copied(terminal, cwd.len ? cwd : workdir),
                                                  .user = copied(terminal, asked.user),
                                                  .argv = copied(terminal, asked.argv),
                                                  .env = copied(terminal, asked.env)};
    terminal->protocol = call->offers_protocol;
    terminal->errand.fn = on_posted;
    atomic_store(&terminal->holds, 1);
    (void)pthread_mutex_init(&terminal->lock, NULL);
    buf_init(&terminal->output, OUTPUT_MAX);
    call->taken = terminal;
    call->take_over = take_over;
    call->forget = forget;
    return 0;
}

int v1_terminal_sandbox(struct v1_call *call, struct error *err)
{
    struct runtime_sandbox sandbox = {0};

    if (runtime_sandbox_get(call->v1->config.runtime, &call->caller, call->params[0], false,
                            &call->arena, &sandbox, err) < 0)
        return -1;
    return prepare(call, sandbox.id, STR_NONE, STR_NONE, err);
}

int v1_terminal_session(struct v1_call *call, struct error *err)
{
    struct session session = {0};

    if (session_get(call->v1->config.runtime, &call->caller, call->params[0], &call->arena,
                    &session, err) < 0)
        return -1;
    if (!session.sandbox_id.len)
        return error_set(err, ERROR_CONFLICT, "session '%.*s' has no sandbox (yet)",
                         STR_ARG(session.id));
    return prepare(call, session.sandbox_id, session.id, session.workdir, err);
}
