/* Tells receivers what is queued for them, again and again until it is taken: one sender for webhooks
 * and callbacks. Rows, bodies and headers are those of a *kind*, through two functions; when to
 * try again, how many at once, where a URL may lead and what counts as taken is decided here.
 *
 * A status from 200 to 299 is taken, whatever comes with it. Anything else is tried again after the
 * kind's first pause, then twice that, and so on up to an hour. A receiver that hangs holds up itself
 * and, at SENDER_TEAM_MAX, its own team. */
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "protocol/fetch/fetch.h"

enum { SENDER_MAX = 16, SENDER_TEAM_MAX = 2, SENDER_HEADERS = 8, SENDER_KINDS = 4 };

struct sender;

struct sender_item {
    struct str team_id;
    struct str receiver; /* one after the other for each; STR_NONE = in any order */
    bool anywhere;       /* the team may name addresses that are not public */
    int64_t failures;    /* so often it was tried before */
    const char *url;
    struct pair headers[SENDER_HEADERS];
    size_t header_count;
    struct str body;
    void *row; /* the kind's own */
};

/* Both are called on the sender's thread. */
struct sender_kind {
    const char *name; /* for the log */
    int64_t first_pause_us;
    uint32_t timeout_ms;
    enum fetch_reach reach; /* of those that may go anywhere: through a proxy or not */
    const char *ca_file;    /* as in fetch_request */
    /* 1: this one is due (strings in the arena). 0: none is; *out_at_us says when, 0 = nobody knows.
     * -1: nothing of this kind is sent for the first pause. busy: ",a,b," names whose turn it is not: of teams
     * and receivers. */
    int (*next)(void *arg, struct str busy, struct arena *arena, struct sender_item *out,
                int64_t *out_at_us, struct error *err);
    /* why: NULL = taken; else it is to come again at again_at_us (wall time). -1: could not be noted;
     * nothing of this kind is sent for the first pause. */
    int (*over)(void *arg, const struct sender_item *item, const struct error *why,
                int64_t again_at_us);
    /* Whether an item under way need not be sent any more: its connection is closed, and it is over. Asked after each
     * kick; NULL = every item is sent to its end. */
    bool (*unwanted)(void *arg, const struct sender_item *item);
    void *arg;
};

int sender_open(struct sender **out, struct error *err);
/* All kinds are removed by now. NULL is fine. */
void sender_close(struct sender *sender);
/* Copies it. */
void sender_add(struct sender *sender, const struct sender_kind *kind);
/* Those under way have a moment to end; the others come again with the next start. Afterwards none of its
 * functions is called. Nothing happens when it was not added. */
void sender_remove(struct sender *sender, const void *arg);
/* There is something new. Any thread. */
void sender_kick(struct sender *sender);
