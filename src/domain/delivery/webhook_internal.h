/* Shared by the files of this folder: how deliveries went, and webhooks that are tried by hand. */
#pragma once

#include "domain/delivery/webhook.h"
#include "domain/sandbox/sandbox_internal.h"
#include "protocol/sender/sender.h"

/* What is under way; in the item's arena. */
struct webhook_sent {
    struct store_delivery delivery; /* of a probe only its webhook */
    uint64_t probe;                 /* 0 = a delivery */
    struct webhook_attempt attempt; /* without its outcome */
};

/* Signed, with its headers. `sent` is the item's row; strings of its webhook must outlive the item. */
void webhook_prepare(const struct sandboxes *all, struct webhook_sent *sent, struct str body,
                     struct arena *arena, struct sender_item *out);

/* ---- webhook_tried.c ---- */

void webhook_tried_init(struct sandboxes *all);
void webhook_tried_done(struct sandboxes *all);
/* why: NULL = it was taken. */
void webhook_tried_note(struct sandboxes *all, const struct webhook_attempt *attempt,
                        const struct error *why);

/* ---- webhook_probe.c ---- */

void webhook_probe_init(struct sandboxes *all);
void webhook_probe_done(struct sandboxes *all);
/* On the sender's thread. False: nobody tries one. */
bool webhook_probe_next(struct sandboxes *all, struct str busy, struct arena *arena,
                        struct sender_item *out);
void webhook_probe_over(struct sandboxes *all, const struct webhook_sent *sent,
                        const struct error *why);
/* Whether somebody still waits for its outcome. */
bool webhook_probe_wanted(struct sandboxes *all, uint64_t number);
