/* The newest attempts of all webhooks, in a ring: memory that does not grow, and nothing of it survives a restart. What has
 * still to be told is in the store. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "domain/delivery/webhook_internal.h"

struct webhook_ring {
    pthread_mutex_t lock;
    size_t next, count;
    struct webhook_attempt attempts[WEBHOOK_ATTEMPTS_KEPT];
};

void webhook_tried_init(struct webhooks *all)
{
    all->tried = xcalloc(1, sizeof(*all->tried));
    (void)pthread_mutex_init(&all->tried->lock, NULL);
}

void webhook_tried_done(struct webhooks *all)
{
    (void)pthread_mutex_destroy(&all->tried->lock);
    free(all->tried);
}

void webhook_tried_note(struct webhooks *all, const struct webhook_attempt *attempt,
                        const struct error *why)
{
    struct webhook_ring *ring = all->tried;
    struct webhook_attempt *kept;

    (void)pthread_mutex_lock(&ring->lock);
    kept = &ring->attempts[ring->next];
    *kept = *attempt;
    kept->at_us = clock_wall_us();
    kept->delivered = !why;
    (void)snprintf(kept->message, sizeof(kept->message), "%s", why ? why->message : "");
    ring->next = (ring->next + 1) % WEBHOOK_ATTEMPTS_KEPT;
    if (ring->count < WEBHOOK_ATTEMPTS_KEPT)
        ring->count++;
    (void)pthread_mutex_unlock(&ring->lock);
}

int webhook_deliveries(struct webhooks *all, struct str team_id, struct str id, struct arena *arena,
                       struct webhook_deliveries *out, struct error *err)
{
    struct webhook_ring *ring = all->tried;
    struct store_webhook webhook;

    *out = (struct webhook_deliveries){0};
    if (webhook_get(all, team_id, id, arena, &webhook, err) < 0 ||
        store_delivery_waiting(all->store, id, &out->waiting, &out->next_at_us, err) < 0)
        return -1;
    out->attempts = arena_alloc(arena, WEBHOOK_ATTEMPTS_SHOWN * sizeof(*out->attempts));
    (void)pthread_mutex_lock(&ring->lock);
    for (size_t i = 1; i <= ring->count && out->count < WEBHOOK_ATTEMPTS_SHOWN; i++) {
        size_t at = (ring->next + WEBHOOK_ATTEMPTS_KEPT - i) % WEBHOOK_ATTEMPTS_KEPT;

        if (str_is(id, ring->attempts[at].webhook_id))
            out->attempts[out->count++] = ring->attempts[at];
    }
    (void)pthread_mutex_unlock(&ring->lock);
    return 0;
}
