/* Creates under way are counted: beyond a limit they are refused at once instead of waiting for longer than
 * anybody wants to wait. */
#include "edge/api_e2b/api_internal.h"

void api_creates_open(struct api *api)
{
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
