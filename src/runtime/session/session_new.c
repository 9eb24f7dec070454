/* A new session: checked as a whole, then a row, then work for a worker.
 *
 * Sessions of a team that this process holds are counted. When there are too many, one that has ended
 * is let go: it is taken up from its row when somebody asks for it, as after a restart. */
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/id.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/backend.h"
#include "runtime/session/session_internal.h"

enum {
    PROVISION_WAIT_MS = 600000,
    NAME_MAX_BYTES = 256,        /* of agents, tasks, modes */
    ALIAS_MAX_BYTES = 512,       /* of checkpoints */
    KEPT_MAX_BYTES = 128 * 1024, /* of what the request says about its sandbox */
};

static int check_text(const char *what, struct str text, size_t max, struct error *err)
{
    if (text.len > max || (text.p && !str_valid_utf8(text)))
        return error_set(err, ERROR_INVALID, "'%s' must be at most %zu bytes of text", what, max);
    return 0;
}

/* It stays in memory for as long as the session does. */
static int check_size(const struct session_request *request, struct error *err)
{
    const struct runtime_overrides *overrides = &request->overrides;
    const json_t *parts[] = {overrides->network, overrides->lifecycle, overrides->limits,
                             overrides->env,     overrides->mcp,       overrides->mounts,
                             overrides->options, request->env};
    size_t size = request->git_token.len;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        size += parts[i] ? json_dumpb(parts[i], NULL, 0, JSON_COMPACT) : 0;
    if (size <= KEPT_MAX_BYTES)
        return 0;
    return error_set(err, ERROR_LIMIT, "variables, mcp and options have at most %d bytes together",
                     KEPT_MAX_BYTES);
}

static int check_request(const struct session_request *request, struct error *err)
{
    if (request->agent.len == 0 || request->agent.len > 32)
        return error_set(err, ERROR_INVALID,
                         "'agent' is missing: mock, claude, codex, opencode, amp, pi or cursor");
    for (size_t i = 0; i < request->agent.len; i++)
        if (!((request->agent.p[i] >= 'a' && request->agent.p[i] <= 'z') ||
              (request->agent.p[i] >= '0' && request->agent.p[i] <= '9') ||
              request->agent.p[i] == '-'))
            return error_set(err, ERROR_INVALID, "'agent': '%.*s' is no name of an agent",
                             STR_ARG(request->agent));
    if (repo_check(request->repo, request->branch, err) < 0)
        return -1;
    if (request->message.len > SESSION_MESSAGE_MAX)
        return error_set(err, ERROR_LIMIT, "'message' is longer than %d bytes",
                         SESSION_MESSAGE_MAX);
    if (check_text("agent_id", request->agent_id, NAME_MAX_BYTES, err) < 0 ||
        check_text("task_id", request->task_id, NAME_MAX_BYTES, err) < 0 ||
        check_text("mode", request->mode, NAME_MAX_BYTES, err) < 0 ||
        check_text("checkpoint", request->checkpoint, ALIAS_MAX_BYTES, err) < 0)
        return -1;
    return check_size(request, err);
}

/* STR_NONE leaves the profile's. */
static int take_permission(struct str name, enum permission *out, struct error *err)
{
    unsigned found = *out;

    if (name.len && !name_find(&permission_names, name, &found))
        return error_set(err, ERROR_INVALID, "'permission_mode' must be ask, edit or bypass");
    *out = found;
    return 0;
}

/* Refused before anything is made: a backend that cannot do it, an unknown profile. */
static int resolve(struct runtime *runtime, const struct runtime_caller *caller,
                   const struct session_request *request, struct store_session *row,
                   struct arena *arena, struct error *err)
{
    struct profile profile;
    int r;

    if (profile_resolve(runtime, caller, &request->overrides, arena, &profile, err) < 0)
        return -1;
    r = backend_require(profile.backend, PROVIDER_EXEC | PROVIDER_PORTS | PROVIDER_FILES, err);
    row->profile = arena_str(arena, profile.name);
    row->provider = arena_str(arena, str_of(backend_name(profile.backend)));
    row->permission = profile.permission;
    /* Without isolation all sandboxes share the ports of one host. */
    if (provider_caps(backend_provider(profile.backend))->isolation == ISOLATION_NONE) {
        uint16_t random;

        random_bytes(&random, sizeof(random));
        row->port = 20000 + random % 40000;
    }
    profile_done(&profile);
    return r < 0 ? -1 : take_permission(request->permission, &row->permission, err);
}

/* In a sandbox that is there already: it must be one of the caller's, and its server is shared. */
static int share_server(struct runtime *runtime, const struct runtime_caller *caller,
                        struct store_session *row, struct arena *arena, struct error *err)
{
    struct runtime_sandbox sandbox;
    struct str token;

    if (runtime_sandbox_get(runtime, caller, row->sandbox_id, false, arena, &sandbox, err) < 0)
        return -1;
    row->sandbox_id = sandbox.id;
    row->provider = sandbox.provider;
    if (store_session_server(runtime->config.store, sandbox.id, arena, &token, &row->port, err) < 0)
        return -1;
    if (token.p)
        row->sandbox_agent_token = token;
    return 0;
}

static void keep_overrides(struct live_session *live, const struct session_request *request)
{
    const struct runtime_overrides *from = &request->overrides;
    struct runtime_overrides *to = &live->overrides;
    const char *name;
    json_t *value;

    *to = *from;
    to->profile = arena_str(&live->arena, from->profile);
    to->provider = arena_str(&live->arena, from->provider);
    to->image = arena_str(&live->arena, from->image);
    to->agent_type = arena_str(&live->arena, from->agent_type);
    to->workspace_root = arena_str(&live->arena, from->workspace_root);
    to->network = json_incref(from->network);
    to->lifecycle = json_incref(from->lifecycle);
    to->limits = json_incref(from->limits);
    to->mcp = json_incref(from->mcp);
    to->mounts = json_incref(from->mounts);
    to->options = json_incref(from->options);
    to->env = from->env ? json_copy(from->env) : json_object();
    json_object_foreach (request->env, name, value)
        (void)json_object_set(to->env, name, value);
    if (request->git_token.len) {
        free(live->git_token);
        live->git_token = str_dup(request->git_token);
    }
}

/* Keys of models that the agent needs are taken from this server's own environment when the request
 * has none: for the operator's team, since whoever has a session can read them. */
static void pass_keys(struct live_session *live)
{
    static const char *const names[] = {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL",
                                        "ANTHROPIC_BASE_URL"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value =
            runtime_is_operator(live->runtime, live->row.team_id) ? getenv(names[i]) : NULL;

        if (value && value[0] && !json_object_get(live->overrides.env, names[i]))
            (void)json_object_set_new(live->overrides.env, names[i], json_string(value));
    }
}

static void wait_settled(struct live_session *live)
{
    int64_t end_us = clock_mono_us() + PROVISION_WAIT_MS * INT64_C(1000);

    (void)pthread_mutex_lock(&live->lock);
    while (session_in(live, SESSION_CREATED) &&
           cond_wait_until(&live->changed, &live->lock, end_us))
        ;
    session_unlock(live);
}

static int first_message(struct live_session *live, const struct session_request *request,
                         struct error *err)
{
    return request->message.len ? store_message_add(live->runtime->config.store, live->row.id,
                                                    request->message, SESSION_MESSAGES_MAX, err)
                                : 0;
}

/* With sessions->lock held. Its own lock comes first elsewhere: one that somebody uses just now is left
 * alone. */
static bool may_go(struct live_session *live)
{
    bool over;

    if (live->refs != 1 || pthread_mutex_trylock(&live->lock) != 0)
        return false;
    over = !live->working && !live->writing && !live->events && !live->prompt && !live->posts &&
           (session_in(live, SESSION_CANCELED) || session_in(live, SESSION_FAILED) ||
            session_in(live, SESSION_COMPLETED));
    (void)pthread_mutex_unlock(&live->lock);
    return over;
}

int session_make_room(struct sessions *sessions, struct str team_id, struct error *err)
{
    struct live_session *oldest = NULL;
    struct map_entry *entry;
    size_t count = 0;

    (void)pthread_mutex_lock(&sessions->lock);
    map_for_each (&sessions->live, entry) {
        struct live_session *live = entry->value;

        if (!str_eq(live->caller.team_id, team_id))
            continue;
        count++;
        if ((!oldest || live->row.created_at_us < oldest->row.created_at_us) && may_go(live))
            oldest = live;
    }
    if (count < SESSION_TEAM_MAX)
        oldest = NULL;
    else if (oldest)
        (void)map_remove(&sessions->live, oldest->row.id);
    (void)pthread_mutex_unlock(&sessions->lock);
    if (count < SESSION_TEAM_MAX)
        return 0;
    if (!oldest)
        return error_set(err, ERROR_QUOTA, "a team has at most %d sessions at work: end some",
                         SESSION_TEAM_MAX);
    session_unref(oldest);
    return 0;
}

int session_new(struct runtime *runtime, const struct runtime_caller *caller,
                const struct session_request *request, bool wait, struct arena *arena,
                struct session *out, struct error *err)
{
    struct sessions *sessions = runtime->sessions;
    const struct runtime_settings *settings = runtime->config.settings;
    char id[RUNTIME_ID_SIZE], token[33];
    struct store_session row = {
        .team_id = caller->team_id,
        .state = SESSION_CREATED,
        .sandbox_id = request->sandbox_id,
        .owns_sandbox = request->sandbox_id.len == 0,
        .agent = request->agent,
        .repo = request->repo,
        .branch = request->branch,
        .mode = request->mode,
        .checkpoint = request->checkpoint,
        .agent_id = request->agent_id,
        .task_id = request->task_id,
        .port = settings->sandbox_agent_port,
        .created_at_us = clock_wall_us(),
        .updated_at_us = clock_wall_us(),
    };
    struct live_session *live;

    if (check_request(request, err) < 0 || session_make_room(sessions, caller->team_id, err) < 0 ||
        resolve(runtime, caller, request, &row, arena, err) < 0)
        return -1;
    runtime_id("ses_", id);
    id_hex(token, 16);
    row.id = str_of(id);
    row.sandbox_agent_token =
        settings->sandbox_agent_token[0] ? str_of(settings->sandbox_agent_token) : str_of(token);
    if (request->sandbox_id.len && share_server(runtime, caller, &row, arena, err) < 0)
        return -1;
    runtime_secret_add(runtime, caller->team_id, request->git_token);
    live = live_new(runtime, caller, &row);
    keep_overrides(live, request);
    pass_keys(live);
    if (store_session_put(runtime->config.store, &live->row, err) < 0 ||
        first_message(live, request, err) < 0) {
        session_free(live);
        return -1;
    }
    (void)pthread_mutex_lock(&sessions->lock);
    (void)map_put(&sessions->live, live->row.id, live);
    live->refs++;
    (void)pthread_mutex_unlock(&sessions->lock);
    session_tell(live, "session.created",
                 json_pack("{s:s,s:s}", "agent", live->row.agent.p, "repo", live->row.repo.p));
    session_kick(live);
    if (wait)
        wait_settled(live);
    (void)pthread_mutex_lock(&live->lock);
    session_view(&live->row, arena, out);
    if (live->attached)
        out->base_url = arena_str(arena, live->public_url);
    (void)pthread_mutex_unlock(&live->lock);
    session_unref(live);
    return 0;
}
