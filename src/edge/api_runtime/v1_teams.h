/* Whose things a request is about: its own team's, or another's when an operator asks. */
#pragma once

#include "edge/api_runtime/v1_internal.h"

struct v1_teams {
    struct runtime_caller caller; /* of the chosen team; without one: of all */
    struct store_team *items;     /* those that the key may see; NULL: none was asked for */
    size_t count;
};

/* The query's `team`: a name or id, or "*" for all that the key may see; absent: the key's own. ERROR_FORBIDDEN for
 * another team with any key but an operator's, ERROR_NOT_FOUND. */
int v1_teams_choose(struct v1_call *call, struct v1_teams *out, struct error *err);
/* Fills in items, also when none was asked for. */
int v1_teams_read(struct v1_call *call, struct v1_teams *teams, struct error *err);
struct str v1_teams_name(const struct v1_teams *teams, struct str id); /* the id when it has none */
