/* What one team may hold at the same time, so that others find room (protocol/loop/share.h): workers, each of which
 * may be held for minutes, and streams. */
#include "edge/api_runtime/v1_internal.h"

int v1_share_stream(struct v1 *v1, struct str team_id, struct error *err)
{
    if (shares_take(v1->stream_shares, team_id, 1) == SHARE_TAKEN)
        return 0;
    return error_set(err, ERROR_QUOTA,
                     "your team has %d streams and terminals open, as many as it"
                     " may",
                     V1_TEAM_STREAMS_MAX);
}

void v1_share_stream_end(struct v1 *v1, struct str team_id)
{
    shares_give(v1->stream_shares, team_id, 1);
}
