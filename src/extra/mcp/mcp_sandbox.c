/* Sandboxes: the caller's own one, which the runtime finds by a key, and others. */
#include "extra/mcp/mcp_tool.h"

#include "base/clock.h"
#include "base/encode.h"
#include "base/names.h"
#include "protocol/json/json_shape.h"

enum { FORK_KEEP_S = 3600 }; /* of the snapshot between a sandbox and its fork */

static struct runtime *runtime_of(const struct mcp_call *call)
{
    return call->mcp->config.runtime;
}

json_t *mcp_text(struct str text)
{
    return text.p ? json_str(text) : json_null();
}

json_t *mcp_time(int64_t at_us)
{
    char text[CLOCK_TEXT_SIZE];

    if (!at_us)
        return json_null();
    clock_format(at_us, text);
    return json_string(text);
}

static json_t *sandbox_json(const struct runtime_sandbox *sandbox)
{
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "sandbox_id", json_str(sandbox->id),
                     "state", name_of(&runtime_state_names, sandbox->state), "template",
                     mcp_text(sandbox->image), "provider", json_str(sandbox->provider), "key",
                     mcp_text(sandbox->key), "created_at", mcp_time(sandbox->created_at_us),
                     "last_used_at", mcp_time(sandbox->last_used_at_us));
}

/* ---- which one ---- */

/* What the URL says about the own sandbox. In the arena. */
static int query(struct mcp_call *call, const char *name, struct str *out, struct error *err)
{
    auto_buf struct buf text = {0};

    *out = STR_NONE;
    buf_init(&text, HTTP_URL_MAX);
    if (!url_query_get(call->query, name, &text) || !text.len)
        return 0;
    if (text.len > MCP_NAME_MAX || !str_valid_utf8(buf_str(&text)))
        return error_set(err, ERROR_INVALID, "'%s' in the URL must be at most %d bytes of text",
                         name, MCP_NAME_MAX);
    *out = arena_str(&call->arena, buf_str(&text));
    return 0;
}

/* Kept: paused when nobody uses it. Where the provider cannot do that, as long as it lives there. */
static int ensure_own(struct mcp_call *call, struct runtime_ensure *request,
                      struct runtime_sandbox *out, struct error *err)
{
    enum runtime_tier tier;

    request->overrides.persistent = request->overrides.persistent_given = true;
    if (runtime_sandbox_ensure(runtime_of(call), &call->caller, request, &call->arena, out, &tier,
                               err) == 0)
        return 0;
    if (err->code != ERROR_UNSUPPORTED && err->code != ERROR_INVALID)
        return -1;
    *err = (struct error){0};
    request->overrides.persistent = request->overrides.persistent_given = false;
    return runtime_sandbox_ensure(runtime_of(call), &call->caller, request, &call->arena, out,
                                  &tier, err);
}

/* What the own sandbox is asked for by, without what it is of. */
static int own_request(struct mcp_call *call, struct runtime_ensure *out, struct str *name,
                       struct error *err)
{
    *out = (struct runtime_ensure){.agent_id = call->caller.agent_id};
    if (query(call, "key", name, err) < 0 ||
        query(call, "profile", &out->overrides.profile, err) < 0 ||
        query(call, "template", &out->overrides.image, err) < 0)
        return -1;
    return 0;
}

/* One for each agent, else for each API key; several with different names ("key" in the URL). kind: of a template besides. */
static struct str own_key(struct mcp_call *call, const char *kind, struct str name)
{
    struct str who = call->agent_id.len ? call->agent_id : call->caller.actor;

    return str_of(arena_printf(&call->arena, "mcp%s%s:%.*s%s%.*s", kind ? "-" : "",
                               kind ? kind : "", STR_ARG(who), name.len ? ":" : "", STR_ARG(name)));
}

static bool is_there(struct mcp_call *call, struct str key, struct runtime_sandbox *out)
{
    struct str by_key = str_of(arena_printf(&call->arena, "key:%.*s", STR_ARG(key)));
    struct error why = {0};

    return runtime_sandbox_get(runtime_of(call), &call->caller, by_key, false, &call->arena, out,
                               &why) == 0 &&
           (out->state == SANDBOX_RUNNING || out->state == SANDBOX_PAUSED);
}

/* template: what it must be of where the URL does not say; NULL = anything. */
static int own(struct mcp_call *call, const char *template, bool make, struct str *out_id,
               struct error *err)
{
    struct runtime_sandbox sandbox = {0};
    struct runtime_ensure request;
    struct str name;
    bool chosen;

    if (own_request(call, &request, &name, err) < 0)
        return -1;
    chosen = request.overrides.profile.len || request.overrides.image.len;
    request.key = own_key(call, NULL, name);
    if ((!make || !chosen) && is_there(call, request.key, &sandbox) &&
        (!template || chosen || str_is(sandbox.image, template))) {
        *out_id = sandbox.id;
        return 0;
    }
    if (!make)
        return error_set(err, ERROR_NOT_FOUND,
                         "you have no sandbox yet: it is made by the first command or file");
    if (template && !chosen) {
        request.key = own_key(call, template, name);
        request.overrides.image = str_of(template);
        if (is_there(call, request.key, &sandbox)) {
            *out_id = sandbox.id;
            return 0;
        }
    }
    if (ensure_own(call, &request, &sandbox, err) < 0)
        return -1;
    *out_id = sandbox.id;
    return 0;
}

/* With an API key for one sandbox: that one, by either of its ids. */
static int bound(struct mcp_call *call, struct str given, struct str *out_id, struct error *err)
{
    struct runtime_sandbox sandbox = {0};

    if (runtime_sandbox_get(runtime_of(call), &call->caller, given.len ? given : call->key_sandbox,
                            false, &call->arena, &sandbox, err) < 0)
        return -1;
    if (!str_eq(sandbox.id, call->key_sandbox) && !str_eq(sandbox.external_id, call->key_sandbox))
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' not found", STR_ARG(given));
    *out_id = sandbox.id;
    return 0;
}

static int find_of(struct mcp_call *call, const json_t *args, const char *template, bool make,
                   struct str *out_id, struct error *err)
{
    struct str given = json_get_str(args, "sandbox_id");

    if (call->key_sandbox.len)
        return bound(call, given, out_id, err);
    if (!given.len)
        return own(call, template, make, out_id, err);
    *out_id = given;
    return 0;
}

static int find(struct mcp_call *call, const json_t *args, bool make, struct str *out_id,
                struct error *err)
{
    return find_of(call, args, NULL, make, out_id, err);
}

int mcp_sandbox_of(struct mcp_call *call, const json_t *args, const char *template,
                   struct str *out_id, struct error *err)
{
    return find_of(call, args, template, true, out_id, err);
}

int mcp_sandbox(struct mcp_call *call, const json_t *args, struct str *out_id, struct error *err)
{
    return find(call, args, true, out_id, err);
}

/* ---- tools ---- */

static int answer(struct mcp_call *call, struct str id, struct mcp_outcome *out, struct error *err)
{
    struct runtime_sandbox sandbox = {0};

    if (runtime_sandbox_get(runtime_of(call), &call->caller, id, false, &call->arena, &sandbox,
                            err) < 0)
        return -1;
    mcp_outcome_json(out, sandbox_json(&sandbox));
    return 0;
}

static int make(struct mcp_call *call, const struct runtime_ensure *request,
                struct mcp_outcome *out, struct error *err)
{
    struct runtime_sandbox sandbox = {0};
    enum runtime_tier tier;
    json_t *row;

    if (runtime_sandbox_ensure(runtime_of(call), &call->caller, request, &call->arena, &sandbox,
                               &tier, err) < 0)
        return -1;
    if (!request->key.len)
        call->made = sandbox.id;
    row = sandbox_json(&sandbox);
    (void)json_object_set_new(row, "tier", json_string(runtime_tier_name(tier)));
    if (sandbox.previous.id.p)
        (void)json_object_set_new(
            row, "previous",
            json_pack("{s:o, s:s, s:o}", "sandbox_id", json_str(sandbox.previous.id), "files",
                      sandbox.previous.kept ? "kept" : "gone", "reason",
                      mcp_text(sandbox.previous.kept ? STR_NONE : sandbox.previous.reason)));
    mcp_outcome_json(out, row);
    return 0;
}

int mcp_sandbox_create(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                       struct error *err)
{
    int64_t idle_s = mcp_arg_int(args, "idle_timeout_s", 0);
    auto_json json_t *life =
        idle_s ? json_pack("{s:I}", "idleTimeoutSeconds", (json_int_t)idle_s) : NULL;
    struct runtime_ensure request = {
        .agent_id = call->caller.agent_id,
        .key = json_get_str(args, "key"),
        .snapshot = json_get_str(args, "snapshot"),
        .metadata = json_object_get(args, "metadata"),
        .overrides = {.image = json_get_str(args, "template"),
                      .profile = json_get_str(args, "profile"),
                      .env = json_object_get(args, "env"),
                      .lifecycle = life},
    };

    if (request.key.p && !request.key.len)
        request.key = STR_NONE;
    return make(call, &request, out, err);
}

int mcp_sandbox_list(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                     struct error *err)
{
    struct runtime_sandbox_filter filter = {.agent_id = call->caller.agent_id,
                                            .limit = (size_t)mcp_arg_int(args, "limit", 100)};
    struct runtime_sandbox *items = NULL;
    size_t count = 0;
    json_t *array;

    if (runtime_sandbox_list(runtime_of(call), &call->caller, &filter, &call->arena, &items, &count,
                             err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, sandbox_json(&items[i]));
    mcp_outcome_json(out, json_pack("{s:o}", "sandboxes", array));
    return 0;
}

int mcp_sandbox_info(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                     struct error *err)
{
    struct str id;

    return find(call, args, false, &id, err) < 0 ? -1 : answer(call, id, out, err);
}

int mcp_sandbox_kill(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                     struct error *err)
{
    struct str id;

    if (find(call, args, false, &id, err) < 0 ||
        runtime_sandbox_kill(runtime_of(call), &call->caller, id, NULL, err) < 0)
        return -1;
    mcp_outcome_json(out, json_pack("{s:o, s:b}", "sandbox_id", json_str(id), "killed", 1));
    return 0;
}

int mcp_sandbox_pause(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                      struct error *err)
{
    struct str id;

    if (find(call, args, false, &id, err) < 0 ||
        runtime_sandbox_pause(runtime_of(call), &call->caller, id, err) < 0)
        return -1;
    return answer(call, id, out, err);
}

int mcp_sandbox_resume(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                       struct error *err)
{
    struct str id;

    if (find(call, args, false, &id, err) < 0 ||
        runtime_sandbox_resume(runtime_of(call), &call->caller, id, err) < 0)
        return -1;
    return answer(call, id, out, err);
}

/* With an API key that acts as an agent, a name is taken over only from a snapshot of the agent's own sandbox. */
static int check_alias(struct mcp_call *call, struct str alias, struct error *err)
{
    struct runtime_snapshot snapshot = {0};
    struct runtime_sandbox sandbox = {0};
    struct error why = {0};

    if (!call->key_agent.len || !alias.len ||
        runtime_snapshot_get(runtime_of(call), &call->caller, alias, &call->arena, &snapshot,
                             &why) < 0)
        return 0;
    if (runtime_sandbox_get(runtime_of(call), &call->caller, snapshot.sandbox_id, false,
                            &call->arena, &sandbox, &why) == 0)
        return 0;
    return error_set(err, ERROR_FORBIDDEN, "snapshot '%.*s' is not of agent '%.*s'", STR_ARG(alias),
                     STR_ARG(call->key_agent));
}

int mcp_sandbox_snapshot(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                         struct error *err)
{
    struct str alias = json_get_str(args, "alias"), id;
    struct runtime_snapshot snapshot = {0};

    if (find(call, args, false, &id, err) < 0 || check_alias(call, alias, err) < 0 ||
        runtime_snapshot_create(runtime_of(call), &call->caller, id, alias,
                                mcp_arg_int(args, "keep_s", 0), &call->arena, &snapshot, err) < 0)
        return -1;
    mcp_outcome_json(out, json_pack("{s:o, s:o, s:o, s:s, s:o, s:o}", "snapshot_id",
                                    json_str(snapshot.id), "sandbox_id", json_str(id), "alias",
                                    mcp_text(snapshot.alias), "state",
                                    name_of(&snapshot_state_names, snapshot.state), "created_at",
                                    mcp_time(snapshot.created_at_us), "expires_at",
                                    mcp_time(snapshot.expires_at_us)));
    return 0;
}

int mcp_sandbox_fork(struct mcp_call *call, json_t *args, struct mcp_outcome *out,
                     struct error *err)
{
    struct runtime_ensure request = {.agent_id = call->caller.agent_id};
    struct runtime_snapshot snapshot = {0};
    struct runtime_sandbox source = {0};
    struct str id;

    if (find(call, args, false, &id, err) < 0 ||
        runtime_sandbox_get(runtime_of(call), &call->caller, id, false, &call->arena, &source,
                            err) < 0 ||
        runtime_snapshot_create(runtime_of(call), &call->caller, id, STR_NONE, FORK_KEEP_S,
                                &call->arena, &snapshot, err) < 0)
        return -1;
    request.snapshot = snapshot.id;
    request.overrides.profile = source.profile;
    request.overrides.provider = source.provider;
    return make(call, &request, out, err);
}

int mcp_sandbox_url(struct mcp_call *call, json_t *args, struct mcp_outcome *out, struct error *err)
{
    int64_t port = mcp_arg_int(args, "port", 0);
    struct provider_address address = {0};
    json_t *headers;
    struct str id;

    if (find(call, args, false, &id, err) < 0 ||
        runtime_sandbox_address(runtime_of(call), &call->caller, id, (uint16_t)port, &call->arena,
                                &address, err) < 0)
        return -1;
    headers = json_object();
    for (size_t i = 0; i < address.header_count; i++) {
        struct str name = arena_str(&call->arena, address.headers[i].name);

        (void)json_object_set_new(headers, name.p, json_str(address.headers[i].value));
    }
    mcp_outcome_json(out,
                     json_pack("{s:o, s:I, s:o, s:o}", "sandbox_id", json_str(id), "port",
                               (json_int_t)port, "url", json_str(address.url), "headers", headers));
    return 0;
}
