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

struct resume_body {
    struct str id;
    struct sandbox_resume request;
};

/* What has to wait for programs of a template does so on the lane for that. */
static bool move(struct api_call *call, bool waits, call_step_fn *step)
{
    if (waits)
        call_move(&call->call, API_LANE_WAIT, step);
    return waits;
}

static int connect_step(struct call *base, struct error *err)
{
    struct api_call *call = (struct api_call *)base;
    struct resume_body *body = call->parsed;
    struct sandbox_view view = {0};
    bool resumed = false, waits = false;

    body->request.waits = call->lane == API_LANE_WAIT ? NULL : &waits;
    if (sandbox_connect(call->api->config.sandboxes, call->team_id, body->id, &body->request,
                        &call->arena, &view, &resumed, err) < 0)
        return -1;
    if (!move(call, waits, connect_step))
        call_answer(base, resumed ? 201 : 200, api_types_sandbox(&view, call->domain));
    return 0;
}

static int read_body(struct api_call *call, int64_t fallback_s, struct resume_body **out,
                     struct error *err)
{
    *out = call->parsed = arena_alloc(&call->arena, sizeof(**out));
    return api_sandboxes_get_id(call, &(*out)->id, err) < 0
               ? -1
               : api_types_resume(call->body, fallback_s, &(*out)->request, err);
}

static int connect_to(struct api_call *call, int64_t fallback_s, struct error *err)
{
    struct resume_body *body;

    if (read_body(call, fallback_s, &body, err) < 0)
        return -1;
    body->request.auto_pause_given = false;
    return connect_step(&call->call, err);
}

int api_sandboxes_connect(struct api_call *call, struct error *err)
{
    return connect_to(call, -1, err);
}

int api_sandboxes_connect_v2(struct api_call *call, struct error *err)
{
    return connect_to(call, CONNECT_V2_TIMEOUT_S, err);
}

static int resume_step(struct call *base, struct error *err)
{
    struct api_call *call = (struct api_call *)base;
    struct resume_body *body = call->parsed;
    struct sandbox_view view = {0};
    bool waits = false;

    body->request.waits = call->lane == API_LANE_WAIT ? NULL : &waits;
    if (sandbox_resume(call->api->config.sandboxes, call->team_id, body->id, &body->request,
                       &call->arena, &view, err) < 0)
        return -1;
    if (!move(call, waits, resume_step))
        call_answer(base, 201, api_types_sandbox(&view, call->domain));
    return 0;
}

int api_sandboxes_resume(struct api_call *call, struct error *err)
{
    struct resume_body *body;

    return read_body(call, RESUME_TIMEOUT_S, &body, err) < 0 ? -1 : resume_step(&call->call, err);
}
