#include "protocol/loop/share.h"

#include "base/alloc.h"
#include "base/map.h"

struct share {
    size_t held;
    struct list line; /* struct share_seat */
    size_t waiting;
};

struct shares {
    struct shares_config config;
    uv_mutex_t lock; /* guards what follows */
    struct map owners;
    size_t held;
};

struct shares *shares_new(const struct shares_config *config)
{
    struct shares *shares = xcalloc(1, sizeof(*shares));

    shares->config = *config;
    if (uv_mutex_init(&shares->lock) != 0)
        abort();
    map_init(&shares->owners);
    return shares;
}

void shares_set_max(struct shares *shares, size_t each_max, size_t all_max)
{
    uv_mutex_lock(&shares->lock);
    shares->config.each_max = each_max;
    shares->config.all_max = all_max;
    uv_mutex_unlock(&shares->lock);
}

void shares_free(struct shares *shares)
{
    if (!shares)
        return;
    map_done(&shares->owners);
    uv_mutex_destroy(&shares->lock);
    free(shares);
}

static struct share *share_of(struct shares *shares, struct str owner)
{
    struct share *share = map_get(&shares->owners, owner);

    if (!share) {
        share = xcalloc(1, sizeof(*share));
        list_init(&share->line);
        (void)map_put(&shares->owners, owner, share);
    }
    return share;
}

static void forget_empty(struct shares *shares, struct str owner, struct share *share)
{
    if (!share->held && !share->waiting)
        free(map_remove(&shares->owners, owner));
}

/* With the lock held. */
static bool fits(size_t held, size_t amount, size_t max)
{
    return !max || (amount <= max && held <= max - amount);
}

/* With the lock held: parts that are free go to those in the line. */
static void serve_line(struct shares *shares, struct share *share)
{
    while (!list_empty(&share->line) && fits(share->held, 1, shares->config.each_max) &&
           fits(shares->held, 1, shares->config.all_max)) {
        struct share_seat *seat =
            container_of(list_pop_front(&share->line), struct share_seat, link);

        share->waiting--;
        share->held++;
        shares->held++;
        seat->state = SEAT_CALLED;
        loop_post(seat->loop, &seat->errand);
    }
}

enum share_answer shares_take(struct shares *shares, struct str owner, size_t amount)
{
    enum share_answer answer = SHARE_TAKEN;
    struct share *share;

    uv_mutex_lock(&shares->lock);
    share = share_of(shares, owner);
    if (!fits(share->held, amount, shares->config.each_max)) {
        answer = SHARE_OWN_FULL;
    } else if (!fits(shares->held, amount, shares->config.all_max)) {
        answer = SHARE_ALL_FULL;
    } else {
        share->held += amount;
        shares->held += amount;
    }
    forget_empty(shares, owner, share);
    uv_mutex_unlock(&shares->lock);
    return answer;
}

void shares_give(struct shares *shares, struct str owner, size_t amount)
{
    struct share *share;

    uv_mutex_lock(&shares->lock);
    share = share_of(shares, owner);
    share->held -= amount;
    shares->held -= amount;
    serve_line(shares, share);
    forget_empty(shares, owner, share);
    uv_mutex_unlock(&shares->lock);
}

size_t shares_held_by(struct shares *shares, struct str owner)
{
    const struct share *share;
    size_t held;

    uv_mutex_lock(&shares->lock);
    share = map_get(&shares->owners, owner);
    held = share ? share->held : 0;
    uv_mutex_unlock(&shares->lock);
    return held;
}

size_t shares_held(struct shares *shares)
{
    size_t held;

    uv_mutex_lock(&shares->lock);
    held = shares->held;
    uv_mutex_unlock(&shares->lock);
    return held;
}

int shares_wait(struct shares *shares, struct share_seat *seat)
{
    struct share *share;
    int r = 0;

    uv_mutex_lock(&shares->lock);
    share = share_of(shares, seat->owner);
    if (share->waiting >= shares->config.waiting_max) {
        r = -1;
    } else {
        list_push_back(&share->line, &seat->link);
        share->waiting++;
        seat->state = SEAT_WAITS;
        serve_line(shares, share); /* since it looked */
    }
    forget_empty(shares, seat->owner, share);
    uv_mutex_unlock(&shares->lock);
    return r;
}

bool shares_leave(struct shares *shares, struct share_seat *seat)
{
    struct share *share;
    bool called;

    uv_mutex_lock(&shares->lock);
    called = seat->state == SEAT_CALLED;
    if (seat->state == SEAT_WAITS) {
        share = share_of(shares, seat->owner);
        list_remove(&seat->link);
        share->waiting--;
        seat->state = SEAT_NONE;
        forget_empty(shares, seat->owner, share);
    }
    uv_mutex_unlock(&shares->lock);
    return !called;
}

void shares_called(struct shares *shares, struct share_seat *seat)
{
    uv_mutex_lock(&shares->lock);
    seat->state = SEAT_NONE;
    uv_mutex_unlock(&shares->lock);
}
