/* The operator's endpoints: teams and their limits; and the audit log, of which every team sees its own
 * part. */
#include "base/clock.h"
#include "domain/account/team.h"
#include "domain/sandbox/sandbox.h"
#include "edge/api_e2b/api_accounts.h"
#include "edge/api_e2b/api_query.h"
#include "protocol/json/json_shape.h"
#include "store/platform/store_audit.h"

enum { AUDIT_DEFAULT = 100, AUDIT_MAX = 1000 };

struct team_body {
    struct str id, name, created_at;
    bool banned;
    int64_t sandboxes, cpu, mem_mb, disk_mb, creates;
};

#define TEAM_FIELDS                                                 \
    JSON_FIELD(struct team_body, name, "name", 0),                  \
        JSON_FIELD(struct team_body, banned, "banned", 0),          \
        JSON_FIELD(struct team_body, sandboxes, "maxSandboxes", 0), \
        JSON_FIELD(struct team_body, cpu, "maxCpu", 0),             \
        JSON_FIELD(struct team_body, mem_mb, "maxMemoryMB", 0),     \
        JSON_FIELD(struct team_body, disk_mb, "maxDiskMB", 0),      \
        JSON_FIELD(struct team_body, creates, "maxCreatesPerMinute", 0)

static const struct json_field team_in_fields[] = {TEAM_FIELDS, JSON_END};
static const struct json_field team_out_fields[] = {
    JSON_FIELD(struct team_body, id, "teamID", 0),
    JSON_FIELD(struct team_body, created_at, "createdAt", 0),
    TEAM_FIELDS,
    JSON_END,
};

static struct team_body body_of(const struct store_team *team)
{
    return (struct team_body){.id = team->id,
                              .name = team->name,
                              .banned = team->banned,
                              .sandboxes = team->limits.sandboxes,
                              .cpu = team->limits.cpu,
                              .mem_mb = team->limits.mem_mb,
                              .disk_mb = team->limits.disk_mb,
                              .creates = team->limits.creates_per_minute};
}

static json_t *team_json(const struct store_team *team)
{
    struct team_body body = body_of(team);
    char created_at[CLOCK_TEXT_SIZE];

    clock_format(team->created_at_us, created_at);
    body.created_at = str_of(created_at);
    return json_write(team_out_fields, &body);
}

/* What is not in the request stays as it is in *team. The strings live in *tree. */
static int read_team(struct api_call *call, struct store_team *team, json_t **tree,
                     struct error *err)
{
    struct team_body body = body_of(team);

    if (json_parse_as(team_in_fields, call->body, &body, tree, err) < 0)
        return -1;
    team->name = body.name;
    team->banned = body.banned;
    team->limits = (struct store_limits){.sandboxes = body.sandboxes,
                                         .cpu = body.cpu,
                                         .mem_mb = body.mem_mb,
                                         .disk_mb = body.disk_mb,
                                         .creates_per_minute = body.creates};
    return 0;
}

/* What it has of its limits now. */
static int add_use(struct api_call *call, struct str team_id, json_t *team, struct error *err)
{
    struct store_limits use = {0};

    if (sandboxes_team_use(call->api->config.sandboxes, team_id, &use, err) < 0)
        return -1;
    (void)json_object_set_new(team, "use",
                              json_pack("{s:I,s:I,s:I,s:I}", "sandboxes", (json_int_t)use.sandboxes,
                                        "cpu", (json_int_t)use.cpu, "memoryMB",
                                        (json_int_t)use.mem_mb, "diskMB", (json_int_t)use.disk_mb));
    return 0;
}

int api_admin_teams(struct api_call *call, struct error *err)
{
    struct store_team *teams;
    json_t *array;
    size_t count;

    if (team_list(call->api->config.store, &call->arena, &teams, &count, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *team = team_json(&teams[i]);

        (void)json_array_append_new(array, team);
        if (add_use(call, teams[i].id, team, err) < 0) {
            json_decref(array);
            return -1;
        }
    }
    call_answer(&call->call, 200, array);
    return 0;
}

int api_admin_team_create(struct api_call *call, struct error *err)
{
    struct store_team team = {.name = STR_NONE};
    auto_json json_t *tree = NULL;

    if (read_team(call, &team, &tree, err) < 0 ||
        team_create(call->api->config.store, &team, &call->arena, err) < 0)
        return -1;
    call_answer(&call->call, 201, team_json(&team));
    return 0;
}

int api_admin_team_change(struct api_call *call, struct error *err)
{
    struct store_team team;
    auto_json json_t *tree = NULL;

    if (team_get(call->api->config.store, call->params[0], &call->arena, &team, err) < 0 ||
        read_team(call, &team, &tree, err) < 0 ||
        team_update(call->api->config.store, &team, err) < 0)
        return -1;
    api_keys_refresh(call->api->config.keys); /* who is banned */
    call_answer(&call->call, 200, team_json(&team));
    return 0;
}

int api_admin_key_create(struct api_call *call, struct error *err)
{
    char secret[API_KEY_SIZE];
    struct store_team team;
    struct store_key key;

    if (team_get(call->api->config.store, call->params[0], &call->arena, &team, err) < 0 ||
        api_accounts_new_key(call, team.id, &key, secret, err) < 0)
        return -1;
    call_answer(&call->call, 201, api_accounts_key(&key, secret));
    return 0;
}

static json_t *audit_json(const struct store_audit *entry)
{
    char at[CLOCK_TEXT_SIZE];

    clock_format(entry->at_us, at);
    return json_pack("{s:I,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:o}", "id", (json_int_t)entry->seq,
                     "timestamp", at, "teamID", json_str(entry->team_id), "teamName",
                     json_str(entry->team_name), "keyID", json_str(entry->key_id), "keyName",
                     json_str(entry->key_name), "agentID",
                     entry->agent_id.len ? json_str(entry->agent_id) : json_null(), "method",
                     json_str(entry->method), "path", json_str(entry->path), "status",
                     (json_int_t)entry->status, "requestID", json_str(entry->request_id));
}

static int read_number(struct api_call *call, const char *name, uint64_t fallback, uint64_t max,
                       uint64_t *out, struct error *err)
{
    struct str text;

    *out = fallback;
    if (api_query_get(call->query, name, &call->arena, &text, err) < 0)
        return -1;
    if (text.p && (!str_to_u64(text, out) || *out < 1 || *out > max))
        return error_set(err, ERROR_INVALID, "query parameter '%s' must be a number from 1 to %llu",
                         name, (unsigned long long)max);
    return 0;
}

/* Newest first; nextToken is the id of the last one seen. The operator may ask for all teams. */
int api_audit_list(struct api_call *call, struct error *err)
{
    struct store_audit *entries;
    struct str team_id = call->team_id, all;
    uint64_t limit, before;
    json_t *array;
    size_t count;

    if (read_number(call, "limit", AUDIT_DEFAULT, AUDIT_MAX, &limit, err) < 0 ||
        read_number(call, "nextToken", INT64_MAX, INT64_MAX, &before, err) < 0 ||
        api_query_get(call->query, "all", &call->arena, &all, err) < 0)
        return -1;
    if (str_is(all, "true") && str_is(call->team_id, TEAM_DEFAULT_ID))
        team_id = STR_NONE;
    if (store_audit_page(call->api->config.store, team_id, (int64_t)before, (size_t)limit,
                         &call->arena, &entries, &count, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, audit_json(&entries[i]));
    call_answer(&call->call, 200, array);
    if (count == limit)
        call_header(&call->call, "x-next-token",
                    str_of(arena_printf(&call->arena, "%lld", (long long)entries[count - 1].seq)));
    return 0;
}
