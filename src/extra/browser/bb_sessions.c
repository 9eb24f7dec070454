/* Sessions, as the service's clients see them. */
#include "base/alloc.h"
#include "extra/browser/bb_internal.h"
#include "protocol/json/json_shape.h"

static json_t *write_session(struct bb_call *call, const struct store_browser_session *session)
{
    json_t *json = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:i}", "id", json_str(session->id),
        "projectId", json_str(session->team_id), "status", json_str(session->status), "createdAt",
        bb_time(session->created_at_us), "updatedAt", bb_time(session->updated_at_us), "startedAt",
        bb_time(session->created_at_us), "expiresAt", bb_time(session->expires_at_us), "keepAlive",
        session->keep_alive, "region", json_str(session->region), "proxyBytes", 0);
    struct error ignored;
    json_t *metadata = NULL;

    (void)call;
    if (session->ended_at_us)
        (void)json_object_set_new(json, "endedAt", bb_time(session->ended_at_us));
    if (session->context_id.len)
        (void)json_object_set_new(json, "contextId", json_str(session->context_id));
    if (session->metadata.len && json_parse(session->metadata, &metadata, &ignored) == 0)
        (void)json_object_set_new(json, "userMetadata", metadata);
    return json;
}

/* While it runs: how it is reached, and in which sandbox it is. */
static json_t *write_whole(struct bb_call *call, const struct store_browser_session *session)
{
    json_t *json = write_session(call, session);
    char signature[BROWSER_SIGNATURE_SIZE];
    auto_arena struct arena arena = {0};

    if (!browser_runs(session))
        return json;
    browser_sign(call->bb->config.browsers, session->id, 0, signature);
    (void)json_object_set_new(
        json, "connectUrl",
        json_string(arena_printf(&arena, "ws%.*s/v1/connect/%.*s?signingKey=%s",
                                 STR_ARG(str_skip(call->origin, 4)), STR_ARG(session->id),
                                 signature)));
    (void)json_object_set_new(json, "signingKey", json_string(signature));
    (void)json_object_set_new(json, "sandboxId", json_str(session->sandbox_id));
    return json;
}

int bb_sessions_create(struct bb_call *call, struct error *err)
{
    struct browser_new request = {0};
    struct store_browser_session session = {0};

    if (bb_check_project(call, call->json, err) < 0 ||
        browser_new_read(call->json, &call->arena, &request, err) < 0)
        return -1;
    request.team_id = call->team_id;
    if (browser_create(call->bb->config.browsers, &request, &call->arena, &session, err) < 0)
        return -1;
    if (!session.keep_alive)
        call->made = session.id;
    call_answer(&call->call, 201, write_whole(call, &session));
    return 0;
}

int bb_sessions_get(struct bb_call *call, struct error *err)
{
    struct store_browser_session session = {0};

    if (browser_get(call->bb->config.browsers, call->team_id, call->params[0], &call->arena,
                    &session, err) < 0)
        return -1;
    call_answer(&call->call, 200, write_whole(call, &session));
    return 0;
}

static bool is_status(struct str status)
{
    return str_is(status, "RUNNING") || str_is(status, "ERROR") || str_is(status, "TIMED_OUT") ||
           str_is(status, "COMPLETED") || str_is(status, "PENDING");
}

int bb_sessions_list(struct bb_call *call, struct error *err)
{
    struct browser_filter filter = {.team_id = call->team_id, .status = bb_query(call, "status")};
    struct str q = bb_query(call, "q");
    struct store_browser_session *sessions;
    size_t count = 0;
    json_t *list;

    if (filter.status.p && !is_status(filter.status))
        return error_set(err, ERROR_INVALID,
                         "'status' must be RUNNING, ERROR, TIMED_OUT or "
                         "COMPLETED");
    if ((q.p && browser_filter_read(q, &call->arena, &filter, err) < 0) ||
        browser_list(call->bb->config.browsers, &filter, &call->arena, &sessions, &count, err) < 0)
        return -1;
    list = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(list, write_session(call, &sessions[i]));
    call_answer(&call->call, 200, list);
    return 0;
}

int bb_sessions_update(struct bb_call *call, struct error *err)
{
    struct store_browser_session session = {0};

    if (bb_check_project(call, call->json, err) < 0)
        return -1;
    if (browser_get(call->bb->config.browsers, call->team_id, call->params[0], &call->arena,
                    &session, err) < 0)
        return -1;
    if (!str_is(json_get_str(call->json, "status"), "REQUEST_RELEASE"))
        return error_set(err, ERROR_INVALID, "'status' must be \"REQUEST_RELEASE\"");
    if (browser_release(call->bb->config.browsers, call->team_id, call->params[0], &call->arena,
                        &session, err) < 0)
        return -1;
    call_answer(&call->call, 200, write_session(call, &session));
    return 0;
}
