/* How much room there is: on the disk that all share (sandbox_space.c), and within the limit of a team (sandbox_room.c). */
#pragma once

#include "base/error.h"
#include "base/str.h"
#include "host/engine/engine.h"
#include "store/platform/store_team.h"

struct sandboxes;

void room_init(struct sandboxes *all);
void room_done(struct sandboxes *all);
/* What the team keeps beside its sandboxes; 0 when it has no limit of disk. */
int room_kept(struct sandboxes *all, struct str team_id, const struct store_limits *limits,
              int64_t *out_mb, struct error *err);
/* May the team keep so much more? When it may, what needs it is put into the store, then room_taken():
 * nobody else gets the same room meanwhile. ERROR_QUOTA. */
int room_take(struct sandboxes *all, struct str team_id, int64_t bytes, struct error *err);
void room_taken(struct sandboxes *all);
/* How much a volume may hold, which is what it counts for; 0 = no limit. */
uint64_t room_volume_bytes(const struct sandboxes *all);

/* ---- sandbox_space.c ---- */

bool space_of(struct sandboxes *all, struct engine_space *out);
/* What it said last; never waits for it. */
bool space_last(struct sandboxes *all, struct engine_space *out);
/* ERROR_NO_SPACE when the disk has no room for one more. */
int space_check(struct sandboxes *all, struct error *err);
/* Adds to an ERROR_NO_SPACE of the engine what the user can do; leaves other errors alone. Returns -1. */
int space_explain(struct error *err);
