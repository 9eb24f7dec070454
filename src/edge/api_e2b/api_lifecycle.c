/* Pausing, resuming and connecting. */
#include "domain/sandbox/sandbox.h"
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_sandboxes.h"
#include "edge/api_e2b/api_types.h"

enum { RESUME_TIMEOUT_S = 15, CONNECT_V2_TIMEOUT_S = 300 };

int api_sandboxes_pause(struct api_call *call, struct error *err)
{
    struct sandbox_pause request = {.asked_at_us = call->started_us};
    bool memory;
    struct str id;

    if (api_sandboxes_get_id(call, &id, err) < 0 || api_types_pause(call->body, &memory, err) < 0)
        return -1;
    request.disk_only = !memory;
    if (sandbox_pause(call->api->config.sandboxes, call->team_id, id, &request, err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}

static int connect_to(struct api_call *call, int64_t fallback_s, struct error *err)
{
    struct sandbox_view view = {0};
    struct sandbox_resume request;
    bool resumed = false, waits = false;
    struct str id;

    if (api_sandboxes_get_id(call, &id, err) < 0 ||
        api_types_resume(call->body, fallback_s, &request, err) < 0)
        return -1;
    request.auto_pause_given = false;
    request.waits = api_may_wait(call) ? NULL : &waits;
    if (sandbox_connect(call->api->config.sandboxes, call->team_id, id, &request, &call->arena,
                        &view, &resumed, err) < 0)
        return -1;
    if (waits)
        return api_wait_for_it(call);
    call_answer(&call->call, resumed ? 201 : 200, api_types_sandbox(&view, call->domain));
    return 0;
}

int api_sandboxes_connect(struct api_call *call, struct error *err)
{
    return connect_to(call, -1, err);
}

int api_sandboxes_connect_v2(struct api_call *call, struct error *err)
{
    return connect_to(call, CONNECT_V2_TIMEOUT_S, err);
}

int api_sandboxes_resume(struct api_call *call, struct error *err)
{
    struct sandbox_view view = {0};
    struct sandbox_resume request;
    bool waits = false;
    struct str id;

    if (api_sandboxes_get_id(call, &id, err) < 0 ||
        api_types_resume(call->body, RESUME_TIMEOUT_S, &request, err) < 0)
        return -1;
    request.waits = api_may_wait(call) ? NULL : &waits;
    if (sandbox_resume(call->api->config.sandboxes, call->team_id, id, &request, &call->arena,
                       &view, err) < 0)
        return -1;
    if (waits)
        return api_wait_for_it(call);
    call_answer(&call->call, 201, api_types_sandbox(&view, call->domain));
    return 0;
}
