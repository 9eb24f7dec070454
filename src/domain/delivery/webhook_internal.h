/* Shared by the files of this folder: how deliveries went, and webhooks that are tried by hand. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "domain/delivery/webhook.h"
#include "protocol/sender/sender.h"

struct webhooks {
    struct sandboxes *sandboxes;
    struct store *store;
    struct sender *sender;
    atomic_bool any; /* there is one, or was */
    char *ca_file;   /* NULL = the system's certificates only */
    bool private_ok;
    struct webhook_ring *tried;
    pthread_mutex_t probe_lock; /* guards what follows */
    pthread_cond_t probed;
    struct list probes;
    uint64_t probe_count;
};

/* What is under way; in the item's arena. */
struct webhook_sent {
    struct store_delivery delivery; /* of a probe only its webhook */
    uint64_t probe;                 /* 0 = a delivery */
    struct webhook_attempt attempt; /* without its outcome */
};

/* Signed, with its headers. `sent` is the item's row; strings of its webhook must outlive the item. */
void webhook_prepare(const struct webhooks *all, struct webhook_sent *sent, struct str body,
                     struct arena *arena, struct sender_item *out);

/* ---- webhook_tried.c ---- */

void webhook_tried_init(struct webhooks *all);
void webhook_tried_done(struct webhooks *all);
/* why: NULL = it was taken. */
void webhook_tried_note(struct webhooks *all, const struct webhook_attempt *attempt,
                        const struct error *why);

/* ---- webhook_probe.c ---- */

void webhook_probe_init(struct webhooks *all);
void webhook_probe_done(struct webhooks *all);
/* On the sender's thread. False: nobody tries one. */
bool webhook_probe_next(struct webhooks *all, struct str busy, struct arena *arena,
                        struct sender_item *out);
void webhook_probe_over(struct webhooks *all, const struct webhook_sent *sent,
                        const struct error *why);
/* Whether somebody still waits for its outcome. */
bool webhook_probe_wanted(struct webhooks *all, uint64_t number);
