/* Makes a session what its row says it should be, one step after the other:
 *
 *   created                 -> provision: sandbox, sandbox-agent, clone, agent session -> running
 *   running, not attached   -> attach: resume the sandbox, find or start the server, open the events
 *   running, message waits  -> hand it to the agent
 *   prompt answered         -> the turn is over; completed when no message waits
 *   events broke            -> find out why: the sandbox is gone (canceled), paused (leave it), or
 *                              the connection broke (attach again)
 *
 * A step that fails is tried again a few times; then the session has failed and its sandbox is put away
 * (session_put_away_sandbox()). A new message resumes it or makes another, and tries again. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/backend.h"
#include "runtime/session/session_internal.h"

enum {
    CALL_MS = 30000,
    INSTALL_MS = 180000, /* agents that have to be fetched */
    HEALTH_MS = 2000,
    FIRST_ID = 1,
    SESSION_NAME_MAX = 512,
    PROMPT_TAKEN = -1, /* as the message's number: its row is gone */
};

static struct session_place place_of(struct live_session *live)
{
    return (struct session_place){
        .runtime = live->runtime, .caller = &live->caller, .sandbox_id = live->row.sandbox_id};
}

/* The strings of rows only grow in the live session's arena; few of them ever change. */
static struct str keep(struct live_session *live, struct str text)
{
    return arena_str(&live->arena, text.p ? text : STR(""));
}

/* ---- provision ---- */

static int prepare_workspace(struct live_session *live, bool restored, struct error *err)
{
    struct session_place place = place_of(live);
    struct error clone_error;
    auto_free char *dir = NULL, *token = session_git_token(live);

    if (live->row.repo.len && !restored)
        session_tell(live, "git.clone.started", NULL);
    if (session_workspace(&place, &live->row, token, &dir, &clone_error, err) < 0)
        return -1;
    if (clone_error.code) {
        runtime_mask(live->runtime, live->caller.team_id, clone_error.message);
        session_tell(live, "git.clone.failed",
                     json_pack("{s:o}", "message", json_str(str_of(clone_error.message))));
        /* Without its repository an agent would work on nothing. A message tries again. */
        return error_set(err, ERROR_INVALID, "the repository could not be cloned: %s",
                         clone_error.message);
    } else if (live->row.repo.len && !restored)
        session_tell(live, "git.clone.succeeded", NULL);
    (void)pthread_mutex_lock(&live->lock);
    live->row.workdir = keep(live, str_of(dir));
    session_note_row(live);
    session_unlock(live);
    return 0;
}

/* ---- attach ---- */

static int set_target(struct live_session *live, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct provider_address address;
    struct acp_target *target = &live->target;

    if (runtime_sandbox_address(live->runtime, &live->caller, live->row.sandbox_id,
                                (uint16_t)live->row.port, &arena, &address, err) < 0)
        return -1;
    if (address.header_count > ACP_HEADERS_MAX - 2)
        return error_set(err, ERROR_INTERNAL, "too many headers for one endpoint");
    (void)pthread_mutex_lock(&live->lock);
    *target = (struct acp_target){.server_id = live->row.acp_server.p, .agent = live->row.agent.p};
    target->base_url = keep(live, address.local_url).p;
    target->public_only = address.public_only;
    live->public_url = keep(live, address.url);
    for (size_t i = 0; i < address.header_count; i++)
        target->headers[target->header_count++] = (struct pair){
            keep(live, address.headers[i].name), keep(live, address.headers[i].value)};
    target->headers[target->header_count++] = (struct pair){
        STR("Authorization"),
        str_of(arena_printf(&live->arena, "Bearer %.*s", STR_ARG(live->row.sandbox_agent_token)))};
    target->headers[target->header_count++] =
        (struct pair){STR("Content-Type"), STR("application/json")};
    (void)pthread_mutex_unlock(&live->lock);
    return 0;
}

static int healthy(struct live_session *live, struct error *err)
{
    return acp_rest(live->runtime->config.fetch, &live->target, "GET", "/v1/health", STR_NONE,
                    HEALTH_MS, NULL, err);
}

static int start_server(struct live_session *live, struct error *err)
{
    const struct runtime_settings *settings = live->runtime->config.settings;
    struct session_place place = place_of(live);

    if (session_install(&place, err) < 0 ||
        session_start_server(&place, &live->row, live->public_url, err) < 0)
        return -1;
    for (int64_t i = 0; i < settings->sandbox_agent_health_tries; i++) {
        (void)usleep((useconds_t)settings->sandbox_agent_health_ms * 1000);
        if (healthy(live, err) == 0)
            return 0;
    }
    return error_prefix(
        err, "sandbox-agent did not start (its log is in $TMPDIR of the sandbox, or /tmp)");
}

/* Is our channel still there, after a pause or a restart of this process? */
static bool channel_alive(struct live_session *live)
{
    auto_json json_t *list = NULL;
    const json_t *servers;
    struct error ignored;

    if (live->row.acp_session.len == 0 ||
        acp_rest(live->runtime->config.fetch, &live->target, "GET", "/v1/acp", STR_NONE, CALL_MS,
                 &list, &ignored) < 0)
        return false;
    servers = json_object_get(list, "servers");
    for (size_t i = 0; i < json_array_size(servers); i++)
        if (str_eq(json_get_str(json_array_get(servers, i), "serverId"), live->row.acp_server))
            return true;
    return false;
}

static int install_agent(struct live_session *live, struct error *err)
{
    auto_arena struct arena arena = {0};
    auto_json json_t *answer = NULL;
    const char *path = arena_printf(&arena, "/v1/agents/%s", live->row.agent.p);

    if (acp_rest(live->runtime->config.fetch, &live->target, "GET", path, STR_NONE, CALL_MS,
                 &answer, err) < 0)
        return error_prefix(err, "agent '%s'", live->row.agent.p);
    if (json_is_true(json_object_get(answer, "installed")))
        return 0;
    if (acp_rest(live->runtime->config.fetch, &live->target, "POST",
                 arena_printf(&arena, "%s/install", path), STR("{}"), INSTALL_MS, NULL, err) < 0)
        return error_prefix(err, "install of agent '%s'", live->row.agent.p);
    return 0;
}

/* The mode of the agent that comes nearest to what it may do without asking. */
static const char *agent_mode(const struct store_session *row)
{
    bool bypass = row->permission == PERMISSION_BYPASS;

    if (row->mode.len)
        return row->mode.p;
    if (str_is(row->agent, "codex"))
        return bypass ? "auto" : "read-only";
    if (str_is(row->agent, "claude"))
        return bypass                               ? "bypassPermissions"
               : row->permission == PERMISSION_EDIT ? "acceptEdits"
                                                    : NULL;
    return NULL;
}

static int open_channel(struct live_session *live, struct error *err)
{
    struct fetch *fetch = live->runtime->config.fetch;
    auto_json json_t *hello = NULL, *session = NULL, *ignored = NULL;
    const char *mode = agent_mode(&live->row);
    char name[RUNTIME_ID_SIZE];
    struct str id;

    if (install_agent(live, err) < 0)
        return -1;
    runtime_id("acp_", name);
    (void)pthread_mutex_lock(&live->lock);
    live->row.acp_server = keep(live, str_of(name));
    live->target.server_id = live->row.acp_server.p;
    live->next_id = FIRST_ID + 2;
    live->orphan_id = 0;
    live->row.last_acp_id = 0;
    (void)pthread_mutex_unlock(&live->lock);
    if (acp_call(fetch, &live->target, FIRST_ID, "initialize",
                 json_pack("{s:i,s:{s:{s:b,s:b}},s:{s:s,s:s}}", "protocolVersion", 1,
                           "clientCapabilities", "fs", "readTextFile", 0, "writeTextFile", 0,
                           "clientInfo", "name", "quicksand", "version", QUICKSAND_VERSION),
                 CALL_MS, &hello, err) < 0 ||
        acp_call(fetch, &live->target, FIRST_ID + 1, "session/new",
                 json_pack("{s:s,s:o}", "cwd", live->row.workdir.len ? live->row.workdir.p : "/",
                           "mcpServers", session_mcp_servers(live)),
                 CALL_MS, &session, err) < 0)
        return -1;
    id = json_get_str(session, "sessionId");
    if (id.len > SESSION_NAME_MAX)
        return error_set(err, ERROR_INVALID, "the agent's name for its session is longer than %d",
                         SESSION_NAME_MAX);
    (void)pthread_mutex_lock(&live->lock);
    /* An agent that names no session (the mock) is spoken to by our own name for it. */
    live->row.acp_session = keep(live, id.len ? id : live->row.id);
    session_note_row(live);
    session_unlock(live);
    if (mode &&
        acp_call(fetch, &live->target, live->next_id++, "session/set_mode",
                 json_pack("{s:s,s:s}", "sessionId", live->row.acp_session.p, "modeId", mode),
                 CALL_MS, &ignored, err) < 0)
        session_tell(
            live, "agent.runtime.error",
            json_pack("{s:s,s:o}", "step", "set_mode", "message", json_str(str_of(err->message))));
    return 0;
}

/* Resumes what sleeps. */
static int attach(struct live_session *live, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct runtime_use use;
    bool fresh = false;

    if (runtime_use(live->runtime, &live->caller, live->row.sandbox_id,
                    PROVIDER_EXEC | PROVIDER_PORTS, &arena, &use, err) < 0 ||
        set_target(live, err) < 0)
        return -1;
    if (healthy(live, err) < 0 && start_server(live, err) < 0)
        return -1;
    if (!channel_alive(live)) {
        if (open_channel(live, err) < 0)
            return -1;
        fresh = true;
    }
    (void)pthread_mutex_lock(&live->lock);
    session_stream_open(live);
    live->attached = true;
    live->attached_ms = clock_mono_ms();
    live->follow = false;
    session_event(live, "agent.runtime",
                  json_pack("{s:b,s:s}", "fresh", fresh, "base_url", live->public_url.p));
    session_unlock(live);
    return 0;
}

static int provision(struct live_session *live, struct error *err)
{
    bool restored = false;

    if (session_ensure_sandbox(live, &restored, err) < 0)
        return error_prefix(err, "sandbox");
    if (prepare_workspace(live, restored, err) < 0)
        return error_prefix(err, "workspace");
    if (attach(live, err) < 0)
        return error_prefix(err, "agent");
    (void)pthread_mutex_lock(&live->lock);
    session_event(live, "session.provisioned",
                  json_pack("{s:s,s:s,s:I,s:s,s:b}", "provider", live->row.provider.p, "sandbox_id",
                            live->row.sandbox_id.p, "sandbox_port", (json_int_t)live->row.port,
                            "base_url", live->public_url.p, "restored", restored));
    live->made_sandbox = false;
    if (session_in(live, SESSION_CREATED))
        session_set_state(live, SESSION_RUNNING, "provisioned");
    session_unlock(live);
    return 0;
}

/* ---- when something went wrong ---- */

static bool sandbox_gone(struct live_session *live)
{
    auto_arena struct arena arena = {0};
    struct runtime_sandbox sandbox;
    struct error err = {0};

    if (live->row.sandbox_id.len == 0)
        return false;
    if (runtime_sandbox_get(live->runtime, &live->caller, live->row.sandbox_id, true, &arena,
                            &sandbox, &err) < 0)
        return err.code == ERROR_NOT_FOUND;
    return sandbox.state == SANDBOX_ENDED || sandbox.state == SANDBOX_LOST;
}

static bool sandbox_paused(struct live_session *live)
{
    auto_arena struct arena arena = {0};
    struct runtime_sandbox sandbox;
    struct error err = {0};

    return runtime_sandbox_get(live->runtime, &live->caller, live->row.sandbox_id, true, &arena,
                               &sandbox, &err) == 0 &&
           sandbox.state == SANDBOX_PAUSED;
}

static bool is_in(struct live_session *live, enum session_state state)
{
    bool in;

    (void)pthread_mutex_lock(&live->lock);
    in = session_in(live, state);
    (void)pthread_mutex_unlock(&live->lock);
    return in;
}

/* The step will be tried again, or the session is over. */
static void failed(struct live_session *live, const char *step, struct error *why)
{
    bool gone = !is_in(live, SESSION_CREATED) && sandbox_gone(live);
    bool last;
    int failures;

    runtime_mask(live->runtime, live->caller.team_id, why->message);
    log_warn("session", "id=%.*s %s failed: %s", STR_ARG(live->row.id), step, why->message);
    (void)pthread_mutex_lock(&live->lock);
    failures = ++live->failures;
    last = failures >= SESSION_TRIES || why->code == ERROR_INVALID ||
           why->code == ERROR_UNSUPPORTED || why->code == ERROR_QUOTA;
    if (gone)
        session_set_state(live, SESSION_CANCELED, "sandbox-missing");
    else
        session_event(live, "agent.runtime.error",
                      json_pack("{s:s,s:o,s:b}", "step", step, "message",
                                json_str(str_of(why->message)), "retry", !last));
    session_unlock(live);
    if (gone)
        return;
    if (!last) {
        (void)usleep((useconds_t)(200000 << failures));
        return;
    }
    /* First, so that a message that comes after the failure finds the sandbox as it stays. */
    session_put_away_sandbox(live);
    (void)pthread_mutex_lock(&live->lock);
    if (!session_in(live, SESSION_CANCELED))
        session_set_state(live, SESSION_FAILED, why->message);
    session_unlock(live);
}

/* The agent has it: it will not be asked again, whatever happens. With the lock held. */
static void message_taken(struct live_session *live)
{
    if (live->prompt_seq > 0)
        session_note_taken(live, live->prompt_seq);
    live->prompt_seq = PROMPT_TAKEN;
}

/* The events broke off. A sandbox that sleeps is left alone until somebody writes. */
static void look_why(struct live_session *live)
{
    bool gone = sandbox_gone(live), paused = !gone && sandbox_paused(live);
    struct session_streams streams;
    struct error err;
    int failures;

    (void)pthread_mutex_lock(&live->lock);
    live->lost = false;
    /* Not as soon as it is attached: one that breaks off each time would go on for ever. */
    if (live->attached_ms && clock_mono_ms() - live->attached_ms > SESSION_STEADY_MS)
        live->failures = 0;
    streams = session_stream_take(live);
    if (live->prompt_seq && live->prompt_taken) {
        live->orphan_id = live->prompt_id;
        message_taken(live);
    }
    live->prompt_seq = 0; /* asked again, unless the agent has begun */
    live->prompt_over = false;
    live->follow = !gone && !paused && session_in(live, SESSION_RUNNING);
    if (gone && !session_in(live, SESSION_CANCELED))
        session_set_state(live, SESSION_CANCELED, "sandbox-missing");
    failures = gone || paused ? 0 : ++live->failures;
    session_unlock(live);
    session_stream_close(streams);
    if (gone || paused)
        return;
    if (failures >= SESSION_TRIES) {
        (void)error_set(&err, ERROR_UNAVAILABLE, "the stream of events breaks again and again");
        failed(live, "events", &err);
        return;
    }
    (void)usleep((useconds_t)(100000 << failures));
}

/* ---- messages ---- */

/* What the agent has answered, or why not, in notes. With the lock held. */
static void note_answer(struct live_session *live)
{
    auto_json json_t *result = NULL;
    struct error err = live->prompt_error;
    int r = err.code
                ? -1
                : acp_outcome(live->prompt_status, buf_str(&live->prompt_answer), &result, &err);

    live->prompt_over = live->interrupted = false;
    if (r < 0 && live->prompt_taken && err.code != ERROR_INVALID)
        live->orphan_id = live->prompt_id; /* the agent is at it, only the connection broke */
    else if (r < 0) {
        runtime_mask(live->runtime, live->caller.team_id, err.message);
        session_event(live, "agent.turn.failed",
                      json_pack("{s:o}", "message", json_str(str_of(err.message))));
    } else {
        live->failures = 0;
        session_event(live, "agent.turn.completed",
                      json_pack("{s:O?}", "stop_reason", json_object_get(result, "stopReason")));
    }
    /* An agent that was never reached gets it again. */
    if (r == 0 || live->prompt_taken || err.code == ERROR_INVALID ||
        ++live->failures >= SESSION_TRIES)
        message_taken(live);
    live->prompt_seq = 0;
    live->turn_done = live->orphan_id == 0;
}

static void turn_over(struct live_session *live)
{
    struct session_streams streams = {0};

    (void)pthread_mutex_lock(&live->lock);
    if (live->prompt_over) {
        streams.prompt = live->prompt;
        live->prompt = NULL;
        note_answer(live);
    }
    session_unlock(live);
    session_stream_close(streams);
}

/* The agent's process has ended: whatever it was asked is lost, and the next message begins with a
 * new one. */
static void agent_gone(struct live_session *live)
{
    struct session_streams streams;

    (void)pthread_mutex_lock(&live->lock);
    streams = session_stream_take(live);
    live->agent_exited = live->prompt_over = live->lost = false;
    live->orphan_id = 0;
    live->row.acp_session = keep(live, STR(""));
    message_taken(live);
    live->prompt_seq = 0;
    (void)json_object_clear(live->permissions);
    if (session_in(live, SESSION_RUNNING) || session_in(live, SESSION_COMPLETED))
        session_set_state(live, SESSION_FAILED, "agent-exited");
    session_unlock(live);
    session_stream_close(streams);
}

static void take_message(struct live_session *live)
{
    (void)pthread_mutex_lock(&live->lock);
    if (live->prompt_taken && live->prompt_seq > 0)
        message_taken(live);
    session_unlock(live);
}

/* With the lock and the pen held, the lock let go meanwhile. *out_seq = 0: none waits. */
static int read_message(struct live_session *live, struct arena *arena, int64_t *out_seq,
                        struct str *out_text)
{
    struct error err;
    int r;

    *out_seq = 0;
    (void)pthread_mutex_unlock(&live->lock);
    r = store_message_next(live->runtime->config.store, live->row.id, arena, out_seq, out_text,
                           &err);
    if (r < 0)
        log_warn("session", "id=%.*s %s", STR_ARG(live->row.id), err.message);
    (void)pthread_mutex_lock(&live->lock);
    return r;
}

static bool listens(const struct live_session *live)
{
    return session_in(live, SESSION_RUNNING) && live->attached && !live->prompt_seq &&
           live->orphan_id <= 0;
}

/* Hands over the next message, or the session is done for now. */
static void next_message(struct live_session *live)
{
    auto_arena struct arena arena = {0};
    struct str text = STR_NONE;
    int64_t seq;

    (void)pthread_mutex_lock(&live->lock);
    session_pen_take(live);
    /* Somebody may have paused or cancelled it meanwhile. */
    if (listens(live) && read_message(live, &arena, &seq, &text) == 0 && listens(live)) {
        if (seq)
            session_prompt(live, seq, text);
        else if (live->turn_done)
            session_set_state(live, SESSION_COMPLETED, "end-of-turn");
        live->turn_done = false;
    }
    session_pen_return(live);
    session_unlock(live);
}

static bool message_waits(struct live_session *live)
{
    auto_arena struct arena arena = {0};
    struct str text;
    int64_t seq;

    (void)pthread_mutex_lock(&live->lock);
    session_pen_take(live);
    (void)read_message(live, &arena, &seq, &text);
    session_pen_return(live);
    session_unlock(live);
    return seq != 0;
}

static void try_to(struct live_session *live, const char *what,
                   int (*fn)(struct live_session *live, struct error *err))
{
    struct error err = {0};

    if (fn(live, &err) < 0)
        failed(live, what, &err);
}

/* What comes next, by what is known now. With the lock held. */
enum step {
    STEP_NONE,
    STEP_AGENT_GONE,
    STEP_TAKEN,
    STEP_TURN_OVER,
    STEP_LOOK_WHY,
    STEP_PROVISION,
    STEP_MESSAGE,
    STEP_FOLLOW,
    STEP_WAITS,
};
static enum step next_step(const struct live_session *live)
{
    if (live->agent_exited)
        return STEP_AGENT_GONE;
    if (live->prompt_taken && live->prompt_seq > 0)
        return STEP_TAKEN;
    if (live->prompt_over)
        return STEP_TURN_OVER;
    if (live->lost)
        return STEP_LOOK_WHY;
    if (session_in(live, SESSION_CREATED))
        return STEP_PROVISION;
    if (!session_in(live, SESSION_RUNNING))
        return STEP_NONE;
    if (live->attached)
        return listens(live) ? STEP_MESSAGE : STEP_NONE;
    return live->follow ? STEP_FOLLOW : STEP_WAITS;
}

/* Without the lock. False when there is nothing more to do until somebody kicks. */
static bool do_step(struct live_session *live, enum step step)
{
    switch (step) {
    case STEP_NONE:
        return false;
    case STEP_AGENT_GONE:
        agent_gone(live);
        return true;
    case STEP_TAKEN:
        take_message(live);
        return true;
    case STEP_TURN_OVER:
        turn_over(live);
        return true;
    case STEP_LOOK_WHY:
        look_why(live);
        return true;
    case STEP_PROVISION:
        try_to(live, "provision", provision);
        return true;
    case STEP_MESSAGE:
        next_message(live);
        return false;
    case STEP_WAITS:
        if (!message_waits(live))
            return false;
        break;
    case STEP_FOLLOW:
        break;
    }
    try_to(live, "attach", attach);
    return true;
}

void session_work(struct work *work)
{
    struct live_session *live = container_of(work, struct live_session, work);
    bool more = true;

    (void)pthread_mutex_lock(&live->lock);
    while (more) {
        enum step step;

        live->again = false;
        step = next_step(live);
        (void)pthread_mutex_unlock(&live->lock);
        more = do_step(live, step);
        (void)pthread_mutex_lock(&live->lock);
        more = more || live->again;
    }
    live->working = false;
    (void)pthread_cond_broadcast(&live->changed);
    (void)pthread_mutex_unlock(&live->lock);
    session_unref(live);
}
