/* The sandbox resource: decode, call the domain, encode. */
#include "edge/api_e2b/api_sandboxes.h"

#include "base/id.h"
#include "domain/sandbox/sandbox.h"
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_query.h"
#include "edge/api_e2b/api_types.h"
#include "protocol/json/json_shape.h"
#include "store/runtime/store_runtime_sandbox.h"

bool api_sandboxes_id(struct str param, struct str *out)
{
    struct str id = str_split(&param, '-');

    if (!id_valid(id))
        return false;
    if (param.p && param.len == 0)
        return false;
    for (size_t i = 0; param.p && i < param.len; i++) {
        char c = param.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')))
            return false;
    }
    *out = id;
    return true;
}

/* The runtime may know it by another id: that of the machine before, or one from before it had any. */
static bool known_by(struct api_call *call, struct str id, struct str *out)
{
    struct store_runtime_sandbox row;
    struct error ignored;

    if (store_runtime_sandbox_get(call->api->config.store, call->team_id, id, &call->arena, &row,
                                  &ignored) < 0 ||
        row.destroyed_at_us || !id_valid(row.external_id) || str_eq(row.external_id, id))
        return false;
    *out = row.external_id;
    return true;
}

int api_sandboxes_get_id(struct api_call *call, struct str *out, struct error *err)
{
    if (api_sandboxes_id(call->params[0], out)) {
        if (!sandbox_known(call->api->config.sandboxes, *out))
            (void)known_by(call, *out, out);
        return 0;
    }
    if (str_starts(call->params[0], STR("sbx_")) && known_by(call, call->params[0], out))
        return 0;
    return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' was not found",
                     (int)(call->params[0].len < 60 ? call->params[0].len : 60), call->params[0].p);
}

/* Whose it is: said by the key, never by the request. */
static void label(const struct api_call *call, struct pair *pairs, size_t *count)
{
    if (call->key_agent.len)
        api_types_pair(pairs, count, STR(API_AGENT_LABEL), call->key_agent);
}

/* On any lane but the one for what waits, a create that has to wait for programs of a template moves there. */
static int create_step(struct call *base, struct error *err)
{
    struct api_call *call = (struct api_call *)base;
    const struct api_new_sandbox *body = call->parsed;
    struct sandbox_view view = {0};
    bool waits = false;

    if (sandbox_create(call->api->config.sandboxes,
                       &(struct sandbox_new){
                           .team_id = call->team_id,
                           .template_name = body->template_id,
                           .timeout_s = body->timeout_s,
                           .secure = body->secure,
                           .is_private = body->is_private,
                           .ingress = body->ingress,
                           .internet = body->internet,
                           .internet_given = body->internet_given,
                           .network = body->policy,
                           .metadata = body->pairs,
                           .metadata_count = body->pair_count,
                           .env = body->env,
                           .env_count = body->env_count,
                           .cpu_count = body->cpu_count,
                           .mem_mb = body->mem_mb,
                           .disk_mb = body->disk_mb,
                           .auto_pause = body->auto_pause,
                           .auto_pause_disk = !body->auto_pause_memory,
                           .auto_resume = body->resumes,
                           .volumes = body->volumes,
                           .volume_count = body->volume_count,
                           .idempotency_key = call->idempotency_key,
                           .request_text = call->body,
                           .waits = call->lane == API_LANE_WAIT ? NULL : &waits,
                       },
                       &call->arena, &view, err) < 0)
        return -1;
    if (waits) {
        call_move(base, API_LANE_WAIT, create_step);
        return 0;
    }
    if (!call->idempotency_key.len)
        call->made = view.id;
    if (view.warning.p)
        call_header(base, CALL_WARNING, view.warning);
    call_answer(base, 201, api_types_sandbox(&view, call->domain));
    return 0;
}

static int create(struct api_call *call, enum api_generation generation, struct error *err)
{
    struct api_new_sandbox *body = arena_alloc(&call->arena, sizeof(*body));

    if (api_types_new_sandbox(call->body, generation, &call->arena, body, &call->json, err) < 0)
        return -1;
    label(call, body->pairs, &body->pair_count);
    call->parsed = body;
    return create_step(&call->call, err);
}

int api_sandboxes_create(struct api_call *call, struct error *err)
{
    return create(call, API_V1, err);
}

int api_sandboxes_create_v2(struct api_call *call, struct error *err)
{
    return create(call, API_V2, err);
}

static void add_page(json_t *array, const struct sandbox_page *page)
{
    for (size_t i = 0; i < page->count; i++)
        (void)json_array_append_new(array, api_types_sandbox_listed(&page->items[i]));
}

/* With a key that acts as an agent, that one's. */
static struct sandbox_filter filter_of(struct api_call *call, const struct api_list_query *query)
{
    struct pair *pairs;
    size_t count = json_pairs(query->metadata, &call->arena, &pairs);

    label(call, pairs, &count);
    return (struct sandbox_filter){
        .team_id = call->team_id,
        .metadata = pairs,
        .metadata_count = count,
        .running = query->running,
        .paused = query->paused,
        .template_name = query->template_name,
        .started_after_us = query->started_after_us,
        .ascending = query->ascending,
        .limit = query->limit,
        .cursor = query->cursor,
    };
}

/* The older list knows no pages: all running sandboxes in one array. */
static int list_all(struct api_call *call, struct api_list_query *query, struct error *err)
{
    enum { PAGES_MAX = 1000 };
    struct sandbox_filter filter = filter_of(call, query);
    auto_json json_t *array = json_array();

    filter.running = true;
    filter.paused = false;
    filter.limit = 100;
    filter.cursor = STR_NONE;
    for (int i = 0; i < PAGES_MAX; i++) {
        struct sandbox_page page = {0};

        if (sandbox_list(call->api->config.sandboxes, &filter, &call->arena, &page, err) < 0)
            return -1;
        add_page(array, &page);
        filter.cursor = page.next_cursor;
        if (!filter.cursor.p)
            break;
    }
    call_answer(&call->call, 200, json_incref(array));
    return 0;
}

int api_sandboxes_list(struct api_call *call, struct error *err)
{
    struct api_list_query query;
    int rc = api_query_list(call->query, &call->arena, &query, err);

    if (rc == 0)
        rc = list_all(call, &query, err);
    api_query_done(&query);
    return rc;
}

static int list_page(struct api_call *call, struct api_list_query *query, struct error *err)
{
    struct sandbox_filter filter = filter_of(call, query);
    struct sandbox_page page = {0};
    json_t *array;

    if (sandbox_list(call->api->config.sandboxes, &filter, &call->arena, &page, err) < 0)
        return -1;
    array = json_array();
    add_page(array, &page);
    call_answer(&call->call, 200, array);
    if (page.next_cursor.p)
        call_header(&call->call, "x-next-token", page.next_cursor);
    if (query->running)
        call_header(&call->call, "X-Total-Running",
                    str_of(arena_printf(&call->arena, "%zu", page.total_running)));
    call_header(&call->call, "Access-Control-Expose-Headers", STR("x-next-token, X-Total-Running"));
    return 0;
}

int api_sandboxes_list_v2(struct api_call *call, struct error *err)
{
    struct api_list_query query;
    int rc = api_query_list(call->query, &call->arena, &query, err);

    if (rc == 0)
        rc = list_page(call, &query, err);
    api_query_done(&query);
    return rc;
}

int api_sandboxes_get(struct api_call *call, struct error *err)
{
    struct sandbox_view view = {0};
    struct str id;

    if (api_sandboxes_get_id(call, &id, err) < 0 ||
        sandbox_get(call->api->config.sandboxes, call->team_id, id, &call->arena, &view, err) < 0)
        return -1;
    if (call->role == API_ROLE_VIEWER)
        view.access_token = STR_NONE;
    call_answer(&call->call, 200, api_types_sandbox_detail(&view, call->domain));
    return 0;
}

int api_sandboxes_kill(struct api_call *call, struct error *err)
{
    struct str id;

    if (api_sandboxes_get_id(call, &id, err) < 0 ||
        sandbox_kill(call->api->config.sandboxes, call->team_id, id, err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}

struct timeout_body {
    struct str id;
    int64_t timeout_s;
};

static int timeout_step(struct call *base, struct error *err)
{
    struct api_call *call = (struct api_call *)base;
    const struct timeout_body *body = call->parsed;

    if (sandbox_set_timeout(call->api->config.sandboxes, call->team_id, body->id, body->timeout_s,
                            err) < 0)
        return -1;
    call_answer(base, 204, NULL);
    return 0;
}

int api_sandboxes_timeout(struct api_call *call, struct error *err)
{
    struct timeout_body *body = arena_alloc(&call->arena, sizeof(*body));

    if (api_sandboxes_get_id(call, &body->id, err) < 0 ||
        api_types_timeout(call->body, -1, &body->timeout_s, err) < 0)
        return -1;
    call->parsed = body;
    if (body->timeout_s > 0)
        return timeout_step(&call->call, err);
    /* That is a kill, or a pause. */
    call_move(&call->call, API_LANE_CONTROL, timeout_step);
    return 0;
}

int api_sandboxes_refresh(struct api_call *call, struct error *err)
{
    struct sandbox_view view = {0};
    int64_t duration_s = 0;
    struct str id = STR_NONE;

    if (api_sandboxes_get_id(call, &id, err) < 0 ||
        api_types_refresh(call->body, &duration_s, err) < 0 ||
        sandbox_extend(call->api->config.sandboxes, call->team_id, id, duration_s, &call->arena,
                       &view, err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}
