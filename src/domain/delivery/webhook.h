/* Webhooks: who is told of events. Every delivery is kept until it was taken, over restarts, and tried
 * again with growing pauses for as long as the event is kept. */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "store/core/store.h"

struct sandboxes;

enum { WEBHOOK_TYPES_MAX = 16, WEBHOOKS_PER_TEAM = 20 };

/* Makes it (webhook->id empty; then set, in the arena) or changes it. `events` has types as in
 * store_webhook. Everything is checked. */
int webhook_put(struct sandboxes *all, struct store_webhook *webhook, struct arena *arena,
                struct error *err);
int webhook_list(struct sandboxes *all, struct str team_id, struct arena *arena,
                 struct store_webhook **out, size_t *out_count, struct error *err);
int webhook_get(struct sandboxes *all, struct str team_id, struct str id, struct arena *arena,
                struct store_webhook *out, struct error *err);
int webhook_delete(struct sandboxes *all, struct str team_id, struct str id, struct error *err);
