#include "domain/account/team.h"

#include "base/clock.h"
#include "base/id.h"

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

static int check(const struct store_team *team, struct error *err)
{
    const struct {
        const char *name; /* as APIs call it */
        int64_t value;
    } limits[] = {{"maxSandboxes", team->limits.sandboxes},
                  {"maxCpu", team->limits.cpu},
                  {"maxMemoryMB", team->limits.mem_mb},
                  {"maxDiskMB", team->limits.disk_mb},
                  {"maxCreatesPerMinute", team->limits.creates_per_minute}};

    if (team->name.len == 0 || team->name.len > TEAM_NAME_MAX ||
        memchr(team->name.p, '\0', team->name.len) || !str_valid_utf8(team->name))
        return error_set(err, ERROR_INVALID, "a team's name has 1 to %d characters", TEAM_NAME_MAX);
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        if (limits[i].value < 0 || limits[i].value > TEAM_LIMIT_MAX)
            return error_set(err, ERROR_INVALID, "'%s' is a number from 0 (no limit) to %d",
                             limits[i].name, TEAM_LIMIT_MAX);
    return 0;
}

int team_create(struct store *store, struct store_team *team, struct arena *arena,
                struct error *err)
{
    char id[UUID_SIZE];

    if (check(team, err) < 0)
        return -1;
    id_uuid(id);
    team->id = arena_str(arena, str_of(id));
    team->created_at_us = clock_wall_us();
    return store_team_insert(store, team, err);
}

int team_update(struct store *store, const struct store_team *team, struct error *err)
{
    if (check(team, err) < 0)
        return -1;
    if (team->banned && str_is(team->id, TEAM_DEFAULT_ID))
        return error_set(err, ERROR_INVALID, "the operator's team cannot be banned");
    return store_team_update(store, team, err);
}

int team_get(struct store *store, struct str id, struct arena *arena, struct store_team *out,
             struct error *err)
{
    return store_team_get(store, id, arena, out, err);
}

int team_list(struct store *store, struct arena *arena, struct store_team **out, size_t *out_count,
              struct error *err)
{
    return store_team_list(store, arena, out, out_count, err);
}

int team_limits(struct store *store, struct str id, struct store_limits *out, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_team team;

    if (store_team_get(store, id, &arena, &team, err) < 0)
        return -1;
    *out = team.limits;
    return 0;
}
