/* Who is served when. Each endpoint has a lane with workers of its own; each team has a share of a lane's workers
 * and a line of its own for them, so that a team whose requests take long delays itself. Creates are counted as
 * well: beyond a limit they are refused at once instead of waiting for longer than anybody wants to wait.
 *
 * A call is the loop's while it is in a line; see api.c. */
#include "base/log.h"
#include "domain/sandbox/sandbox.h"
#include "edge/api_e2b/api_internal.h"

void api_lanes_open(struct api *api)
{
    for (size_t i = 0; i < API_LANE_COUNT; i++)
        api->lanes[i] = shares_new(&(struct shares_config){
            .each_max = api->config.lanes[i].team_max, .waiting_max = API_TEAM_WAITING_MAX});
    api->creates = shares_new(&(struct shares_config){
        .each_max = (api->config.create_max * 3 + 3) / 4, .all_max = api->config.create_max});
}

int api_create_begin(struct api *api, struct str team_id, struct error *err)
{
    enum share_answer answer = shares_take(api->creates, team_id, 1);

    if (answer == SHARE_TAKEN)
        return 0;
    atomic_fetch_add(&api->creates_refused, 1);
    (void)error_set(err, ERROR_QUOTA,
                    answer == SHARE_OWN_FULL
                        ? "your team has as many creates under way as it may; try again in a second"
                        : "as many creates are under way as may be; try again in a second");
    err->retry_after_s = 1;
    return -1;
}

void api_create_end(struct api *api, struct str team_id)
{
    shares_give(api->creates, team_id, 1);
}

static void end_create(struct api_call *call)
{
    if (call->admitted)
        api_create_end(call->api, call->seat.owner);
    call->admitted = false;
}

static void give_worker(struct api_call *call)
{
    if (call->has_worker)
        shares_give(call->api->lanes[call->lane], call->seat.owner, 1);
    call->has_worker = false;
}

/* It ends here, without having been run. */
static void refuse(struct api_call *call, const struct error *err)
{
    give_worker(call);
    end_create(call);
    api_fail(call, err);
    api_call_done(call);
}

static void take_turn(struct api_call *call);

static void run(struct work *work)
{
    struct api_call *call = container_of(work, struct api_call, work);

    api_call_run(call);
    /* Before the loop has time for it: the next one begins. */
    end_create(call);
    give_worker(call);
    if (call->again)
        call->lane = API_LANE_WORK;
}

static void done(struct work *work)
{
    struct api_call *call = container_of(work, struct api_call, work);

    call->working = false;
    if (call->again) {
        call->again = false;
        take_turn(call);
        return;
    }
    api_call_done(call);
}

static void fail_left(struct error *err)
{
    (void)error_set(err, ERROR_INVALID,
                    "the client's side of the connection was closed before the answer, so there "
                    "is no sandbox; send an Idempotency-Key to have it all the same");
}

static void take_back(struct work *work)
{
    struct api_call *call = container_of(work, struct api_call, work);
    struct error err = {0};

    if (sandbox_kill(call->api->config.sandboxes, call->team_id, call->made, &err) == 0)
        log_info("api", "request=%s id=%.*s is taken back: its client left before the answer",
                 call->request_id, STR_ARG(call->made));
    else
        log_warn("api", "request=%s id=%.*s, whose client left before the answer: %s",
                 call->request_id, STR_ARG(call->made), err.message);
    call->made = STR_NONE;
    fail_left(&err);
    api_fail(call, &err);
}

static void taken_back(struct work *work)
{
    struct api_call *call = container_of(work, struct api_call, work);

    call->working = false;
    api_call_done(call);
}

bool api_take_back(struct api_call *call)
{
    if (!call->made.len)
        return false;
    call->work = (struct work){.run = take_back, .done = taken_back, .loop = call->seat.loop};
    call->working = workers_run(call->api->config.lanes[API_LANE_WORK].workers, &call->work) == 0;
    if (!call->working)
        log_warn("api", "request=%s id=%.*s, whose client left before the answer, stays: busy",
                 call->request_id, STR_ARG(call->made));
    return call->working;
}

static void start(struct api_call *call)
{
    struct error err = {0};

    if (call->lane == API_LANE_CREATE && !call->idempotency_key.len && http_client_left(call->ex)) {
        fail_left(&err);
        refuse(call, &err);
        return;
    }
    call->work = (struct work){.run = run, .done = done, .loop = call->seat.loop};
    call->working = true;
    if (workers_run(call->api->config.lanes[call->lane].workers, &call->work) == 0)
        return;
    call->working = false;
    (void)error_set(&err, ERROR_UNAVAILABLE, "the server is busy; try again in a second");
    refuse(call, &err);
}

/* Its turn has come. */
static void on_called(struct loop_errand *errand)
{
    struct api_call *call = container_of(errand, struct api_call, seat.errand);

    shares_called(call->api->lanes[call->lane], &call->seat);
    call->has_worker = true;
    if (call->ex) {
        start(call);
        return;
    }
    give_worker(call);
    end_create(call);
    api_call_done(call);
}

static void take_turn(struct api_call *call)
{
    struct shares *lane = call->api->lanes[call->lane];
    struct error err = {0};

    call->seat.errand.fn = on_called;
    call->has_worker = shares_take(lane, call->seat.owner, 1) == SHARE_TAKEN;
    if (call->has_worker) {
        start(call);
    } else if (shares_wait(lane, &call->seat) < 0) {
        (void)error_set(&err, ERROR_QUOTA,
                        "your team has too many requests waiting for its own to end");
        refuse(call, &err);
    }
}

void api_lane_enter(struct api_call *call)
{
    struct error err = {0};

    call->lane = call->endpoint->lane;
    call->seat.loop = http_loop(call->ex);
    call->seat.owner = str_of(call->who.team_id);
    if (call->lane == API_LANE_CREATE) {
        if (api_create_begin(call->api, call->seat.owner, &err) < 0) {
            refuse(call, &err);
            return;
        }
        call->admitted = true;
    }
    take_turn(call);
}

bool api_lane_leave(struct api_call *call)
{
    if (!call->seat.loop) /* it never came so far */
        return true;
    if (!shares_leave(call->api->lanes[call->lane], &call->seat))
        return false;
    end_create(call);
    return true;
}
