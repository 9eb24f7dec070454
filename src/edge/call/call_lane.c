/* Who is served when. Each endpoint has a lane with workers of its own; each team has a share of a lane's
 * workers and a line of its own for them, so that a team whose requests take long delays itself.
 *
 * A call is the loop's while it is in a line; see call.h. */
#include "base/list.h"
#include "base/log.h"
#include "edge/call/call.h"

/* NULL: it needs none. */
static struct shares *shares_of(const struct call *call)
{
    return call->public ? NULL : call->desk->lanes[call->lane].shares;
}

static void give_worker(struct call *call)
{
    if (shares_of(call))
        shares_give(shares_of(call), call->seat.owner, 1);
}

static void leave(struct call *call)
{
    if (call->desk->ops->leave)
        call->desk->ops->leave(call);
}

/* It ends here: it is admitted, and does not run. */
static void refuse(struct call *call, const struct error *err)
{
    leave(call);
    call->desk->ops->fail(call, err);
    call_finish(call);
}

static void take_turn(struct call *call);

static void run(struct work *work)
{
    struct call *call = container_of(work, struct call, work);
    struct error err = {0};

    if (call_unwanted(call)) {
        (void)call_set_unwanted(call, &err);
        call->step = NULL;
        call->desk->ops->fail(call, &err);
    } else {
        call_run(call);
    }
    /* Before the loop has time for it: the next one begins. */
    if (!call->step)
        leave(call);
    give_worker(call);
}

static void done(struct work *work)
{
    struct call *call = container_of(work, struct call, work);

    if (!call->step) {
        call_finish(call);
        return;
    }
    call->lane = call->step_lane;
    if (call->ex)
        call_set_state(call, CALL_MOVING);
    take_turn(call);
}

static void fail_left(const struct call *call, struct error *err)
{
    (void)error_set(err, ERROR_INVALID,
                    "the client's side of the connection was closed before the answer, so there "
                    "is no sandbox; %s to have it all the same",
                    call->desk->ops->keep_hint);
}

static void take_back(struct work *work)
{
    struct call *call = container_of(work, struct call, work);
    const char *name = call->desk->ops->name;
    struct error err = {0};

    if (call->desk->ops->kill(call, &err) >= 0)
        log_info(name, "request=%s id=%.*s is taken back: its client left before the answer",
                 call->request_id, STR_ARG(call->made));
    else
        log_warn(name, "request=%s id=%.*s, whose client left before the answer: %s",
                 call->request_id, STR_ARG(call->made), err.message);
    call->made = STR_NONE;
    fail_left(call, &err);
    call->desk->ops->fail(call, &err);
}

static void taken_back(struct work *work)
{
    call_finish(container_of(work, struct call, work));
}

static bool queue(struct call *call, unsigned lane, void (*fn)(struct work *),
                  void (*after)(struct work *))
{
    call->work = (struct work){.run = fn, .done = after, .loop = call->loop};
    return workers_run(call->desk->lanes[lane].workers, &call->work) == 0;
}

bool call_take_back(struct call *call)
{
    if (!call->made.len)
        return false;
    if (queue(call, call->desk->work_lane, take_back, taken_back))
        return true;
    log_warn(call->desk->ops->name,
             "request=%s id=%.*s, whose client left before the answer, stays: busy",
             call->request_id, STR_ARG(call->made));
    return false;
}

void call_unread(struct error *err)
{
    (void)error_set(err, ERROR_QUOTA,
                    "your team's clients leave too many bytes of earlier responses unread: read "
                    "them, or close their connections");
    err->retry_after_s = 1;
}

/* May it begin, now that its turn has come? */
static int check_start(struct call *call, struct error *err)
{
    if (atomic_load(&call->state) == CALL_WAITING && !http_owner_has_room(call->ex)) {
        call_unread(err);
        return -1;
    }
    if (call->only_for_client && (!call->ex || http_client_left(call->ex))) {
        fail_left(call, err);
        return -1;
    }
    return 0;
}

static void start(struct call *call)
{
    struct error err = {0};

    if (check_start(call, &err) == 0) {
        if (queue(call, call->lane, run, done)) {
            if (call->ex)
                call_set_state(call, CALL_RUNNING);
            return;
        }
        (void)error_set(&err, ERROR_UNAVAILABLE, "the server is busy; try again in a second");
        err.errnum = EBUSY;
    }
    give_worker(call);
    refuse(call, &err);
}

/* Its client has gone before its turn. */
static void drop(struct call *call)
{
    leave(call);
    call_close(call, " client=gone");
}

/* Its turn has come. */
static void on_called(struct loop_errand *errand)
{
    struct call *call = container_of(errand, struct call, seat.errand);

    shares_called(shares_of(call), &call->seat);
    if (call->ex) {
        start(call);
    } else {
        give_worker(call);
        drop(call);
    }
}

static void take_turn(struct call *call)
{
    struct shares *shares = shares_of(call);
    struct error err = {0};

    call->seat.errand.fn = on_called;
    if (!shares || shares_take(shares, call->seat.owner, 1) == SHARE_TAKEN) {
        start(call);
    } else if (!call->ex) {
        drop(call);
    } else if (shares_wait(shares, &call->seat) < 0) {
        (void)error_set(&err, ERROR_QUOTA,
                        "your team has too many requests waiting for its own to end");
        refuse(call, &err);
    }
}

void call_enter(struct call *call)
{
    struct error err = {0};

    call_set_state(call, CALL_WAITING);
    call->seat.loop = call->loop;
    call->seat.owner = str_of(call->who.team_id);
    if (call->desk->ops->admit && call->desk->ops->admit(call, &err) < 0) {
        call->desk->ops->fail(call, &err);
        call_finish(call);
    } else {
        take_turn(call);
    }
}

bool call_leave(struct call *call)
{
    if (shares_of(call) && !shares_leave(shares_of(call), &call->seat))
        return false;
    leave(call);
    return true;
}
