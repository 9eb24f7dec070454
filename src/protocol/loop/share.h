/* What each of several owners (teams, addresses) may hold of something scarce at the same time, so that
 * others find some: workers, bytes, streams. Counted under a lock that is held for a moment; any thread.
 *
 * Whoever finds its owner's share taken may wait for one part in the owner's line: each part given back is the
 * first one's there. A seat is in a line only while it is its loop's, so that a client that goes can take it
 * out. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"
#include "base/str.h"
#include "protocol/loop/loop.h"

struct shares;

struct shares_config {
    size_t each_max;    /* held by one owner; 0 = no limit */
    size_t all_max;     /* held by all together; 0 = no limit */
    size_t waiting_max; /* seats in one owner's line */
};

struct shares *shares_new(const struct shares_config *config);
/* From now on; what is held beyond it stays. */
void shares_set_max(struct shares *shares, size_t each_max, size_t all_max);
/* Nothing may be held any more. */
void shares_free(struct shares *shares);

enum share_answer { SHARE_TAKEN, SHARE_OWN_FULL, SHARE_ALL_FULL };
enum share_answer shares_take(struct shares *shares, struct str owner, size_t amount);
void shares_give(struct shares *shares, struct str owner, size_t amount);
/* Held by all together, and by one owner. */
size_t shares_held(struct shares *shares);
size_t shares_held_by(struct shares *shares, struct str owner);

struct share_seat {
    struct loop *loop;
    struct str owner;
    struct loop_errand errand; /* posted when the part is its */
    struct list link;          /* private, and what follows */
    enum { SEAT_NONE, SEAT_WAITS, SEAT_CALLED } state;
};

/* On the seat's loop: into the line. -1: that is too long. */
int shares_wait(struct shares *shares, struct share_seat *seat);
/* On the loop, when its client has gone: out of the line. False: its errand is posted already, and what it got
 * must be given back there. */
bool shares_leave(struct shares *shares, struct share_seat *seat);
/* On the loop, in the errand, first: it is not in the line any more. */
void shares_called(struct shares *shares, struct share_seat *seat);
