/* Webhooks, and what is to be delivered to them. */
#pragma once

#include "store/core/store.h"

struct store_webhook {
    struct str id, team_id, name, url, secret;
    struct str events; /* types: ",created,killed," */
    bool enabled;
    int64_t created_at_us;
};

struct store_delivery {
    struct store_webhook webhook;
    int64_t event_seq, attempts, next_at_us;
};

/* Inserts, or replaces all but team and time. */
int store_webhook_put(struct store *store, const struct store_webhook *webhook, struct error *err);
/* Oldest first. */
int store_webhook_list(struct store *store, struct str team_id, struct arena *arena,
                       struct store_webhook **out, size_t *out_count, struct error *err);
/* With all it still had to be told. */
int store_webhook_delete(struct store *store, struct str team_id, struct str id, struct error *err);
/* Is there one, of any team? */
int store_webhook_any(struct store *store, bool *out, struct error *err);
/* The one that is due next, may be later; ERROR_NOT_FOUND: there is none. busy: ",a,b,", without these
 * webhooks and teams. */
int store_delivery_next(struct store *store, struct str busy, struct arena *arena,
                        struct store_delivery *out, struct error *err);
int store_delivery_done(struct store *store, struct str webhook_id, int64_t event_seq,
                        struct error *err);
/* How many it has not taken yet, and when the next of them is due (0 = there is none). */
int store_delivery_waiting(struct store *store, struct str webhook_id, int64_t *out_count,
                           int64_t *out_next_at_us, struct error *err);
/* It failed: tried again then, and nothing else for this webhook before. */
int store_delivery_later(struct store *store, struct str webhook_id, int64_t event_seq,
                         int64_t next_at_us, struct error *err);
