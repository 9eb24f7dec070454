#include "account/team.h"

#include "base/clock.h"
#include "store/store.h"

int team_ensure_default(struct store *store, struct error *err)
{
    struct store_team team = {
        .id = STR(TEAM_DEFAULT_ID),
        .name = STR("default"),
        .created_at_us = clock_wall_us(),
    };
    auto_arena struct arena arena = {0};
    struct store_team found;

    if (store_team_get(store, team.id, &arena, &found, err) == 0)
        return 0;
    if (err->code != ERROR_NOT_FOUND)
        return -1;
    /* Another process may have been faster. */
    if (store_team_insert(store, &team, err) < 0 && err->code != ERROR_EXISTS)
        return error_prefix(err, "make the default team");
    return 0;
}
