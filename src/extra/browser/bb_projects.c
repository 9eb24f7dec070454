/* Projects: each team has one, by the team's id. */
#include "base/clock.h"
#include "domain/account/team.h"
#include "extra/browser/bb_internal.h"
#include "protocol/json/json_shape.h"

enum { DEFAULT_TIMEOUT_S = 3600 };

json_t *bb_time(int64_t us)
{
    char text[CLOCK_TEXT_SIZE];

    clock_format(us, text);
    return json_string(text);
}

int bb_check_project(struct bb_call *call, const json_t *body, struct error *err)
{
    struct str id = json_get_str(body, "projectId");

    if (!id.len || str_eq(id, call->team_id))
        return 0;
    return error_set(err, ERROR_NOT_FOUND,
                     "there is no project '%.*s': this API key's is '%.*s', and may be left out",
                     (int)(id.len < 64 ? id.len : 64), id.p, STR_ARG(call->team_id));
}

static json_t *write_project(const struct store_team *team)
{
    return json_pack("{s:o, s:o, s:o, s:I, s:i, s:o, s:o}", "id", json_str(team->id), "name",
                     json_str(team->name), "ownerId", json_str(team->id), "concurrency",
                     (json_int_t)team->limits.sandboxes, "defaultTimeout", DEFAULT_TIMEOUT_S,
                     "createdAt", bb_time(team->created_at_us), "updatedAt",
                     bb_time(team->created_at_us));
}

static int find_project(struct bb_call *call, struct store_team *out, struct error *err)
{
    if (call->params[0].p && !str_eq(call->params[0], call->team_id))
        return error_set(err, ERROR_NOT_FOUND, "there is no such project");
    return team_get(call->bb->config.store, call->team_id, &call->arena, out, err);
}

int bb_projects_list(struct bb_call *call, struct error *err)
{
    struct store_team team = {0};

    if (find_project(call, &team, err) < 0)
        return -1;
    call_answer(&call->call, 200, json_pack("[o]", write_project(&team)));
    return 0;
}

int bb_projects_get(struct bb_call *call, struct error *err)
{
    struct store_team team = {0};

    if (find_project(call, &team, err) < 0)
        return -1;
    call_answer(&call->call, 200, write_project(&team));
    return 0;
}

int bb_projects_usage(struct bb_call *call, struct error *err)
{
    struct store_team team = {0};
    int64_t minutes = 0;

    if (find_project(call, &team, err) < 0 ||
        browser_minutes(call->bb->config.browsers, call->team_id, &minutes, err) < 0)
        return -1;
    call_answer(&call->call, 200,
                json_pack("{s:I, s:i}", "browserMinutes", (json_int_t)minutes, "proxyBytes", 0));
    return 0;
}

int bb_unsupported(struct bb_call *call, struct error *err)
{
    return error_set(
        err, ERROR_UNSUPPORTED, "%.*s %.*s is not served here: docs/browser.md says what is",
        STR_ARG(call->method), (int)(call->path.len < 100 ? call->path.len : 100), call->path.p);
}
