/* Sandboxes and snapshots: decode, call the domain, encode. */
#include "domain/account/api_key.h"
#include "domain/account/team.h"
#include "edge/api_runtime/v1_teams.h"
#include "edge/api_runtime/v1_types.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/backend.h"

static struct runtime *runtime_of(const struct v1_call *call)
{
    return call->v1->config.runtime;
}

static void answer_with(struct v1_call *call, int status, const struct runtime_sandbox *sandbox,
                        const struct v1_besides *besides)
{
    struct buf out;

    buf_init(&out, SIZE_MAX);
    v1_types_sandbox(&out, sandbox, besides);
    call_answer_text(&call->call, status, buf_take(&out));
}

int v1_sandboxes_create(struct v1_call *call, struct error *err)
{
    struct runtime_ensure request = {.agent_id = call->caller.agent_id};
    struct runtime_sandbox sandbox = {0};
    enum runtime_tier tier = TIER_CREATED;

    if (v1_types_overrides(call, &request.overrides, err) < 0 ||
        v1_body_str(call, "key", &request.key, err) < 0 ||
        v1_body_str(call, "task_id", &request.task_id, err) < 0 ||
        v1_body_str(call, "snapshot", &request.snapshot, err) < 0 ||
        v1_body_str(call, "repo", &request.repo, err) < 0 ||
        v1_body_str(call, "branch", &request.branch, err) < 0 ||
        v1_body_str(call, "git_token", &request.git_token, err) < 0 ||
        v1_body_strings(call, "metadata", JSON_OBJECT, &request.metadata, err) < 0)
        return -1;
    if (runtime_sandbox_ensure(runtime_of(call), &call->caller, &request, &call->arena, &sandbox,
                               &tier, err) < 0)
        return -1;
    if (!request.key.len)
        call->made = sandbox.id;
    call_header(&call->call, "Location",
                str_of(arena_printf(&call->arena, "/api/v1/sandboxes/%.*s", STR_ARG(sandbox.id))));
    if (sandbox.warning.p)
        call_header(&call->call, CALL_WARNING, sandbox.warning);
    answer_with(call, 201, &sandbox, &(struct v1_besides){.tier = str_of(runtime_tier_name(tier))});
    return 0;
}

/* NULL = any. */
static int wanted_state(struct v1_call *call, const enum sandbox_state **out, struct error *err)
{
    struct str name = STR_NONE;
    enum sandbox_state *state;
    unsigned found;

    if (v1_query_str(call, "state", &name, err) < 0)
        return -1;
    if (!name.len)
        return 0;
    if (!name_find(&runtime_state_names, name, &found))
        return error_set(err, ERROR_INVALID,
                         "'state' must be creating, running, paused, killed or error");
    state = arena_alloc(&call->arena, sizeof(*state));
    *state = found;
    *out = state;
    return 0;
}

/* Who has this address steers the browser. */
static void hide_secrets(const struct v1_call *call, struct runtime_sandbox *sandbox)
{
    if (call->role == API_ROLE_VIEWER || !str_eq(sandbox->team_id, call->caller.team_id))
        sandbox->cdp_url = STR_NONE;
}

int v1_sandboxes_list(struct v1_call *call, struct error *err)
{
    struct runtime_sandbox_filter filter = {.agent_id = call->caller.agent_id};
    struct runtime_sandbox *items = NULL;
    struct v1_teams teams;
    int64_t limit = 100;
    bool ports = false;
    size_t count = 0;
    auto_buf struct buf out = {0};

    if (v1_teams_choose(call, &teams, err) < 0 || wanted_state(call, &filter.state, err) < 0 ||
        v1_query_str(call, "task_id", &filter.task_id, err) < 0 ||
        v1_query_str(call, "provider", &filter.provider, err) < 0 ||
        v1_query_int(call, "before", 0, INT64_MAX, &filter.before_us, err) < 0 ||
        v1_query_int(call, "limit", 1, 1000, &limit, err) < 0 ||
        v1_query_bool(call, "ports", &ports, err) < 0)
        return -1;
    filter.limit = (size_t)limit;
    if (runtime_sandbox_list(runtime_of(call), &teams.caller, &filter, &call->arena, &items, &count,
                             err) < 0)
        return -1;
    if (ports)
        runtime_sandbox_ports(runtime_of(call), &teams.caller, items, count, &call->arena);
    buf_init_charged(&out, SIZE_MAX);
    json_out_open(&out, NULL, '{');
    json_out_open(&out, "sandboxes", '[');
    for (size_t i = 0; i < count; i++) {
        struct v1_besides besides = {.ports = ports};

        hide_secrets(call, &items[i]);
        if (teams.items) {
            besides.team = v1_teams_name(&teams, items[i].team_id);
            besides.team_id = items[i].team_id;
        }
        v1_types_sandbox(&out, &items[i], &besides);
    }
    json_out_close(&out, "]}");
    if (out.refused)
        return buf_refuse(&out, err);
    call_answer_text(&call->call, 200, buf_take(&out));
    return 0;
}

/* The sandbox of the path as it is now. */
static int answer_sandbox(struct v1_call *call, bool refresh, bool ports, struct error *err)
{
    struct runtime_sandbox sandbox = {0};

    if (runtime_sandbox_get(runtime_of(call), &call->caller, call->params[0], refresh, &call->arena,
                            &sandbox, err) < 0)
        return -1;
    if (ports)
        runtime_sandbox_ports(runtime_of(call), &call->caller, &sandbox, 1, &call->arena);
    hide_secrets(call, &sandbox);
    answer_with(call, 200, &sandbox, &(struct v1_besides){.ports = ports});
    return 0;
}

int v1_sandboxes_get(struct v1_call *call, struct error *err)
{
    bool refresh = false, ports = false;

    if (v1_query_bool(call, "refresh", &refresh, err) < 0 ||
        v1_query_bool(call, "ports", &ports, err) < 0)
        return -1;
    return answer_sandbox(call, refresh, ports, err);
}

int v1_sandboxes_delete(struct v1_call *call, struct error *err)
{
    struct error why = {0};
    bool force = false;
    int r;

    if (v1_query_bool(call, "force", &force, err) < 0)
        return -1;
    r = runtime_sandbox_kill(runtime_of(call), &call->caller, call->params[0], force ? &why : NULL,
                             err);
    if (r < 0)
        return -1;
    v1_types_removed(call, r, &why);
    return 0;
}

int v1_sandboxes_pause(struct v1_call *call, struct error *err)
{
    if (runtime_sandbox_pause(runtime_of(call), &call->caller, call->params[0], err) < 0)
        return -1;
    return answer_sandbox(call, false, false, err);
}

int v1_sandboxes_resume(struct v1_call *call, struct error *err)
{
    if (runtime_sandbox_resume(runtime_of(call), &call->caller, call->params[0], err) < 0)
        return -1;
    return answer_sandbox(call, false, false, err);
}

int v1_sandboxes_port(struct v1_call *call, struct error *err)
{
    struct provider_address address = {0};
    json_t *headers;
    int64_t port;

    if (!str_to_i64(call->params[1], &port) || port < 1 || port > 65535)
        return error_set(err, ERROR_INVALID, "a port is a number from 1 to 65535");
    if (runtime_sandbox_address(runtime_of(call), &call->caller, call->params[0], (uint16_t)port,
                                &call->arena, &address, err) < 0)
        return -1;
    headers = json_object();
    for (size_t i = 0; i < address.header_count; i++) {
        struct str name = arena_str(&call->arena, address.headers[i].name);

        (void)json_object_set_new(headers, name.p, json_str(address.headers[i].value));
    }
    call_answer(&call->call, 200,
                json_pack("{s:I, s:o, s:o, s:o}", "port", (json_int_t)port, "url",
                          json_str(address.url), "local_url", json_str(address.local_url),
                          "headers", headers));
    return 0;
}

static json_t *measured(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

int v1_sandboxes_metrics(struct v1_call *call, struct error *err)
{
    struct provider_usage usage;

    if (runtime_sandbox_usage(runtime_of(call), &call->caller, call->params[0], &usage, err) < 0)
        return -1;
    call_answer(&call->call, 200,
                json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "at", v1_types_time(usage.at_us),
                          "cpu_percent",
                          usage.cpu_percent < 0
                              ? json_null()
                              : json_real((double)(int64_t)(usage.cpu_percent * 100 + 0.5) / 100),
                          "cpu_count", measured(usage.cpu_count), "memory_used_bytes",
                          measured(usage.mem_used), "memory_total_bytes", measured(usage.mem_total),
                          "disk_used_bytes", measured(usage.disk_used), "disk_total_bytes",
                          measured(usage.disk_total)));
    return 0;
}

int v1_sandboxes_network(struct v1_call *call, struct error *err)
{
    struct provider_traffic traffic;

    if (runtime_sandbox_traffic(runtime_of(call), &call->caller, call->params[0], &traffic, err) <
        0)
        return -1;
    call_answer(&call->call, 200,
                json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "sent_bytes",
                          (json_int_t)traffic.sent_bytes, "received_bytes",
                          (json_int_t)traffic.received_bytes, "sent_packets",
                          (json_int_t)traffic.sent_packets, "received_packets",
                          (json_int_t)traffic.received_packets, "connections",
                          (json_int_t)traffic.connections, "refused", (json_int_t)traffic.refused));
    return 0;
}

/* A key that can be handed to whoever is inside: for this sandbox only. */
int v1_sandboxes_key(struct v1_call *call, struct error *err)
{
    struct api_key_wanted wanted = {.team_id = call->caller.team_id,
                                    .name = STR("sandbox"),
                                    .agent_id = call->key_agent,
                                    .role = call->role};
    struct runtime_sandbox sandbox = {0};
    char secret[API_KEY_SIZE];
    struct store_key key = {0};

    if (v1_body_str(call, "name", &wanted.name, err) < 0 ||
        runtime_sandbox_get(runtime_of(call), &call->caller, call->params[0], false, &call->arena,
                            &sandbox, err) < 0)
        return -1;
    wanted.sandbox_id = sandbox.id;
    if (api_key_new(call->v1->config.store, &wanted, &call->arena, &key, secret, err) < 0)
        return -1;
    call_answer(&call->call, 201,
                json_pack("{s:o, s:o, s:o, s:o, s:s}", "id", json_str(key.id), "name",
                          json_str(key.name), "sandbox_id", json_str(key.sandbox_id), "agent_id",
                          key.agent_id.len ? json_str(key.agent_id) : json_null(), "key", secret));
    return 0;
}

/* ---- snapshots ---- */

int v1_snapshots_create(struct v1_call *call, struct error *err)
{
    struct runtime_snapshot snapshot = {0};
    struct str alias = STR_NONE;
    int64_t ttl_s = 0;

    if (v1_body_str(call, "alias", &alias, err) < 0 ||
        v1_body_int(call, "ttl", 0, (int64_t)10 * 365 * 86400, &ttl_s, err) < 0 ||
        v1_scope_snapshot(call, alias, err) < 0)
        return -1;
    if (runtime_snapshot_create(runtime_of(call), &call->caller, call->params[0], alias, ttl_s,
                                &call->arena, &snapshot, err) < 0)
        return -1;
    call_answer(&call->call, 201, v1_types_snapshot(&snapshot));
    return 0;
}

static int answer_snapshots(struct v1_call *call, struct str sandbox_id, struct error *err)
{
    struct runtime_snapshot *items = NULL;
    size_t count = 0;
    json_t *array;

    if (runtime_snapshot_list(runtime_of(call), &call->caller, sandbox_id, &call->arena, &items,
                              &count, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, v1_types_snapshot(&items[i]));
    call_answer(&call->call, 200, json_pack("{s:o}", "snapshots", array));
    return 0;
}

int v1_snapshots_of(struct v1_call *call, struct error *err)
{
    return answer_snapshots(call, call->params[0], err);
}

int v1_snapshots_list(struct v1_call *call, struct error *err)
{
    struct str sandbox_id;

    if (v1_query_str(call, "sandbox_id", &sandbox_id, err) < 0)
        return -1;
    return answer_snapshots(call, sandbox_id, err);
}

int v1_snapshots_get(struct v1_call *call, struct error *err)
{
    struct runtime_snapshot snapshot = {0};

    if (runtime_snapshot_get(runtime_of(call), &call->caller, call->params[0], &call->arena,
                             &snapshot, err) < 0)
        return -1;
    call_answer(&call->call, 200, v1_types_snapshot(&snapshot));
    return 0;
}

int v1_snapshots_delete(struct v1_call *call, struct error *err)
{
    struct error why = {0};
    bool force = false;
    int r;

    if (v1_query_bool(call, "force", &force, err) < 0 ||
        v1_scope_snapshot(call, call->params[0], err) < 0)
        return -1;
    r = runtime_snapshot_delete(runtime_of(call), &call->caller, call->params[0],
                                force ? &why : NULL, err);
    if (r < 0)
        return -1;
    v1_types_removed(call, r, &why);
    return 0;
}

/* ---- all together ---- */

/* Seconds: a number, or a text like "90", "30s", "15m", "24h", "7d". */
static int read_age(const json_t *value, int64_t *out, struct error *err)
{
    struct str text = str_n(json_string_value(value), json_string_length(value));
    int64_t unit = 1, number = json_integer_value(value);

    if (json_is_string(value)) {
        static const struct {
            char letter;
            int64_t seconds;
        } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};

        for (size_t i = 0; text.len && i < sizeof(units) / sizeof(units[0]); i++)
            if (text.p[text.len - 1] == units[i].letter) {
                unit = units[i].seconds;
                text.len--;
                break;
            }
        if (!str_to_i64(text, &number))
            number = -1;
    } else if (!json_is_integer(value)) {
        number = -1;
    }
    if (number < 0 || number > INT32_MAX)
        return error_set(err, ERROR_INVALID,
                         "'older_than' must be seconds, or a text like \"30m\", \"24h\" or \"7d\"");
    *out = number * unit;
    return 0;
}

int v1_prune(struct v1_call *call, struct error *err)
{
    const json_t *age = json_object_get(call->json, "older_than");
    int64_t older_than_s = 0;
    size_t sandboxes = 0, snapshots = 0;
    bool dry_run = false;

    if (v1_body_bool(call, "dry_run", &dry_run, err) < 0 ||
        (age && !json_is_null(age) && read_age(age, &older_than_s, err) < 0))
        return -1;
    if (runtime_sandbox_prune(runtime_of(call), &call->caller, older_than_s, dry_run, &sandboxes,
                              &snapshots, err) < 0)
        return -1;
    call_answer(&call->call, 200,
                json_pack("{s:I, s:I, s:b}", "sandboxes", (json_int_t)sandboxes, "snapshots",
                          (json_int_t)snapshots, "dry_run", (int)dry_run));
    return 0;
}

/* By their names, for who may see them. */
static int add_teams(struct v1_call *call, json_t *stats, struct error *err)
{
    auto_json json_t *usages = NULL;
    struct store_team *teams = NULL;
    json_t *named;
    size_t count = 0;

    if (runtime_stats_teams(runtime_of(call), &usages, err) < 0 ||
        team_list(call->v1->config.store, &call->arena, &teams, &count, err) < 0)
        return -1;
    named = json_object();
    for (size_t i = 0; i < count; i++) {
        json_t *usage = json_object_get(usages, teams[i].id.p);

        if (usage)
            (void)json_object_set(named, teams[i].name.p, usage);
    }
    (void)json_object_set_new(stats, "teams", named);
    return 0;
}

int v1_stats(struct v1_call *call, struct error *err)
{
    auto_json json_t *stats = NULL;

    if (runtime_stats(runtime_of(call), &call->caller, &stats, err) < 0 ||
        (v1_operates(call) && add_teams(call, stats, err) < 0))
        return -1;
    call_answer(&call->call, 200, json_incref(stats));
    return 0;
}
