#include "protocol/http/http_limits.h"

#include <errno.h>

#include "base/alloc.h"
#include "base/list.h"

enum {
    DOOR_THREADS = 2,
    DOOR_WAITING_MAX = 1024,
    DOOR_ADDRESS_MAX = 64, /* lookups take microseconds: only a flood has so many at once */
};

struct http_limits {
    struct workers *door;
    struct shares *addresses;
    struct shares *bodies;
    size_t body_bytes;
};

struct http_limits *http_limits_new(const struct http_limits_config *config)
{
    struct http_limits *limits = xcalloc(1, sizeof(*limits));

    limits->door = workers_new(DOOR_THREADS, DOOR_WAITING_MAX);
    limits->addresses = shares_new(&(struct shares_config){.each_max = DOOR_ADDRESS_MAX});
    limits->bodies = shares_new(
        &(struct shares_config){.each_max = config->body_bytes / 2, .all_max = config->body_bytes});
    limits->body_bytes = config->body_bytes;
    return limits;
}

void http_limits_free(struct http_limits *limits)
{
    if (!limits)
        return;
    workers_free(limits->door);
    shares_free(limits->addresses);
    shares_free(limits->bodies);
    free(limits);
}

int http_limits_busy(struct error *err, const char *message)
{
    (void)error_set(err, ERROR_UNAVAILABLE, "%s", message);
    err->errnum = EBUSY;
    err->retry_after_s = 1;
    return -1;
}

static int too_many(struct error *err, const char *message)
{
    (void)error_set(err, ERROR_QUOTA, "%s", message);
    err->retry_after_s = 1;
    return -1;
}

int http_door_enter(struct http_limits *limits, struct http_exchange *ex, struct http_door *door,
                    struct work *work, struct error *err)
{
    http_peer(ex, door->address);
    if (shares_take(limits->addresses, str_of(door->address), 1) != SHARE_TAKEN)
        return too_many(err, "too many keys from your address are being looked up");
    if (workers_run(limits->door, work) == 0)
        return 0;
    http_door_leave(limits, door);
    return http_limits_busy(err, "the server is busy looking up keys; try again in a second");
}

void http_door_leave(struct http_limits *limits, struct http_door *door)
{
    shares_give(limits->addresses, str_of(door->address), 1);
}

int http_room_take(struct http_limits *limits, const struct http_exchange *ex, struct str team_id,
                   size_t max, struct http_room *out, struct error *err)
{
    const struct http_request *request = http_request(ex);
    size_t bytes = request->chunked ? max : 0;

    if (request->content_length > 0)
        bytes = (uint64_t)request->content_length < max ? (size_t)request->content_length : max;
    *out = (struct http_room){0};
    if (!bytes)
        return 0;
    switch (shares_take(limits->bodies, team_id, bytes)) {
    case SHARE_OWN_FULL:
        return too_many(err, "your team has too many bytes of requests under way");
    case SHARE_ALL_FULL:
        return http_limits_busy(
            err, "the server holds as many bytes of requests as it may; try again in a "
                 "second");
    case SHARE_TAKEN:
        break;
    }
    *out = (struct http_room){.bytes = bytes, .team_id = team_id};
    return 0;
}

void http_room_give(struct http_limits *limits, struct http_room *room)
{
    if (room->bytes)
        shares_give(limits->bodies, room->team_id, room->bytes);
    *room = (struct http_room){0};
}

/* ---- answers while they are made ---- */

static bool making_take(struct buf_account *account, size_t bytes)
{
    struct http_making *making = container_of(account, struct http_making, account);

    enum share_answer answer = shares_take(making->limits->bodies, making->team_id, bytes);

    if (answer != SHARE_TAKEN)
        making->full = answer; /* others may find room before the error is made */
    return answer == SHARE_TAKEN;
}

static void making_give(struct buf_account *account, size_t bytes)
{
    struct http_making *making = container_of(account, struct http_making, account);

    shares_give(making->limits->bodies, making->team_id, bytes);
}

static int making_refuse(struct buf_account *account, struct error *err)
{
    const struct http_making *making = container_of(account, struct http_making, account);
    size_t mib = making->limits->body_bytes >> 20;

    if (making->full == SHARE_OWN_FULL) {
        (void)error_set(err, ERROR_QUOTA,
                        "the requests of your team, and the responses being made for them, would "
                        "hold more than %zu MiB of memory (half of the setting body-memory): ask "
                        "for less, or try again when others have ended",
                        mib / 2);
    } else {
        (void)error_set(err, ERROR_UNAVAILABLE,
                        "all requests, and the responses being made for them, would hold more than "
                        "%zu MiB of memory (the setting body-memory): try again in a second",
                        mib);
        err->errnum = EBUSY;
    }
    err->retry_after_s = 1;
    return -1;
}

void http_making_init(struct http_making *making, struct http_limits *limits, struct str team_id)
{
    *making = (struct http_making){.account = {making_take, making_give, making_refuse, 0},
                                   .limits = limits,
                                   .team_id = team_id};
}

size_t http_room_held(struct http_limits *limits)
{
    return limits ? shares_held(limits->bodies) : 0;
}
