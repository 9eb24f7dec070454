/* The table of sandboxes in memory: states, limits, the schedule of ends, and the clock that ends are measured by. Functions that say
 * so are called with sandboxes.lock held; all others take it. */
#pragma once

#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_history.h"

struct sandbox;

void table_init(struct sandboxes *all);
void table_done(struct sandboxes *all);
/* As CREATING, owned by the caller. ERROR_QUOTA, ERROR_EXISTS. */
struct table_new {
    const char *id;
    struct str team_id;
    int64_t cpu_count, mem_mb, disk_mb;
    int64_t kept_mb;                   /* room_kept() */
    const struct store_limits *limits; /* of the team; NULL = none */
};
int table_add(struct sandboxes *all, const struct table_new *wanted, struct sandbox **out,
              struct error *err);
/* One more create. ERROR_QUOTA when there were too many in the last minute. */
int table_rate(struct sandboxes *all, struct str team_id, const struct store_limits *limits,
               struct error *err);
/* What the team's sandboxes may write, in MB. */
int64_t table_disk_mb(struct sandboxes *all, struct str team_id);
/* As it counts against the limits, without what the team keeps beside its sandboxes. */
void table_team_use(struct sandboxes *all, struct str team_id, struct store_limits *out);
/* With the lock held: may the team have one more like this? */
int table_check_room(struct sandboxes *all, const struct table_new *wanted, struct error *err);
/* A new one as RUNNING or PAUSED, whatever the limit says. False when the team id is bad. */
struct table_adopt {
    const char *id;
    struct str team_id;
    bool paused, cold, ending;
    bool auto_pause, auto_pause_disk;
    int64_t cpu_count, mem_mb, disk_mb;
    int64_t end_at_us, revision;
};
bool table_adopt(struct sandboxes *all, const struct table_adopt *adopt);
/* CREATING, RESUMING or PAUSING to RUNNING. False when the box died meanwhile: then it is still the
 * caller's. */
bool table_run(struct sandboxes *all, struct sandbox *sandbox, int64_t end_at_us, int64_t revision);
/* PAUSING or RESUMING to PAUSED. cold: its processes are not there. When they are ending, pause_finish() is
 * called soon. */
void table_paused(struct sandboxes *all, struct sandbox *sandbox, bool cold);
/* SEALING to RUNNING. False when the box died meanwhile: then it is KILLING, and the caller's. */
bool table_sealed(struct sandboxes *all, struct sandbox *sandbox);
/* An owned one to KILLING. */
void table_fail(struct sandboxes *all, struct sandbox *sandbox, enum sandbox_end reason);
/* The same for one whose box died; why is known. */
void table_fail_died(struct sandboxes *all, struct sandbox *sandbox);
/* The first of the schedule, as KILLING or PAUSING, owned by the caller. With the lock held. */
struct sandbox *table_take_first(struct sandboxes *all);
/* Has the expiry threads tear down a box that is nobody's (any more), or a RUNNING sandbox whose
 * box ended. Does nothing when the id is KILLING already; an owned one is only marked; a PAUSED one
 * stays, because its files are there. */
void table_condemn(struct sandboxes *all, const char *id, enum sandbox_end reason);
bool table_has(struct sandboxes *all, const char *id);
struct table_shown {
    bool cold;   /* paused, and its processes are gone */
    bool paused; /* true even when the store could not be updated */
};
/* out may be NULL. */
bool table_visible(struct sandboxes *all, struct str team_id, struct str id,
                   struct table_shown *out);
/* RUNNING, but its time is up: an expiry thread is about to pause or end it. Its end is not moved any
 * more, because its envd may have ended its box already. With the lock held. */
bool table_awaits_end(const struct sandboxes *all, const struct sandbox *sandbox);
/* 0 when it runs; ERROR_CONFLICT when it is paused (or nearly), else ERROR_NOT_FOUND. */
int table_check_runs(struct sandboxes *all, struct str team_id, struct str id, struct error *err);
/* RUNNING, and its box was booted by us more than once. */
bool table_rebooted(struct sandboxes *all, const char *id);
/* False when it does not run (any more). An older revision than the one known changes nothing. */
bool table_set_end(struct sandboxes *all, struct str id, int64_t end_at_us, int64_t revision);
void table_retry_later(struct sandboxes *all, struct sandbox *sandbox);
/* Ends the entry. */
void table_remove(struct sandboxes *all, struct sandbox *sandbox);
/* All that run, and all teams; free()d by the caller. */
struct table_target {
    char id[ID_SIZE];
    uint32_t cpu_count;
};
size_t table_targets(struct sandboxes *all, struct table_target **out);
struct table_team {
    char id[TEAM_ID_SIZE];
    size_t running;
    uint64_t started; /* since the process began */
};
size_t table_teams(struct sandboxes *all, struct table_team **out);
/* With the lock held: what a team may see, and a move from one state to another. */
struct sandbox *table_find(struct sandboxes *all, struct str team_id, struct str id);
void table_move(struct sandboxes *all, struct sandbox *sandbox, enum sandbox_state to);
size_t table_running_of(struct sandboxes *all, struct str team_id);
int sandbox_not_found(struct str id, struct error *err);

/* ---- sandbox_claim.c ---- */

/* Moves a sandbox to PAUSING, RESUMING, SEALING or KILLING and makes the caller its owner; waits for
 * another owner where the outcome of that decides. *out is NULL on success when another caller did
 * meanwhile what was asked for. */
struct table_claim {
    enum sandbox_state to;
    int64_t asked_at_us;               /* monotonic; 0 = now */
    enum sandbox_end reason;           /* of KILLING */
    const struct store_limits *limits; /* RESUMING: of the team */
};
int table_claim(struct sandboxes *all, struct str team_id, struct str id,
                const struct table_claim *claim, struct sandbox **out, struct error *err);

/* ---- sandbox_expire.c ---- */

/* With the lock held. */
void schedule_set(struct sandboxes *all, struct sandbox *sandbox, int64_t due_us);
void schedule_unset(struct sandboxes *all, struct sandbox *sandbox);
/* Without it. */
int expire_start(struct sandboxes *all, struct error *err);
void expire_stop(struct sandboxes *all);
void expire_wait_settled(struct sandboxes *all, int64_t timeout_us);

/* ---- sandbox_clock.c ---- */

/* Wall time, but it does not jump: for everything that has to do with the end of a sandbox. */
int64_t now_us(const struct sandboxes *all);
/* Before anything is recovered. */
int clock_open(struct sandboxes *all, struct error *err);
/* With the lock held. When the clock was set, all ends move with it. */
void clock_follow(struct sandboxes *all);
