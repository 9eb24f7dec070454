/* Teams own keys, templates and sandboxes. A fresh installation has one. */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "store/platform/store_team.h"

struct store;
struct store_limits;
struct store_team;

enum { TEAM_NAME_MAX = 64, TEAM_LIMIT_MAX = 1000 * 1000 * 1000 };

/* The same on every installation, so that nothing has to be looked up to find it. */
#define TEAM_DEFAULT_ID "00000000-0000-4000-8000-000000000001"

/* Makes the default team when it is missing. */
int team_ensure_default(struct store *store, struct error *err);
/* Makes a team; team->id and created_at_us are set, the id in the arena. */
int team_create(struct store *store, struct store_team *team, struct arena *arena,
                struct error *err);
/* Name and limits are checked. The default team cannot be banned: it is the operator's. */
int team_update(struct store *store, const struct store_team *team, struct error *err);
int team_get(struct store *store, struct str id, struct arena *arena, struct store_team *out,
             struct error *err);
int team_list(struct store *store, struct arena *arena, struct store_team **out, size_t *out_count,
              struct error *err);
/* What it may have at the same time. */
int team_limits(struct store *store, struct str id, struct store_limits *out, struct error *err);
