#include "domain/sandbox/sandbox_creates.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "protocol/loop/share.h"

struct sandbox_creates {
    struct shares *shares;
    atomic_size_t max;
    atomic_uint_fast64_t refused;
};

struct sandbox_creates *sandbox_creates_new(size_t max)
{
    struct sandbox_creates *creates = xcalloc(1, sizeof(*creates));

    creates->max = max;
    creates->shares =
        shares_new(&(struct shares_config){.each_max = (max * 3 + 3) / 4, .all_max = max});
    return creates;
}

void sandbox_creates_set_max(struct sandbox_creates *creates, size_t max)
{
    atomic_store(&creates->max, max);
    shares_set_max(creates->shares, (max * 3 + 3) / 4, max);
}

void sandbox_creates_free(struct sandbox_creates *creates)
{
    shares_free(creates->shares);
    free(creates);
}

int sandbox_creates_begin(struct sandbox_creates *creates, struct str team_id, struct error *err)
{
    enum share_answer answer = shares_take(creates->shares, team_id, 1);

    if (answer == SHARE_TAKEN)
        return 0;
    atomic_fetch_add(&creates->refused, 1);
    (void)error_set(err, ERROR_QUOTA,
                    answer == SHARE_OWN_FULL
                        ? "your team has as many creates under way as it may; try again in a second"
                        : "as many creates are under way as may be; try again in a second");
    err->retry_after_s = 1;
    return -1;
}

void sandbox_creates_end(struct sandbox_creates *creates, struct str team_id)
{
    shares_give(creates->shares, team_id, 1);
}

void sandbox_creates_stats(struct sandbox_creates *creates, struct sandbox_creates_stats *out)
{
    *out = (struct sandbox_creates_stats){.under_way = shares_held(creates->shares),
                                          .max = creates->max,
                                          .refused = atomic_load(&creates->refused)};
}
