/* A webhook tried by hand: one made-up event, sent once by the sender like all others, so that it reaches what they reach and
 * no more. A probe is on the stack of the caller that waits for its outcome. When the caller stops waiting, the sender closes
 * the connection. */
#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/id.h"
#include "base/list.h"
#include "domain/delivery/webhook_internal.h"
#include "protocol/json/json_shape.h"

enum {
    PROBE_US = 30 * 1000 * 1000, /* the sender gives up earlier, unless much is under way */
    LOOK_US = CANCEL_LOOK_MS * 1000,
};

struct webhook_probe {
    struct list node; /* in webhooks.probes */
    const struct store_webhook *webhook;
    uint64_t number;
    bool sent, over, delivered;
    struct error why; /* over and not delivered */
};

void webhook_probe_init(struct webhooks *all)
{
    list_init(&all->probes);
    (void)pthread_mutex_init(&all->probe_lock, NULL);
    cond_init(&all->probed);
}

void webhook_probe_done(struct webhooks *all)
{
    (void)pthread_cond_destroy(&all->probed);
    (void)pthread_mutex_destroy(&all->probe_lock);
}

static char *body_of(const struct store_webhook *webhook)
{
    char timestamp[CLOCK_TEXT_SIZE], id[UUID_SIZE];
    auto_json json_t *json = NULL;

    id_uuid(id);
    clock_format(clock_wall_us(), timestamp);
    json = json_pack("{s:s,s:s,s:s,s:s,s:s,s:o}", "id", id, "version", "v2", "type",
                     WEBHOOK_TEST_TYPE, "timestamp", timestamp, "event_label", "test",
                     "sandbox_team_id", json_str(webhook->team_id));
    return json_text(json);
}

/* Under the lock. */
static struct webhook_probe *find_waiting(struct webhooks *all, struct str busy)
{
    struct list *at;

    list_for_each (at, &all->probes) {
        struct webhook_probe *probe = container_of(at, struct webhook_probe, node);

        if (!probe->sent && str_find_str(busy, probe->webhook->id) < 0 &&
            str_find_str(busy, probe->webhook->team_id) < 0)
            return probe;
    }
    return NULL;
}

bool webhook_probe_next(struct webhooks *all, struct str busy, struct arena *arena,
                        struct sender_item *out)
{
    struct webhook_sent *sent = arena_alloc(arena, sizeof(*sent));
    struct webhook_probe *probe;
    auto_free char *body = NULL;

    (void)pthread_mutex_lock(&all->probe_lock);
    probe = find_waiting(all, busy);
    if (probe) {
        const struct store_webhook *webhook = probe->webhook;

        probe->sent = true;
        *sent = (struct webhook_sent){
            .delivery.webhook = {.id = arena_str(arena, webhook->id),
                                 .team_id = arena_str(arena, webhook->team_id),
                                 .url = arena_str(arena, webhook->url),
                                 .secret = arena_str(arena, webhook->secret)},
            .probe = probe->number,
            .attempt = {.number = 1}};
        body = body_of(webhook);
        (void)str_copy(STR(WEBHOOK_TEST_TYPE), sent->attempt.type, sizeof(sent->attempt.type));
    }
    (void)pthread_mutex_unlock(&all->probe_lock);
    if (!probe)
        return false;
    webhook_prepare(all, sent, str_of(body), arena, out);
    return true;
}

void webhook_probe_over(struct webhooks *all, const struct webhook_sent *sent,
                        const struct error *why)
{
    struct list *at;

    (void)pthread_mutex_lock(&all->probe_lock);
    list_for_each (at, &all->probes) {
        struct webhook_probe *probe = container_of(at, struct webhook_probe, node);

        if (probe->number != sent->probe)
            continue;
        probe->over = true;
        probe->delivered = !why;
        if (why)
            probe->why = *why;
    }
    (void)pthread_cond_broadcast(&all->probed);
    (void)pthread_mutex_unlock(&all->probe_lock);
}

bool webhook_probe_wanted(struct webhooks *all, uint64_t number)
{
    bool found = false;
    struct list *at;

    (void)pthread_mutex_lock(&all->probe_lock);
    list_for_each (at, &all->probes)
        found = found || container_of(at, struct webhook_probe, node)->number == number;
    (void)pthread_mutex_unlock(&all->probe_lock);
    return found;
}

int webhook_test(struct webhooks *all, struct str team_id, struct str id,
                 const struct cancel *cancel, struct arena *arena, bool *out_delivered,
                 struct error *out_why, struct error *err)
{
    struct webhook_probe probe = {0};
    int64_t until_us = clock_mono_us() + PROBE_US, left_us;
    struct store_webhook webhook;

    if (webhook_get(all, team_id, id, arena, &webhook, err) < 0)
        return -1;
    probe.webhook = &webhook;
    (void)pthread_mutex_lock(&all->probe_lock);
    probe.number = ++all->probe_count;
    list_push_back(&all->probes, &probe.node);
    (void)pthread_mutex_unlock(&all->probe_lock);
    sender_kick(all->sender);
    (void)pthread_mutex_lock(&all->probe_lock);
    while (!probe.over && !cancel_asked(cancel) && (left_us = until_us - clock_mono_us()) > 0)
        (void)cond_wait_us(&all->probed, &all->probe_lock, left_us < LOOK_US ? left_us : LOOK_US);
    list_remove(&probe.node);
    (void)pthread_mutex_unlock(&all->probe_lock);
    if (!probe.over)
        sender_kick(all->sender);
    if (!probe.over && cancel_asked(cancel))
        return error_set(err, ERROR_CONFLICT, "the test was cancelled");
    if (!probe.over)
        return error_set(err, ERROR_TIMEOUT, "it was not sent within %d seconds",
                         PROBE_US / 1000000);
    *out_delivered = probe.delivered;
    *out_why = probe.why;
    return 0;
}
