/* What requests may hold before and while they are read, for edges that collect whole bodies: who asks is
 * found out first, and only then is a body taken, within limits for all and for each team.
 *
 * A key that memory does not know is looked up by threads that do nothing else, and each address may have a
 * few waiting there: a flood of guesses delays guesses. */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "protocol/http/http_server.h"
#include "protocol/loop/share.h"
#include "protocol/loop/workers.h"

struct http_limits;

struct http_limits_config {
    size_t
        body_bytes; /* of all requests' bodies, and of answers while they are made; one team may hold half of it */
};

struct http_limits *http_limits_new(const struct http_limits_config *config);
/* After the loops have ended. Finishes what is being looked up. */
void http_limits_free(struct http_limits *limits);

/* A place at the door. `work` asks who it is, and its done() calls http_door_leave(). ERROR_QUOTA: too many of
 * the same address wait there; ERROR_UNAVAILABLE: too many of all. */
struct http_door {
    char address[HTTP_PEER_SIZE];
};
int http_door_enter(struct http_limits *limits, struct http_exchange *ex, struct http_door *door,
                    struct work *work, struct error *err);
void http_door_leave(struct http_limits *limits, struct http_door *door);

/* Memory for the body of a request, as long as it says it is, at most max (that much when it does not say).
 * ERROR_QUOTA: the team holds its share; ERROR_UNAVAILABLE: all of it is held. */
struct http_room {
    size_t bytes;
    struct str team_id; /* borrowed */
};
int http_room_take(struct http_limits *limits, const struct http_exchange *ex, struct str team_id,
                   size_t max, struct http_room *out, struct error *err);
void http_room_give(struct http_limits *limits, struct http_room *room);
/* Memory for an answer while it is made, of the same shares: buf_init_charged() and buf_account_reserve() take it once
 * the thread that makes the answer has entered the account. Errors as above. */
struct http_making {
    struct buf_account account;
    struct http_limits *limits;
    struct str team_id; /* borrowed */
    enum share_answer full;
};
void http_making_init(struct http_making *making, struct http_limits *limits, struct str team_id);
/* Bytes of bodies, and of answers that are being made, that are held now. */
size_t http_room_held(struct http_limits *limits);

/* ERROR_UNAVAILABLE, to be tried again in a second. */
int http_limits_busy(struct error *err, const char *message);
