/* Webhooks: who is told of events. Every delivery is kept until it was taken, over restarts, and tried
 * again with growing pauses for as long as the event is kept. */
#pragma once

#include "base/arena.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/str.h"
#include "store/platform/store_webhook.h"

struct sandboxes;
struct sender;
struct webhooks;

struct webhooks_config {
    struct sandboxes
        *sandboxes; /* whose events are told; must outlive the webhooks, as all others here */
    struct store *store;
    struct sender *sender;
    int64_t pause_ms; /* first pause after a delivery failed; 0 = 5 s */
    const char
        *ca_file;    /* PEM file of certificates to trust besides the system's; NULL or "" = none */
    bool private_ok; /* teams other than the operator's may name private addresses */
};

/* ERROR_INVALID when the file of certificates is bad: it is told now and not with each delivery. */
int webhooks_open(const struct webhooks_config *config, struct webhooks **out, struct error *err);
void webhooks_close(struct webhooks *all);

enum { WEBHOOK_TYPES_MAX = 16, WEBHOOKS_PER_TEAM = 20 };

/* Makes it (webhook->id empty; then set, in the arena) or changes it. `events` has types as in
 * store_webhook. Everything is checked. */
int webhook_put(struct webhooks *all, struct store_webhook *webhook, struct arena *arena,
                struct error *err);
int webhook_list(struct webhooks *all, struct str team_id, struct arena *arena,
                 struct store_webhook **out, size_t *out_count, struct error *err);
int webhook_get(struct webhooks *all, struct str team_id, struct str id, struct arena *arena,
                struct store_webhook *out, struct error *err);
int webhook_delete(struct webhooks *all, struct str team_id, struct str id, struct error *err);

/* ---- how it goes ---- */

#define WEBHOOK_TEST_TYPE "webhook.test"
enum { WEBHOOK_ATTEMPTS_KEPT = 1000, WEBHOOK_ATTEMPTS_SHOWN = 50 };

/* One time that something was sent. */
struct webhook_attempt {
    char webhook_id[48], type[64], sandbox_id[48]; /* sandbox_id: "" = of none */
    int64_t at_us, number;                         /* number: the how manieth for this event */
    bool delivered;
    char message[256]; /* why it was not taken */
};

struct webhook_deliveries {
    int64_t waiting;                  /* events that it has not taken yet */
    int64_t next_at_us;               /* when the next of them is sent; 0 = none waits */
    struct webhook_attempt *attempts; /* since the server's start, the newest first */
    size_t count;
};

int webhook_deliveries(struct webhooks *all, struct str team_id, struct str id, struct arena *arena,
                       struct webhook_deliveries *out, struct error *err);
/* Sends an event of the type WEBHOOK_TEST_TYPE, whatever it is told of otherwise, and waits for the outcome; also to one that is
 * switched off. *out_why: not delivered. */
int webhook_test(struct webhooks *all, struct str team_id, struct str id,
                 const struct cancel *cancel, struct arena *arena, bool *out_delivered,
                 struct error *out_why, struct error *err);
