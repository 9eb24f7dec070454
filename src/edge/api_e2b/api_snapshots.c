/* Snapshots and forks. */
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_check.h"
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_query.h"
#include "edge/api_e2b/api_sandboxes.h"
#include "edge/api_e2b/api_types.h"
#include "protocol/http/http_errors.h"
#include "protocol/json/json_shape.h"

enum { FORK_TIMEOUT_S = 300 };

struct snapshot_body {
    struct str id;
    json_t *names;
    int64_t bytes, shared, users;
};

static const struct json_field snapshot_fields[] = {
    JSON_FIELD(struct snapshot_body, id, "snapshotID", 0),
    JSON_FIELD(struct snapshot_body, names, "names", 0),
    JSON_END,
};

/* With what it holds on disk, and what of that others use as well. */
static const struct json_field listed_fields[] = {
    JSON_FIELD(struct snapshot_body, id, "snapshotID", 0),
    JSON_FIELD(struct snapshot_body, names, "names", 0),
    JSON_FIELD(struct snapshot_body, bytes, "bytes", 0),
    JSON_FIELD(struct snapshot_body, shared, "sharedBytes", 0),
    JSON_FIELD(struct snapshot_body, users, "sharedWith", 0),
    JSON_END,
};

static json_t *snapshot_json(const struct snapshot_view *view, const struct json_field *fields)
{
    auto_json json_t *names = json_array();
    struct snapshot_body body = {.id = view->id,
                                 .names = names,
                                 .bytes = view->bytes,
                                 .shared = view->shared_bytes,
                                 .users = view->shared_with};

    if (view->name.p)
        (void)json_array_append_new(names, json_str(view->name));
    return json_write(fields, &body);
}

struct new_snapshot {
    struct str name;
};

static const struct json_field new_snapshot_fields[] = {
    JSON_FIELD(struct new_snapshot, name, "name", 0),
    JSON_END,
};

int api_snapshots_create(struct api_call *call, struct error *err)
{
    struct new_snapshot body = {.name = STR_NONE};
    struct snapshot_view view = {0};
    auto_json json_t *tree = NULL;
    struct str id;

    if (api_sandboxes_get_id(call, &id, err) < 0 ||
        (str_trim(call->body).len &&
         json_parse_as(new_snapshot_fields, call->body, &body, &tree, err) < 0) ||
        sandbox_snapshot(call->api->config.sandboxes, call->team_id, id, body.name, &call->arena,
                         &view, err) < 0)
        return -1;
    call_answer(&call->call, 201, snapshot_json(&view, snapshot_fields));
    return 0;
}

static int read_filter(struct api_call *call, struct snapshot_filter *out, struct error *err)
{
    struct str id = STR_NONE, limit = STR_NONE;
    uint64_t number = 100;

    *out = (struct snapshot_filter){.team_id = call->team_id};
    if (api_query_get(call->query, "sandboxID", &call->arena, &id, err) < 0 ||
        api_query_get(call->query, "name", &call->arena, &out->name, err) < 0 ||
        api_query_get(call->query, "limit", &call->arena, &limit, err) < 0 ||
        api_query_get(call->query, "nextToken", &call->arena, &out->cursor, err) < 0)
        return -1;
    if (limit.p && (!str_to_u64(limit, &number) || number < 1 || number > 100))
        return error_set(err, ERROR_INVALID,
                         "query parameter 'limit' must be a number from 1 to 100");
    out->limit = (size_t)number;
    /* What is no id belongs to no sandbox. */
    if (id.p && !api_sandboxes_id(id, &out->sandbox_id))
        out->sandbox_id = STR("-");
    return 0;
}

int api_snapshots_list(struct api_call *call, struct error *err)
{
    struct snapshot_filter filter;
    struct snapshot_page page = {0};
    json_t *array;

    if (read_filter(call, &filter, err) < 0 ||
        snapshot_list(call->api->config.sandboxes, &filter, &call->arena, &page, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < page.count; i++)
        (void)json_array_append_new(array, snapshot_json(&page.items[i], listed_fields));
    call_answer(&call->call, 200, array);
    if (page.next_cursor.p)
        call_header(&call->call, "x-next-token", page.next_cursor);
    call_header(&call->call, "Access-Control-Expose-Headers", STR("x-next-token"));
    return 0;
}

struct fork_body {
    int64_t count, timeout_s;
    json_t *metadata;
};

static const struct json_field fork_fields[] = {
    JSON_FIELD(struct fork_body, count, "count", 0),
    JSON_FIELD(struct fork_body, timeout_s, "timeout", 0),
    JSON_FIELD(struct fork_body, metadata, "metadata", 0),
    JSON_END,
};

static json_t *fork_json(const struct fork_result *result, struct str domain)
{
    int status = http_error_status(result->err.code);

    if (result->ok)
        return json_pack("{s:o}", "sandbox", api_types_sandbox(&result->view, domain));
    return json_pack("{s:{s:i,s:o}}", "error", "code", status, "message",
                     json_str(str_of(status == 500 ? "internal error" : result->err.message)));
}

int api_sandboxes_fork(struct api_call *call, struct error *err)
{
    struct fork_body body = {.count = 1, .timeout_s = FORK_TIMEOUT_S};
    auto_json json_t *tree = NULL;
    struct sandbox_fork request;
    struct fork_result *results;
    struct pair *pairs;
    struct str id;
    json_t *array;

    if (api_sandboxes_get_id(call, &id, err) < 0 ||
        (str_trim(call->body).len &&
         json_parse_as(fork_fields, call->body, &body, &tree, err) < 0) ||
        api_types_check_strings(body.metadata, "metadata", err) < 0)
        return -1;
    if (body.count < 1 || body.count > SANDBOX_FORKS_MAX)
        return error_set(err, ERROR_INVALID, "'count' must be from 1 to %d", SANDBOX_FORKS_MAX);
    request = (struct sandbox_fork){.count = (size_t)body.count, .timeout_s = body.timeout_s};
    request.metadata_count = json_pairs(body.metadata, &call->arena, &pairs);
    request.metadata = pairs;
    if (sandbox_fork(call->api->config.sandboxes, call->team_id, id, &request, &call->arena,
                     &results, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < request.count; i++)
        (void)json_array_append_new(array, fork_json(&results[i], call->domain));
    call_answer(&call->call, 201, array);
    return 0;
}
