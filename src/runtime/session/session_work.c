/* Makes a session what its row says it should be, one step after the other:
 *
 *   created                 -> provision: sandbox, sandbox-agent, clone, agent session -> running
 *   running, not attached   -> attach: resume the sandbox, find or start the server, open the events
 *   running, message waits  -> hand it to the agent
 *   prompt answered         -> the turn is over; completed when no message waits
 *   events broke            -> find out why: the sandbox is gone (canceled), paused (leave it), or
 *                              the connection broke (attach again)
 *
 * A step that fails is tried again a few times; then the session has failed, which a new message
 * mends or finds out again. */
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
    } else if (live->row.repo.len && !restored)
        session_tell(live, "git.clone.succeeded", NULL);
    (void)pthread_mutex_lock(&live->lock);
    live->row.workdir = keep(live, str_of(dir));
    (void)session_store(live, err);
    (void)pthread_mutex_unlock(&live->lock);
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
        target->headers[target->header_count++] = (struct http_header){
            keep(live, address.headers[i].name), keep(live, address.headers[i].value)};
    target->headers[target->header_count++] = (struct http_header){
        STR("Authorization"),
        str_of(arena_printf(&live->arena, "Bearer %.*s", STR_ARG(live->row.agent_token)))};
    target->headers[target->header_count++] =
        (struct http_header){STR("Content-Type"), STR("application/json")};
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
    for (int64_t i = 0; i < settings->agent_health_tries; i++) {
        (void)usleep((useconds_t)settings->agent_health_ms * 1000);
        if (healthy(live, err) == 0)
            return 0;
    }
    return error_prefix(err, "sandbox-agent did not start (its log is in /tmp of the sandbox)");
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

/* {"name": {"command", "args", "env": {..}}} as ACP wants it; an array is taken as it is. */
static json_t *mcp_servers(const json_t *mcp)
{
    json_t *out = json_array(), *value;
    const char *name;

    if (json_is_array(mcp)) {
        json_decref(out);
        return json_deep_copy(mcp);
    }
    json_object_foreach ((json_t *)(uintptr_t)mcp, name, value) {
        json_t *server = json_deep_copy(value), *env = json_array(), *text;
        const char *variable;

        json_object_foreach (json_object_get(value, "env"), variable, text)
            (void)json_array_append_new(env,
                                        json_pack("{s:s,s:O}", "name", variable, "value", text));
        (void)json_object_set_new(server, "name", json_string(name));
        if (json_object_get(server, "command")) {
            (void)json_object_set_new(server, "env", env);
            if (!json_object_get(server, "args"))
                (void)json_object_set_new(server, "args", json_array());
        } else
            json_decref(env);
        (void)json_array_append_new(out, server);
    }
    return out;
}

/* Those of the request, else those of the profile. */
static json_t *wanted_servers(struct live_session *live)
{
    struct runtime_overrides overrides = {.profile = live->row.profile};
    auto_arena struct arena arena = {0};
    struct profile profile;
    struct error err;
    json_t *servers;

    if (live->overrides.mcp || live->row.profile.len == 0)
        return mcp_servers(live->overrides.mcp);
    if (profile_resolve(live->runtime, &live->caller, &overrides, &arena, &profile, &err) < 0) {
        session_tell(
            live, "agent.runtime.error",
            json_pack("{s:s,s:o}", "step", "mcp", "message", json_str(str_of(err.message))));
        return json_array();
    }
    servers = mcp_servers(profile.mcp);
    profile_done(&profile);
    return servers;
}

/* The mode of the agent that comes nearest to what it may do without asking. */
static const char *agent_mode(const struct store_session *row)
{
    bool bypass = str_is(row->permission, "bypass");

    if (row->mode.len)
        return row->mode.p;
    if (str_is(row->agent, "codex"))
        return bypass ? "auto" : "read-only";
    if (str_is(row->agent, "claude"))
        return bypass                            ? "bypassPermissions"
               : str_is(row->permission, "edit") ? "acceptEdits"
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
                           "mcpServers", wanted_servers(live)),
                 CALL_MS, &session, err) < 0)
        return -1;
    id = json_get_str(session, "sessionId");
    if (id.len > SESSION_NAME_MAX)
        return error_set(err, ERROR_INVALID, "the agent's name for its session is longer than %d",
                         SESSION_NAME_MAX);
    (void)pthread_mutex_lock(&live->lock);
    /* An agent that names no session (the mock) is spoken to by our own name for it. */
    live->row.acp_session = keep(live, id.len ? id : live->row.id);
    (void)session_store(live, err);
    (void)pthread_mutex_unlock(&live->lock);
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
    (void)pthread_mutex_unlock(&live->lock);
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
    if (session_in(live, "created"))
        (void)session_set_state(live, "running", "provisioned", err);
    (void)pthread_mutex_unlock(&live->lock);
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
    return str_is(sandbox.state, "killed") || str_is(sandbox.state, "error");
}

static bool sandbox_paused(struct live_session *live)
{
    auto_arena struct arena arena = {0};
    struct runtime_sandbox sandbox;
    struct error err = {0};

    return runtime_sandbox_get(live->runtime, &live->caller, live->row.sandbox_id, true, &arena,
                               &sandbox, &err) == 0 &&
           str_is(sandbox.state, "paused");
}

/* The step will be tried again, or the session is over. */
static void failed(struct live_session *live, const char *step, struct error *why)
{
    bool gone = !session_in(live, "created") && sandbox_gone(live);
    struct error err;
    bool last;
    int failures;

    runtime_mask(live->runtime, live->caller.team_id, why->message);
    log_warn("session", "id=%.*s %s failed: %s", STR_ARG(live->row.id), step, why->message);
    (void)pthread_mutex_lock(&live->lock);
    failures = ++live->failures;
    last = failures >= SESSION_TRIES || why->code == ERROR_INVALID ||
           why->code == ERROR_UNSUPPORTED || why->code == ERROR_QUOTA;
    if (gone)
        (void)session_set_state(live, "canceled", "sandbox-missing", &err);
    else {
        session_event(live, "agent.runtime.error",
                      json_pack("{s:s,s:o,s:b}", "step", step, "message",
                                json_str(str_of(why->message)), "retry", !last));
        if (last)
            (void)session_set_state(live, "failed", why->message, &err);
    }
    (void)pthread_mutex_unlock(&live->lock);
    if (!gone && !last)
        (void)usleep((useconds_t)(200000 << failures));
}

/* The agent has it: it will not be asked again, whatever happens. With the lock held. */
static void message_taken(struct live_session *live)
{
    struct error err;

    if (live->prompt_seq > 0 &&
        store_message_remove(live->runtime->config.store, live->row.id, live->prompt_seq, &err) < 0)
        log_warn("session", "id=%.*s %s", STR_ARG(live->row.id), err.message);
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
    live->follow = !gone && !paused && session_in(live, "running");
    if (gone && !session_in(live, "canceled"))
        (void)session_set_state(live, "canceled", "sandbox-missing", &err);
    failures = gone || paused ? 0 : ++live->failures;
    (void)pthread_mutex_unlock(&live->lock);
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

/* With the lock held. */
static void turn_over(struct live_session *live)
{
    auto_json json_t *result = NULL;
    struct error err = live->prompt_error;
    struct fetch_hub_stream *stream = live->prompt;
    int r = err.code
                ? -1
                : acp_outcome(live->prompt_status, buf_str(&live->prompt_answer), &result, &err);

    live->prompt = NULL;
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
    (void)pthread_mutex_unlock(&live->lock);
    fetch_hub_close(stream);
    (void)pthread_mutex_lock(&live->lock);
}

/* The agent's process has ended: whatever it was asked is lost, and the next message begins with a
 * new one. With the lock held. */
static void agent_gone(struct live_session *live)
{
    struct session_streams streams = session_stream_take(live);
    struct error err;

    live->agent_exited = live->prompt_over = live->lost = false;
    live->orphan_id = 0;
    live->row.acp_session = keep(live, STR(""));
    message_taken(live);
    live->prompt_seq = 0;
    (void)json_object_clear(live->permissions);
    if (session_in(live, "running") || session_in(live, "completed"))
        (void)session_set_state(live, "failed", "agent-exited", &err);
    (void)pthread_mutex_unlock(&live->lock);
    session_stream_close(streams);
    (void)pthread_mutex_lock(&live->lock);
}

/* Hands over the next message, or the session is done for now. With the lock held; false: nothing
 * more to do. */
static bool next_message(struct live_session *live)
{
    auto_arena struct arena arena = {0};
    struct str text = STR_NONE;
    struct error err;
    int64_t seq = 0;

    if (live->prompt_seq || live->orphan_id > 0)
        return false;
    if (store_message_next(live->runtime->config.store, live->row.id, &arena, &seq, &text, &err) <
        0) {
        log_warn("session", "id=%.*s %s", STR_ARG(live->row.id), err.message);
        return false;
    }
    if (seq)
        session_prompt(live, seq, text);
    else if (live->turn_done)
        (void)session_set_state(live, "completed", "end-of-turn", &err);
    live->turn_done = false;
    return false;
}

static bool message_waits(struct live_session *live)
{
    auto_arena struct arena arena = {0};
    struct str text;
    struct error err;
    int64_t seq = 0;

    return store_message_next(live->runtime->config.store, live->row.id, &arena, &seq, &text,
                              &err) == 0 &&
           seq != 0;
}

/* One step; false when there is none. With the lock held. */
static bool step(struct live_session *live)
{
    struct error err = {0};
    bool wanted;
    int r;

    if (live->agent_exited) {
        agent_gone(live);
        return true;
    }
    if (live->prompt_taken && live->prompt_seq > 0) {
        message_taken(live);
        return true;
    }
    if (live->prompt_over) {
        turn_over(live);
        return true;
    }
    if (live->lost || session_in(live, "created")) {
        bool lost = live->lost;

        (void)pthread_mutex_unlock(&live->lock);
        if (lost)
            look_why(live);
        else if (provision(live, &err) < 0)
            failed(live, "provision", &err);
        (void)pthread_mutex_lock(&live->lock);
        return true;
    }
    if (!session_in(live, "running"))
        return false;
    if (live->attached)
        return next_message(live);
    wanted = live->follow || message_waits(live);
    if (!wanted)
        return false;
    (void)pthread_mutex_unlock(&live->lock);
    r = attach(live, &err);
    if (r < 0)
        failed(live, "attach", &err);
    (void)pthread_mutex_lock(&live->lock);
    return true;
}

void session_work(struct work *work)
{
    struct live_session *live = container_of(work, struct live_session, work);

    (void)pthread_mutex_lock(&live->lock);
    do {
        live->again = false;
        while (step(live))
            ;
    } while (live->again);
    live->working = false;
    (void)pthread_cond_broadcast(&live->changed);
    (void)pthread_mutex_unlock(&live->lock);
    session_unref(live);
}
