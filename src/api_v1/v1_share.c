/* What one team may hold at the same time, so that others find room: workers, each of which may wait for
 * minutes, and streams. Counted by team, under the lock of the whole edge, which is held for a moment. */
#include "api_v1/v1_internal.h"
#include "base/alloc.h"

struct share {
    size_t counts[V1_SHARES];
};

static size_t most(const struct v1 *v1, enum v1_share what)
{
    size_t calls = v1->config.team_calls_max;

    return what == V1_SHARE_STREAM ? V1_TEAM_STREAMS_MAX : calls ? calls : SIZE_MAX;
}

int v1_share_take(struct v1 *v1, struct str team_id, enum v1_share what, struct error *err)
{
    static const char *const names[] = {"requests", "streams and terminals"};
    struct share *share;
    bool full;

    (void)pthread_mutex_lock(&v1->lock);
    share = map_get(&v1->shares, team_id);
    full = share && share->counts[what] >= most(v1, what);
    if (!share) {
        share = xcalloc(1, sizeof(*share));
        (void)map_put(&v1->shares, team_id, share);
    }
    if (!full)
        share->counts[what]++;
    (void)pthread_mutex_unlock(&v1->lock);
    if (!full)
        return 0;
    return error_set(err, ERROR_QUOTA, "your team has %zu %s under way, as many as it may",
                     most(v1, what), names[what]);
}

void v1_share_give(struct v1 *v1, struct str team_id, enum v1_share what)
{
    struct share *share;
    bool empty = true;

    (void)pthread_mutex_lock(&v1->lock);
    share = map_get(&v1->shares, team_id);
    share->counts[what]--;
    for (size_t i = 0; i < V1_SHARES; i++)
        empty = empty && share->counts[i] == 0;
    if (empty)
        free(map_remove(&v1->shares, team_id));
    (void)pthread_mutex_unlock(&v1->lock);
}
