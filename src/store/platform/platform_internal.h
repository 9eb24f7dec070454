/* Pieces of transactions, for the files of this folder. */
#pragma once

#include "base/arena.h"
#include "store/core/query.h"
#include "store/platform/store_event.h"
#include "store/platform/store_sandbox.h"
#include "store/platform/store_snapshot.h"

struct store_event;
struct store_sandbox;
struct store_snapshot;

/* About a sandbox that has a row; NULL is none. */
int event_add(struct conn *conn, struct str sandbox_id, const struct store_event *event,
              struct error *err);
/* Queues an event for the webhooks that want it. */
int deliveries_add(struct conn *conn, int64_t event_seq, int64_t now_us, struct error *err);
/* Remembers which create made it, when that can be repeated. ERROR_EXISTS when the key was used. */
int idempotency_add(struct conn *conn, const struct store_sandbox *row, struct error *err);
/* ERROR_NOT_FOUND when a volume is not there (any more). */
int volume_uses_add(struct conn *conn, const struct store_sandbox *row, struct error *err);
int volume_uses_remove(struct conn *conn, struct str sandbox_id, struct error *err);
/* Says that a sandbox or snapshot uses layers "a,b"; only for layers that snapshots made. */
int layer_uses_add(struct conn *conn, struct str layers, const char *kind, struct str user_id,
                   struct error *err);
/* *out_freed: it used some. */
int layer_uses_remove(struct conn *conn, const char *kind, struct str user_id, bool *out_freed,
                      struct error *err);
/* One more sandbox of it. */
int template_spawned(struct conn *conn, struct str id, int64_t at_us, struct error *err);
/* 1 = found, 0 = not there, -1 = failed. */
int snapshot_find(struct conn *conn, struct str template_id, struct str tag, struct arena *arena,
                  struct store_snapshot *out, struct error *err);
