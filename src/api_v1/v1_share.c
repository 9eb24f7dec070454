/* What one team may hold at the same time, so that others find room: workers, each of which may be held
 * for minutes, and streams. Counted by team, under the lock of the whole edge, which is held for a moment.
 *
 * A request that finds its team's workers taken gives its worker back and waits in the team's line; each
 * request of the team that ends lets the next one try again. It is in the line only while it is the
 * loop's, so that a client that goes can take it out. */
#include "api_v1/v1_internal.h"
#include "base/alloc.h"

struct share {
    size_t calls, streams;
    struct list line; /* struct v1_call */
    size_t waiting;
};

static struct share *share_of(struct v1 *v1, struct str team_id)
{
    struct share *share = map_get(&v1->shares, team_id);

    if (!share) {
        share = xcalloc(1, sizeof(*share));
        list_init(&share->line);
        (void)map_put(&v1->shares, team_id, share);
    }
    return share;
}

static void forget_empty(struct v1 *v1, struct str team_id, struct share *share)
{
    if (!share->calls && !share->streams && !share->waiting)
        free(map_remove(&v1->shares, team_id));
}

/* With the lock held. */
static bool has_room(const struct v1 *v1, const struct share *share)
{
    return !v1->config.team_calls_max || share->calls < v1->config.team_calls_max;
}

/* With the lock held: the first in the line tries again, on its loop. */
static void let_next(struct share *share)
{
    struct list *node = list_pop_front(&share->line);
    struct v1_call *call;

    if (!node)
        return;
    call = container_of(node, struct v1_call, line_link);
    share->waiting--;
    call->line = V1_LINE_CALLED;
    loop_post(call->loop, &call->line_job);
}

bool v1_share_take(struct v1 *v1, struct str team_id)
{
    struct share *share;
    bool room;

    (void)pthread_mutex_lock(&v1->lock);
    share = share_of(v1, team_id);
    room = has_room(v1, share);
    if (room)
        share->calls++;
    forget_empty(v1, team_id, share);
    (void)pthread_mutex_unlock(&v1->lock);
    return room;
}

void v1_share_give(struct v1 *v1, struct str team_id)
{
    struct share *share;

    (void)pthread_mutex_lock(&v1->lock);
    share = share_of(v1, team_id);
    share->calls--;
    let_next(share);
    forget_empty(v1, team_id, share);
    (void)pthread_mutex_unlock(&v1->lock);
}

int v1_share_wait(struct v1_call *call)
{
    struct v1 *v1 = call->v1;
    struct share *share;
    int r = 0;

    (void)pthread_mutex_lock(&v1->lock);
    share = share_of(v1, call->caller.team_id);
    if (share->waiting >= V1_TEAM_WAITING_MAX) {
        r = -1;
    } else {
        list_push_back(&share->line, &call->line_link);
        share->waiting++;
        call->line = V1_LINE_WAITS;
        if (has_room(v1, share)) /* since it looked */
            let_next(share);
    }
    (void)pthread_mutex_unlock(&v1->lock);
    return r;
}

bool v1_share_leave(struct v1_call *call)
{
    struct v1 *v1 = call->v1;
    struct share *share;
    bool called;

    (void)pthread_mutex_lock(&v1->lock);
    called = call->line == V1_LINE_CALLED;
    if (call->line == V1_LINE_WAITS) {
        share = share_of(v1, call->caller.team_id);
        list_remove(&call->line_link);
        share->waiting--;
        call->line = V1_LINE_NONE;
        forget_empty(v1, call->caller.team_id, share);
    }
    (void)pthread_mutex_unlock(&v1->lock);
    return !called;
}

void v1_share_called(struct v1_call *call)
{
    (void)pthread_mutex_lock(&call->v1->lock);
    call->line = V1_LINE_NONE;
    (void)pthread_mutex_unlock(&call->v1->lock);
}

void v1_share_pass(struct v1_call *call)
{
    struct v1 *v1 = call->v1;
    struct share *share;

    (void)pthread_mutex_lock(&v1->lock);
    share = share_of(v1, call->caller.team_id);
    if (has_room(v1, share))
        let_next(share);
    forget_empty(v1, call->caller.team_id, share);
    (void)pthread_mutex_unlock(&v1->lock);
}

int v1_share_stream(struct v1 *v1, struct str team_id, struct error *err)
{
    struct share *share;
    bool full;

    (void)pthread_mutex_lock(&v1->lock);
    share = share_of(v1, team_id);
    full = share->streams >= V1_TEAM_STREAMS_MAX;
    if (!full)
        share->streams++;
    (void)pthread_mutex_unlock(&v1->lock);
    if (!full)
        return 0;
    return error_set(err, ERROR_QUOTA,
                     "your team has %d streams and terminals open, as many as it"
                     " may",
                     V1_TEAM_STREAMS_MAX);
}

void v1_share_stream_end(struct v1 *v1, struct str team_id)
{
    struct share *share;

    (void)pthread_mutex_lock(&v1->lock);
    share = share_of(v1, team_id);
    share->streams--;
    forget_empty(v1, team_id, share);
    (void)pthread_mutex_unlock(&v1->lock);
}
