/* Requests from inside this process: the same handlers and log as over the wire, without a socket or a
 * key. Whoever asked is in the audit with the request that led here. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "edge/api_e2b/api_internal.h"

static int find_endpoint(struct api_call *call, struct str target, struct error *err)
{
    char allow[HTTP_ALLOW_SIZE];

    call->query = target;
    call->path = str_split(&call->query, '?');
    if (api_endpoints_find(call->method, call->path, &call->arena, &call->endpoint, call->params,
                           allow) != CALL_FOUND)
        return error_set(err, ERROR_INTERNAL, "there is no endpoint for %.*s %.*s",
                         STR_ARG(call->method), STR_ARG(call->path));
    if (call->endpoint->auth == API_AUTH_OPERATOR)
        return error_set(err, ERROR_FORBIDDEN, "%.*s is not for the inside", STR_ARG(call->path));
    if (call->body.len > call->endpoint->body_max)
        return error_set(err, ERROR_LIMIT, "the body for %.*s is too long", STR_ARG(call->path));
    return 0;
}

/* On the caller's thread, which is a worker for such work; creates are counted with all others. */
static int run(struct api_call *call, struct error *err)
{
    int result;

    call->lane = API_LANE_WORK;
    if (call->endpoint->lane != API_LANE_CREATE)
        return call->endpoint->handler(call, err);
    if (api_create_begin(call->api, call->team_id, err) < 0)
        return -1;
    result = call->endpoint->handler(call, err);
    api_create_end(call->api, call->team_id);
    return result;
}

int api_local(struct api *api, const struct api_local *request, int *out_status,
              struct buf *out_body, struct error *err)
{
    struct api_call *call = xcalloc(1, sizeof(*call));
    struct error failure = {0};
    int result;

    call->api = api;
    call->started_us = clock_mono_us();
    id_hex(call->request_id, (CALL_REQUEST_ID_SIZE - 1) / 2);
    call->method = str_of(request->method);
    call->body = request->body;
    call->team_id = request->team_id;
    call->key_id = STR("runtime");
    result = find_endpoint(call, str_of(request->target), err);
    if (result == 0) {
        if (run(call, &failure) < 0)
            api_fail(call, &failure);
        api_monitor_count(api, call->status, clock_mono_us() - call->started_us);
        log_debug("api", "request=%s %s %.*s status=%d inside", call->request_id, request->method,
                  STR_ARG(call->path), call->status);
        *out_status = call->status;
        if (call->text && !buf_add_str(out_body, str_of(call->text)))
            result =
                error_set(err, ERROR_LIMIT, "the answer of %.*s is too long", STR_ARG(call->path));
    }
    free(call->text);
    arena_done(&call->arena);
    free(call);
    return result;
}
